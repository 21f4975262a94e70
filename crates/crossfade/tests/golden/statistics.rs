//! Statistics of the inpainting masks: the generator draws other numbers, so its law is compared, not its masks.
use crossfade::rng::{Purpose, Stream};
use crossfade::task::masks::random;
use rayon::prelude::*;

use crate::case::Case;

pub fn check(case: &Case) -> Vec<String> {
    let n = case.json["n"].as_u64().unwrap();
    let mut failures = vec![];
    for (size, want) in case.json["sizes"].as_object().unwrap() {
        let side: usize = size.parse().unwrap();
        let masks: Vec<_> =
            (0..n).into_par_iter().map(|k| random(&mut Stream::new(0, k, 0, Purpose::Mask), side, side)).collect();
        let mut holes: Vec<f64> = masks.iter().map(|mask| mask.hole()).collect();
        let mean = holes.iter().sum::<f64>() / n as f64;
        let deviation = (holes.iter().map(|h| (h - mean).powi(2)).sum::<f64>() / n as f64).sqrt();
        holes.sort_by(f64::total_cmp);
        let mut row = |what: &str, got: f64, key: &serde_json::Value, limit: f64| {
            let want = key.as_f64().unwrap();
            if (got - want).abs() > limit {
                failures.push(format!("{size}: {what} {got:.4}, expected {want:.4} ± {limit:.4}"));
            }
        };
        // Four standard errors of the difference of two means.
        let error = want["stderr_of_mean"].as_f64().unwrap() * 2f64.sqrt();
        row("mean", mean, &want["mean"], 4.0 * error);
        row("deviation", deviation, &want["std"], 4.0 * error);
        for (q, value) in want["quantiles"].as_object().unwrap() {
            let place = (q.parse::<f64>().unwrap() * (n - 1) as f64).round() as usize;
            row(&format!("quantile {q}"), holes[place], value, 0.03);
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
