//! Exact denoisers of a Gaussian mixture under the processes x_t = α_t x_0 + σ_t eps, and its exact score under CLD
//! (§10.4).
use super::linear::covariance;
use super::mixture::Mixture;
use super::points::Points;
use crate::error::Result;
use crate::sample::cld::VelocityScore;
use crate::sample::gaussian::Denoise;
use crossfade_math::process::Cld;
use crossfade_math::{Gaussian, GaussianFn, Prediction};
use rayon::prelude::*;

/// The optimal denoiser of `mixture` under `process`.
pub struct GaussianOracle {
    /// The data.
    pub mixture: Mixture,
    /// The process.
    pub process: Gaussian,
}

impl Denoise<Points> for GaussianOracle {
    /// E[x_0 | x_t]. Given the component of the mixture, x_0 and x_t are jointly Gaussian, so that its posterior mean is
    /// mean + gain (x_t − α_t mean).
    fn denoise(&self, x_t: &Points, t: f64) -> Result<Prediction<Points>> {
        let (alpha, sigma, std) = (self.process.alpha(t), self.process.sigma(t), self.mixture.std);
        let var = (alpha * std).powi(2) + sigma * sigma;
        let gain = alpha * std * std / var;
        // Points are independent, so the result does not depend on the number of threads.
        let rows: Vec<Vec<f64>> = (x_t.data.par_chunks(x_t.dim))
            .map(|x| {
                let shares = self
                    .mixture
                    .shares(|mean| -0.5 / var * x.iter().zip(mean).map(|(x, m)| (x - alpha * m).powi(2)).sum::<f64>());
                mix(&self.mixture, &shares, x.len(), |mean, d| mean[d] + gain * (x[d] - alpha * mean[d]))
            })
            .collect();
        let x0 = Points { dim: x_t.dim, data: rows.concat() };
        let eps = x_t.data.iter().zip(&x0.data).map(|(x, m)| (x - alpha * m) / sigma).collect();
        Ok(Prediction { eps: Points { dim: x_t.dim, data: eps }, x0 })
    }
}

/// Σ share_k value(mean_k, d) for each coordinate d.
fn mix(mixture: &Mixture, shares: &[f64], dim: usize, value: impl Fn(&[f64], usize) -> f64) -> Vec<f64> {
    (0..dim).map(|d| shares.iter().zip(&mixture.means).map(|(s, mean)| s * value(mean, d)).sum()).collect()
}

/// The exact ∇_v ln p(x_t, v_t) for `mixture` under `cld`.
pub struct CldOracle {
    /// The data.
    pub mixture: Mixture,
    /// The process.
    pub cld: Cld,
}

impl VelocityScore<Points> for CldOracle {
    fn score(&self, x: &Points, v: &Points, t: f64) -> Result<Points> {
        let cov = covariance(&self.cld, self.mixture.std, t);
        let ((mean_x, mean_v), det) = (self.cld.mean(t), cov.det());
        let rows: Vec<Vec<f64>> = (x.data.par_chunks(x.dim).zip(v.data.par_chunks(x.dim)))
            .map(|(x, v)| {
                let residual = |m: f64, d: usize| (x[d] - mean_x * m, v[d] - mean_v * m);
                let shares = self.mixture.shares(|mean| {
                    let quadratic = |(d, &m): (usize, &f64)| {
                        let (dx, dv) = residual(m, d);
                        cov.vv * dx * dx - 2.0 * cov.xv * dx * dv + cov.xx * dv * dv
                    };
                    -0.5 / det * mean.iter().enumerate().map(quadratic).sum::<f64>()
                });
                mix(&self.mixture, &shares, x.len(), |mean, d| {
                    let (dx, dv) = residual(mean[d], d);
                    (cov.xv * dx - cov.xx * dv) / det
                })
            })
            .collect();
        Ok(Points { dim: x.dim, data: rows.concat() })
    }
}
