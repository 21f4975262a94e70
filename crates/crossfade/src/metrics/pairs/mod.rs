//! Full-reference metrics of image pairs: PSNR, SSIM, MS-SSIM, LPIPS.
//!
//! Files are read in batches and in parallel. Every value depends on its pair alone, and sums run in the order of the
//! names, so that results do not depend on the number of threads.
mod components;
mod files;
pub(super) mod lpips;
pub(super) mod ms_ssim;
mod protocol;
pub(super) mod psnr;
pub(super) mod ssim;

use rayon::prelude::*;

use super::Report;
use super::metric::{Measurement, Metric, Sample};
use crate::error::{Result, Shown};

pub use files::{ImageFiles, PairedFiles};
pub use protocol::{Channel, Protocol};
pub use ssim::Window;

/// Number of pairs in memory at the same time.
const BATCH: usize = 64;

/// Called with the number of finished pairs and of all pairs.
pub type Progress<'a> = &'a (dyn Fn(usize, usize) + Sync);

/// Measures pairs of files.
pub fn evaluate(metric: &dyn Metric, pairs: &PairedFiles, progress: Progress) -> Result<Measurement> {
    let (mut accumulator, mut done) = (metric.accumulator(), 0);
    for batch in pairs.pairs.chunks(BATCH) {
        // All files of a batch are read before its first error is returned, so that the same one is reported with any
        // number of threads.
        let samples: Vec<Result<Sample>> = batch.par_iter().map(ImageFiles::load).collect();
        accumulator.add(samples.into_iter().collect::<Result<_>>()?)?;
        done += batch.len();
        progress(done, pairs.pairs.len());
    }
    let mut found = accumulator.finish()?;
    found.report = found.report.with("outputs", pairs.outputs.shown()).with("targets", pairs.targets.shown());
    Ok(found)
}

/// Adds mean and standard deviation of the pairs' values to a report that states the protocol.
fn summarise(report: Report, images: Vec<(String, f64)>) -> Measurement {
    let metric = report.metric.clone();
    let n = images.len() as f64;
    let values = || images.iter().map(|(_, value)| *value);
    let mean = values().sum::<f64>() / n;
    let mut report = report.value(&metric, mean);
    if images.len() > 1 && mean.is_finite() {
        let squares: f64 = values().map(|v| (v - mean) * (v - mean)).sum();
        report = report.value("standard deviation", (squares / (n - 1.0)).sqrt());
    }
    let equal = values().filter(|v| v.is_infinite()).count();
    if equal > 0 {
        report = report.warn(format!("{equal} of {n} pairs are equal: their value, and the mean, is infinite"));
    }
    Measurement { report: report.with("images", images.len()), images }
}
