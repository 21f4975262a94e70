//! EDM's Heun sampler (§9) in κ = σ/α for y = x/α, for which dy = eps dκ; with churn it is stochastic.
use super::{GaussianProblem, Hooks, observe, steps};
use crate::error::Result;
use crossfade_math::Field;
use crossfade_math::GaussianFn;
use serde::{Deserialize, Serialize};

/// EDM's churn: how much noise is added before a step, and in which range of κ.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Churn {
    /// S_churn. κ is raised at most to its value at t = 1.
    pub amount: f64,
    /// No churn below this κ.
    pub min: f64,
    /// No churn above this κ.
    pub max: f64,
    /// S_noise, the standard deviation of the added noise.
    pub noise: f64,
}

impl Default for Churn {
    fn default() -> Self {
        Self::CIFAR10
    }
}

impl Churn {
    /// No churn.
    pub(crate) const NONE: Self = Self { amount: 0.0, min: 0.0, max: 0.0, noise: 1.0 };

    /// EDM's settings for CIFAR-10 with its VP network.
    pub(crate) const CIFAR10: Self = Self { amount: 30.0, min: 0.01, max: 1.0, noise: 1.007 };

    /// γ: before a step, κ is raised by this fraction.
    fn rise(&self, ratio: f64, steps: usize) -> f64 {
        // The limit √2 − 1 is that of EDM: a step never adds more noise than there is already.
        let inside = (self.min..=self.max).contains(&ratio);
        if inside { (self.amount / steps as f64).min(2f64.sqrt() - 1.0) } else { 0.0 }
    }
}

/// Heun's method with two evaluations per step, and one in the last. Where α_t or α_s is 0 (κ is infinite) or s = 0, the
/// step is that of DDIM, which is Euler's in κ.
pub fn heun<F: Field>(
    p: &GaussianProblem<F>,
    times: &[f64],
    mut x: F,
    hooks: &mut Hooks<F>,
    churn: &Churn,
) -> Result<F> {
    for (n, mut t, s) in steps(times) {
        let rise = churn.rise(p.process.ratio(t), times.len() - 1);
        if rise > 0.0 {
            let mut higher = p.process.time_of_ratio((1.0 + rise) * p.process.ratio(t));
            // A process with discrete times: the nearest time that the network was trained on.
            if let Some(tick) = p.process.tick() {
                higher = (higher / tick).round() * tick;
            }
            let (from, to) = (p.process.ratio(t), p.process.ratio(higher));
            let deviation = churn.noise * p.process.alpha(higher) * (to * to - from * from).max(0.0).sqrt();
            let kept = p.process.alpha(higher) / p.process.alpha(t);
            x = F::lincomb(&[(kept.into(), &x), (deviation.into(), &(hooks.noise)(n))]);
            t = higher;
        }
        let prediction = observe(p, hooks, n, &x, t)?;
        let (alpha, sigma) = (p.process.alpha(s), p.process.sigma(s));
        let euler = F::lincomb(&[(alpha.into(), &prediction.x0), (sigma.into(), &prediction.eps)]);
        x = if s > 0.0 && p.process.alpha(t) > 0.0 && alpha > 0.0 {
            let end = p.predict(&euler, s)?;
            let half = 0.5 * alpha * (p.process.ratio(s) - p.process.ratio(t));
            F::lincomb(&[
                ((alpha / p.process.alpha(t)).into(), &x),
                (half.into(), &prediction.eps),
                (half.into(), &end.eps),
            ])
        } else {
            euler
        };
    }
    Ok(x)
}
