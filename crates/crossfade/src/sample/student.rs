//! Progressive distillation (§2.9): what a student has to predict so that one of its steps equals several of its teacher's.
use crate::error::Result;
use crossfade_math::{Coef, Field, Gaussian, Prediction};

/// The prediction with which one deterministic step from x_t over the whole of `path` ends where the teacher's steps along it
/// end. `path` are the descending times of the teacher, the first of them that of x_t.
pub fn student_target<F: Field>(
    process: &Gaussian,
    x_t: &F,
    path: &[Coef],
    teacher: &mut dyn FnMut(&F, &Coef) -> Result<Prediction<F>>,
) -> Result<Prediction<F>> {
    let mut x = x_t.clone();
    for step in path.windows(2) {
        let prediction = teacher(&x, &step[0])?;
        x = process.x_t(&prediction.x0, &prediction.eps, &step[1]);
    }
    Ok(process.prediction_between(x_t, &path[0], &x, &path[path.len() - 1]))
}
