//! Computes ODS, OIS, AP and R50 from counts, and writes the benchmark's text files.
use std::path::Path;

use serde::Serialize;

use super::counts::Counts;
use super::f_measure;
use crate::error::Result;
use crate::files::{Folder, write_atomic};

/// A point of a precision-recall curve.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Point {
    /// The threshold of this point.
    pub threshold: f64,
    /// Recall.
    pub recall: f64,
    /// Precision.
    pub precision: f64,
    /// The harmonic mean of recall and precision.
    pub f: f64,
}

/// The benchmark's results for a set of images.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// Optimal dataset scale: the best point of the dataset's curve, with one threshold for all images.
    pub ods: Point,
    /// Optimal image scale: recall, precision and F with each image at its own best threshold. The field `threshold`
    /// is 0 and has no meaning here.
    pub ois: Point,
    /// Average precision: the area under the curve.
    pub ap: f64,
    /// Recall at a precision of one half; `None` if precision never reaches it.
    pub r50: Option<f64>,
    /// The curve of the dataset.
    pub curve: Vec<Point>,
    /// The best point of each image's curve.
    pub images: Vec<Point>,
}

/// Summarises the counts of images, each at all `thresholds`.
pub fn summarise(thresholds: &[f64], images: &[Vec<Counts>]) -> Summary {
    let mut total = vec![Counts::default(); thresholds.len()];
    let mut best = Counts::default();
    for counts in images {
        total.iter_mut().zip(counts).for_each(|(sum, c)| *sum += *c);
        // The first of equal maxima, as MATLAB's `max` returns.
        let first = counts.iter().copied().reduce(|a, b| if b.f() > a.f() { b } else { a });
        best += first.unwrap_or_default();
    }
    let curve = curve(thresholds, &total);
    Summary {
        ods: best_point(&curve),
        ois: Point { threshold: 0.0, recall: best.recall(), precision: best.precision(), f: best.f() },
        ap: average_precision(&curve),
        r50: recall_at_half(&curve),
        images: images.iter().map(|counts| best_point(&self::curve(thresholds, counts))).collect(),
        curve,
    }
}

fn curve(thresholds: &[f64], counts: &[Counts]) -> Vec<Point> {
    let point =
        |(&threshold, c): (&f64, &Counts)| Point { threshold, recall: c.recall(), precision: c.precision(), f: c.f() };
    thresholds.iter().zip(counts).map(point).collect()
}

/// The maximum F on the line segments between the points, each evaluated at 100 positions as in the benchmark.
fn best_point(curve: &[Point]) -> Point {
    let mut best = curve.first().copied().unwrap_or_default();
    for pair in curve.windows(2) {
        for step in 0..100 {
            let d = f64::from(step) / 99.0;
            let mix = |a: f64, b: f64| b * d + a * (1.0 - d);
            let (recall, precision) = (mix(pair[0].recall, pair[1].recall), mix(pair[0].precision, pair[1].precision));
            let f = f_measure(recall, precision);
            if f > best.f {
                best = Point { threshold: mix(pair[0].threshold, pair[1].threshold), recall, precision, f };
            }
        }
    }
    best
}

/// The points sorted by x, with only the first of points with equal x.
fn unique(points: impl Iterator<Item = (f64, f64)>) -> Vec<(f64, f64)> {
    let mut points: Vec<_> = points.collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    points.dedup_by(|b, a| b.0 == a.0);
    points
}

/// Linear interpolation of `points` at `x`; `None` outside of their range.
fn interpolate(points: &[(f64, f64)], x: f64) -> Option<f64> {
    let i = points.partition_point(|p| p.0 < x);
    let (x1, y1) = *points.get(i)?;
    if x1 == x {
        return Some(y1);
    }
    let (x0, y0) = *points.get(i.checked_sub(1)?)?;
    Some(y0 + (y1 - y0) * (x - x0) / (x1 - x0))
}

/// The benchmark's area under the curve: the sum of the precisions at the recalls 0, 0.01, …, 1, with zero outside of
/// the curve, divided by 100.
fn average_precision(curve: &[Point]) -> f64 {
    let points = unique(curve.iter().map(|p| (p.recall, p.precision)));
    if points.len() < 2 {
        return 0.0;
    }
    (0..=100).filter_map(|i| interpolate(&points, f64::from(i) / 100.0)).sum::<f64>() / 100.0
}

