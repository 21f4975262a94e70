//! Single-step second order (§10.2): a first-order half step in σ, then phi through both nodes in t and eps in σ.
use super::{Hooks, AttenuationProblem, State, steps};
use crate::error::Result;
use crossfade_math::{AttenuationFn, Field, solver};

pub fn midpoint<F: Field>(problem: &AttenuationProblem<F>, times: &[f64], mut x: F, hooks: &mut Hooks<F>) -> Result<F> {
    let noise = problem.process.noise;
    for (step, t, s) in steps(times) {
        let e = problem.estimate(&x, t)?;
        (hooks.observe)(State { step, t, x_t: &x, x0: &e.x0 });
        let (sigma, u) = (noise.sigma(t), noise.sigma(s));
        let sigma_m = 0.5 * (sigma + u);
        let t_m = noise.time(sigma_m);
        let m = problem.estimate(&problem.first_order(&e, t, t_m), t_m)?;
        let h = |phi: &[F]| problem.process.attenuation.h(phi, &t_m.into());
        let c_t = solver::midpoint(s - t, t_m - t);
        let c_sigma = solver::midpoint(u - sigma, sigma_m - sigma);
        x = F::lincomb(&[
            (1.0.into(), &problem.first_order(&e, t, s)),
            (c_t.into(), &h(&m.phi)),
            ((-c_t).into(), &h(&e.phi)),
            (c_sigma.into(), &m.eps),
            ((-c_sigma).into(), &e.eps),
        ]);
    }
    Ok(x)
}
