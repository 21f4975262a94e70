//! Where training looks: the distribution of training times (§2.1), for every process.
//!
//! A process has a distribution of its own, the one of its paper. Another one moves the budget of a short run to the times
//! that matter for what is measured. With `keep_objective` each sample is weighted by own density/drawn density, so that
//! the expected loss stays that of the process and only its variance changes; without it the emphasis changes too.
use crate::{Gaussian, GaussianFn, Problem, Process, ProcessFn, registry};
use serde::{Deserialize, Serialize};

registry! {
    /// A distribution of training times.
    #[derive(Copy, Default)]
    #[serde(deny_unknown_fields)]
    pub enum TimeDistribution("distribution of training times", tag = "kind") {
        /// The distribution of the process, as in its paper.
        #[default]
        Own = "own",
        /// t uniform between the smallest training time and 1.
        Uniform = "uniform",
        /// t = u^exponent for uniform u: more small times for exponents above 1.
        Power {
            /// The exponent.
            #[serde(default = "two")]
            exponent: f64 = two(),
        } = "power",
        /// ln(t/(1−t)) is normal: more times in the middle, as in Stable Diffusion 3.
        LogitNormal {
            /// Its mean.
            #[serde(default)]
            mean: f64 = 0.0,
            /// Its standard deviation.
            #[serde(default = "one")]
            std: f64 = one(),
        } = "logit-normal",
        /// ln κ is normal, κ = σ_t/α_t: EDM's distribution of noise levels on any process of (α_t, σ_t).
        LogNormal {
            /// Its mean; EDM's is −1.2.
            #[serde(default = "edm_mean")]
            mean: f64 = edm_mean(),
            /// Its standard deviation; EDM's is 1.2.
            #[serde(default = "edm_std")]
            std: f64 = edm_std(),
        } = "log-normal",
        /// The share of noise σ_t/(α_t + σ_t) is uniform, as in a rectified flow with uniform t; `shift` multiplies κ, above 1
        /// for more noise (the time shift of Stable Diffusion 3).
        UniformShare {
            /// The factor of κ.
            #[serde(default = "one")]
            shift: f64 = one(),
        } = "uniform-share",
    }
}

fn one() -> f64 {
    1.0
}
fn two() -> f64 {
    2.0
}
fn edm_mean() -> f64 {
    -1.2
}
fn edm_std() -> f64 {
    1.2
}

/// The smallest training time of distributions that reach down to 0.
const SMALLEST: f64 = 1e-4;
/// The largest importance weight: where a distribution hardly draws, single samples would dominate a step.
const LARGEST_WEIGHT: f64 = 20.0;

/// How training times are drawn; `loss.times`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TrainingTimes {
    /// The distribution.
    #[serde(flatten)]
    pub distribution: TimeDistribution,
    /// Whether samples are weighted so that the expected loss stays that of the process.
    pub keep_objective: bool,
}

/// A training time with the weight of its sample in the loss.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DrawnTime {
    /// The time.
    pub t: f64,
    /// The weight; 1 unless the objective is kept.
    pub weight: f64,
}

impl TrainingTimes {
    /// A time for `process` from one uniform and one normal number.
    pub fn draw(&self, process: &Process, uniform: f64, normal: f64) -> DrawnTime {
        let t = match self.distribution {
            TimeDistribution::Own => return DrawnTime { t: process.training_time(uniform, normal), weight: 1.0 },
            TimeDistribution::Uniform => uniform,
            TimeDistribution::Power { exponent } => uniform.powf(exponent),
            TimeDistribution::LogitNormal { mean, std } => 1.0 / (1.0 + (-(mean + std * normal)).exp()),
            TimeDistribution::LogNormal { mean, std } => match process.gaussian() {
                Some(gaussian) => gaussian.time_of_ratio((mean + std * normal).exp()),
                None => process.training_time(uniform, normal),
            },
            TimeDistribution::UniformShare { shift } => match process.gaussian() {
                Some(gaussian) => gaussian.time_of_ratio(shift * uniform / (1.0 - uniform)),
                None => process.training_time(uniform, normal),
            },
        };
        let t = known_time(process, t.clamp(SMALLEST, 1.0));
        let weight = match (self.keep_objective, self.density(process, t)) {
            (true, Some(density)) => (process.time_density(t) / density).min(LARGEST_WEIGHT),
            _ => 1.0,
        };
        DrawnTime { t, weight }
    }

