//! Counts of a map at the thresholds k / 255 for k from 0 to 255, and summaries of the curves over them.
use super::super::maps::{Map, Mask};

/// Number of thresholds of a curve.
pub(super) const LEVELS: usize = 256;

/// The overlap of a binary map with its mask.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Overlap {
    /// True positives: salient pixels that were found.
    pub hits: usize,
    /// False positives: pixels found that are not salient.
    pub false_alarms: usize,
    /// Salient pixels of the mask.
    pub salient: usize,
    /// All pixels.
    pub pixels: usize,
}

impl Overlap {
    /// The share of found pixels that are salient; zero if none was found.
    pub fn precision(&self) -> f64 {
        self.hits as f64 / (self.hits + self.false_alarms).max(1) as f64
    }

    /// The share of salient pixels that were found; zero if none is salient.
    pub fn recall(&self) -> f64 {
        self.hits as f64 / self.salient.max(1) as f64
    }
}

/// The overlap of the pixels of at least k / 255 with the mask, for every k: a histogram and its cumulative sums from
/// above, instead of 256 passes.
pub(super) fn overlaps(map: &Map, mask: &Mask) -> Vec<Overlap> {
    let mut levels = vec![Overlap { salient: mask.count(), pixels: mask.bits.len(), ..Overlap::default() }; LEVELS];
    for (&v, &salient) in map.values.iter().zip(&mask.bits) {
        let level = &mut levels[level_of(v)];
        *(if salient { &mut level.hits } else { &mut level.false_alarms }) += 1;
    }
    for k in (1..LEVELS).rev() {
        levels[k - 1].hits += levels[k].hits;
        levels[k - 1].false_alarms += levels[k].false_alarms;
    }
    levels
}

/// The largest k for which `v >= k / 255` holds in f64, where rounding may differ from exact arithmetic.
fn level_of(v: f64) -> usize {
    let guess = (v * 255.0) as usize;
    [guess + 1, guess].into_iter().find(|&k| k < LEVELS && v >= k as f64 / 255.0).unwrap_or(guess.saturating_sub(1))
}

/// The overlap at the adaptive threshold: twice the map's mean, at most 1.
pub(super) fn adaptive(map: &Map, mask: &Mask) -> Overlap {
    let mean = map.values.iter().sum::<f64>() / map.values.len() as f64;
    let threshold = (2.0 * mean).min(1.0);
    let mut overlap = Overlap { salient: mask.count(), pixels: mask.bits.len(), ..Overlap::default() };
    for (_, &salient) in map.values.iter().zip(&mask.bits).filter(|(v, _)| **v >= threshold) {
        *(if salient { &mut overlap.hits } else { &mut overlap.false_alarms }) += 1;
    }
    overlap
}

/// The mean and the maximum of a curve.
pub(super) fn mean_and_max(curve: &[f64]) -> (f64, f64) {
    (curve.iter().sum::<f64>() / curve.len() as f64, curve.iter().copied().fold(0.0, f64::max))
}
