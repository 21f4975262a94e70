//! AdamW, clipping, learning rate and EMA against the reference.
#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::print_stderr)]
use crossfade::math::{EmaAction, EmaSchedule, LrSchedule};
use crossfade_kernels::{AdamW, adamw_step, ema_update, sum_sq};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// u in [−1, 1) of the golden vectors' value formula.
fn u(name: &str, index: usize) -> f64 {
    let fnv = |h: u64, byte: u8| (h ^ u64::from(byte)).wrapping_mul(1_099_511_628_211);
    let hash = name.bytes().fold(14_695_981_039_346_656_037, fnv);
    let mut s = hash.wrapping_add(index as u64).wrapping_add(0x9E37_79B9_7F4A_7C15);
    s = (s ^ (s >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    s = (s ^ (s >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    s ^= s >> 31;
    (s >> 11) as f64 * 2f64.powi(-53) * 2.0 - 1.0
}

/// `n` values factor·u of the tensor `name`.
fn values(name: &str, n: usize, factor: f64) -> Vec<f32> {
    (0..n).map(|i| (factor * u(name, i)) as f32).collect()
}

/// The values of a little-endian f32 `.npy` file.
fn npy(path: &Path) -> Vec<f32> {
    let bytes = std::fs::read(path).unwrap();
    let header = 10 + usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
    assert!(bytes.starts_with(b"\x93NUMPY\x01") && bytes[10..header].windows(5).any(|w| w == b"'<f4'"));
    bytes[header..].as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect()
}

/// Every golden case of this kind; none when the vectors are absent.
fn cases(kind: &str) -> Vec<(PathBuf, Value)> {
    let default = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/golden/public");
    let root = std::env::var("CROSSFADE_GOLDEN").unwrap_or(default.into());
    let Ok(folders) = std::fs::read_dir(&root) else {
        eprintln!("skipped: no golden vectors in {root}; set CROSSFADE_GOLDEN to their folder");
        return vec![];
    };
    let mut paths: Vec<PathBuf> = folders.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let parse = |path: PathBuf| {
        let text = std::fs::read_to_string(path.join("case.json")).ok()?;
        // Cases of other kinds may hold NaN, which is not JSON.
        let wanted = text.contains(&format!("\"kind\": \"{kind}\""));
        wanted.then(|| (path, serde_json::from_str(&text).unwrap()))
    };
    let found: Vec<_> = paths.into_iter().filter_map(parse).collect();
    if found.is_empty() {
        eprintln!("skipped: no case of kind {kind} in {root}");
    }
    found
}

/// Fails if `actual` is farther from the case's output (its f64 run, if any) than the case allows, or than rounding
/// if it does not say.
fn compare(folder: &Path, case: &Value, output: &str, actual: &[f32]) {
    let about = &case["outputs"][output];
    let expected = npy(&folder.join(about["file_f64run"].as_str().or(about["file"].as_str()).unwrap()));
    assert_eq!(actual.len(), expected.len());
    let difference = || actual.iter().zip(&expected).map(|(a, e)| f64::from(a - e));
    let max_abs = difference().fold(0.0, |max, d| d.abs().max(max));
    let l2 = |x: &mut dyn Iterator<Item = f64>| x.map(|x| x * x).sum::<f64>().sqrt();
    let rel_l2 = l2(&mut difference()) / l2(&mut expected.iter().map(|&e| f64::from(e)));
    let tolerance = |name: &str| about["tolerance"][name].as_f64().unwrap_or(1e-6);
    println!("{} {output}: max_abs {max_abs:.1e}, rel_l2 {rel_l2:.1e}", case["case"]);
    assert!(max_abs <= tolerance("max_abs"), "{} {output}: off by {max_abs:e}", case["case"]);
    assert!(rel_l2 <= tolerance("rel_l2"), "{} {output}: relatively off by {rel_l2:e}", case["case"]);
}

fn ema_schedule(about: &Value) -> EmaSchedule {
    EmaSchedule {
        beta: about["beta"].as_f64().unwrap(),
        update_after: about["update_after_step"].as_u64().unwrap(),
        update_every: about["update_every"].as_u64().unwrap_or(1),
    }
}

fn average(schedule: &EmaSchedule, step: u64, ema: &mut [f32], online: &[f32]) {
    match schedule.action(step) {
        EmaAction::Skip => {}
        EmaAction::Copy => ema_update(ema, online, 0.0),
        EmaAction::Average(decay) => ema_update(ema, online, decay),
    }
}

/// Name, size, and factor of the parameter rule, read off "weight [3,4], bias [3]".
fn parameters(case: &Value) -> Vec<(&'static str, usize, f64)> {
    let shape = |text: &str| -> Vec<usize> {
        text.split(']').next().unwrap().split(',').map(|n| n.trim().parse().unwrap()).collect()
    };
    let shapes: Vec<_> = case["model"].as_str().unwrap().split('[').skip(1).map(shape).collect();
    let [weight, bias] = shapes.as_slice() else { panic!("a linear model has two parameters") };
    let fan_in = weight[1..].iter().product::<usize>() as f64;
    vec![("weight", weight.iter().product(), (3.0 / fan_in).sqrt()), ("bias", bias[0], 0.1)]
}

#[test]
fn golden_optimizer_run() {
    for (folder, case) in cases("optimizer") {
        let number = |key: &str| case[key].as_f64().unwrap();
        let salt = case["salt"].as_str().unwrap();
        let about = &case["schedule"];
        let lr = LrSchedule {
            base: number("lr"),
            floor: about["min_lr"].as_f64().unwrap(),
            steps: about["train_num_steps"].as_u64().unwrap(),
            warmup: about["warmup_iter"].as_u64().unwrap(),
            ..Default::default()
        };
        let ema_schedule = ema_schedule(&case["ema"]);
        let parameters = parameters(&case);
        let mut param: Vec<f32> =
            parameters.iter().flat_map(|&(name, n, factor)| values(&format!("{salt}{name}"), n, factor)).collect();
        let (mut m, mut v, mut ema) = (vec![0.0; param.len()], vec![0.0; param.len()], param.clone());
        let (mut params, mut emas) = (vec![], vec![]);
        for step in 0..case["outputs"]["params"]["shape"][0].as_u64().unwrap() {
            let factor = if step % 2 == 0 { 3.0 } else { 0.1 } * 3f64.sqrt();
            let grad: Vec<f32> = parameters
                .iter()
                .flat_map(|&(name, n, _)| values(&format!("{salt}grad.{step}.{name}"), n, factor))
                .collect();
            let norm = sum_sq(&grad).sqrt();
            let expected = case["grad_norm_before_clip"]["f64run"][step as usize].as_f64().unwrap();
            assert!((norm - expected).abs() < 1e-6 * expected, "norm {norm} at step {step}");
            let lr = lr.at(step);
            let expected = case["lr_used"][step as usize].as_f64().unwrap();
            assert!((lr - expected).abs() < 1e-12, "learning rate {lr} at step {step}");

            let h = AdamW {
                lr,
                beta1: case["betas"][0].as_f64().unwrap(),
                beta2: case["betas"][1].as_f64().unwrap(),
                adam_eps: number("adam_eps"),
                weight_decay: number("weight_decay"),
                step: step + 1,
                grad_scale: (1.0 / (norm + 1e-6)).min(1.0),
            };
            adamw_step(&mut param, &mut m, &mut v, &grad, &h);
            average(&ema_schedule, step, &mut ema, &param);
            params.extend_from_slice(&param);
            emas.extend_from_slice(&ema);
        }
        compare(&folder, &case, "params", &params);
        compare(&folder, &case, "ema", &emas);
        compare(&folder, &case, "exp_avg", &m);
        compare(&folder, &case, "exp_avg_sq", &v);
    }
}

#[test]
fn golden_ema_run_and_decay_table() {
    for (folder, case) in cases("ema") {
        let schedule = ema_schedule(&case);
        let salt = case["salt"].as_str().unwrap();
        // "w (6), b (3)"
        let columns: Vec<(&str, usize)> = case["column_order"]
            .as_str()
            .unwrap()
            .split(", ")
            .map(|column| column.trim_end_matches(')').split_once(" (").unwrap())
            .map(|(name, n)| (name, n.parse().unwrap()))
            .collect();
        let mut ema = vec![0.0; columns.iter().map(|c| c.1).sum()];
        let mut rows = vec![];
        for step in 0..case["outputs"]["ema_after_update"]["shape"][0].as_u64().unwrap() {
            let online: Vec<f32> = columns
                .iter()
                .flat_map(|&(name, n)| values(&format!("{salt}ema.{step}.{name}"), n, 3f64.sqrt()))
                .collect();
            average(&schedule, step, &mut ema, &online);
            rows.extend_from_slice(&ema);
        }
        compare(&folder, &case, "ema_after_update", &rows);

        let table = &case["decay_table"];
        let schedule = ema_schedule(table);
        for (step, decay) in table["decay"].as_object().unwrap() {
            let k = step.parse::<i64>().unwrap() - schedule.update_after as i64;
            assert!((schedule.decay(k) - decay.as_f64().unwrap()).abs() < 1e-12, "decay at step {step}");
        }
    }
}
