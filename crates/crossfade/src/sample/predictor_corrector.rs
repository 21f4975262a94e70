//! Predictor–corrector (§10.2): predicts with AB2, evaluates the network there, and corrects with AM3. The next step
//! uses the same evaluation, so that there is only one per step. It has third order for constant attenuation.
use super::ab2::extrapolated;
use super::{AttenuationProblem, Hooks, State, steps};
use crate::error::Result;
use crossfade_math::{AttenuationFn, Estimate, Field, solver};

/// Below this ratio σ_s/σ_t the corrector is left out, because it amplifies the error of eps(s) by 1/σ_s (§10.2, caution).
const MIN_STABLE_RATIO: f64 = 0.3;

pub(crate) fn predictor_corrector<F: Field>(
    problem: &AttenuationProblem<F>,
    times: &[f64],
    mut x: F,
    hooks: &mut Hooks<F>,
) -> Result<F> {
    let noise = problem.process.noise;
    let mut previous: Option<(f64, Estimate<F>)> = None;
    let mut current: Option<Estimate<F>> = None;
    for (step, t, s) in steps(times) {
        let e = match current.take() {
            Some(e) => e,
            None => problem.estimate(&x, t)?,
        };
        (hooks.observe)(State { step, t, x_t: &x, x0: &e.x0 });
        x = extrapolated(problem, &e, previous.as_ref(), t, s);
        if s > 0.0 && noise.sigma(s) >= MIN_STABLE_RATIO * noise.sigma(t) {
            let mut next = problem.estimate(&x, s)?;
            let better = corrected(problem, previous.as_ref(), &e, &next, t, s);
            // The network is not evaluated again at the corrected state: the heads are kept, and the anchor is moved to it.
            let moved = better.minus(&x);
            next.anchor = next.anchor.plus(&moved);
            x = better;
            current = Some(next);
        }
        previous = Some((t, e));
    }
    Ok(x)
}

/// The corrected step: ΔH(phi_n) plus AM3 on the changes of h(phi) in t and of eps in σ (AM2 in the first step).
fn corrected<F: Field>(
    problem: &AttenuationProblem<F>,
    previous: Option<&(f64, Estimate<F>)>,
    e: &Estimate<F>,
    next: &Estimate<F>,
    t: f64,
    s: f64,
) -> F {
    let sigma = |t| problem.process.noise.sigma(t);
    let h = |phi: &[F], t: f64| problem.process.attenuation.h(phi, &t.into());
    let (a_t, b_t) = solver::adams_moulton(s - t, previous.map(|(t0, _)| t - t0));
    let (a_e, b_e) = solver::adams_moulton(sigma(s) - sigma(t), previous.map(|(t0, _)| sigma(t) - sigma(*t0)));
    let base = problem.first_order(e, t, s);
    let ahead = h(&next.phi, s).minus(&h(&e.phi, s));
    let mut x =
        F::lincomb(&[(1.0.into(), &base), (a_t.into(), &ahead), (a_e.into(), &next.eps), ((-a_e).into(), &e.eps)]);
    if let Some((_, e0)) = previous {
        let behind = h(&e.phi, t).minus(&h(&e0.phi, t));
        x = F::lincomb(&[(1.0.into(), &x), (b_t.into(), &behind), (b_e.into(), &e.eps), ((-b_e).into(), &e0.eps)]);
    }
    x
}
