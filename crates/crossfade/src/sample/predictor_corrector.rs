//! Predictor–corrector (§10.2): predict by AB2, evaluate there (the next step needs it anyway), correct by AM3. One
//! evaluation a step, third order for constant attenuation.
use super::ab2::extrapolated;
use super::{Hooks, AttenuationProblem, State, steps};
use crate::error::Result;
use crossfade_math::{AttenuationFn, Estimate, Field, solver};

/// Below this ratio σ_s/σ_t the corrector amplifies the error of eps(s) by 1/σ_s and is left out (§10.2, caution).
const STABLE: f64 = 0.3;

pub fn predictor_corrector<F: Field>(problem: &AttenuationProblem<F>, times: &[f64], mut x: F, hooks: &mut Hooks<F>) -> Result<F> {
    let noise = problem.process.noise;
    let mut before: Option<(f64, Estimate<F>)> = None;
    let mut now: Option<Estimate<F>> = None;
    for (step, t, s) in steps(times) {
        let e = match now.take() {
            Some(e) => e,
            None => problem.estimate(&x, t)?,
        };
        (hooks.observe)(State { step, t, x_t: &x, x0: &e.x0 });
        x = extrapolated(problem, &e, before.as_ref(), t, s);
        if s > 0.0 && noise.sigma(s) >= STABLE * noise.sigma(t) {
            let mut next = problem.estimate(&x, s)?;
            let better = corrected(problem, before.as_ref(), &e, &next, t, s);
            // The heads are kept, but the next step starts from the corrected state.
            let moved = better.minus(&x);
            next.anchor = next.anchor.plus(&moved);
            x = better;
            now = Some(next);
        }
        before = Some((t, e));
    }
    Ok(x)
}

/// ΔH(phi_n) + AM3 on the changes of h(phi) in t and of eps in σ (AM2 on the first step).
fn corrected<F: Field>(
    problem: &AttenuationProblem<F>,
    before: Option<&(f64, Estimate<F>)>,
    e: &Estimate<F>,
    next: &Estimate<F>,
    t: f64,
    s: f64,
) -> F {
    let sigma = |t| problem.process.noise.sigma(t);
    let h = |phi: &[F], t: f64| problem.process.attenuation.h(phi, &t.into());
    let (a_t, b_t) = solver::adams_moulton(s - t, before.map(|(t0, _)| t - t0));
    let (a_e, b_e) = solver::adams_moulton(sigma(s) - sigma(t), before.map(|(t0, _)| sigma(t) - sigma(*t0)));
    let base = problem.first_order(e, t, s);
    let ahead = h(&next.phi, s).minus(&h(&e.phi, s));
    let mut x =
        F::lincomb(&[(1.0.into(), &base), (a_t.into(), &ahead), (a_e.into(), &next.eps), ((-a_e).into(), &e.eps)]);
    if let Some((_, e0)) = before {
        let behind = h(&e.phi, t).minus(&h(&e0.phi, t));
        x = F::lincomb(&[(1.0.into(), &x), (b_t.into(), &behind), (b_e.into(), &e.eps), ((-b_e).into(), &e0.eps)]);
    }
    x
}
