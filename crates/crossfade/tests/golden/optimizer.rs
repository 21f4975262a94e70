//! AdamW with clipping, learning rate and moving average over a few steps of given gradients.
use crossfade::math::LrSchedule;
use crossfade_kernels::{AdamW, adamw_step, sum_sq};

use crate::case::{Case, floats, usizes};
use crate::compare;
use crate::ema;
use crate::formula::{parameter, values};

/// Names and shapes of the parameters, read off "weight [3,4], bias [3]".
fn parameters(case: &Case) -> [(&'static str, Vec<usize>); 2] {
    let model = case.json["model"].as_str().unwrap();
    let shapes: Vec<Vec<usize>> = (model.split('[').skip(1))
        .map(|text| serde_json::from_str(&format!("[{}]", text.split(']').next().unwrap())).unwrap())
        .collect();
    let [weight, bias] = shapes.try_into().expect("a linear model has two parameters");
    [("weight", weight), ("bias", bias)]
}

fn lr_schedule(case: &Case) -> LrSchedule {
    let about = &case.json["schedule"];
    LrSchedule {
        base: case.json["lr"].as_f64().unwrap(),
        floor: about["min_lr"].as_f64().unwrap(),
        steps: about["train_num_steps"].as_u64().unwrap(),
        warmup: about["warmup_iter"].as_u64().unwrap(),
        ..Default::default()
    }
}

pub fn check(case: &Case) -> Vec<String> {
    let mut failures = vec![];
    let mut near = |what: &str, step: u64, got: f64, want: f64, limit: f64| {
        if got.is_nan() || (got - want).abs() > limit {
            failures.push(format!("{what} at step {step}: {got}, expected {want}"));
        }
    };
    let number = |key: &str| case.json[key].as_f64().unwrap();
    let [beta1, beta2] = floats(&case.json["betas"]).try_into().unwrap();
    let norms = floats(&case.json["grad_norm_before_clip"]["f64run"]);
    let rates = floats(&case.json["lr_used"]);
    let (lr, ema_schedule, parameters) = (lr_schedule(case), ema::schedule(&case.json["ema"]), parameters(case));

    let salted = |name: &str| format!("{}{name}", case.salt);
    let mut param: Vec<f32> = parameters.iter().flat_map(|(name, shape)| parameter(&salted(name), shape)).collect();
    let (mut m, mut v, mut ema) = (vec![0.0; param.len()], vec![0.0; param.len()], param.clone());
    let (mut params, mut emas) = (vec![], vec![]);
    for step in 0..usizes(&case.json["outputs"]["params"]["shape"])[0] as u64 {
        let factor = if step % 2 == 0 { 3.0 } else { 0.1 } * 3f64.sqrt();
        let gradient = |(name, shape): &(&str, Vec<usize>)| {
            values(&salted(&format!("grad.{step}.{name}")), shape.iter().product(), |u| factor * u)
        };
        let grad: Vec<f32> = parameters.iter().flat_map(gradient).collect();
        let (norm, want) = (sum_sq(&grad).sqrt(), norms[step as usize]);
        near("gradient norm", step, norm, want, 1e-6 * want);
        near("learning rate", step, lr.at(step), rates[step as usize], 1e-12);
        let h = AdamW {
            lr: lr.at(step),
            beta1,
            beta2,
            adam_eps: number("adam_eps"),
            weight_decay: number("weight_decay"),
            step: step + 1,
            grad_scale: (1.0 / (norm + 1e-6)).min(1.0),
        };
        adamw_step(&mut param, &mut m, &mut v, &grad, &h);
        ema::average(&ema_schedule, step, &mut ema, &param);
        params.extend_from_slice(&param);
        emas.extend_from_slice(&ema);
    }
    for (name, values) in [("params", &params), ("ema", &emas), ("exp_avg", &m), ("exp_avg_sq", &v)] {
        failures.extend(compare::output(case, name, values, false));
    }
    failures
}
