//! Computes the scores of a dataset from those of its images, and writes the benchmark's text files.
use std::path::Path;

use serde::Serialize;

use super::super::edges::summary::line;
use super::scores::{ImageScores, Scores};
use crate::error::Result;
use crate::files::{Folder, write_atomic};

/// The best value and its threshold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Best {
    /// The threshold, or the number of a segmentation.
    pub threshold: f64,
    /// The value.
    pub value: f64,
}

/// The scores of the dataset at one threshold.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct SetScores {
    /// The threshold, or the number of a segmentation.
    pub threshold: f64,
    /// Segmentation covering.
    pub covering: f64,
    /// Probabilistic Rand index.
    pub rand_index: f64,
    /// Variation of information, in bits.
    pub variation: f64,
}

/// The scale of one image with the best covering of the annotators' regions.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ImageBest {
    /// The threshold, or the number of a segmentation.
    pub threshold: f64,
    /// Segmentation covering.
    pub covering: f64,
    /// Covering in the other direction: of the segmentation's regions by the annotators'.
    pub covered: f64,
}

/// The benchmark's results for a set of images.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// Covering with one threshold for all images (ODS).
    pub covering: Best,
    /// Covering with each image at its best threshold.
    pub covering_ois: f64,
    /// Covering with each of the annotators' regions at its best threshold.
    pub covering_best: f64,
    /// Probabilistic Rand index with one threshold for all images (ODS).
    pub rand_index: Best,
    /// Probabilistic Rand index with each image at its best threshold.
    pub rand_index_ois: f64,
    /// Variation of information with one threshold for all images (ODS).
    pub variation: Best,
    /// Variation of information with each image at its best threshold.
    pub variation_ois: f64,
    /// The scores at every threshold.
    pub curve: Vec<SetScores>,
    /// Each image at its best threshold.
    pub images: Vec<ImageBest>,
}

/// Summarises the scores of images, each at all `thresholds`. As in the benchmark, covering weights an image by its
/// annotated pixels, while the other measures weight all images equally.
pub fn summarise(thresholds: &[f64], images: &[ImageScores]) -> Summary {
    let at = |k: usize| images.iter().filter_map(move |image| image.scales.get(k));
    let mean = |values: &mut dyn Iterator<Item = f64>| values.sum::<f64>() / images.len() as f64;
    let set = |(k, &threshold): (usize, &f64)| SetScores {
        threshold,
        covering: at(k).map(|s| s.cnt_r).sum::<f64>() / at(k).map(|s| s.sum_r).sum::<f64>(),
        rand_index: mean(&mut at(k).map(|s| s.rand_index)),
        variation: mean(&mut at(k).map(|s| s.variation)),
    };
    let curve: Vec<SetScores> = thresholds.iter().enumerate().map(set).collect();
    let chosen: Vec<(f64, Scores)> = images.iter().filter_map(|image| best_covering(thresholds, image)).collect();
    let annotated: f64 = chosen.iter().map(|(_, s)| s.sum_r).sum();
    let best_rand_index = |image: &ImageScores| image.scales.iter().map(|s| s.rand_index).fold(0.0, f64::max);
    let best_variation = |image: &ImageScores| image.scales.iter().map(|s| s.variation).fold(f64::INFINITY, f64::min);
    Summary {
        covering: maximum_of(curve.iter().map(|c| (c.threshold, c.covering))),
        covering_ois: chosen.iter().map(|(_, s)| s.cnt_r).sum::<f64>() / annotated,
        covering_best: images.iter().map(|image| image.best).sum::<f64>() / annotated,
        rand_index: maximum_of(curve.iter().map(|c| (c.threshold, c.rand_index))),
        rand_index_ois: mean(&mut images.iter().map(best_rand_index)),
        variation: minimum_of(curve.iter().map(|c| (c.threshold, c.variation))),
        variation_ois: mean(&mut images.iter().map(best_variation)),
        images: chosen
            .iter()
            .map(|&(threshold, s)| ImageBest { threshold, covering: s.covering(), covered: s.covered() })
            .collect(),
        curve,
    }
}

/// The scale with the maximum covering; the first of equal ones, as MATLAB's `max` returns.
fn best_covering(thresholds: &[f64], image: &ImageScores) -> Option<(f64, Scores)> {
    let scales = thresholds.iter().copied().zip(image.scales.iter().copied());
    scales.reduce(|a, b| if b.1.covering() > a.1.covering() { b } else { a })
}

fn maximum_of(values: impl Iterator<Item = (f64, f64)>) -> Best {
    let best = values.reduce(|a, b| if b.1 > a.1 { b } else { a });
    best.map(|(threshold, value)| Best { threshold, value }).unwrap_or_default()
}

