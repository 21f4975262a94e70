//! Rectified flow: a straight line from data to noise, v = eps − x_0 (§9).
use super::{GaussianFn, Input, ProcessFn, Target};
use serde::{Deserialize, Serialize};

/// x_t = (1−t) x_0 + t eps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Flow {}

impl ProcessFn for Flow {
    /// The published networks read the time in thousandths.
    fn input(&self, t: f64) -> Input {
        Input { scale: 1.0, noise: 999.0 * t }
    }
    fn training_time(&self, uniform: f64, _normal: f64) -> f64 {
        uniform
    }
    /// For this process DDIM's step equals an Euler step of the flow's ODE, which is the published sampler.
    fn sampler(&self) -> &'static str {
        "ddim"
    }
    fn gaussian(&self) -> Option<&dyn GaussianFn> {
        Some(self)
    }
}

impl GaussianFn for Flow {
    fn alpha(&self, t: f64) -> f64 {
        1.0 - t
    }
    fn sigma(&self, t: f64) -> f64 {
        t
    }
    fn rates(&self, t: f64) -> (f64, f64) {
        (-1.0 / (1.0 - t), 2.0 * t / (1.0 - t))
    }
    fn t_end(&self) -> f64 {
        // The published sampler stops at 1e-3 too.
        1e-3
    }
    fn target(&self, _t: f64) -> Target {
        Target { x0: -1.0, eps: 1.0 }
    }
}
