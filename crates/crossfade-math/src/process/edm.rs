//! EDM: σ itself is the time, D = c_skip x + c_out F (§9).
use super::{GaussianFn, Input, ProcessFn, Target, check_options};
use crate::{GridKind, Problem};
use serde::{Deserialize, Serialize};

/// EDM's process; our time is σ/σ_max.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Edm {
    /// Standard deviation of the data.
    pub sigma_data: f64,
    /// σ of the last evaluation.
    pub sigma_min: f64,
    /// σ where sampling starts.
    pub sigma_max: f64,
    /// Mean of ln σ in training.
    pub log_mean: f64,
    /// Standard deviation of ln σ in training.
    pub log_std: f64,
}

impl Default for Edm {
    fn default() -> Self {
        Self { sigma_data: 0.5, sigma_min: 0.002, sigma_max: 80.0, log_mean: -1.2, log_std: 1.2 }
    }
}

impl ProcessFn for Edm {
    fn input(&self, t: f64) -> Input {
        let sigma = self.sigma(t);
        Input { scale: 1.0 / sigma.hypot(self.sigma_data), noise: sigma.ln() / 4.0 }
    }
    fn training_time(&self, _uniform: f64, normal: f64) -> f64 {
        // Log-normal noise levels concentrate training where the loss can be reduced; this time may exceed 1.
        (self.log_mean + self.log_std * normal).exp() / self.sigma_max
    }
    /// ln σ is normal and σ = σ_max t.
    fn time_density(&self, t: f64) -> f64 {
        let z = ((self.sigma_max * t).ln() - self.log_mean) / self.log_std;
        (-0.5 * z * z).exp() / (t * self.log_std * std::f64::consts::TAU.sqrt())
    }
    fn sampler(&self) -> &'static str {
        "heun"
    }
    fn grid(&self) -> GridKind {
        GridKind::Karras { rho: 7.0, kappa_max: None, kappa_min: None }
    }
    fn gaussian(&self) -> Option<&dyn GaussianFn> {
        Some(self)
    }
    fn validate(&self) -> Vec<Problem> {
        let mut problems = check_options(&[
            ("sigma_min", self.sigma_min),
            ("sigma_max", self.sigma_max),
            ("sigma_data", self.sigma_data),
            ("log_std", self.log_std),
        ]);
        if self.log_mean.is_nan() || self.log_mean.abs() > 50.0 {
            let message = format!("is the logarithm of a noise level: from -50 to 50, not {}", self.log_mean);
            problems.push(Problem::new("log_mean", message));
        }
        problems
    }
}

impl GaussianFn for Edm {
    fn alpha(&self, _t: f64) -> f64 {
        1.0
    }
    fn sigma(&self, t: f64) -> f64 {
        self.sigma_max * t
    }
    fn rates(&self, t: f64) -> (f64, f64) {
        // σ_t² = σ_max² t², and α is constant.
        (0.0, 2.0 * self.sigma_max * self.sigma_max * t)
    }
    fn t_end(&self) -> f64 {
        self.sigma_min / self.sigma_max
    }
    /// D = c_skip x + c_out F, hence F = (x_0 − c_skip (x_0 + σ eps))/c_out with c_skip = σ_d²/(σ²+σ_d²) and
    /// c_out = σ σ_d/√(σ²+σ_d²): F = (σ x_0/σ_d − σ_d eps)/√(σ²+σ_d²).
    fn target(&self, t: f64) -> Target {
        let (sigma, data) = (self.sigma(t), self.sigma_data);
        // Both coefficients are divided by √(σ²+σ_d²), so that the target has unit variance at every noise level.
        let norm = sigma.hypot(data);
        Target { x0: sigma / data / norm, eps: -data / norm }
    }
}
