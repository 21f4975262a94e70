//! First-order samplers for the reverse SDE and for the probability-flow ODE (§9). No noise is added in the last step.
use super::{GaussianProblem, Hooks, observe, steps};
use crate::error::{Error, Result};
use crossfade_math::Field;
use crossfade_math::GaussianFn;

/// These samplers need a finite drift at t = 1.
fn check<F>(p: &GaussianProblem<F>) -> Result<()> {
    if p.process.alpha(1.0) > 0.0 {
        return Ok(());
    }
    Err(Error::request(format!(
        "the process {} has no finite drift at t = 1, where nothing of the picture is left; use ddim, ancestral, heun, \
         dpmpp-2m or unipc",
        p.process.name()
    )))
}

/// Euler–Maruyama for the reverse of dx = f x dt + g dw, with score = −eps/σ: x ← x − (f x + g² eps/σ) Δ + g √Δ z, Δ =
/// t − s.
pub(crate) fn euler_maruyama<F: Field>(
    p: &GaussianProblem<F>,
    times: &[f64],
    mut x: F,
    hooks: &mut Hooks<F>,
) -> Result<F> {
    check(p)?;
    for (n, t, s) in steps(times) {
        let prediction = observe(p, hooks, n, &x, t)?;
        let ((f, g2), dt) = (p.process.rates(t), t - s);
        x = F::lincomb(&[((1.0 - f * dt).into(), &x), ((-g2 * dt / p.process.sigma(t)).into(), &prediction.eps)]);
        if s > 0.0 {
            x = F::lincomb(&[(1.0.into(), &x), ((g2 * dt).sqrt().into(), &(hooks.noise)(n))]);
        }
    }
    Ok(x)
}

/// Euler–Maruyama in κ = σ/α for y = x/α, for which the reverse SDE is dy = 2 eps dκ + √(2κ dκ) z.
pub(crate) fn kappa_maruyama<F: Field>(
    p: &GaussianProblem<F>,
    times: &[f64],
    mut x: F,
    hooks: &mut Hooks<F>,
) -> Result<F> {
    check(p)?;
    for (n, t, s) in steps(times) {
        let prediction = observe(p, hooks, n, &x, t)?;
        let (high, low, alpha) = (p.process.ratio(t), p.process.ratio(s), p.process.alpha(s));
        x = F::lincomb(&[
            ((alpha / p.process.alpha(t)).into(), &x),
            ((2.0 * alpha * (low - high)).into(), &prediction.eps),
        ]);
        if s > 0.0 {
            let deviation = alpha * (2.0 * high * (high - low)).sqrt();
            x = F::lincomb(&[(1.0.into(), &x), (deviation.into(), &(hooks.noise)(n))]);
        }
    }
    Ok(x)
}

/// Score-SDE's discretisation of the reverse SDE. If the forward step is x_t = a x_s + G z with a = α_t/α_s, the
/// reverse step is x ← (2 − a) x − G² eps/σ_t + G z.
pub(crate) fn reverse_diffusion<F: Field>(
    p: &GaussianProblem<F>,
    times: &[f64],
    mut x: F,
    hooks: &mut Hooks<F>,
) -> Result<F> {
    check(p)?;
    for (n, t, s) in steps(times) {
        let prediction = observe(p, hooks, n, &x, t)?;
        let a = p.process.alpha(t) / p.process.alpha(s);
        let forward_variance = (p.process.sigma(t).powi(2) - (a * p.process.sigma(s)).powi(2)).max(0.0);
        x = F::lincomb(&[((2.0 - a).into(), &x), ((-forward_variance / p.process.sigma(t)).into(), &prediction.eps)]);
        if s > 0.0 {
            x = F::lincomb(&[(1.0.into(), &x), (forward_variance.sqrt().into(), &(hooks.noise)(n))]);
        }
    }
    Ok(x)
}

/// Euler in t for the probability-flow ODE dx/dt = f x + ½ g² eps/σ.
pub(crate) fn probability_flow<F: Field>(
    p: &GaussianProblem<F>,
    times: &[f64],
    mut x: F,
    hooks: &mut Hooks<F>,
) -> Result<F> {
    check(p)?;
    for (n, t, s) in steps(times) {
        let prediction = observe(p, hooks, n, &x, t)?;
        let ((f, g2), dt) = (p.process.rates(t), t - s);
        x = F::lincomb(&[((1.0 - f * dt).into(), &x), ((-0.5 * g2 * dt / p.process.sigma(t)).into(), &prediction.eps)]);
    }
    Ok(x)
}
