//! Counts the corresponding pixels of one image at every threshold.
use std::path::Path;

use rayon::prelude::*;
use serde::Serialize;

use super::super::maps::Mask;
use super::ground_truth::Detection;
use super::matching::{Disc, Points, correspond};
use super::nms::suppress;
use super::thin::thin;
use super::{EdgesConfig, Protocol};
use crate::error::{Error, Result};

/// The benchmark's four counts of one image, or of many, at one threshold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Pixels of the ground truth that were found, summed over annotators.
    pub cnt_r: u64,
    /// Pixels of the ground truth, summed over annotators.
    pub sum_r: u64,
    /// Detected pixels that correspond to at least one annotator's.
    pub cnt_p: u64,
    /// Detected pixels.
    pub sum_p: u64,
}

impl Counts {
    /// Recall: the share of the ground truth that was found.
    pub fn recall(&self) -> f64 {
        self.cnt_r as f64 / self.sum_r.max(1) as f64
    }

    /// Precision: the share of detected pixels that correspond to the ground truth.
    pub fn precision(&self) -> f64 {
        self.cnt_p as f64 / self.sum_p.max(1) as f64
    }

    /// The harmonic mean of recall and precision.
    pub fn f(&self) -> f64 {
        super::f_measure(self.recall(), self.precision())
    }
}

impl std::ops::AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.cnt_r += other.cnt_r;
        self.sum_r += other.sum_r;
        self.cnt_p += other.cnt_p;
        self.sum_p += other.sum_p;
    }
}

/// The counts of one image at every threshold; `path` is the map's file, for error messages.
pub fn count(detection: Detection, truth: &[Mask], config: &EdgesConfig, path: &Path) -> Result<Vec<Counts>> {
    let (width, height) = detection.size();
    if let Some(other) = truth.iter().find(|m| (m.width, m.height) != (width, height)) {
        let (w, h) = (other.width, other.height);
        return Err(Error::file(path, format!("{width}x{height} pixels, but its ground truth has {w}x{h}")));
    }
    let disc = Disc::new(config.max_dist * (width as f64).hypot(height as f64), width, height);
    let truth: Vec<Points> = truth.iter().map(Points::new).collect();
    let measure = |mask: &Mask| {
        let mask = if config.protocol == Protocol::C { mask } else { &thin(mask) };
        compare(&Points::new(mask), &truth, &disc).map_err(|why| Error::file(path, why))
    };
    match detection {
        Detection::Segmentations(masks) => masks.par_iter().map(measure).collect(),
        Detection::Soft(map) => {
            let map = if config.protocol == Protocol::S { suppress(&map) } else { map };
            // A threshold of 0 would mark every pixel.
            let cut = |t: &f64| map.at_least(t.max(f64::EPSILON));
            let levels = config.levels();
            // The maps of rising thresholds are nested, so equal numbers of pixels mean equal maps: each is matched
            // only once.
            let sizes: Vec<usize> = levels.par_iter().map(|t| cut(t).count()).collect();
            let new = |k: usize| k == 0 || sizes[k] != sizes[k - 1];
            let one = |(k, t): (usize, &f64)| new(k).then(|| measure(&cut(t))).transpose();
            let counts: Vec<Option<Counts>> = levels.par_iter().enumerate().map(one).collect::<Result<_>>()?;
            let repeat = |last: &mut Counts, new: Option<Counts>| {
                *last = new.unwrap_or(*last);
                Some(*last)
            };
            Ok(counts.into_iter().scan(Counts::default(), repeat).collect())
        }
    }
}

