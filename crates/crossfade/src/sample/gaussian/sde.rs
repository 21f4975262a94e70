//! The stochastic DPM-Solver++ samplers of k-diffusion with η = 1 (§9): exponential integrators for the reverse SDE in λ =
//! −ln κ. With y = x/α and κ = σ/α, k-diffusion's x and sigma are y and κ.
use super::multistep::extrapolated;
use super::{GaussianProblem, Hooks, observe, steps};
use crate::error::Result;
use crossfade_math::Field;
use crossfade_math::GaussianFn;

/// x_s = q (α_s/α_t) x + α_s (1 − q) D + σ_s √(1 − q) z with q = (κ_s/κ_t)² = e^{−2h}: the exact solution of the reverse
/// SDE if the estimate D of x_0 is constant. With α_t = 0 (κ_t is infinite) q = 0, and all noise is replaced. At s = 0 the
/// step returns D, and no noise is drawn.
fn reverse_step<F: Field>(p: &GaussianProblem<F>, x: &F, d: &F, (t, s): (f64, f64), z: impl FnOnce() -> F) -> F {
    let shrink = p.process.ratio(s) / p.process.ratio(t);
    let removed = 1.0 - shrink * shrink;
    // α_s/α_t · (κ_s/κ_t)², written without a division by α_t.
    let kept = shrink * p.process.sigma(s) / p.process.sigma(t);
    let mean = F::lincomb(&[(kept.into(), x), ((p.process.alpha(s) * removed).into(), d)]);
    if s == 0.0 {
        return mean;
    }
    F::lincomb(&[(1.0.into(), &mean), ((p.process.sigma(s) * removed.max(0.0).sqrt()).into(), &z())])
}

/// DPM-Solver++ SDE: a step to the middle in λ, then the whole step with D = (1 − c) m_t + c m_mid, c = 1/2r, where r =
/// ½ is the part of the step before the middle. Steps of infinite length in λ have no middle and use m_t alone.
///
/// The noise of both is that of one Brownian motion in κ, as in k-diffusion: step n draws the normals 2n and 2n + 1, the
/// first for the way to the middle and the second for the way on from there.
pub(crate) fn dpmpp_sde<F: Field>(p: &GaussianProblem<F>, times: &[f64], mut x: F, hooks: &mut Hooks<F>) -> Result<F> {
    for (n, t, s) in steps(times) {
        let m = observe(p, hooks, n, &x, t)?.x0;
        let (high, low) = (p.process.ratio(t), p.process.ratio(s));
        let h = (high / low).ln();
        if !h.is_finite() {
            x = reverse_step(p, &x, &m, (t, s), || (hooks.noise)(2 * n));
            continue;
        }
        let mut mid = p.process.time_of_ratio((high * low).sqrt());
        // A process with discrete times: the nearest time that the network was trained on, but not t itself.
        if let Some(tick) = p.process.tick() {
            mid = (mid / tick).round().min((t / tick).round() - 1.0) * tick;
        }
        let middle = p.process.ratio(mid);
        let first = (hooks.noise)(2 * n);
        let at_mid = p.predict(&reverse_step(p, &x, &m, (t, mid), || first.clone()), mid)?.x0;
        let c = h / (2.0 * (high / middle).ln());
        let d = F::lincomb(&[((1.0 - c).into(), &m), (c.into(), &at_mid)]);
        // The share of the variance that the Brownian motion has at the middle.
        let share = ((high - middle) / (high - low)).min(1.0);
        let whole = || {
            let second = (hooks.noise)(2 * n + 1);
            F::lincomb(&[(share.sqrt().into(), &first), ((1.0 - share).sqrt().into(), &second)])
        };
        x = reverse_step(p, &x, &d, (t, s), whole);
    }
    Ok(x)
}

/// DPM-Solver++(2M) SDE of the midpoint type: the D of [`super::multistep::dpmpp_2m`] in a stochastic step.
pub(crate) fn dpmpp_2m_sde<F: Field>(
    p: &GaussianProblem<F>,
    times: &[f64],
    mut x: F,
    hooks: &mut Hooks<F>,
) -> Result<F> {
    let mut previous: Option<(F, f64)> = None;
    for (n, t, s) in steps(times) {
        let m = observe(p, hooks, n, &x, t)?.x0;
        let h = p.process.half_log_snr(s) - p.process.half_log_snr(t);
        let d = extrapolated(&m, h, previous.as_ref());
        x = reverse_step(p, &x, &d, (t, s), || (hooks.noise)(n));
        previous = Some((m, h));
    }
    Ok(x)
}

/// An earlier estimate of x_0 and the length in λ of the step that began there.
struct Earlier<F> {
    m: F,
    h: f64,
}

/// DPM-Solver++(3M) SDE: the step with D = m_n plus α_s (φ_2 D_1 − φ_3 D_2), where D_1 and D_2 are the divided differences
/// of the last three estimates in λ, in units of h, and φ_2 = 1 − (1 − e^{−2h})/2h, φ_3 = φ_2/2h − ½.
///
/// The integral of a parabola through the three estimates would have the weight −2φ_3. The weight here is that of
/// k-diffusion, whose images people compare with; it makes the drift second order.
pub(crate) fn dpmpp_3m_sde<F: Field>(
    p: &GaussianProblem<F>,
    times: &[f64],
    mut x: F,
    hooks: &mut Hooks<F>,
) -> Result<F> {
    // The newest first. Steps of infinite length in λ are not kept: no difference can be taken across them.
    let mut history: Vec<Earlier<F>> = vec![];
    for (n, t, s) in steps(times) {
        let m = observe(p, hooks, n, &x, t)?.x0;
        let h = p.process.half_log_snr(s) - p.process.half_log_snr(t);
        x = reverse_step(p, &x, &m, (t, s), || (hooks.noise)(n));
        if !h.is_finite() {
            continue;
        }
        let phi2 = 1.0 + (-2.0 * h).exp_m1() / (2.0 * h);
        let phi3 = phi2 / (2.0 * h) - 0.5;
        let alpha = p.process.alpha(s);
        if let Some(last) = history.first() {
            let r0 = last.h / h;
            let d10 = m.minus(&last.m).scale(1.0 / r0);
            let mut terms = vec![(1.0, x.clone()), (alpha * phi2, d10.clone())];
            if let Some(before) = history.get(1) {
                let r1 = before.h / h;
                let d11 = last.m.minus(&before.m).scale(1.0 / r1);
                // D_2 = (d10 − d11)/(r0 + r1) and D_1 = d10 + r0 D_2.
                let d2 = d10.minus(&d11).scale(1.0 / (r0 + r1));
                terms.push((alpha * (phi2 * r0 - phi3), d2));
            }
            let terms: Vec<_> = terms.iter().map(|(c, term)| ((*c).into(), term)).collect();
            x = F::lincomb(&terms);
        }
        history.insert(0, Earlier { m, h });
        history.truncate(2);
    }
    Ok(x)
}
