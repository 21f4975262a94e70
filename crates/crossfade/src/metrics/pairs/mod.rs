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
use crate::error::{Error, Result, Shown};
use crate::limits::METRIC_PIXELS;

pub use files::{ImageFiles, PairedFiles};
pub use protocol::{Channel, Protocol};
pub use ssim::Window;

/// Number of pairs in memory at the same time.
const BATCH: usize = 64;

/// Called with the number of finished pairs and of all pairs.
pub type Progress<'a> = &'a (dyn Fn(usize, usize) + Sync);

/// Measures pairs of files.
pub fn evaluate(metric: &dyn Metric, pairs: &PairedFiles, progress: Progress) -> Result<Measurement> {
    let mut accumulator = metric.accumulator();
    let (mut waiting, mut pixels, mut done) = (vec![], 0, 0);
    // As many pairs are read at once as there are threads. They wait until a batch is full or has enough pixels, because large
    // images would fill the memory. Values and errors come in the order of the pairs, with any number of threads.
    for files in pairs.pairs.chunks(rayon::current_num_threads().max(1)) {
        let samples: Vec<Result<Sample>> = files.par_iter().map(ImageFiles::load).collect();
        for sample in samples {
            let size = sample.as_ref().map_or(METRIC_PIXELS.max, |sample| sample.output.pixels());
            if waiting.len() == BATCH || pixels + size > METRIC_PIXELS.max {
                accumulator.add(std::mem::take(&mut waiting))?;
                pixels = 0;
            }
            waiting.push(sample?);
            pixels += size;
            done += 1;
            progress(done, pairs.pairs.len());
        }
    }
    accumulator.add(waiting)?;
    let mut found = accumulator.finish()?;
    found.report = found.report.with("outputs", pairs.outputs.shown()).with("targets", pairs.targets.shown());
    Ok(found)
}

/// Adds mean and standard deviation of the pairs' values to a report that states the protocol.
fn summarise(report: Report, images: Vec<(String, f64)>) -> Result<Measurement> {
    if images.is_empty() {
        return Err(Error::request(format!("{} of no images means nothing", report.metric)));
    }
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
    Ok(Measurement { report: report.with("images", images.len()).checked()?, images })
}
