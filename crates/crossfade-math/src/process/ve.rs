//! Score-SDE, variance exploding: σ rises geometrically and the image is not scaled (§9).
use super::{GaussianFn, Input, ProcessFn, Target, check_options};
use crate::Problem;
use serde::{Deserialize, Serialize};

/// The variance-exploding SDE.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Ve {
    /// σ at time 0, where the last step to the data starts.
    pub sigma_min: f64,
    /// σ at time 1.
    pub sigma_max: f64,
}

impl Default for Ve {
    fn default() -> Self {
        Self { sigma_min: 0.01, sigma_max: 50.0 }
    }
}

impl ProcessFn for Ve {
    /// The published network reads x_t unscaled and normalises inside. Ours would have to undo a factor of 50 by
    /// itself, so it gets EDM's c_in: the comparison is then about the processes and not about the input.
    fn input(&self, t: f64) -> Input {
        let sigma = self.sigma(t);
        Input { scale: 1.0 / (1.0 + sigma * sigma).sqrt(), noise: (0.5 * sigma).ln() }
    }
    fn training_time(&self, uniform: f64, _normal: f64) -> f64 {
        // The published code starts at 1e-5 as well; the last interval down to 0 is one denoising step.
        1e-5 + (1.0 - 1e-5) * uniform
    }
    fn sampler(&self) -> &'static str {
        // Without the published corrector steps, which would double the evaluations.
        "reverse-diffusion"
    }
    fn gaussian(&self) -> Option<&dyn GaussianFn> {
        Some(self)
    }
    fn validate(&self) -> Vec<Problem> {
        check_options(&[("sigma_min", self.sigma_min), ("sigma_max", self.sigma_max)])
    }
}

impl GaussianFn for Ve {
    fn alpha(&self, _t: f64) -> f64 {
        1.0
    }
    fn sigma(&self, t: f64) -> f64 {
        self.sigma_min * (self.sigma_max / self.sigma_min).powf(t)
    }
    /// g² = 2 σ² ln(σ_max/σ_min).
    fn rates(&self, t: f64) -> (f64, f64) {
        (0.0, 2.0 * self.sigma(t).powi(2) * (self.sigma_max / self.sigma_min).ln())
    }
    fn t_end(&self) -> f64 {
        1e-5
    }
    fn target(&self, _t: f64) -> Target {
        Target::EPS
    }
}
