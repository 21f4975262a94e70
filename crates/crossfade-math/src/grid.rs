//! Sampling times 1 = t_0 > t_1 > … > t_n = 0: one evaluation at each but the last (§3.2, §10.4).
use serde::{Deserialize, Serialize};

/// A family of time grids.
#[derive(Clone, Debug, PartialEq, Default, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum GridKind {
    /// 1, 1−1/N, …, 1/N, 0: the paper's.
    UniformT,
    /// Uniform in √t: keeps the order of every solver.
    #[default]
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
    /// Every family with its default options, for tests and help texts.
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
            Self::UniformT => "uniform-t",
            Self::UniformSqrt => "uniform-sqrt",
            Self::Reference { .. } => "reference",
            Self::Power { .. } => "power",
            Self::Explicit { .. } => "explicit",
        }
    }

    /// The family of that name with its default options.
    pub fn parse(name: &str) -> Result<Self, String> {
        if let Some(list) = name.strip_prefix("explicit:") {
            let times: Result<Vec<f64>, _> = list.split(',').map(|t| t.trim().parse::<f64>()).collect();
            return times.map(|times| Self::Explicit { times }).map_err(|e| format!("grid '{name}': {e}"));
        }
        Self::all().into_iter().find(|g| g.name() == name).ok_or_else(|| {
            let known: Vec<_> = Self::all().iter().map(Self::name).collect();
            format!("unknown grid '{name}'; known: {}, explicit:1,0.5,…", known.join(", "))
        })
    }
}

impl Grid {
    /// `n` evaluation times (one more with `final_t`) and the closing 0. Any n from 1 up.
    pub fn times(&self, n: usize) -> Result<Vec<f64>, String> {
        if n == 0 {
            return Err("a grid needs at least one step".into());
        }
        let last = (n.max(2) - 1) as f64;
        let at = |i: usize| i as f64 / n as f64;
        let mut times: Vec<f64> = match &self.kind {
            GridKind::UniformT => (0..n).map(|i| 1.0 - at(i)).collect(),
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
        };
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
