//! Sampling times 1 = t_0 > t_1 > … > t_n = 0: one evaluation at each but the last (§3.2, §10.4).
use crate::process::{Gaussian, GaussianFn};
use crate::registry;
use serde::{Deserialize, Serialize};

registry! {
    /// A family of time grids.
    #[derive(Default)]
    #[serde(deny_unknown_fields)]
    pub enum GridKind("grid", tag = "kind") {
        /// 1, 1−1/N, …, 1/N, 0: the paper's.
        UniformT = "uniform-t",
        /// Uniform in √t: solvers of attenuation keep their order on it with many steps, but with few steps the first one,
        /// where pictures get their colours, becomes too long. DDIM's quadratic sequence.
        UniformSqrt = "uniform-sqrt" | "quadratic",
        /// N times from 1 to σ_min² uniform in t, then 0: the reference's.
        Reference {
            /// Square root of the last evaluation time; 0.01 in the reference, 0.001 for σ = t.
            #[serde(default = "reference_sigma_min")]
            sigma_min: f64 = reference_sigma_min(),
        } = "reference",
        /// σ^{1/ρ} uniform from 1 to σ_min, then 0, with t = σ²: EDM's grid on this process.
        Power {
            /// ρ.
            #[serde(default = "power_rho")]
            rho: f64 = power_rho(),
            /// σ of the last evaluation.
            #[serde(default = "power_sigma_min")]
            sigma_min: f64 = power_sigma_min(),
        } = "power",
        /// κ^{1/ρ} uniform, κ = σ/α, down to the last evaluation of the process, then 0: EDM's.
        Karras {
            /// ρ.
            #[serde(default = "power_rho")]
            rho: f64 = power_rho(),
        } = "karras",
        /// ln(α/σ) uniform down to the last evaluation of the process, then 0: what DPM-Solver++ and UniPC expect.
        LogSnr = "log-snr",
    }
    placeholder {
        /// The grid that suits the process and the sampler; uniform in t for attenuation.
        #[default]
        Auto = "auto",
    }
    needs_data {
        /// Times given one by one, descending; 1 in front and 0 at the end are added if missing.
        Explicit {
            /// The times.
            times: Vec<f64>,
        } = "explicit",
    }
}

fn reference_sigma_min() -> f64 {
    0.01
}
fn power_rho() -> f64 {
    7.0
}
fn power_sigma_min() -> f64 {
    0.02
}

/// A grid with the paper's final denoising step as an option.
#[derive(Clone, Debug, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Grid {
    /// The family.
    #[serde(flatten)]
    pub kind: GridKind,
    /// The paper's final denoising step: one more evaluation at this time, splitting the last interval.
    pub final_t: Option<f64>,
}

impl GridKind {
    /// Whether the times depend on the process's ratio κ = σ/α, so that only [`Grid::times_on`] can compute them.
    pub fn needs_ratio(&self) -> bool {
        matches!(self, Self::Karras { .. } | Self::LogSnr)
    }

    /// The families that depend on t alone, with the default values of their options: they suit every process.
    pub fn all_in_time() -> Vec<Self> {
        Self::all().into_iter().filter(|kind| !kind.needs_ratio()).collect()
    }

    /// A grid as it is written on the command line: a name, or `explicit:` with the times.
    pub fn from_argument(text: &str) -> Result<Self, String> {
        match text.strip_prefix("explicit:") {
            Some(list) => {
                let times: Result<Vec<f64>, _> = list.split(',').map(|t| t.trim().parse::<f64>()).collect();
                times.map(|times| Self::Explicit { times }).map_err(|e| format!("grid '{text}': {e}"))
            }
            None => Self::parse(text).map_err(|e| format!("{e}, explicit:1,0.5,…")),
        }
    }
}

/// Where κ is infinite at t = 1 the second time has this one.
const LARGEST_RATIO: f64 = 80.0;

impl Grid {
    /// `n` evaluation times (one more with `final_t`) and the closing 0. Any n from 1 up.
    pub fn times(&self, n: usize) -> Result<Vec<f64>, String> {
        self.finished(self.in_t(n)?)
    }