/// Recall at a precision of one half, or at the lowest precision if that is higher.
fn recall_at_half(curve: &[Point]) -> Option<f64> {
    let points = unique(curve.iter().map(|p| (p.precision, p.recall)));
    interpolate(&points, points.first()?.0.max(0.5))
}

impl Summary {
    /// Writes the files of the benchmark: `eval_bdry.txt`, `eval_bdry_thr.txt`, `eval_bdry_img.txt`, and the counts
    /// of each image as `NAME_ev1.txt`.
    pub fn save(&self, folder: &Path, names: &[String], thresholds: &[f64], images: &[Vec<Counts>]) -> Result<()> {
        let _folder = Folder::create(folder)?;
        for (name, counts) in names.iter().zip(images) {
            let rows = thresholds
                .iter()
                .zip(counts)
                .map(|(&t, c)| line([t].into_iter().chain([c.cnt_r, c.sum_r, c.cnt_p, c.sum_p].map(|n| n as f64))));
            write_atomic(folder.join(format!("{name}_ev1.txt")), rows.collect::<String>().as_bytes())?;
        }
        let row = |p: &Point| [p.threshold, p.recall, p.precision, p.f];
        let images = self.images.iter().enumerate().map(|(i, p)| line([(i + 1) as f64].into_iter().chain(row(p))));
        write_atomic(folder.join("eval_bdry_img.txt"), images.collect::<String>().as_bytes())?;
        let curve = self.curve.iter().map(|p| line(row(p)));
        write_atomic(folder.join("eval_bdry_thr.txt"), curve.collect::<String>().as_bytes())?;
        let all = row(&self.ods).into_iter().chain([self.ois.recall, self.ois.precision, self.ois.f, self.ap]);
        write_atomic(folder.join("eval_bdry.txt"), line(all).as_bytes())
    }
}

/// A line of numbers in the format of C's `%10g`.
pub(in crate::metrics) fn line(numbers: impl IntoIterator<Item = f64>) -> String {
    let cells: Vec<String> = numbers.into_iter().map(|n| format!("{:>10}", six_digits(n))).collect();
    cells.join(" ") + "\n"
}

