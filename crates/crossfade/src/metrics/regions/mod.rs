//! The region benchmark of the Berkeley segmentation dataset (BSDS).
//!
//! Segmentations from coarse to fine are compared with human ones by segmentation covering, probabilistic Rand index
//! and variation of information. [`scores`] processes one image; [`summary`] selects the best scale for all images
//! (ODS) and for each image (OIS).
pub mod scores;
pub mod segmentation;
pub mod summary;

use std::path::Path;

use super::Report;
use super::maps::{MapFiles, check_thresholds, each, levels, paired_maps};
use super::metric::{Compared, MetricSpec, Value, Verb};
use crate::error::{Error, Result};
use scores::{ImageScores, Truth, score};
use segmentation::{load_segmentations, load_truth};
use summary::{Summary, summarise};

/// Registered for its name, help and values. Studies refuse it, because no task produces segmentations.
pub(super) const SPEC: MetricSpec = MetricSpec {
    name: "regions",
    about: "Segmentations against what people drew: covering, Rand index and variation of information of the BSDS benchmark",
    values: &[
        Value::higher("covering ODS", "covering at ODS"),
        Value::higher("covering OIS", "covering at OIS"),
        Value::higher("covering best", "best covering"),
        Value::higher("PRI ODS", "probabilistic Rand index at ODS"),
        Value::higher("PRI OIS", "probabilistic Rand index at OIS"),
        Value::lower("VOI ODS", "variation of information at ODS"),
        Value::lower("VOI OIS", "variation of information at OIS"),
    ],
    compared: Compared::Segmentations,
    network: None,
    protocols: &[],
    min_images: 2,
    revision: 1,
    verb: Verb::Own,
    open: |_| Err(Error::request("regions measures files of segmentations only: use `crossfade eval regions`")),
};

/// The benchmark's default number of thresholds.
pub const THRESHOLDS: usize = 99;

/// The result of an evaluation.
#[derive(Clone, Debug)]
pub struct Regions {
    /// The results with their protocol.
    pub report: Report,
    /// The best scales, and curves over the scales.
    pub summary: Summary,
    /// The thresholds of contour maps, or the numbers 1, 2, 3 … of segmentations.
    pub thresholds: Vec<f64>,
    /// The names of the images.
    pub names: Vec<String>,
    /// The scores of each image.
    pub images: Vec<ImageScores>,
}

impl Regions {
    /// Writes the benchmark's own text files into `folder`.
    pub fn save(&self, folder: &Path) -> Result<()> {
        self.summary.save(folder, &self.names, &self.thresholds, &self.images)
    }
}

/// Measures the segmentations of a folder against the ground truth in another; files are paired by name.
///
/// `thresholds` are used for contour maps; files with segmentations have their own scales. `progress(done, total)` is
/// called after each image.
pub fn evaluate(
    segmentations: &Path,
    truth: &Path,
    thresholds: usize,
    progress: &mut (dyn FnMut(usize, usize) + Send),
) -> Result<Regions> {
    check_thresholds(thresholds)?;
    let files = paired_maps(segmentations, &["mat"], truth, &["mat"])?;
    let thresholds = levels(thresholds);
    let results = each(&files, progress, |pair| measure(pair, &thresholds))?;

    let (count, listed) = results.first().map_or((0, false), |r| (r.0.scales.len(), r.2));
    // Scores are averaged scale by scale, so all images need the same number of scales.
    if let Some((pair, r)) = files.iter().zip(&results).find(|(_, r)| r.0.scales.len() != count || r.2 != listed) {
        let message = format!("{} segmentations or thresholds, others have {count}", r.0.scales.len());
        return Err(Error::file(&pair.map, message));
    }
    let thresholds = if listed { (1..=count).map(|k| k as f64).collect() } else { thresholds };
    let annotators: usize = results.iter().map(|r| r.1).sum();
    let images: Vec<ImageScores> = results.into_iter().map(|r| r.0).collect();
    let summary = summarise(&thresholds, &images);
    let report = report(&summary, listed, (files.len(), annotators, count));
    Ok(Regions { report, summary, thresholds, names: files.into_iter().map(|p| p.name).collect(), images })
}

/// The scores of one image, the number of its annotations, and whether the file lists segmentations.
fn measure(pair: &MapFiles, thresholds: &[f64]) -> Result<(ImageScores, usize, bool)> {
    let truth: Vec<Truth> = load_truth(&pair.truth)?.into_iter().map(Truth::new).collect();
    let loaded = load_segmentations(&pair.map, thresholds)?;
    let (width, height) = (loaded.width, loaded.height);
    let (w, h) = truth.first().map_or((0, 0), Truth::size);
    if (width, height) != (w, h) {
        let message = format!("segmentations of {width}x{height} pixels, but its ground truth has {w}x{h}");
        return Err(Error::file(&pair.map, message));
    }
    Ok((score(loaded.segmentations, &truth), truth.len(), loaded.listed))
}

fn report(summary: &Summary, listed: bool, (images, annotators, count): (usize, usize, usize)) -> Report {
    let mut report = Report::new(SPEC.name);
    report = report.value("covering ODS", summary.covering.value).value("covering OIS", summary.covering_ois);
    report = report.value("covering best", summary.covering_best);
    report = report.value("PRI ODS", summary.rand_index.value).value("PRI OIS", summary.rand_index_ois);
    report = report.value("VOI ODS", summary.variation.value).value("VOI OIS", summary.variation_ois);
    report = report.value("covering threshold", summary.covering.threshold);
    report = report.value("PRI threshold", summary.rand_index.threshold);
    report = report.value("VOI threshold", summary.variation.threshold);
    report = report.with("protocol", "BSDS region benchmark, VOI in bits");
    report = if listed {
        report.with("input", "segmentations; a threshold is the number of one").with("segmentations", count)
    } else {
        report.with("input", "contour maps of double size, cut at thresholds").with("thresholds", count)
    };
    report.with("images", images).with("annotations", annotators)
}
