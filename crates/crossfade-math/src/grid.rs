//! Sampling times 1 ≥ t_0 > t_1 > … > t_n = 0. The network is evaluated at each of them but the last (§3.2, §10.4).
mod text;

use crate::process::{Gaussian, GaussianFn};
use crate::registry;
use serde::{Deserialize, Serialize};

registry! {
    /// A family of time grids.
    #[derive(Default)]
    #[serde(deny_unknown_fields)]
    pub enum GridKind("grid", tag = "kind") {
        /// 1, 1−1/N, …, 1/N, 0: the paper's grid.
        UniformT = "uniform-t",
        /// Uniform in √t from 1 to 0. On it the solvers for attenuation keep their order when there are many steps; with
        /// few steps the first one, which decides the colours, becomes too long.
        UniformSqrt = "uniform-sqrt",
        /// DDIM's quadratic sequence: the steps ⌊(i √800/(N−1))²⌋ of a chain of 1000, which start at 0.8 and not at 1.
        DdimQuadratic = "ddim-quadratic" | "quadratic",
        /// N times from 1 to σ_min², uniform in t, then 0: the reference's grid.
        Reference {
            /// Square root of the last evaluation time; 0.01 in the reference, 0.001 for σ = t.
            #[serde(default = "reference_sigma_min")]
            sigma_min: f64 = reference_sigma_min(),
        } = "reference",
        /// Uniform in σ^{1/ρ} from 1 to σ_min with t = σ², then 0: EDM's grid applied to attenuation.
        Power {
            /// The exponent ρ; 7 in EDM.
            #[serde(default = "power_rho")]
            rho: f64 = power_rho(),
            /// σ of the last evaluation.
            #[serde(default = "power_sigma_min")]
            sigma_min: f64 = power_sigma_min(),
        } = "power",
        /// Uniform in κ^{1/ρ} with κ = σ/α, between two noise levels, then 0: EDM's grid.
        Karras {
            /// The exponent ρ; 7 in EDM.
            #[serde(default = "power_rho")]
            rho: f64 = power_rho(),
            /// The largest κ below t = 1; by default that of the process, at most EDM's 80.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            kappa_max: Option<f64> = None,
            /// κ of the last evaluation; by default that of the process's smallest time.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            kappa_min: Option<f64> = None,
        } = "karras",
        /// Uniform in ln κ between two noise levels, then 0: the grid that DPM-Solver++ and UniPC expect.
        LogSnr {
            /// The largest κ below t = 1; by default that of the process, at most EDM's 80.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            kappa_max: Option<f64> = None,
            /// κ of the last evaluation; by default that of the process's smallest time.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            kappa_min: Option<f64> = None,
            /// c of a grid that is uniform in (κ^c − 1)/c instead, 0 by default: above 0 there are more steps at little noise, 1/7 is
            /// EDM's spacing, below 0 there are more at much noise.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            curvature: Option<f64> = None,
        } = "log-snr",
        /// Uniform in ln κ between levels that suit photographs at any number of steps (§3.2).
        Images = "images",
    }
    placeholder {
        /// The grid that suits the process and the sampler; uniform in t for attenuation.
        #[default]
        Auto = "auto",
    }
    needs_data {
        /// An explicit list of descending times; the first one, at most 1, is where sampling starts.
        Explicit {
            /// The times; a 0 at the end may be left out.
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

/// A time grid, with the paper's final denoising step as an option.
#[derive(Clone, Debug, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Grid {
    /// The family of the grid.
    #[serde(flatten)]
    pub kind: GridKind,
    /// The paper's final denoising step: one more evaluation at this time, splitting the last interval.
    pub final_t: Option<f64>,
}

impl GridKind {
    /// Uniform in ln κ between the noise levels of the process.
    pub const LOG_SNR: Self = Self::LogSnr { kappa_max: None, kappa_min: None, curvature: None };

    /// Whether the times depend on the process's ratio κ = σ/α, so that only [`Grid::times_on`] can compute them.
    pub fn needs_ratio(&self) -> bool {
        matches!(self, Self::Karras { .. } | Self::LogSnr { .. } | Self::Images)
    }

    /// The range of noise levels and the curvature of a grid that is uniform in (κ^c − 1)/c, with `n` evaluations.
    fn levels(&self, n: usize) -> Option<Levels> {
        match *self {
            Self::Karras { rho, kappa_max, kappa_min } => Some(Levels { kappa_max, kappa_min, curvature: 1.0 / rho }),
            Self::LogSnr { kappa_max, kappa_min, curvature } => {
                Some(Levels { kappa_max, kappa_min, curvature: curvature.unwrap_or(0.0) })
            }
            Self::Images => {
                let n = n as f64;
                let (kappa_max, kappa_min) = (Some(IMAGES_LARGEST * n), Some(IMAGES_SMALLEST / n));
                Some(Levels { kappa_max, kappa_min, curvature: 0.0 })
            }
            _ => None,
        }
    }

    /// The families that depend on t alone, with the default values of their options: they suit every process.
    pub fn all_in_time() -> Vec<Self> {
        Self::all().into_iter().filter(|kind| !kind.needs_ratio()).collect()
    }
}

/// The bounds of `images` at n evaluations: κ from 2n down to 0.9/n. With more steps the first may be closer to pure noise and
/// the last may wait for finer detail. On the spectrum of CIFAR-10 the error of `ab2` at n = 10 is 0.063 with these constants
/// and 0.165 on uniform t (`crossfade lab --images`); they are round numbers, not the result of a search.
const IMAGES_LARGEST: f64 = 2.0;
const IMAGES_SMALLEST: f64 = 0.9;

/// The noise levels of a grid, as an option names them.
struct Levels {
    kappa_max: Option<f64>,
    kappa_min: Option<f64>,
    curvature: f64,
}

/// κ of the second time, where κ is infinite at t = 1 and no uniform spacing can start there. 80 is EDM's σ_max.
const LARGEST_RATIO: f64 = 80.0;

impl Grid {
    /// `n` evaluation times (one more with `final_t`) and the final 0, for any n ≥ 1.
    pub fn times(&self, n: usize) -> Result<Vec<f64>, String> {
        self.finished(self.in_t(n)?)
    }

    /// As [`Grid::times`] for a process; a process with discrete times gets only those.
    pub fn times_on(&self, process: &Gaussian, n: usize) -> Result<Vec<f64>, String> {
        let mut times = match self.kind.levels(n) {
            Some(levels) if n > 0 => by_ratio(process, n, &levels)?,
            _ => self.in_t(n)?,
        };
        if let Some(tick) = process.tick() {
            if self.final_t.is_some() {
                return Err(format!(
                    "final_t is for processes with any time; {} knows whole steps only",
                    process.name()
                ));
            }
            // Times are rounded to the steps of the chain, except that DDIM truncates its own sequence. From the smallest up, a time whose step is taken moves to
            // the next free one, so that no step is evaluated twice.
            let mut lowest_free = 1.0;
            for t in times.iter_mut().rev() {
                let near = *t / tick;
                let near = if self.kind == GridKind::DdimQuadratic { (near + 1e-6).floor() } else { near.round() };
                let chain_step = near.max(lowest_free);
                (*t, lowest_free) = (chain_step * tick, chain_step + 1.0);
            }
            if times.first().is_some_and(|&t| t > 1.0 + 1e-9) {
                let known = (1.0 / tick).round();
                return Err(format!("{n} steps are too many: the process {} has {known} times", process.name()));
            }
        }
        self.finished(times)
    }

    /// The evaluation times of the families that depend on t alone.
    fn in_t(&self, n: usize) -> Result<Vec<f64>, String> {
        if n == 0 {
            return Err("a grid needs at least one step".into());
        }
        // With a single step the range has no end point; avoid dividing by zero.
        let last = (n.max(2) - 1) as f64;
        let at = |i: usize| i as f64 / n as f64;
        Ok(match &self.kind {
            GridKind::UniformT | GridKind::Auto => (0..n).map(|i| 1.0 - at(i)).collect(),
            GridKind::UniformSqrt => (0..n).map(|i| (1.0 - at(i)).powi(2)).collect(),
            // The step s of DDIM's chain, which counts from 0, is our time (s + 1)/1000. A single evaluation is at the start.
            GridKind::DdimQuadratic if n == 1 => vec![0.801],
            GridKind::DdimQuadratic => (0..n).map(|i| 0.8 * (1.0 - i as f64 / last).powi(2) + 0.001).collect(),
            GridKind::Reference { sigma_min } => {
                let end = sigma_min * sigma_min;
                (0..n).map(|i| 1.0 + i as f64 / last * (end - 1.0)).collect()
            }
            GridKind::Power { rho, sigma_min } => {
                let end = sigma_min.powf(1.0 / rho);
                (0..n).map(|i| (1.0 + i as f64 / last * (end - 1.0)).powf(2.0 * rho)).collect()
            }
            GridKind::Explicit { times } => {
                // `finished` adds the 0 again, so that it may be given or not.
                times.iter().copied().filter(|&t| t != 0.0).collect()
            }
            GridKind::Karras { .. } | GridKind::LogSnr { .. } | GridKind::Images => {
                return Err(format!(
                    "the grid {} is for processes of the form x_t = alpha x_0 + sigma eps; use uniform-t or uniform-sqrt",
                    self.kind.name()
                ));
            }
        })
    }

    /// Adds the final evaluation and the 0, and checks that the times descend.
    fn finished(&self, mut times: Vec<f64>) -> Result<Vec<f64>, String> {
        if let Some(t) = self.final_t
            && times.last().is_some_and(|&end| t < end)
        {
            times.push(t);
        }
        times.push(0.0);
        let descend = times.windows(2).all(|w| w[0] > w[1]) && times.iter().all(|t| (0.0..=1.0).contains(t));
        if descend && times.len() > 1 {
            Ok(times)
        } else {
            Err(format!("times must descend strictly, from 1 or below to 0, got {times:?}"))
        }
    }
}

/// Times from t = 1 down, uniform in (κ^c − 1)/c between the noise levels.
fn by_ratio(process: &Gaussian, n: usize, levels: &Levels) -> Result<Vec<f64>, String> {
    // Processes with α_1 = 0 have no finite κ at t = 1; that time is put in front and the spacing starts below it.
    if [levels.kappa_max, levels.kappa_min].iter().flatten().any(|kappa| !(*kappa > 0.0 && kappa.is_finite())) {
        return Err(format!(
            "kappa_max and kappa_min must be positive, got {:?}",
            (levels.kappa_max, levels.kappa_min)
        ));
    }
    let start = process.ratio(1.0);
    let unbounded = start > 1e6;
    let largest = levels.kappa_max.unwrap_or(LARGEST_RATIO).min(start);
    let largest = if unbounded || levels.kappa_max.is_some() { largest } else { start };
    // Below the process's smallest time nothing was trained (and VE has no lower noise level at all).
    let end = process.ratio(process.t_end());
    let smallest = levels.kappa_min.map_or(end, |kappa_min| kappa_min.max(end));
    if !(smallest > 0.0 && smallest < largest && levels.curvature.is_finite()) {
        return Err(format!(
            "kappa_min must be below kappa_max, and the curvature finite: on {} they are {smallest}, {largest} and {}",
            process.name(),
            levels.curvature
        ));
    }
    let c = levels.curvature;
    // ln κ is the limit of the Box–Cox transform for c → 0; below this size the quotient loses its digits.
    let is_log = c.abs() < 1e-6;
    let z = |k: f64| if is_log { k.ln() } else { (k.powf(c) - 1.0) / c };
    let inverse = |z: f64| if is_log { z.exp() } else { (1.0 + c * z).powf(1.0 / c) };
    let (first, last) = (z(largest), z(smallest));
    // Where the first level is below that of t = 1, the state at t = 1 is still where sampling starts.
    let leads = unbounded || largest < start;
    let inner = if leads { n - 1 } else { n };
    // A single time after t = 1 is placed in the middle of the range and not at its start.
    let (spaces, offset) = if leads && inner == 1 { (2.0, 1) } else { ((inner.max(2) - 1) as f64, 0) };
    let lead = if leads { vec![1.0] } else { vec![] };
    let times = (0..inner).map(|i| match i {
        0 if !leads => 1.0,
        _ => process.time_of_ratio(inverse(first + (i + offset) as f64 / spaces * (last - first))),
    });
    Ok(lead.into_iter().chain(times).collect())
}
