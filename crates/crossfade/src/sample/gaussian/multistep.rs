//! DPM-Solver++(2M) and UniPC (§9): exponential integrators in λ = ln(α/σ) that use the estimates of earlier steps.
use super::{GaussianProblem, Hooks, observe, steps};
use crate::error::Result;
use crossfade_math::Field;
use crossfade_math::GaussianFn;

/// x_s = (σ_s/σ_t) x + (α_s − α_t σ_s/σ_t) D, which is exact if the estimate D of x_0 is constant. It is written
/// without λ, so that it is finite at t = 1 and at s = 0.
fn exponential<F: Field>(p: &GaussianProblem<F>, x: &F, d: &F, t: f64, s: f64) -> F {
    let shrink = p.process.sigma(s) / p.process.sigma(t);
    F::lincomb(&[(shrink.into(), x), ((p.process.alpha(s) - p.process.alpha(t) * shrink).into(), d)])
}

/// D = (1 + 1/2r) m_n − (1/2r) m_{n−1} with r = h_{n−1}/h_n, from the previous estimate and the length of its step in λ. D =
/// m_n next to steps of infinite length, which are the last one and with α_1 = 0 the first one.
pub(super) fn extrapolated<F: Field>(m: &F, h: f64, previous: Option<&(F, f64)>) -> F {
    match previous {
        Some((last, h_last)) if h.is_finite() && h_last.is_finite() => {
            let c = h / (2.0 * h_last);
            F::lincomb(&[((1.0 + c).into(), m), ((-c).into(), last)])
        }
        _ => m.clone(),
    }
}

/// DPM-Solver++(2M): the step with the D of [`extrapolated`].
pub(crate) fn dpmpp_2m<F: Field>(p: &GaussianProblem<F>, times: &[f64], mut x: F, hooks: &mut Hooks<F>) -> Result<F> {
    let mut previous: Option<(F, f64)> = None;
    for (n, t, s) in steps(times) {
        let m = observe(p, hooks, n, &x, t)?.x0;
        let h = p.process.half_log_snr(s) - p.process.half_log_snr(t);
        let d = extrapolated(&m, h, previous.as_ref());
        x = exponential(p, &x, &d, t, s);
        previous = Some((m, h));
    }
    Ok(x)
}

/// The previous step, for the corrector: its start, its estimate of x_0, and the divided difference to the step before
/// with its ratio r.
struct PreviousStep<F> {
    x: F,
    t: f64,
    m: F,
    behind: Option<(F, f64)>,
}

/// UniPC-2 with B(h) = e^h − 1 (`bh2`) and data prediction. Each network evaluation is used twice: first to correct the
/// step that led to it, then to predict the next one.
pub(crate) fn unipc<F: Field>(p: &GaussianProblem<F>, times: &[f64], mut x: F, hooks: &mut Hooks<F>) -> Result<F> {
    let mut last: Option<PreviousStep<F>> = None;
    for (n, t, s) in steps(times) {
        let m = observe(p, hooks, n, &x, t)?.x0;
        if let Some(step) = &last {
            x = correct(p, step, &m, t).unwrap_or(x);
        }
        let h = p.process.half_log_snr(s) - p.process.half_log_snr(t);
        // The difference is left out after a step of infinite length in λ.
        let behind = last.take().and_then(|step| {
            let r = (p.process.half_log_snr(step.t) - p.process.half_log_snr(t)) / h;
            (r.is_finite() && h.is_finite() && r != 0.0).then(|| (step.m.minus(&m).scale(1.0 / r), r))
        });
        let mut next = exponential(p, &x, &m, t, s);
        if let Some((d1, _)) = &behind {
            // x −= α_s B(h) ½ D1 with B = e^{−h} − 1.
            next = F::lincomb(&[(1.0.into(), &next), ((-0.5 * p.process.alpha(s) * (-h).exp_m1()).into(), d1)]);
        }
        last = Some(PreviousStep { x, t, m, behind });
        x = next;
    }
    Ok(x)
}

/// The corrector UniC: repeats a step with the estimate `m` at its end t.
fn correct<F: Field>(p: &GaussianProblem<F>, step: &PreviousStep<F>, m: &F, t: f64) -> Option<F> {
    let h = p.process.half_log_snr(t) - p.process.half_log_snr(step.t);
    if !h.is_finite() {
        return None;
    }
    let scale = -p.process.alpha(t) * (-h).exp_m1();
    let base = exponential(p, &step.x, &step.m, step.t, t);
    let end = m.minus(&step.m);
    Some(match &step.behind {
        None => F::lincomb(&[(1.0.into(), &base), ((0.5 * scale).into(), &end)]),
        Some((d1, r)) => {
            // ρ1 + ρ2 = b1 and r ρ1 + ρ2 = b2 with b_k = k! φ_{k+1}/B.
            let (hh, b) = (-h, (-h).exp_m1());
            let phi2 = b / hh - 1.0;
            let phi3 = phi2 / hh - 0.5;
            let (b1, b2) = (phi2 / b, 2.0 * phi3 / b);
            let rho1 = (b1 - b2) / (1.0 - r);
            F::lincomb(&[(1.0.into(), &base), ((scale * rho1).into(), d1), ((scale * (b1 - rho1)).into(), &end)])
        }
    })
}
