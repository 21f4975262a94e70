//! The boundary benchmark of the Berkeley segmentation dataset (BSDS).
//!
//! A soft map is thresholded at many levels. Each boundary map is thinned, and its pixels are matched within a
//! tolerance with the pixels that each annotator drew. [`counts`] processes one image, [`summary`] computes ODS, OIS,
//! AP and R50 of all.
pub mod counts;
pub mod ground_truth;
pub mod matching;
mod metric;
pub mod nms;
pub mod plot;
pub mod summary;
pub mod thin;

use std::path::Path;

pub(super) use metric::SPEC;

use super::Report;
use super::maps::{MapFiles, check_thresholds, levels, paired_maps};
use crate::data::IMAGE_ENDINGS;
use crate::error::{Error, Result};
use crate::files::{csv_field, write_atomic};
use counts::{Counts, count};
use ground_truth::{Detection, load_detection, load_truth};
use summary::{Summary, summarise};

/// How a map is processed before it is compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// Non-maximum suppression, then thinning at every threshold: the "S" evaluation of papers, for thick maps.
    #[default]
    S,
    /// Neither: the "C" evaluation, for maps that are crisp already.
    C,
    /// Thinning only: the original benchmark, for maps that are suppressed already, `ucm2` and segmentations.
    AsIs,
}

/// The settings of an evaluation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EdgesConfig {
    /// Number of thresholds, evenly spaced between 0 and 1.
    pub thresholds: usize,
    /// Tolerance as a fraction of the image's diagonal: 0.0075 for BSDS, 0.011 for NYUD.
    pub max_dist: f64,
    /// How a map is processed first.
    pub protocol: Protocol,
}

impl Default for EdgesConfig {
    fn default() -> Self {
        Self { thresholds: 99, max_dist: 0.0075, protocol: Protocol::S }
    }
}

impl EdgesConfig {
    /// The thresholds k / (n + 1).
    pub fn levels(&self) -> Vec<f64> {
        levels(self.thresholds)
    }

    fn check(&self) -> Result<()> {
        check_thresholds(self.thresholds)?;
        // The graph has one link for every pair of pixels within the tolerance, so that memory grows with its square.
        if !(0.0..=0.1).contains(&self.max_dist) {
            return Err(Error::request(format!("a tolerance of {}: must be 0 to 0.1 of the diagonal", self.max_dist)));
        }
        Ok(())
    }
}

/// The result of an evaluation.
#[derive(Clone, Debug)]
pub struct Edges {
    /// ODS, OIS, AP, R50 with their protocol.
    pub report: Report,
    /// The precision-recall curve and its best points.
    pub summary: Summary,
    /// The thresholds.
    pub thresholds: Vec<f64>,
    /// The names of the images.
    pub names: Vec<String>,
    /// The counts of each image at every threshold.
    pub counts: Vec<Vec<Counts>>,
}

impl Edges {
    /// Writes the best point of each image's curve as CSV.
    pub fn save_table(&self, path: &Path) -> Result<()> {
        let mut text = String::from("name,threshold,recall,precision,f\n");
        for (name, p) in self.names.iter().zip(&self.summary.images) {
            let values = format!("{:.6},{:.6},{:.6},{:.6}", p.threshold, p.recall, p.precision, p.f);
            text += &format!("{},{values}\n", csv_field(name));
        }
        write_atomic(path, text.as_bytes())
    }

    /// Writes the benchmark's own text files into `folder`.
    pub fn save(&self, folder: &Path) -> Result<()> {
        self.summary.save(folder, &self.names, &self.thresholds, &self.counts)
    }
}

/// The harmonic mean of recall and precision.
fn f_measure(recall: f64, precision: f64) -> f64 {
    let sum = recall + precision;
    if sum == 0.0 { 0.0 } else { 2.0 * precision * recall / sum }
}

