//! Mixtures of isotropic Gaussians: data whose optimal denoiser is known in closed form.
use super::points::Points;
use crate::rng::{Purpose, Stream};

/// The distribution Σ w_k N(mean_k, std² I).
#[derive(Clone, Debug)]
pub struct Mixture {
    /// The dimension.
    pub dim: usize,
    /// Weights of the components, summing to one.
    pub weights: Vec<f64>,
    /// Their means.
    pub means: Vec<Vec<f64>>,
    /// Their common standard deviation.
    pub std: f64,
}

impl Mixture {
    /// One Gaussian with a fixed mean.
    pub fn gaussian(dim: usize, std: f64) -> Self {
        let mean = (0..dim).map(|d| 0.3 * (1.7 * d as f64 + 0.4).cos()).collect();
        Self { dim, weights: vec![1.0], means: vec![mean], std }
    }

    /// `components` Gaussians with random means in [−reach, reach] and unequal weights.
    pub fn random(dim: usize, components: usize, std: f64, reach: f64, seed: u64) -> Self {
        let mut stream = Stream::new(seed, 0, 0, Purpose::Lab);
        let mut uniform = || 2.0 * stream.uniform() - 1.0;
        let means = (0..components).map(|_| (0..dim).map(|_| reach * uniform()).collect()).collect();
        let raw: Vec<f64> = (0..components).map(|_| 1.5 + uniform()).collect();
        let total: f64 = raw.iter().sum();
        Self { dim, weights: raw.into_iter().map(|w| w / total).collect(), means, std }
    }

    /// The posterior probability of each component, given its log-likelihood up to a common constant.
    pub fn shares(&self, log_likelihood: impl Fn(&[f64]) -> f64) -> Vec<f64> {
        let logs: Vec<f64> =
            self.means.iter().zip(&self.weights).map(|(mean, w)| w.ln() + log_likelihood(mean)).collect();
        // The largest logarithm is subtracted, so that exp does not underflow for all components.
        let top = logs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let raw: Vec<f64> = logs.iter().map(|l| (l - top).exp()).collect();
        let total: f64 = raw.iter().sum();
        raw.into_iter().map(|r| r / total).collect()
    }

    /// `count` samples; sample i is a function of (seed, i).
    pub fn sample(&self, count: usize, seed: u64) -> Points {
        let mut data = Vec::with_capacity(count * self.dim);
        for i in 0..count {
            let mut stream = Stream::new(seed, i as u64, 1, Purpose::Lab);
            let mut pick = stream.uniform();
            let component = self.weights.iter().position(|w| {
                pick -= w;
                pick < 0.0
            });
            let mean = &self.means[component.unwrap_or(self.weights.len() - 1)];
            data.extend(mean.iter().map(|m| m + self.std * stream.normal()));
        }
        Points { dim: self.dim, data }
    }
}

/// `count` standard normal points; point i of `step` is a function of (seed, i, step).
pub fn normals(dim: usize, count: usize, seed: u64, step: u64) -> Points {
    let mut data = Vec::with_capacity(count * dim);
    for i in 0..count {
        let mut stream = Stream::new(seed, i as u64, 2 + step, Purpose::Lab);
        data.extend((0..dim).map(|_| stream.normal()));
    }
    Points { dim, data }
}
