//! DDIM with any η and DDPM's ancestral steps (§9).
use super::{GaussianProblem, Hooks, observe, steps};
use crate::error::Result;
use crossfade_math::Field;
use crossfade_math::GaussianFn;

/// x_s = α_s x̂_0 + √(σ_s² − d²) eps + d z with d = η σ_s G/σ_t, where G² = σ_t² − (α_t/α_s)² σ_s² is the variance of the
/// forward step from s to t.
pub fn ddim<F: Field>(p: &GaussianProblem<F>, times: &[f64], mut x: F, hooks: &mut Hooks<F>, eta: f64) -> Result<F> {
    for (n, t, s) in steps(times) {
        let prediction = observe(p, hooks, n, &x, t)?;
        let (alpha, sigma) = (p.process.alpha(s), p.process.sigma(s));
        let forward_variance = p.process.sigma(t).powi(2) - (p.process.alpha(t) / alpha * sigma).powi(2);
        let deviation = eta * sigma / p.process.sigma(t) * forward_variance.max(0.0).sqrt();
        let direct = (sigma * sigma - deviation * deviation).max(0.0).sqrt();
        x = F::lincomb(&[(alpha.into(), &prediction.x0), (direct.into(), &prediction.eps)]);
        if deviation > 0.0 {
            x = F::lincomb(&[(1.0.into(), &x), (deviation.into(), &(hooks.noise)(n))]);
        }
    }
    Ok(x)
}

/// DDPM's other choice of the variance: the mean of the posterior with the variance β of the forward step from s to t.
pub(crate) fn ancestral_large<F: Field>(
    p: &GaussianProblem<F>,
    times: &[f64],
    mut x: F,
    hooks: &mut Hooks<F>,
) -> Result<F> {
    for (n, t, s) in steps(times) {
        let prediction = observe(p, hooks, n, &x, t)?;
        let (alpha, sigma) = (p.process.alpha(s), p.process.sigma(s));
        let forward_variance = (p.process.sigma(t).powi(2) - (p.process.alpha(t) / alpha * sigma).powi(2)).max(0.0);
        // The mean is that of the posterior with variance β̃ = σ_s² G²/σ_t², so the weight of eps is √(σ_s² − β̃).
        let direct = sigma * (1.0 - forward_variance / p.process.sigma(t).powi(2)).max(0.0).sqrt();
        x = F::lincomb(&[(alpha.into(), &prediction.x0), (direct.into(), &prediction.eps)]);
        if s > 0.0 {
            x = F::lincomb(&[(1.0.into(), &x), (forward_variance.sqrt().into(), &(hooks.noise)(n))]);
        }
    }
    Ok(x)
}