    /// As [`Grid::times`] for a process, at times that its network knows.
    pub fn times_on(&self, process: &Gaussian, n: usize) -> Result<Vec<f64>, String> {
        let mut times = match &self.kind {
            GridKind::Karras { .. } | GridKind::LogSnr if n == 0 => self.in_t(n)?,
            GridKind::Karras { rho } => by_ratio(process, n, &|k| k.powf(1.0 / rho), &|z| z.powf(*rho)),
            GridKind::LogSnr => by_ratio(process, n, &f64::ln, &f64::exp),
            _ => self.in_t(n)?,
        };
        if let Some(tick) = process.tick() {
            if self.final_t.is_some() {
                return Err(format!("final_t is for processes with any time; {} knows whole steps only", process.name()));
            }
            // The nearest times, each once: they make way upwards.
            let mut least = 1.0;
            for t in times.iter_mut().rev() {
                let whole = (*t / tick).round().max(least);
                (*t, least) = (whole * tick, whole + 1.0);
            }
            if times.first().is_some_and(|&t| t > 1.0 + 1e-9) {
                let known = (1.0 / tick).round();
                return Err(format!("{n} steps are too many: the process {} has {known} times", process.name()));
            }
        }
        self.finished(times)
    }

    /// The evaluation times of a family in t.
    fn in_t(&self, n: usize) -> Result<Vec<f64>, String> {
        if n == 0 {
            return Err("a grid needs at least one step".into());
        }
        let last = (n.max(2) - 1) as f64;
        let at = |i: usize| i as f64 / n as f64;
        Ok(match &self.kind {
            GridKind::UniformT | GridKind::Auto => (0..n).map(|i| 1.0 - at(i)).collect(),
            GridKind::UniformSqrt => (0..n).map(|i| (1.0 - at(i)).powi(2)).collect(),
            GridKind::Reference { sigma_min } => {
                let end = sigma_min * sigma_min;
                (0..n).map(|i| 1.0 + i as f64 / last * (end - 1.0)).collect()
            }
            GridKind::Power { rho, sigma_min } => {
                let end = sigma_min.powf(1.0 / rho);
                (0..n).map(|i| (1.0 + i as f64 / last * (end - 1.0)).powf(2.0 * rho)).collect()
            }
            GridKind::Explicit { times } => {
                let start = if times.first() == Some(&1.0) { 0 } else { 1 };
                std::iter::repeat_n(1.0, start).chain(times.iter().copied().filter(|&t| t != 0.0)).collect()
            }
            GridKind::Karras { .. } | GridKind::LogSnr => {
                return Err(format!(
                    "the grid {} is for processes of the form x_t = alpha x_0 + sigma eps; use uniform-t or uniform-sqrt",
                    self.kind.name()
                ));
            }
        })
    }

    fn finished(&self, mut times: Vec<f64>) -> Result<Vec<f64>, String> {
        if let Some(t) = self.final_t
            && times.last().is_some_and(|&end| t < end)
        {
            times.push(t);
        }
        times.push(0.0);
        if times.windows(2).all(|w| w[0] > w[1]) && times.iter().all(|t| (0.0..=1.0).contains(t)) {
            Ok(times)
        } else {
            Err(format!("times must descend strictly from 1 to 0, got {times:?}"))
        }
    }
}

/// From t = 1 to the last evaluation of the process, uniform in `z` of κ.
fn by_ratio(process: &Gaussian, n: usize, z: &dyn Fn(f64) -> f64, inverse: &dyn Fn(f64) -> f64) -> Vec<f64> {
    let unbounded = process.ratio(1.0) > 1e6;
    let first = if unbounded { LARGEST_RATIO } else { process.ratio(1.0) };
    let (first, last) = (z(first), z(process.ratio(process.t_end())));
    let inner = if unbounded { n - 1 } else { n };
    // A single one stands in the middle.
    let (spaces, lag) = if unbounded && inner == 1 { (2.0, 1) } else { ((inner.max(2) - 1) as f64, 0) };
    let lead = if unbounded { vec![1.0] } else { vec![] };
    let times = (0..inner).map(|i| match i {
        0 if !unbounded => 1.0,
        _ => process.time_of_ratio(inverse(first + (i + lag) as f64 / spaces * (last - first))),
    });
    lead.into_iter().chain(times).collect()
}