    /// The density of the drawn times at t; none for the distribution of the process itself.
    pub fn density(&self, process: &Process, t: f64) -> Option<f64> {
        let normal = |z: f64, std: f64| (-0.5 * z * z).exp() / (std * std::f64::consts::TAU.sqrt());
        match self.distribution {
            TimeDistribution::Own => None,
            TimeDistribution::Uniform => Some(1.0),
            TimeDistribution::Power { exponent } => Some(t.powf(1.0 / exponent - 1.0) / exponent),
            TimeDistribution::LogitNormal { mean, std } => {
                let z = ((t / (1.0 - t)).ln() - mean) / std;
                Some(normal(z, std) / (t * (1.0 - t)))
            }
            TimeDistribution::LogNormal { mean, std } => process.gaussian().map(|gaussian| {
                let z = (gaussian.ratio(t).ln() - mean) / std;
                normal(z, std) * log_ratio_slope(&gaussian, t)
            }),
            // ln(κ/shift) is the logit of a uniform number, whose density is u (1 − u).
            TimeDistribution::UniformShare { shift } => process.gaussian().map(|gaussian| {
                let ratio = gaussian.ratio(t) / shift;
                ratio / (1.0 + ratio).powi(2) * log_ratio_slope(&gaussian, t)
            }),
        }
    }

    /// All that is wrong with its options.
    pub fn validate(&self, process: &Process) -> Vec<Problem> {
        let mut problems = vec![];
        let positive = |value: f64| value > 0.0 && value.is_finite();
        let mut require = |ok: bool, key: &str, message: String| Problem::require(&mut problems, ok, key, message);
        match self.distribution {
            TimeDistribution::Own => {
                let message = "needs another distribution than the process's own".to_string();
                require(!self.keep_objective, "keep_objective", message);
            }
            TimeDistribution::Uniform => (),
            TimeDistribution::Power { exponent } => {
                require(positive(exponent), "exponent", format!("must be positive, not {exponent}"));
            }
            TimeDistribution::UniformShare { shift } => {
                require(positive(shift), "shift", format!("must be positive, not {shift}"));
            }
            TimeDistribution::LogitNormal { mean, std } | TimeDistribution::LogNormal { mean, std } => {
                require(mean.is_finite(), "mean", format!("must be a number, not {mean}"));
                require(positive(std), "std", format!("must be positive, not {std}"));
            }
        }
        let needs_ratio =
            matches!(self.distribution, TimeDistribution::LogNormal { .. } | TimeDistribution::UniformShare { .. });
        let (kind, name) = (self.distribution.name(), process.name());
        let message = format!("{kind} needs noise levels sigma/alpha, which the process {name} has not");
        require(!needs_ratio || process.gaussian().is_some(), "kind", message);
        problems
    }
}

/// The nearest time that a process with discrete times knows.
fn known_time(process: &Process, t: f64) -> f64 {
    match process.gaussian().and_then(|gaussian| gaussian.tick()) {
        Some(tick) => ((t / tick).ceil().max(1.0) * tick).min(1.0),
        None => t,
    }
}

/// d ln κ_t/dt = (dσ²/dt)/(2σ²) − d ln α/dt = g²/(2σ²), by the definition of the rates.
fn log_ratio_slope(gaussian: &Gaussian, t: f64) -> f64 {
    let (_, g2) = gaussian.rates(t);
    g2 / (2.0 * gaussian.sigma(t).powi(2))
}
