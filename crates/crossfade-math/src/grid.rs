//! Sampling times 1 = t_0 > t_1 > … > t_n = 0: one evaluation at each but the last (§3.2, §10.4).
use crate::process::{Gaussian, GaussianFn};
use serde::{Deserialize, Serialize};

/// A family of time grids.
#[derive(Clone, Debug, PartialEq, Default, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum GridKind {
    /// What suits the process and the sampler; uniform in t for attenuation.
    #[default]
    Auto,
    /// 1, 1−1/N, …, 1/N, 0: the paper's.
    UniformT,
    /// Uniform in √t: solvers of attenuation keep their order on it with many steps, but few of them leave too much to
    /// the first one, where pictures get their colours. DDIM's quadratic sequence.
    #[serde(alias = "quadratic")]
    UniformSqrt,
    /// N times from 1 to σ_min² uniform in t, then 0: the reference's.
    Reference {
        /// Square root of the last evaluation time; 0.01 in the reference, 0.001 for σ = t.
        #[serde(default = "reference_sigma_min")]
        sigma_min: f64,
    },
    /// σ^{1/ρ} uniform from 1 to σ_min, then 0, with t = σ²: EDM's grid on this process.
    Power {
        /// ρ.
        #[serde(default = "power_rho")]
        rho: f64,
        /// σ of the last evaluation.
        #[serde(default = "power_sigma_min")]
        sigma_min: f64,
    },
    /// κ^{1/ρ} uniform, κ = σ/α, down to the last evaluation of the process, then 0: EDM's.
    Karras {
        /// ρ.
        #[serde(default = "power_rho")]
        rho: f64,
    },
    /// ln(α/σ) uniform down to the last evaluation of the process, then 0: what DPM-Solver++ and UniPC expect.
    LogSnr,
    /// Times given one by one, descending; 1 in front and 0 at the end are added if missing.
    Explicit {
        /// The times.
        times: Vec<f64>,
    },
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
    /// The families that know their process by (α_t, σ_t).
    pub const OF_GAUSSIAN: [Self; 2] = [Self::Karras { rho: 7.0 }, Self::LogSnr];

    /// The families in t with their default options, for tests and help texts.
    pub fn all() -> Vec<Self> {
        vec![
            Self::UniformT,
            Self::UniformSqrt,
            Self::Reference { sigma_min: reference_sigma_min() },
            Self::Power { rho: power_rho(), sigma_min: power_sigma_min() },
        ]
    }

    /// The name used in configurations.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::UniformT => "uniform-t",
            Self::UniformSqrt => "uniform-sqrt",
            Self::Reference { .. } => "reference",
            Self::Power { .. } => "power",
            Self::Karras { .. } => "karras",
            Self::LogSnr => "log-snr",
            Self::Explicit { .. } => "explicit",
        }
    }

    /// The family of that name with its default options.
    pub fn parse(name: &str) -> Result<Self, String> {
        if let Some(list) = name.strip_prefix("explicit:") {
            let times: Result<Vec<f64>, _> = list.split(',').map(|t| t.trim().parse::<f64>()).collect();
            return times.map(|times| Self::Explicit { times }).map_err(|e| format!("grid '{name}': {e}"));
        }
        let name = if name == "quadratic" { "uniform-sqrt" } else { name };
        let all = [vec![Self::Auto], Self::all(), Self::OF_GAUSSIAN.to_vec()].concat();
        let names: Vec<_> = all.iter().map(Self::name).collect();
        let unknown = || format!("unknown grid '{name}'; known: {}, quadratic, explicit:1,0.5,…", names.join(", "));
        all.iter().find(|g| g.name() == name).cloned().ok_or_else(unknown)
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
