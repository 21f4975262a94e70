//! Statistics of the inpainting masks: the generator draws other numbers, so its law is compared, not its masks.
use crossfade::rng::{Purpose, Stream};
use crossfade::task::masks::random;
use rayon::prelude::*;
use serde_json::Value;

use crate::case::Case;

/// The stored quantiles with a limit for the difference of two samples of `n`: five standard errors √(q(1−q)/n)/density,
/// the density from the neighbouring quantiles. Runs of the reference's own generator differ by up to 0.06 between seeds.
fn quantiles(want: &Value, n: f64) -> Vec<(f64, Value, f64)> {
    let mut all: Vec<(f64, f64)> = (want["quantiles"].as_object().unwrap().iter())
        .map(|(q, value)| (q.parse().unwrap(), value.as_f64().unwrap()))
        .collect();
    all.sort_by(|a, b| a.0.total_cmp(&b.0));
    let limit = |i: usize| {
        let (low, high) = (all[i.saturating_sub(1)], all[(i + 1).min(all.len() - 1)]);
        let (q, density) = (all[i].0, (high.0 - low.0) / (high.1 - low.1));
        (5.0 * (2.0 * q * (1.0 - q) / n).sqrt() / density).max(0.03)
    };
    (0..all.len()).map(|i| (all[i].0, all[i].1.into(), limit(i))).collect()
}

pub fn check(case: &Case) -> Vec<String> {
    let n = case.json["n"].as_u64().unwrap();
    let mut failures = vec![];
    for (size, want) in case.json["sizes"].as_object().unwrap() {
        let side: usize = size.parse().unwrap();
        let masks: Vec<_> =
            (0..n).into_par_iter().map(|k| random(&mut Stream::new(0, k, 0, Purpose::Mask), side, side, 1.0)).collect();
        let mut holes: Vec<f64> = masks.iter().map(|mask| mask.hole()).collect();
        let mean = holes.iter().sum::<f64>() / n as f64;
        let deviation = (holes.iter().map(|h| (h - mean).powi(2)).sum::<f64>() / n as f64).sqrt();
        holes.sort_by(f64::total_cmp);
        let mut row = |what: &str, got: f64, key: &Value, limit: f64| {
            let want = key.as_f64().unwrap();
            if (got - want).abs() > limit {
                failures.push(format!("{size}: {what} {got:.4}, expected {want:.4} ± {limit:.4}"));
            }
        };
        // Four standard errors of the difference of two means.
        let error = want["stderr_of_mean"].as_f64().unwrap() * 2f64.sqrt();
        row("mean", mean, &want["mean"], 4.0 * error);
        row("deviation", deviation, &want["std"], 4.0 * error);
        for (q, value, limit) in quantiles(want, n as f64) {
            let place = (q * (n - 1) as f64).round() as usize;
            row(&format!("quantile {q}"), holes[place], &value, limit);
        }
        for (i, cells) in want["hole_probability_4x4_cells"].as_array().unwrap().iter().enumerate() {
            for (j, cell) in cells.as_array().unwrap().iter().enumerate() {
                let quarter = side / 4;
                let unknown = masks.iter().map(|mask| {
                    let rows =
                        (i * quarter..(i + 1) * quarter).map(|y| &mask.known[y * side + j * quarter..][..quarter]);
                    rows.flatten().filter(|known| !**known).count()
                });
                let share = unknown.sum::<usize>() as f64 / (n as usize * quarter * quarter) as f64;
                row(&format!("cell {i},{j}"), share, cell, 0.05);
            }
        }
    }
    failures
}
