//! The second-order sampler of the reference's older release: Heun on the drift −C − eps/√t of the reverse SDE, plus
//! the noise of the bridge. Only steps of full length are corrected. It converges with first order, because the
//! predictor ignores the noise.
use super::{AttenuationProblem, Hooks, State, steps};
use crate::error::Result;
use crossfade_math::{AttenuationFn, Estimate, Field};

pub(crate) fn reference_heun<F: Field>(
    problem: &AttenuationProblem<F>,
    times: &[f64],
    mut x: F,
    hooks: &mut Hooks<F>,
) -> Result<F> {
    let process = problem.process;
    let full = (times[0] - times[1]) * (1.0 - 1e-9);
    // dx/d(−t) = −h(phi) − (dσ²/dt)/σ eps. The probability-flow equation would have half the weight of eps.
    let drift = |e: &Estimate<F>, t: f64| {
        let h = process.attenuation.h(&e.phi, &t.into());
        let c_eps = -process.noise.variance_slope(t) / process.noise.sigma(t);
        F::lincomb(&[((-1.0).into(), &h), (c_eps.into(), &e.eps)])
    };
    for (step, t, s) in steps(times) {
        let e = problem.estimate(&x, t)?;
        (hooks.observe)(State { step, t, x_t: &x, x0: &e.x0 });
        let z = (s > 0.0).then(|| (hooks.noise)(step));
        if s == 0.0 || t - s < full {
            x = process.ddim(&e, z.as_ref(), 1.0, t, s);
            continue;
        }
        // The noise is added once at the end, not in the predictor.
        let (dt, d) = (t - s, drift(&e, t));
        let predicted = F::lincomb(&[(1.0.into(), &x), (dt.into(), &d)]);
        let d_s = drift(&problem.estimate(&predicted, s)?, s);
        let mut terms = vec![(1.0.into(), &x), ((0.5 * dt).into(), &d), ((0.5 * dt).into(), &d_s)];
        terms.extend(z.as_ref().map(|z| (process.sigma_tilde(t, s).into(), z)));
        x = F::lincomb(&terms);
    }
    Ok(x)
}
