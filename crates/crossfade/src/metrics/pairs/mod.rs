//! Full-reference metrics of image pairs: PSNR, SSIM, MS-SSIM, LPIPS.
//!
//! Pictures are read when their turn comes, some at a time and in parallel; every value depends on its pair alone, and
//! sums run in the order of the names, so results do not depend on threads.
mod list;
mod lpips;
mod ms_ssim;
mod picture;
mod protocol;
mod psnr;
mod ssim;

use rayon::prelude::*;

use super::Report;
use crate::error::Result;

pub use list::{Pair, Pairs};
pub use lpips::lpips;
pub use ms_ssim::ms_ssim;
pub use picture::{Picture, Plane, luma_601};
pub use protocol::{Channel, Protocol};
pub use psnr::psnr;
pub use ssim::{Similarity, Window, similarity, ssim};

/// Pairs in memory at once.
const PORTION: usize = 64;

/// Told how many pairs of how many are done.
pub type Progress<'a> = &'a (dyn Fn(usize, usize) + Sync);

/// A metric that compares planes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Metric {
    /// Peak signal-to-noise ratio, in decibels.
    Psnr,
    /// Structural similarity.
    Ssim,
    /// Structural similarity over five scales.
    MsSsim,
}

/// A report and the value of every pair.
#[derive(Clone, Debug, PartialEq)]
pub struct Evaluation {
    /// Means and protocol.
    pub report: Report,
    /// Name and value of every pair, in the order of the names.
    pub images: Vec<(String, f64)>,
}

impl Metric {
    /// The name on the command line and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Psnr => "psnr",
            Self::Ssim => "ssim",
            Self::MsSsim => "ms-ssim",
        }
    }

    /// The smallest side that can be measured.
    fn min_side(self, protocol: &Protocol) -> usize {
        match self {
            Self::Psnr => 1,
            Self::Ssim => protocol.window.side(),
            Self::MsSsim => ms_ssim::MIN_SIDE,
        }
    }

    /// The value for one pair; the reason if there is none.
    pub fn of(self, output: &Picture, target: &Picture, protocol: &Protocol) -> std::result::Result<f64, String> {
        let (a, b) = (output.planes(protocol)?, target.planes(protocol)?);
        let (side, needed) = (a[0].width.min(a[0].height), self.min_side(protocol));
        if side < needed {
            return Err(format!("{} needs sides of {needed} pixels, there are {side} without the border", self.name()));
        }
        let value = match self {
            Self::Psnr => psnr(&a, &b),
            Self::Ssim => ssim(&a, &b, protocol.window),
            Self::MsSsim => ms_ssim(&a, &b),
        };
        if value.is_nan() { Err("the value is not a number".into()) } else { Ok(value) }
    }
}

/// Measures all pairs.
pub fn evaluate(metric: Metric, pairs: &Pairs, protocol: &Protocol, progress: Progress) -> Result<Evaluation> {
    let values = portions(pairs, progress, |portion| {
        let one = |pair: &Pair| -> Result<f64> {
            let (output, target) = pair.load()?;
            metric.of(&output, &target, protocol).map_err(|why| pair.error(why))
        };
        // All results of a portion, then the first error in it: the same one on any number of threads.
        portion.par_iter().map(one).collect::<Vec<_>>().into_iter().collect()
    })?;
    let report = protocol.state(Report::new(metric.name()));
    let report = match metric {
        Metric::Psnr => report.with("unit", "dB, peak 255, of all channels together; mean over the images"),
        Metric::Ssim => report.with("window", protocol.window.describe()).with("mean", "over channels, then images"),
        Metric::MsSsim => {
            let weights = ms_ssim::WEIGHTS.map(|w| w.to_string()).join(" ");
            report
                .with("window", Window::Gaussian.describe())
                .with("scales", format!("5, weights {weights}"))
                .with("mean", "over channels, then images")
        }
    };
    Ok(summarised(report, pairs, values))
}

/// Lets `measure` see the pairs some at a time, in order.
fn portions(pairs: &Pairs, progress: Progress, measure: impl Fn(&[Pair]) -> Result<Vec<f64>>) -> Result<Vec<f64>> {
    let mut values = Vec::with_capacity(pairs.pairs.len());
    for portion in pairs.pairs.chunks(PORTION) {
        values.extend(measure(portion)?);
        progress(values.len(), pairs.pairs.len());
    }
    Ok(values)
}

/// Mean and spread of the values into the report.
fn summarised(report: Report, pairs: &Pairs, values: Vec<f64>) -> Evaluation {
    let metric = report.metric.clone();
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let mut report = report.value(&metric, mean);
    if values.len() > 1 && mean.is_finite() {
        let squares: f64 = values.iter().map(|v| (v - mean) * (v - mean)).sum();
        report = report.value("standard deviation", (squares / (n - 1.0)).sqrt());
    }
    let equal = values.iter().filter(|v| v.is_infinite()).count();
    if equal > 0 {
        report = report.warn(format!("{equal} of {n} pairs are equal: their value, and the mean, is infinite"));
    }
    let report = report
        .with("images", values.len())
        .with("outputs", pairs.outputs.display())
        .with("targets", pairs.targets.display());
    let names = pairs.pairs.iter().map(|pair| pair.name.clone());
    Evaluation { report, images: names.zip(values).collect() }
}