/// The format of C's `%g`: six significant digits without trailing zeros.
fn six_digits(n: f64) -> String {
    if n == 0.0 {
        return "0".into();
    }
    let scientific = format!("{n:.5e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let trim = |text: &str| {
        if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_string() } else { text.to_string() }
    };
    if (-4..6).contains(&exponent) {
        trim(&format!("{n:.*}", (5 - exponent).max(0) as usize))
    } else {
        format!("{}e{}{:02}", trim(digits), if exponent < 0 { '-' } else { '+' }, exponent.abs())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_c_writes_them() {
        let numbers = [0.166667, 1.0, 0.0, 11555.0, 1234567.0, 0.00001234, 0.5, 999999.5];
        let texts = ["0.166667", "1", "0", "11555", "1.23457e+06", "1.234e-05", "0.5", "1e+06"];
        assert_eq!(numbers.map(six_digits), texts);
    }

    #[test]
    fn a_perfect_detector_scores_one() {
        let all = Counts { cnt_r: 10, sum_r: 10, cnt_p: 4, sum_p: 4 };
        let summary = summarise(&[0.25, 0.5, 0.75], &[vec![all; 3], vec![all; 3]]);
        assert_eq!((summary.ods.f, summary.ois.f, summary.r50), (1.0, 1.0, Some(1.0)));
    }

    fn point(threshold: f64, recall: f64, precision: f64) -> Point {
        Point { threshold, recall, precision, f: f_measure(recall, precision) }
    }

    /// Precision falls linearly from 1 to 0.6 while recall rises from 0.25 to 0.75.
    fn falling() -> Vec<Point> {
        vec![point(0.2, 0.75, 0.6), point(0.5, 0.5, 0.8), point(0.8, 0.25, 1.0)]
    }

    #[test]
    fn the_area_is_a_sum_over_recalls_within_the_curve() {
        // Precision is 1.2 − 0.8 r at the recalls 0.25, 0.26, …, 0.75.
        let sum: f64 = (25..=75).map(|i| 1.2 - 0.8 * f64::from(i) / 100.0).sum();
        assert!((average_precision(&falling()) - sum / 100.0).abs() < 1e-12);
        assert_eq!(average_precision(&falling()[..1]), 0.0);
        assert_eq!(average_precision(&[]), 0.0);
    }

    #[test]
    fn recall_at_half_is_interpolated_where_precision_reaches_it() {
        let steep = [point(0.1, 0.9, 0.2), point(0.5, 0.5, 0.6)];
        // From 0.2 to 0.6, one half is three quarters of the way.
        assert!((recall_at_half(&steep).unwrap_or_default() - 0.6).abs() < 1e-12);
        assert_eq!(recall_at_half(&falling()), Some(0.75), "the lowest precision is above one half");
        assert_eq!(recall_at_half(&[point(0.1, 0.9, 0.2), point(0.2, 0.5, 0.4)]), None);
        assert_eq!(recall_at_half(&[]), None);
    }

    #[test]
    fn interpolation_takes_the_first_of_equal_places_and_ends_at_the_ends() {
        let points = unique([(2.0, 5.0), (1.0, 3.0), (2.0, 9.0)].into_iter());
        assert_eq!(points, [(1.0, 3.0), (2.0, 5.0)]);
        for (x, y) in [(1.0, Some(3.0)), (1.25, Some(3.5)), (2.0, Some(5.0)), (0.9, None), (2.1, None)] {
            assert_eq!(interpolate(&points, x), y, "at {x}");
        }
    }

    #[test]
    fn the_best_point_may_lie_between_thresholds() {
        // From (recall 1, precision 0.5) to (0.5, 1) the best F is in the middle, 0.75, where 99 steps come near.
        let best = best_point(&[point(0.2, 1.0, 0.5), point(0.8, 0.5, 1.0)]);
        assert!((best.f - 0.75).abs() < 1e-4 && (best.threshold - 0.5).abs() < 0.01, "{best:?}");
        assert!((best.recall - 0.75).abs() < 0.01 && (best.precision - 0.75).abs() < 0.01, "{best:?}");
        assert_eq!(best_point(&[point(0.2, 0.5, 0.5), point(0.5, 0.9, 0.9)]).f, 0.9);
        assert_eq!(best_point(&[]), Point::default());
    }

    #[test]
    fn a_dataset_has_one_threshold_and_an_image_its_own() {
        let counts = |cnt_r, cnt_p| Counts { cnt_r, sum_r: 10, cnt_p, sum_p: 10 };
        // The first image is best at the first threshold, the second at the second.
        let images = [vec![counts(9, 9), counts(4, 4)], vec![counts(2, 2), counts(8, 8)]];
        let summary = summarise(&[0.25, 0.75], &images);
        assert_eq!(summary.curve.iter().map(|p| p.recall).collect::<Vec<_>>(), [0.55, 0.6]);
        assert_eq!(summary.curve.iter().map(|p| p.threshold).collect::<Vec<_>>(), [0.25, 0.75]);
        assert!((summary.ods.f - 0.6).abs() < 1e-12 && (summary.ods.threshold - 0.75).abs() < 1e-12);
        assert!((summary.ois.f - 0.85).abs() < 1e-12 && summary.ois.threshold == 0.0);
        assert_eq!((summary.ois.recall, summary.ois.precision), (0.85, 0.85));
        assert_eq!(summary.images.iter().map(|p| p.threshold).collect::<Vec<_>>(), [0.25, 0.75]);
        // Of equal maxima the first: it decides about recall and precision.
        let tie = [vec![
            Counts { cnt_r: 2, sum_r: 4, cnt_p: 3, sum_p: 3 },
            Counts { cnt_r: 4, sum_r: 4, cnt_p: 1, sum_p: 2 },
        ]];
        assert_eq!(summarise(&[0.25, 0.75], &tie).ois.recall, 0.5);
    }
}
