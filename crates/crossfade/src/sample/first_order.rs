//! The DDIM-η family (§3.3); η = 0 is the deterministic first-order sampler.
use super::{AttenuationProblem, Hooks, State, steps};
use crate::error::Result;
use crossfade_math::Field;

pub fn ddim<F: Field>(
    problem: &AttenuationProblem<F>,
    times: &[f64],
    mut x: F,
    hooks: &mut Hooks<F>,
    eta: f64,
) -> Result<F> {
    for (step, t, s) in steps(times) {
        let e = problem.estimate(&x, t)?;
        (hooks.observe)(State { step, t, x_t: &x, x0: &e.x0 });
        // The last step never adds noise.
        let z = (s > 0.0 && eta > 0.0).then(|| (hooks.noise)(step));
        x = problem.process.ddim(&e, z.as_ref(), eta, t, s);
    }
    Ok(x)
}
