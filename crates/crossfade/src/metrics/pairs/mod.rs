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
use super::raster::Raster;
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
    let mut rest = &pairs.pairs[..];
    // A batch is as much as is in memory at the same time. Values and errors come in the order of the pairs, with any number
    // of threads.
    while !rest.is_empty() {
        let (batch, after) = rest.split_at(batch(rest)?);
        let samples: Vec<Result<Sample>> = batch.par_iter().map(ImageFiles::load).collect();
        accumulator.add(samples.into_iter().collect::<Result<_>>()?)?;
        rest = after;
        progress(pairs.pairs.len() - rest.len(), pairs.pairs.len());
    }
    let mut found = accumulator.finish()?;
    found.report = found.report.with("outputs", pairs.outputs.shown()).with("targets", pairs.targets.shown());
    Ok(found)
}

/// How many of the first pairs are measured together: large images would fill the memory.
fn batch(pairs: &[ImageFiles]) -> Result<usize> {
    let mut pixels = 0;
    for (count, files) in pairs.iter().take(BATCH).enumerate() {
        // An error of a later pair is told when its turn comes.
        match Raster::weigh(&files.output).and_then(|output| Ok(output.max(Raster::weigh(&files.target)?))) {
            Ok(more) if count == 0 || pixels + more <= METRIC_PIXELS.max => pixels += more,
            Err(error) if count == 0 => return Err(error),
            _ => return Ok(count),
        }
    }
    Ok(pairs.len().min(BATCH))
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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::data::Image;

    /// Large images are measured one after the other, small ones together, and an error waits for its turn.
    #[test]
    fn a_batch_is_bounded_by_pixels_and_by_pairs() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str, width: usize, height: usize| {
            let path = dir.path().join(name);
            std::fs::write(&path, Image::new(width, height, 1, vec![0; width * height]).encode_png(&[]).unwrap())
                .unwrap();
            path
        };
        let (small, half, third) = (file("s.png", 4, 4), file("h.png", 4096, 4096), file("t.png", 4096, 2700));
        let bad = dir.path().join("bad.png");
        std::fs::write(&bad, "none").unwrap();
        let pair = |output: &std::path::Path, target: &std::path::Path| ImageFiles {
            name: "a".into(),
            output: output.into(),
            target: target.into(),
        };
        let count = |pairs: &[ImageFiles]| batch(pairs).map_err(|e| e.to_string());
        assert_eq!(count(&vec![pair(&small, &small); 70]), Ok(BATCH));
        assert_eq!(count(&vec![pair(&small, &small); 5]), Ok(5));
        assert_eq!(count(&vec![pair(&half, &small); 5]), Ok(2), "2^24 pixels each, 2^25 in all");
        assert_eq!(count(&vec![pair(&small, &third); 5]), Ok(3), "the larger of both images counts");
        let (one, broken) = (pair(&small, &small), pair(&small, &bad));
        assert_eq!(count(&[one.clone(), broken.clone(), one]), Ok(1));
        assert!(count(&[broken]).unwrap_err().contains("bad.png"));
    }

    #[test]
    fn a_summary_has_mean_and_deviation_and_tells_of_equal_pairs() {
        let of = |metric: &str, values: &[f64]| {
            let images = values.iter().map(|v| ("a".to_string(), *v)).collect();
            summarise(Report::new(metric), images)
        };
        let found = of("ssim", &[1.0, 2.0, 6.0]).unwrap();
        assert_eq!((found.report.get("ssim"), found.report.get("standard deviation")), (Some(3.0), Some(7f64.sqrt())));
        assert!(found.images.len() == 3 && found.report.warnings.is_empty());
        assert_eq!(of("ssim", &[1.0]).unwrap().report.values.len(), 1, "one value has no spread");
        let equal = of("psnr", &[30.0, f64::INFINITY]).unwrap().report;
        assert_eq!((equal.values.len(), equal.get("psnr")), (1, Some(f64::INFINITY)));
        assert!(equal.warnings[0].starts_with("1 of 2 pairs are equal"), "{:?}", equal.warnings);
        assert!(of("ssim", &[]).unwrap_err().to_string().contains("no images"));
        assert!(of("ssim", &[f64::INFINITY]).is_err() && of("psnr", &[f64::NAN, 1.0]).is_err());
    }
}