fn minimum_of(values: impl Iterator<Item = (f64, f64)>) -> Best {
    // The minimum is the maximum of the negated values, which also keeps the first of equal ones.
    let best = maximum_of(values.map(|(threshold, value)| (threshold, -value)));
    Best { value: -best.value, ..best }
}

impl Summary {
    /// Writes the files of the benchmark: `eval_cover.txt`, `eval_cover_th.txt`, `eval_cover_img.txt`,
    /// `eval_RI_VOI.txt`, `eval_RI_VOI_thr.txt`, and for each image `NAME_ev2.txt` (counts of the covering),
    /// `NAME_ev3.txt` (the best count) and `NAME_ev4.txt` (Rand index and variation of information).
    pub fn save(&self, folder: &Path, names: &[String], thresholds: &[f64], images: &[ImageScores]) -> Result<()> {
        let _folder = Folder::create(folder)?;
        let write = |name: &str, lines: String| write_atomic(folder.join(name), lines.as_bytes());
        for (name, image) in names.iter().zip(images) {
            let scales = || thresholds.iter().zip(&image.scales);
            let counts = scales().map(|(&t, s)| line([t, s.cnt_r, s.sum_r, s.cnt_p, s.sum_p]));
            write(&format!("{name}_ev2.txt"), counts.collect())?;
            write(&format!("{name}_ev3.txt"), line([image.best]))?;
            let others = scales().map(|(&t, s)| line([t, s.rand_index, s.variation]));
            write(&format!("{name}_ev4.txt"), others.collect())?;
        }
        let images = self.images.iter().enumerate();
        let images = images.map(|(i, b)| line([(i + 1) as f64, b.threshold, b.covering, b.covered]));
        write("eval_cover_img.txt", images.collect())?;
        write("eval_cover_th.txt", self.curve.iter().map(|c| line([c.threshold, c.covering])).collect())?;
        let covering = [self.covering.threshold, self.covering.value, self.covering_ois, self.covering_best];
        write("eval_cover.txt", line(covering))?;
        let curve = self.curve.iter().map(|c| line([c.threshold, c.rand_index, c.variation]));
        write("eval_RI_VOI_thr.txt", curve.collect())?;
        let rand_index = [self.rand_index.threshold, self.rand_index.value, self.rand_index_ois];
        let variation = [self.variation.threshold, self.variation.value, self.variation_ois];
        write("eval_RI_VOI.txt", line(rand_index.into_iter().chain(variation)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(scales: [(f64, f64, f64, f64); 2], sum_r: f64, best: f64) -> ImageScores {
        let scale =
            |(cnt_r, cnt_p, rand_index, variation)| Scores { cnt_r, sum_r, cnt_p, sum_p: 10.0, rand_index, variation };
        ImageScores { scales: scales.map(scale).to_vec(), best }
    }

    #[test]
    fn covering_weighs_pixels_and_the_others_images() {
        // The first image is best at the first scale, the second at the second.
        let images = [
            image([(9.0, 8.0, 0.9, 0.5), (3.0, 2.0, 0.4, 2.0)], 10.0, 9.5),
            image([(6.0, 5.0, 0.5, 1.5), (24.0, 7.0, 0.8, 0.75)], 30.0, 27.0),
        ];
        let summary = summarise(&[0.25, 0.75], &images);
        let best = |threshold, value| Best { threshold, value };
        assert_eq!(summary.covering, best(0.75, 27.0 / 40.0));
        assert_eq!(summary.covering_ois, 33.0 / 40.0);
        assert_eq!(summary.covering_best, 36.5 / 40.0);
        let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-12, "{a} {b}");
        assert_eq!(summary.rand_index.threshold, 0.25);
        near(summary.rand_index.value, 0.7);
        near(summary.rand_index_ois, 0.85);
        assert_eq!(summary.variation, best(0.25, 1.0));
        near(summary.variation_ois, 0.625);
        let curve: Vec<_> = summary.curve.iter().map(|c| (c.threshold, c.covering)).collect();
        assert_eq!(curve, [(0.25, 15.0 / 40.0), (0.75, 27.0 / 40.0)]);
        let images: Vec<_> = summary.images.iter().map(|b| (b.threshold, b.covering, b.covered)).collect();
        assert_eq!(images, [(0.25, 0.9, 0.8), (0.75, 0.8, 0.7)]);
    }

    #[test]
    fn the_first_of_equal_scales_counts() {
        let equal = [image([(5.0, 1.0, 0.5, 1.0), (5.0, 2.0, 0.5, 1.0)], 10.0, 5.0)];
        let summary = summarise(&[0.25, 0.75], &equal);
        let thresholds = [summary.covering.threshold, summary.rand_index.threshold, summary.variation.threshold];
        assert_eq!(thresholds, [0.25; 3]);
        assert_eq!((summary.images[0].threshold, summary.images[0].covered), (0.25, 0.1));
    }
}
