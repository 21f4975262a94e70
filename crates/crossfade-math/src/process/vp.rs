//! Score-SDE, variance preserving: dx = −½β x dt + √β dw with β(t) linear (§9).
use super::{GaussianFn, Input, ProcessFn, Target, check_options};
use crate::Problem;
use serde::{Deserialize, Serialize};

/// The variance-preserving SDE.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Vp {
    /// β at time 0.
    pub beta_min: f64,
    /// β at time 1.
    pub beta_max: f64,
}

impl Default for Vp {
    fn default() -> Self {
        Self { beta_min: 0.1, beta_max: 20.0 }
    }
}

impl Vp {
    fn beta(&self, t: f64) -> f64 {
        self.beta_min + (self.beta_max - self.beta_min) * t
    }

    /// The integral of β from 0 to t.
    fn integral(&self, t: f64) -> f64 {
        self.beta_min * t + 0.5 * (self.beta_max - self.beta_min) * t * t
    }
}

impl ProcessFn for Vp {
    /// The published networks read the time in thousandths.
    fn input(&self, t: f64) -> Input {
        Input { scale: 1.0, noise: 999.0 * t }
    }
    fn training_time(&self, uniform: f64, _normal: f64) -> f64 {
        // Near t = 0 the score diverges; the published code starts at 1e-5 too.
        1e-5 + (1.0 - 1e-5) * uniform
    }
    fn sampler(&self) -> &'static str {
        "euler-maruyama"
    }
    fn gaussian(&self) -> Option<&dyn GaussianFn> {
        Some(self)
    }
    fn validate(&self) -> Vec<Problem> {
        check_options(&[("beta_min", self.beta_min), ("beta_max", self.beta_max)])
    }
}

impl GaussianFn for Vp {
    fn alpha(&self, t: f64) -> f64 {
        (-0.5 * self.integral(t)).exp()
    }
    fn sigma(&self, t: f64) -> f64 {
        // `exp_m1` keeps the digits of 1 − e^{−∫β} near t = 0.
        (-(-self.integral(t)).exp_m1()).sqrt()
    }
    fn rates(&self, t: f64) -> (f64, f64) {
        (-0.5 * self.beta(t), self.beta(t))
    }
    fn t_end(&self) -> f64 {
        // The published sampler stops at 1e-3 too.
        1e-3
    }
    fn target(&self, _t: f64) -> Target {
        Target::EPS
    }
}
