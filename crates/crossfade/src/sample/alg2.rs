//! Alg. 2 of the paper: x_s = ũ + σ̃ z.
use super::{AttenuationProblem, Hooks, State, steps};
use crate::error::Result;
use crossfade_math::Field;

pub fn alg2<F: Field>(problem: &AttenuationProblem<F>, times: &[f64], mut x: F, hooks: &mut Hooks<F>) -> Result<F> {
    for (step, t, s) in steps(times) {
        let e = problem.estimate(&x, t)?;
        (hooks.observe)(State { step, t, x_t: &x, x0: &e.x0 });
        let z = (s > 0.0).then(|| (hooks.noise)(step));
        // With η = 1 the mean is ũ of Eq. 9. It is computed from the anchor of the estimate, so that clamping x̂_0 has
        // an effect.
        x = problem.process.ddim(&e, z.as_ref(), 1.0, t, s);
    }
    Ok(x)
}
