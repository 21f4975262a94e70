//! Sampling times of these processes: 1 > … > 0, one evaluation at each but the last.
use super::{Path, PathFn};
use serde::{Deserialize, Serialize};

/// A family of times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PathGrid {
    /// 1, 1−1/N, …, 1/N, 0.
    UniformT,
    /// The squares of these: DDIM's quadratic sequence, uniform √t for constant attenuation.
    Quadratic,
    /// κ^{1/7} uniform down to the last evaluation, then 0: EDM's.
    Karras,
    /// λ uniform down to the last evaluation, then 0: what DPM-Solver++ and UniPC expect.
    LogSnr,
}

/// EDM's exponent.
const RHO: f64 = 7.0;

/// Where κ is infinite at t = 1 the second time has this one.
const LARGEST_RATIO: f64 = 80.0;

impl PathGrid {
    /// Every family.
    pub const ALL: [Self; 4] = [Self::UniformT, Self::Quadratic, Self::Karras, Self::LogSnr];

    /// The name used in configurations.
    pub fn name(self) -> &'static str {
        match self {
            Self::UniformT => "uniform-t",
            Self::Quadratic => "quadratic",
            Self::Karras => "karras",
            Self::LogSnr => "log-snr",
        }
    }

    /// The family of that name.
    pub fn parse(name: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|g| g.name() == name).ok_or_else(|| {
            let known: Vec<_> = Self::ALL.iter().map(|g| g.name()).collect();
            format!("unknown grid '{name}'; known: {}", known.join(", "))
        })
    }

    /// `n` evaluation times that the network knows, and the closing 0.
    pub fn times(self, path: &Path, n: usize) -> Result<Vec<f64>, String> {
        if n == 0 {
            return Err("a grid needs at least one step".into());
        }
        let at = |i: usize| i as f64 / n as f64;
        let mut times: Vec<f64> = match self {
            Self::UniformT => (0..n).map(|i| 1.0 - at(i)).collect(),
            Self::Quadratic => (0..n).map(|i| (1.0 - at(i)).powi(2)).collect(),
            Self::Karras => by_ratio(path, n, |k| k.powf(1.0 / RHO), |z| z.powf(RHO)),
            Self::LogSnr => by_ratio(path, n, f64::ln, f64::exp),
        };
        for t in &mut times {
            *t = path.known_time(*t);
        }
        times.push(0.0);
        if times.windows(2).all(|w| w[0] > w[1]) {
            Ok(times)
        } else {
            Err(format!("{n} steps are too many for the process {} on the grid {}", path.name(), self.name()))
        }
    }
}

/// From t = 1 to t_end, uniform in `z` of κ.
fn by_ratio(path: &Path, n: usize, z: fn(f64) -> f64, inverse: fn(f64) -> f64) -> Vec<f64> {
    let unbounded = path.ratio(1.0) > 1e6;
    let first = if unbounded { LARGEST_RATIO } else { path.ratio(1.0) };
    let (first, last) = (z(first), z(path.ratio(path.t_end())));
    let inner = if unbounded { n - 1 } else { n };
    let spaces = (inner.max(2) - 1) as f64;
    let lead = if unbounded { vec![1.0] } else { vec![] };
    let times = (0..inner).map(|i| match i {
        0 if !unbounded => 1.0,
        _ => path.time_of_ratio(inverse(first + i as f64 / spaces * (last - first))),
    });
    lead.into_iter().chain(times).collect()
}
