//! Second-order multistep on the estimate m = x̂_0 (§10.2): the first-order step plus J_1 (m_n − m_{n−1})/(t_n − t_{n−1}).
//!
//! Only the drift of x_0 is extrapolated, so it has second order for constant attenuation only; the drawn parts of other
//! attenuations are integrated at first order.
use super::{AttenuationProblem, Hooks, State, steps};
use crate::error::Result;
use crossfade_math::{Field, solver};

pub(crate) fn data2m<F: Field>(
    problem: &AttenuationProblem<F>,
    times: &[f64],
    x: F,
    hooks: &mut Hooks<F>,
) -> Result<F> {
    multistep(problem, times, x, hooks, 0.0, |t, s| solver::data_J1(problem.process.noise, t, s))
}

/// The second-order version of Alg. 2.
pub(crate) fn alg2_second<F: Field>(
    problem: &AttenuationProblem<F>,
    times: &[f64],
    x: F,
    hooks: &mut Hooks<F>,
) -> Result<F> {
    multistep(problem, times, x, hooks, 1.0, |t, s| solver::bridge_J1(problem.process.noise, t, s))
}

fn multistep<F: Field>(
    problem: &AttenuationProblem<F>,
    times: &[f64],
    mut x: F,
    hooks: &mut Hooks<F>,
    eta: f64,
    slope_weight: impl Fn(f64, f64) -> f64,
) -> Result<F> {
    let mut previous: Option<(f64, F)> = None;
    for (step, t, s) in steps(times) {
        let e = problem.estimate(&x, t)?;
        (hooks.observe)(State { step, t, x_t: &x, x0: &e.x0 });
        // The last step never adds noise.
        let z = (s > 0.0 && eta > 0.0).then(|| (hooks.noise)(step));
        x = problem.process.ddim(&e, z.as_ref(), eta, t, s);
        if let Some((t0, m0)) = &previous {
            let c = slope_weight(t, s) / (t - t0);
            x = F::lincomb(&[(1.0.into(), &x), (c.into(), &e.x0), ((-c).into(), m0)]);
        }
        previous = Some((t, e.x0));
    }
    Ok(x)
}