/// Measures the maps of a folder against the ground truth in another; files are paired by name.
///
/// `progress(done, total)` is called after each image.
pub fn evaluate(
    maps: &Path,
    truth: &Path,
    config: &EdgesConfig,
    progress: &mut (dyn FnMut(usize, usize) + Send),
) -> Result<Edges> {
    config.check()?;
    let endings: Vec<&str> = IMAGE_ENDINGS.iter().copied().chain(["mat"]).collect();
    let files = paired_maps(maps, &endings, truth, &endings)?;
    let one = |pair: &MapFiles| -> Result<(Vec<Counts>, usize, bool)> {
        let detection = load_detection(&pair.map)?;
        let truth = load_truth(&pair.truth)?;
        let segmentations = matches!(detection, Detection::Segmentations(_));
        let counts = count(detection, &truth, config, &pair.map)?;
        Ok((counts, truth.len(), segmentations))
    };
    // One after the other: the thresholds of an image are measured in parallel, and the pairs of its pixels take much memory.
    let results = files.iter().enumerate().map(|(k, pair)| {
        let measured = one(pair)?;
        progress(k + 1, files.len());
        Ok(measured)
    });
    let results = results.collect::<Result<Vec<_>>>()?;

    let segmentations = results.iter().any(|r| r.2);
    let levels = results.first().map_or(0, |r| r.0.len());
    // Counts are summed threshold by threshold, so all images need the same thresholds.
    if let Some((pair, r)) = files.iter().zip(&results).find(|(_, r)| r.0.len() != levels || r.2 != segmentations) {
        return Err(Error::file(&pair.map, format!("{} segmentations or thresholds, others have {levels}", r.0.len())));
    }
    let thresholds = if segmentations { (1..=levels).map(|k| k as f64).collect() } else { config.levels() };
    let annotators: usize = results.iter().map(|r| r.1).sum();
    let counts: Vec<Vec<Counts>> = results.into_iter().map(|r| r.0).collect();
    must_have_boundaries(&counts)?;
    let summary = summarise(&thresholds, &counts);
    let report = report(&summary, config, segmentations, (files.len(), annotators, levels));
    Ok(Edges { report, summary, thresholds, names: files.into_iter().map(|p| p.name).collect(), counts })
}

/// An error if the ground truth has no boundaries at all: recall would be 0/0, and F of whatever is detected 0.
fn must_have_boundaries(counts: &[Vec<Counts>]) -> Result<()> {
    if counts.iter().flatten().any(|counts| counts.sum_r > 0) {
        return Ok(());
    }
    let problem = format!("the ground truth of all {} images has no boundaries", counts.len());
    Err(Error::request(format!("{problem}: recall and F mean nothing; are these the right files?")))
}

/// The facts of the protocol that a report states.
fn protocol_facts(config: &EdgesConfig, segmentations: bool, levels: usize) -> Vec<(String, String)> {
    let (protocol, nms, thinning) = match config.protocol {
        _ if segmentations => ("segmentations", "none", "at every segmentation"),
        Protocol::S => {
            ("S", "radius 1, border 5, tolerance 1.01, 8 bits (structured edge toolbox)", "at every threshold")
        }
        Protocol::C => ("C", "none", "none"),
        Protocol::AsIs => ("as is", "none", "at every threshold"),
    };
    let thinning = if segmentations && config.protocol == Protocol::C { "none" } else { thinning };
    [
        ("protocol", format!("BSDS boundary benchmark, {protocol}")),
        ("suppression", nms.into()),
        ("thinning", thinning.into()),
        ("thresholds", levels.to_string()),
        ("tolerance", format!("{} of the diagonal", config.max_dist)),
        ("matching", "most pairs, then least distance in hundredths of a pixel".into()),
    ]
    .map(|(key, fact)| (key.to_string(), fact))
    .into()
}

fn report(
    summary: &Summary,
    config: &EdgesConfig,
    segmentations: bool,
    (images, annotators, levels): (usize, usize, usize),
) -> Report {
    let mut report = Report::new(SPEC.name).value("ODS", summary.ods.f).value("OIS", summary.ois.f);
    report = report.value("AP", summary.ap);
    if let Some(r50) = summary.r50 {
        report = report.value("R50", r50);
    }
    report = report.value("ODS recall", summary.ods.recall).value("ODS precision", summary.ods.precision);
    report = report.value("ODS threshold", summary.ods.threshold);
    report.protocol.extend(protocol_facts(config, segmentations, levels));
    report = report.with("images", images).with("annotations", annotators);
    if summary.r50.is_none() {
        report = report.warn("precision never reaches one half, so there is no R50");
    }
    report
}
