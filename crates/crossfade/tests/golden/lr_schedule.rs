//! Learning-rate multipliers of the training scripts.
use crossfade::math::LrSchedule;
use serde_json::Value;

use crate::case::{Case, floats, usizes};

pub fn check(case: &Case) -> Vec<String> {
    let json = &case.json;
    let number = |of: &Value, key: &str| of[key].as_f64().unwrap();
    let schedule = |of: &Value, warmup, exponent| LrSchedule {
        base: number(of, "lr"),
        floor: number(of, "min_lr"),
        steps: number(of, "train_num_steps") as u64,
        warmup,
        exponent,
    };
    let warm = schedule(json, 5000, 0.96);
    let plain = schedule(json, 0, 0.96);
    // The older release took the floor for a ratio.
    let slip = LrSchedule { floor: plain.floor * plain.base, ..plain };
    let vae = schedule(&json["vae"], 0, 0.95);
    let ratio = |s: LrSchedule| move |i| s.ratio(i);
    let rate = |s: LrSchedule| move |i| s.at(i);
    let mut failures = vec![];
    let mut compare = |name: &str, of: &Value, key: &str, got: &dyn Fn(u64) -> f64| {
        for (step, want) in usizes(&of["steps"]).into_iter().zip(floats(&of[key])) {
            let got = got(step as u64);
            if (got - want).abs() > 1e-12 * want.abs() {
                failures.push(format!("{name} at {step}: {got}, expected {want}"));
            }
        }
    };
    compare("warm-up", json, "uncond_warmup_ratio", &ratio(warm));
    compare("warm-up rate", json, "uncond_lr", &rate(warm));
    compare("paper", json, "cond_ratio", &ratio(plain));
    compare("paper rate", json, "cond_lr", &rate(plain));
    compare("older release", json, "ddm_cond_ratio", &ratio(slip));
    compare("edge", json, "edge_cond_ratio", &ratio(slip));
    compare("autoencoder", &json["vae"], "ratio", &ratio(vae));
    compare("autoencoder rate", &json["vae"], "lr_values", &rate(vae));
    failures
}
