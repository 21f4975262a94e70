//! Scores of one image: how well segmentations agree with human ones.
//!
//! The three measures are those of Arbeláez, Maire, Fowlkes and Malik, "Contour detection and hierarchical image
//! segmentation", 2011. With n_uv pixels that region u of S and region v of S' share, n_u and n_v pixels in each and N
//! in the image:
//!
//! - covering of S' by S: Σ_v n_v max_u O(u, v) / N, where O(u, v) = n_uv / (n_u + n_v − n_uv);
//! - Rand index: 1 − (Σ n_u² + Σ n_v² − 2 Σ n_uv²) / (N (N − 1)), the share of pixel pairs on which both agree;
//! - variation of information: H(S) + H(S') − 2 I(S, S') = (Σ n_u log n_u + Σ n_v log n_v − 2 Σ n_uv log n_uv) / N.
use serde::Serialize;

use super::segmentation::Segmentation;

/// The agreement of one segmentation with those of all annotators.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Scores {
    /// Pixels of the annotators' regions, each region weighted by its best overlap with a region of this
    /// segmentation.
    pub cnt_r: f64,
    /// Pixels of the annotators' regions.
    pub sum_r: f64,
    /// Pixels of this segmentation's regions, each region weighted by its best overlap with a region of any
    /// annotator.
    pub cnt_p: f64,
    /// Pixels of this segmentation's regions.
    pub sum_p: f64,
    /// Probabilistic Rand index: the mean of the Rand index over annotators.
    pub rand_index: f64,
    /// The mean of the variation of information over annotators, in bits.
    pub variation: f64,
}

impl Scores {
    /// How well this segmentation covers the annotators' regions.
    pub fn covering(&self) -> f64 {
        self.cnt_r / self.sum_r
    }

    /// How well the annotators' regions cover those of this segmentation.
    pub fn covered(&self) -> f64 {
        self.cnt_p / self.sum_p
    }
}

/// The agreement of one image's segmentations at all scales.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ImageScores {
    /// The scores of each segmentation.
    pub scales: Vec<Scores>,
    /// `cnt_r` if each of the annotators' regions uses its best region of any scale.
    pub best: f64,
}

/// An annotator's segmentation, with its pixels grouped by region.
pub struct Truth {
    segmentation: Segmentation,
    pixels: Vec<u32>,
}

impl Truth {
    /// Groups the pixels by region, with a counting sort.
    pub fn new(segmentation: Segmentation) -> Self {
        let mut next: Vec<usize> = Vec::with_capacity(segmentation.areas.len());
        let mut start = 0;
        for &area in &segmentation.areas {
            next.push(start);
            start += area as usize;
        }
        let mut pixels = vec![0; start];
        for (pixel, &region) in segmentation.regions.iter().enumerate() {
            pixels[next[region as usize]] = pixel as u32;
            next[region as usize] += 1;
        }
        Self { segmentation, pixels }
    }

    /// Width and height.
    pub fn size(&self) -> (usize, usize) {
        (self.segmentation.width, self.segmentation.height)
    }
}

/// Compares segmentations with those of all annotators; all must have the same size.
pub fn score(segmentations: impl IntoIterator<Item = Segmentation>, truth: &[Truth]) -> ImageScores {
    let areas: Vec<u64> = truth.iter().flat_map(|t| t.segmentation.areas.iter().copied()).collect();
    let mut best = vec![0.0f64; areas.len()];
    let mut scales = Vec::new();
    for segmentation in segmentations {
        let (scores, overlaps) = compare(&segmentation, truth);
        scales.push(scores);
        best.iter_mut().zip(overlaps).for_each(|(best, o)| *best = best.max(o));
    }
    ImageScores { scales, best: weighted_sum(&areas, &best) }
}

fn weighted_sum(areas: &[u64], overlaps: &[f64]) -> f64 {
    areas.iter().zip(overlaps).map(|(&area, overlap)| area as f64 * overlap).sum()
}

/// The scores, and the best overlap of each region of each annotator.
fn compare(segmentation: &Segmentation, truth: &[Truth]) -> (Scores, Vec<f64>) {
    let areas = &segmentation.areas;
    // Only the entries that an annotator's region touches are reset, instead of a table of all pairs of regions.
    let mut shared = vec![0u64; areas.len()];
    let mut touched: Vec<u32> = Vec::new();
    let (mut covered, mut covering) = (vec![0.0f64; areas.len()], Vec::new());
    let mut scores = Scores::default();
    for annotator in truth {
        let mut both = Sums::default();
        let mut remaining = annotator.pixels.as_slice();
        for &area in &annotator.segmentation.areas {
            let (pixels, others) = remaining.split_at(area as usize);
            remaining = others;
            for &pixel in pixels {
                let region = segmentation.regions[pixel as usize];
                if shared[region as usize] == 0 {
                    touched.push(region);
                }
                shared[region as usize] += 1;
            }
            let mut best = 0.0f64;
            for u in touched.drain(..).map(|u| u as usize) {
                let n = std::mem::take(&mut shared[u]);
                let overlap = n as f64 / (areas[u] + area - n) as f64;
                best = best.max(overlap);
                covered[u] = covered[u].max(overlap);
                both.add(n);
            }
            covering.push(best);
            scores.cnt_r += area as f64 * best;
            scores.sum_r += area as f64;
        }
        let (ours, theirs) = (Sums::of(areas), Sums::of(&annotator.segmentation.areas));
        scores.rand_index += rand_index(&ours, &theirs, &both);
        scores.variation += variation(&ours, &theirs, &both);
    }
    scores.rand_index /= truth.len() as f64;
    scores.variation /= truth.len() as f64;
    scores.cnt_p = weighted_sum(areas, &covered);
    scores.sum_p = segmentation.regions.len() as f64;
    (scores, covering)
}

/// Sums over the regions of a partition.
#[derive(Default)]
struct Sums {
    /// Σ n
    pixels: u64,
    /// Σ n²
    squares: u64,
    /// Σ n log₂ n
    logs: f64,
}

impl Sums {
    fn of(areas: &[u64]) -> Self {
        let mut sums = Self::default();
        areas.iter().for_each(|&n| sums.add(n));
        sums
    }

    fn add(&mut self, n: u64) {
        self.pixels += n;
        self.squares += n * n;
        self.logs += n as f64 * (n as f64).log2();
    }
}

fn rand_index(ours: &Sums, theirs: &Sums, both: &Sums) -> f64 {
    let pairs = both.pixels * (both.pixels - 1);
    let disagreements = ours.squares + theirs.squares - 2 * both.squares;
    if pairs == 0 { 1.0 } else { 1.0 - disagreements as f64 / pairs as f64 }
}

fn variation(ours: &Sums, theirs: &Sums, both: &Sums) -> f64 {
    // Rounding may leave a small negative number where both partitions are equal.
    ((ours.logs + theirs.logs - 2.0 * both.logs) / both.pixels as f64).max(0.0)
}
