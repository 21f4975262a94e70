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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::{Purpose, Stream};

    fn level(v: f64) -> usize {
        (0..LEVELS).rev().find(|&k| v >= k as f64 / 255.0).unwrap_or_default()
    }

    #[test]
    fn the_level_is_the_largest_threshold_that_a_value_reaches() {
        for k in 0..LEVELS {
            let v = k as f64 / 255.0;
            for v in [v, v.next_up(), v.next_down().max(0.0), v + 0.5 / 255.0] {
                assert_eq!(level_of(v.min(1.0)), level(v.min(1.0)), "{v} near {k}/255");
            }
            assert_eq!(level_of(v), k, "the threshold itself counts");
        }
    }

    #[test]
    fn overlaps_equal_those_of_cutting_at_every_threshold() {
        for case in 0..20 {
            let mut random = Stream::new(5, case, 0, Purpose::Lab);
            let values: Vec<f64> = (0..60).map(|_| (random.uniform() * 255.0).round() / 255.0).collect();
            let bits: Vec<bool> = (0..60).map(|_| random.uniform() < 0.4).collect();
            let map = Map { width: 10, height: 6, values };
            let mask = Mask { width: 10, height: 6, bits };
            let cut = |threshold: f64| {
                let count = |wanted: bool| {
                    map.values.iter().zip(&mask.bits).filter(|(v, bit)| **v >= threshold && **bit == wanted).count()
                };
                Overlap { hits: count(true), false_alarms: count(false), salient: mask.count(), pixels: 60 }
            };
            let found = overlaps(&map, &mask);
            assert_eq!(found.len(), LEVELS);
            found.into_iter().enumerate().for_each(|(k, overlap)| assert_eq!(overlap, cut(k as f64 / 255.0)));
            let mean = map.values.iter().sum::<f64>() / 60.0;
            assert_eq!(adaptive(&map, &mask), cut((2.0 * mean).min(1.0)));
        }
    }

    #[test]
    fn shares_of_nothing_are_zero_and_others_are_fractions() {
        let of = |hits, false_alarms, salient| Overlap { hits, false_alarms, salient, pixels: 20 };
        assert_eq!((of(3, 1, 4).precision(), of(3, 1, 6).recall()), (0.75, 0.5));
        assert_eq!((of(0, 0, 4).precision(), of(0, 5, 0).recall()), (0.0, 0.0));
        assert_eq!(mean_and_max(&[0.25, 1.0, 0.25]), (0.5, 1.0));
    }
}
