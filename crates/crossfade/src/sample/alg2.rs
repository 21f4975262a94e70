//! Alg. 2 of the paper: x_s = ũ + σ̃ z.
use super::{Hooks, AttenuationProblem, State, steps};
use crate::error::Result;
use crossfade_math::Field;

pub fn alg2<F: Field>(problem: &AttenuationProblem<F>, times: &[f64], mut x: F, hooks: &mut Hooks<F>) -> Result<F> {
    for (step, t, s) in steps(times) {
        let e = problem.estimate(&x, t)?;
        (hooks.observe)(State { step, t, x_t: &x, x0: &e.x0 });
        let z = (s > 0.0).then(|| (hooks.noise)(step));
        // η = 1: the mean is ũ of Eq. 9, written from the anchor so that a clipped x̂_0 takes effect.
        x = problem.process.ddim(&e, z.as_ref(), 1.0, t, s);
    }
    Ok(x)
}
