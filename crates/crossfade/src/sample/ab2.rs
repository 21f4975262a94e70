//! Second-order Adams–Bashforth for attenuation (§10.2, AB2): phi is extrapolated in t, eps in σ.
use super::{AttenuationProblem, Hooks, State, steps};
use crate::error::Result;
use crossfade_math::{AttenuationFn, Estimate, Field, solver};

pub fn ab2<F: Field>(problem: &AttenuationProblem<F>, times: &[f64], mut x: F, hooks: &mut Hooks<F>) -> Result<F> {
    let mut previous: Option<(f64, Estimate<F>)> = None;
    for (step, t, s) in steps(times) {
        let e = problem.estimate(&x, t)?;
        (hooks.observe)(State { step, t, x_t: &x, x0: &e.x0 });
        x = extrapolated(problem, &e, previous.as_ref(), t, s);
        previous = Some((t, e));
    }
    Ok(x)
}

/// The first-order step plus the correction of AB2: ΔH(phi_n) + c_t [h(phi_n) − h(phi_{n−1})] + c_σ (eps_n − eps_{n−1}).
pub(crate) fn extrapolated<F: Field>(
    problem: &AttenuationProblem<F>,
    e: &Estimate<F>,
    previous: Option<&(f64, Estimate<F>)>,
    t: f64,
    s: f64,
) -> F {
    let x = problem.first_order(e, t, s);
    let Some((t0, e0)) = previous else { return x };
    let sigma = |t| problem.process.noise.sigma(t);
    let h = |phi: &[F]| problem.process.attenuation.h(phi, &t.into());
    // Each head is extrapolated in the variable in which its integral is taken: h(phi) dt and eps dσ.
    let c_t = solver::ab2(s - t, t - t0);
    let c_sigma = solver::ab2(sigma(s) - sigma(t), sigma(t) - sigma(*t0));
    F::lincomb(&[
        (1.0.into(), &x),
        (c_t.into(), &h(&e.phi)),
        ((-c_t).into(), &h(&e0.phi)),
        (c_sigma.into(), &e.eps),
        ((-c_sigma).into(), &e0.eps),
    ])
}
