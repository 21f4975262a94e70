//! The moving average of weights: a simulated run and a table of decays.
use crossfade::math::{EmaAction, EmaSchedule};
use crossfade_kernels::ema_update;
use serde_json::Value;

use crate::case::Case;
use crate::compare;
use crate::formula::Rule;

/// The schedule that a case describes.
pub fn schedule(about: &Value) -> EmaSchedule {
    EmaSchedule {
        beta: about["beta"].as_f64().unwrap(),
        update_after: about["update_after_step"].as_u64().unwrap(),
        update_every: about["update_every"].as_u64().unwrap_or(1),
    }
}

/// What the schedule says of `step`, done to `ema`.
pub fn average(schedule: &EmaSchedule, step: u64, ema: &mut [f32], online: &[f32]) {
    match schedule.action(step) {
        EmaAction::Skip => {}
        EmaAction::Copy => ema_update(ema, online, 0.0),
        EmaAction::Average(decay) => ema_update(ema, online, decay),
    }
}

pub fn check(case: &Case) -> Vec<String> {
    // "w (6), b (3)"
    let columns = case.json["column_order"].as_str().unwrap().split(", ");
    let columns: Vec<(&str, usize)> = columns
        .map(|column| column.trim_end_matches(')').split_once(" (").unwrap())
        .map(|(name, count)| (name, count.parse().unwrap()))
        .collect();
    let run = schedule(&case.json);
    let mut ema = vec![0.0; columns.iter().map(|(_, count)| count).sum()];
    let mut rows = vec![];
    for step in 0..case.json["outputs"]["ema_after_update"]["shape"][0].as_u64().unwrap() {
        let name = |column: &str| format!("{}ema.{step}.{column}", case.salt);
        let online: Vec<f32> =
            columns.iter().flat_map(|&(column, count)| Rule::Unit.values(&name(column), count)).collect();
        average(&run, step, &mut ema, &online);
        rows.extend_from_slice(&ema);
    }
    let mut failures = compare::output(case, "ema_after_update", &rows, false);

    let table = schedule(&case.json["decay_table"]);
    for (step, want) in case.json["decay_table"]["decay"].as_object().unwrap() {
        let got = table.decay(step.parse::<i64>().unwrap() - table.update_after as i64);
        if (got - want.as_f64().unwrap()).abs() > 1e-12 {
            failures.push(format!("decay at step {step}: {got}, expected {want}"));
        }
    }
    failures
}
