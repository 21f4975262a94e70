//! A single-step second-order method (§10.2): a first-order half step in σ, then a full step with phi linear in t and
//! eps linear in σ through both evaluations.
use super::{AttenuationProblem, Hooks, State, steps};
use crate::error::Result;
use crossfade_math::{AttenuationFn, Field, solver};

pub fn midpoint<F: Field>(problem: &AttenuationProblem<F>, times: &[f64], mut x: F, hooks: &mut Hooks<F>) -> Result<F> {
    let noise = problem.process.noise;
    for (step, t, s) in steps(times) {
        let e = problem.estimate(&x, t)?;
        (hooks.observe)(State { step, t, x_t: &x, x0: &e.x0 });
        let (sigma, sigma_s) = (noise.sigma(t), noise.sigma(s));
        let sigma_m = 0.5 * (sigma + sigma_s);
        let t_m = noise.time(sigma_m);
        let m = problem.estimate(&problem.first_order(&e, t, t_m), t_m)?;
        let h = |phi: &[F]| problem.process.attenuation.h(phi, &t_m.into());
        let c_t = solver::midpoint(s - t, t_m - t);
        let c_sigma = solver::midpoint(sigma_s - sigma, sigma_m - sigma);
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
