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
    let disc = Disc::new(config.max_dist * (width as f64).hypot(height as f64));
    let truth: Vec<Points> = truth.iter().map(Points::new).collect();
    let measure = |mask: &Mask| {
        let mask = if config.protocol == Protocol::C { mask } else { &thin(mask) };
        compare(&Points::new(mask), &truth, &disc)
    };
    match detection {
        Detection::Segmentations(masks) => Ok(masks.par_iter().map(measure).collect()),
        Detection::Soft(map) => {
            let map = if config.protocol == Protocol::S { suppress(&map) } else { map };
            // A threshold of 0 would mark every pixel.
            let cut = |t: &f64| map.at_least(t.max(f64::EPSILON));
            let levels = config.levels();
            // The maps of rising thresholds are nested, so equal numbers of pixels mean equal maps: each is matched
            // only once.
            let sizes: Vec<usize> = levels.par_iter().map(|t| cut(t).count()).collect();
            let new = |k: usize| k == 0 || sizes[k] != sizes[k - 1];
            let one = |(k, t): (usize, &f64)| new(k).then(|| measure(&cut(t)));
            let counts: Vec<Option<Counts>> = levels.par_iter().enumerate().map(one).collect();
            let repeat = |last: &mut Counts, new: Option<Counts>| {
                *last = new.unwrap_or(*last);
                Some(*last)
            };
            Ok(counts.into_iter().scan(Counts::default(), repeat).collect())
        }
    }
}

/// The counts of one boundary map against every annotator's.
fn compare(detected: &Points, truth: &[Points], disc: &Disc) -> Counts {
    let mut any = vec![false; detected.len()];
    let mut counts = Counts { sum_p: detected.len() as u64, ..Counts::default() };
    for annotator in truth {
        counts.sum_r += annotator.len() as u64;
        for (any, matched) in any.iter_mut().zip(correspond(detected, annotator, disc)) {
            *any |= matched;
            counts.cnt_r += u64::from(matched);
        }
    }
    counts.cnt_p = any.iter().filter(|&&m| m).count() as u64;
    counts
}
