//! Comparison with stored outputs, within ten times the rounding error of the reference itself.
use serde_json::Value;

use crate::case::{Case, floats, usizes};

/// The limit where a case does not say: outputs of order 1 that were computed in f32 only.
const ROUNDING: f64 = 1e-6;

/// All ways in which `values`, the full output `name`, differs from the reference.
///
/// `per_sample`: judge the largest difference sample by sample (outputs that divide by sigma, golden README section 2).
pub fn output(case: &Case, name: &str, values: &[f32], per_sample: bool) -> Vec<String> {
    output_within(case, name, values, per_sample, ROUNDING)
}

/// As [`output`], with a limit of the largest difference for cases that do not say.
pub fn output_within(case: &Case, name: &str, values: &[f32], per_sample: bool, limit: f64) -> Vec<String> {
    let spec = &case.json["outputs"][name];
    let stride = spec["stride"].as_u64().unwrap_or(1) as usize;
    let stored = case.stored(name);
    let count: usize = usizes(&spec["shape"]).iter().product();
    if values.len() != count || stored.len() != count.div_ceil(stride) {
        return vec![format!("{name}: {} values, {count} expected, {} stored", values.len(), stored.len())];
    }
    let ours: Vec<f64> = values.iter().step_by(stride).map(|&v| f64::from(v)).collect();
    let differences: Vec<f64> = ours.iter().zip(&stored).map(|(a, b)| (a - b).abs()).collect();
    let tolerance = |key: &str| spec["tolerance"][key].as_f64().unwrap_or(ROUNDING);
    let samples = &spec["f32_vs_f64"]["per_sample_max_abs"];
    let limits = match samples.as_array() {
        Some(_) if per_sample && stride == 1 => floats(samples).into_iter().map(|m| 10.0 * m).collect(),
        _ => vec![spec["tolerance"]["max_abs"].as_f64().unwrap_or(limit)],
    };
    let mut failures = Vec::new();
    for (i, (limit, part)) in limits.iter().zip(differences.chunks(differences.len() / limits.len())).enumerate() {
        let worst = part.iter().fold(0.0, |a: f64, b| if b.is_nan() { f64::NAN } else { a.max(*b) });
        if worst.is_nan() || worst > *limit {
            failures.push(format!("{name}: largest difference {worst:.3e} in part {i}, limit {limit:.1e}"));
        }
    }
    let (distance, relative) = (l2(&differences), tolerance("rel_l2"));
    let size = l2(&stored);
    if distance.is_nan() || distance > relative * size {
        failures.push(format!("{name}: relative L2 {:.3e}, limit {relative:.1e}", distance / size));
    }
    let run = if spec["f64run_stats"].is_object() { "f64run_stats" } else { "full_stats" };
    failures.extend(statistics(name, values, &spec[run], relative));
    failures
}

/// Differences between the statistics of `values` and the stored ones.
///
/// A relative error r of the tensor moves its norm by at most r·‖x‖ and its sums by at most r·‖x‖·√n.
pub fn statistics(name: &str, values: &[f32], want: &Value, relative: f64) -> Vec<String> {
    let values: Vec<f64> = values.iter().map(|&v| f64::from(v)).collect();
    let number = |key: &str| want[key].as_f64().unwrap();
    let size = number("l2");
    let sum_limit = relative * size * number("count").sqrt();
    let rows = [
        ("count", values.len() as f64, 0.0),
        ("sum", values.iter().sum(), sum_limit),
        ("abs_sum", values.iter().map(|v| v.abs()).sum(), sum_limit),
        ("l2", l2(&values), relative * size),
    ];
    let off = rows
        .into_iter()
        .filter(|(key, got, limit)| (got - number(key)).abs().partial_cmp(limit).is_none_or(|o| o.is_gt()));
    off.map(|(key, got, limit)| format!("{name}: {key} {got}, expected {} ± {limit:.1e}", number(key))).collect()
}

pub fn l2(values: &[f64]) -> f64 {
    values.iter().map(|v| v * v).sum::<f64>().sqrt()
}