/// The counts of one boundary map against every annotator's.
fn compare(detected: &Points, truth: &[Points], disc: &Disc) -> std::result::Result<Counts, String> {
    let mut any = vec![false; detected.len()];
    let mut counts = Counts { sum_p: detected.len() as u64, ..Counts::default() };
    for annotator in truth {
        counts.sum_r += annotator.len() as u64;
        for (any, matched) in any.iter_mut().zip(correspond(detected, annotator, disc)?) {
            *any |= matched;
            counts.cnt_r += u64::from(matched);
        }
    }
    counts.cnt_p = any.iter().filter(|&&m| m).count() as u64;
    Ok(counts)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::metrics::maps::Map;

    /// 40x30 pixels; a bar of rows 13 to 15 with a brightness for each, and columns 8 to 31.
    fn bar(rows: [f64; 3]) -> Map {
        let value = |i: usize| {
            let (x, y) = (i % 40, i / 40);
            if (8..32).contains(&x) && (13..16).contains(&y) { rows[y - 13] } else { 0.0 }
        };
        Map { width: 40, height: 30, values: (0..1200).map(value).collect() }
    }

    fn config(protocol: Protocol, thresholds: usize) -> EdgesConfig {
        EdgesConfig { thresholds, protocol, ..EdgesConfig::default() }
    }

    fn found(map: Map, truth: &[Mask], config: &EdgesConfig) -> Vec<Counts> {
        count(Detection::Soft(map), truth, config, Path::new("a.png")).unwrap()
    }

    #[test]
    fn the_protocol_says_what_is_thinned_and_suppressed() {
        let line = [bar([0.0, 1.0, 0.0]).at_least(0.5)];
        let of = |protocol| found(bar([0.9; 3]), &line, &config(protocol, 1))[0];
        let thick = of(Protocol::C);
        assert_eq!((thick.sum_p, thick.sum_r), (3 * 24, 24));
        let thinned = of(Protocol::AsIs);
        // Thinning takes the bar's ends off.
        assert_eq!(thinned.sum_p, thin(&bar([0.9; 3]).at_least(0.5)).count() as u64);
        assert!((20..=24).contains(&thinned.sum_p), "{thinned:?}");
        assert_eq!(thinned.cnt_p, thinned.sum_p, "all of them are near the line");
        // A ridge is suppressed to its crest, a threshold above which nothing is leaves nothing.
        let ridge = bar([0.4, 0.9, 0.4]);
        let mut suppressed = suppress(&ridge).at_least(0.5);
        suppressed = thin(&suppressed);
        let s = found(ridge.clone(), &line, &config(Protocol::S, 1))[0];
        assert_eq!(s.sum_p, suppressed.count() as u64);
        assert_ne!(s.sum_p, found(ridge, &line, &config(Protocol::C, 3))[0].sum_p);
    }

    #[test]
    fn segmentations_are_thinned_unless_the_protocol_says_no() {
        let masks = || vec![bar([1.0; 3]).at_least(0.5), bar([0.0, 1.0, 0.0]).at_least(0.5)];
        let truth = [bar([0.0, 1.0, 0.0]).at_least(0.5)];
        let of = |protocol| {
            let found = count(Detection::Segmentations(masks()), &truth, &config(protocol, 9), Path::new("a.mat"));
            found.unwrap().iter().map(|c| c.sum_p).collect::<Vec<_>>()
        };
        assert_eq!(of(Protocol::C), [72, 24]);
        let thinned = masks().iter().map(|mask| thin(mask).count() as u64).collect::<Vec<_>>();
        assert_eq!((of(Protocol::AsIs), of(Protocol::S)), (thinned.clone(), thinned));
    }

    /// Maps of equal pixels are measured once; the result must be that of measuring all of them.
    #[test]
    fn every_threshold_has_the_counts_of_its_own_map() {
        let map = bar([0.3, 0.9, 0.55]);
        let truth = [bar([0.0, 1.0, 0.0]).at_least(0.5), bar([1.0, 0.0, 0.0]).at_least(0.5)];
        for protocol in [Protocol::C, Protocol::AsIs] {
            let config = config(protocol, 19);
            let found = found(map.clone(), &truth, &config);
            assert_eq!(found.len(), 19);
            for (threshold, counts) in config.levels().into_iter().zip(&found) {
                let cut = map.at_least(threshold);
                let cut = if protocol == Protocol::C { cut } else { thin(&cut) };
                let alone = count(
                    Detection::Segmentations(vec![cut]),
                    &truth,
                    &EdgesConfig { protocol: Protocol::C, ..config },
                    Path::new("x"),
                );
                assert_eq!(*counts, alone.unwrap()[0], "{protocol:?} at {threshold}");
            }
            assert!(found.windows(2).any(|pair| pair[0] == pair[1]) && found.windows(2).any(|pair| pair[0] != pair[1]));
        }
    }

    #[test]
    fn a_pixel_counts_once_for_precision_and_for_each_annotator_for_recall() {
        let one = |at: usize| Mask { width: 40, height: 30, bits: (0..1200).map(|i| i == at).collect() };
        let map = Map { width: 40, height: 30, values: (0..1200).map(|i| f64::from(i == 410 || i == 900)).collect() };
        let counts = found(map, &[one(410), one(410), one(50)], &config(Protocol::C, 1))[0];
        assert_eq!(counts, Counts { cnt_r: 2, sum_r: 3, cnt_p: 1, sum_p: 2 });
        assert_eq!((counts.recall(), counts.precision()), (2.0 / 3.0, 0.5));
        assert!((counts.f() - 4.0 / 7.0).abs() < 1e-12);
        let none = Counts::default();
        assert_eq!((none.recall(), none.precision(), none.f()), (0.0, 0.0, 0.0));
        let mut sum = counts;
        sum += Counts { cnt_r: 10, sum_r: 20, cnt_p: 30, sum_p: 40 };
        assert_eq!(sum, Counts { cnt_r: 12, sum_r: 23, cnt_p: 31, sum_p: 42 });
        let other = Mask { width: 30, height: 40, bits: vec![false; 1200] };
        let map = Map { width: 40, height: 30, values: vec![0.0; 1200] };
        let error = count(Detection::Soft(map), &[other], &config(Protocol::C, 1), Path::new("a.png")).unwrap_err();
        assert!(error.to_string().contains("40x30 pixels, but its ground truth has 30x40"));
    }

    /// The disc of a line is as long as the tolerance and no higher than the line; white maps have too many pairs.
    #[test]
    fn what_would_take_gigabytes_is_short_or_refused() {
        let line = |value: f64| Map { width: 4 << 20, height: 1, values: vec![value; 4 << 20] };
        let counts = found(line(0.0), &[line(0.0).at_least(0.5)], &config(Protocol::C, 1))[0];
        assert_eq!(counts, Counts::default());
        let white = Map { width: 700, height: 700, values: vec![1.0; 700 * 700] };
        let truth = [white.at_least(0.5)];
        let error = count(Detection::Soft(white), &truth, &config(Protocol::C, 1), Path::new("a.png")).unwrap_err();
        assert!(error.to_string().contains("a.png") && error.to_string().contains("pairs of edge pixels"), "{error}");
    }

    #[test]
    fn a_threshold_of_zero_does_not_mark_everything() {
        let map = bar([0.0, 1.0, 0.0]);
        // The first of 999 thresholds is 0.001, and only more than nothing is a detection.
        let counts = found(map.clone(), &[map.at_least(0.5)], &config(Protocol::C, 999));
        assert!(counts.iter().all(|c| *c == counts[0]) && counts[0].sum_p == 24, "{:?}", counts[0]);
    }
}
