//! The conditional networks: both heads, intermediate results, and gradients.
use std::collections::BTreeMap;

use crossfade::engine::{Device, from_host, to_host, vector};
use crossfade::nn::weights::gradients;
use crossfade::nn::{Mode, Network};

use crate::case::{Case, floats};
use crate::compare::{self, l2};
use crate::cond_nets;
use crate::formula::Rule;

pub fn check(case: &Case) -> Vec<String> {
    let device = Device::flex().autodiff();
    let net = cond_nets::denoiser(case, &device);
    let shape: [usize; 4] = case.shape("x").try_into().unwrap();
    let x = from_host(&case.input("x", &shape), shape, &device);
    let t = case.times();
    let condition = cond_nets::condition(case, &device);
    let Network::CondUNet(cond_unet) = &net.network else { unreachable!("a conditional network") };
    let adm = net.process.adm().unwrap();
    let asked = |name: &str| case.json["outputs"][name].is_object();
    let mut failures = Vec::new();
    if asked("swin_stage1") {
        failures.extend(stages(case, &cond_unet.stages(condition.clone(), Mode::Eval)));
    }

    let features = cond_unet.encode(condition, Mode::Eval);
    let c_noise: Vec<f64> = t.iter().map(|&t| adm.scalings(t).c_noise).collect();
    let mut tap = |name: &'static str, value: &crossfade::engine::Tensor<4>| {
        if asked(name) {
            failures.extend(compare::output(case, name, &to_host(value.clone().inner()), false));
        }
    };
    // The conditional nets have no c_in.
    let raw = cond_unet.observed(x.clone(), vector(&c_noise, &device), &features, Mode::Eval, &mut tap);
    let single = raw.eps.is_none();
    let heads = net.precondition(x, &t, raw);
    failures.extend(compare::output(case, "phi", &to_host(heads.phi.clone().inner()), single));
    failures.extend(compare::output(case, "eps", &to_host(heads.eps.clone().inner()), single));

    if case.json["gradients"].is_object() {
        let weights = |name: &str| {
            let values = Rule::Unit.values(&format!("{}{name}", case.salt), shape.iter().product());
            from_host(&values, shape, &device)
        };
        let loss = (heads.phi * weights("w_phi")).sum() + (heads.eps * weights("w_eps")).sum();
        failures.extend(compare_gradients(case, gradients(&net.network, loss.backward())));
    }
    failures
}

/// The outputs of the encoder's stages.
pub fn stages(case: &Case, stages: &[crossfade::engine::Tensor<4>]) -> Vec<String> {
    let check = |(i, stage): (usize, &crossfade::engine::Tensor<4>)| {
        let stage = if stage.is_autodiff() { stage.clone().inner() } else { stage.clone() };
        compare::output(case, &format!("swin_stage{}", i + 1), &to_host(stage), false)
    };
    stages.iter().enumerate().flat_map(check).collect()
}

fn compare_gradients(case: &Case, gradients: Vec<crossfade::tensorfile::HostTensor>) -> Vec<String> {
    let table = &case.json["gradients"];
    let ours: BTreeMap<String, Vec<f64>> =
        (gradients.into_iter()).map(|(name, _, values)| (name, values.into_iter().map(f64::from).collect())).collect();
    let mut failures = Vec::new();
    let mut require = |what: String, got: f64, want: f64, limit: f64| {
        if got.is_nan() || (got - want).abs() > limit {
            failures.push(format!("gradient of {what}: {got:.9e}, expected {want:.9e} ± {limit:.1e}"));
        }
    };
    for (name, want) in table["params"].as_object().unwrap() {
        let Some(got) = ours.get(name) else {
            require(format!("{name}, missing"), f64::NAN, 0.0, 0.0);
            continue;
        };
        let error = |key: &str| 10.0 * want["f32_vs_f64"][key].as_f64().unwrap();
        let size = want["l2"].as_f64().unwrap();
        for (i, (got, want)) in got.iter().zip(floats(&want["first16_f64run"])).enumerate() {
            require(format!("{name}[{i}]"), *got, want, error("max_abs"));
        }
        require(format!("{name}, norm"), l2(got), size, error("rel_l2") * size);
        let limit = error("rel_l2") * size * (got.len() as f64).sqrt();
        require(format!("{name}, sum"), got.iter().sum(), want["sum"].as_f64().unwrap(), limit);
    }
    let norm = l2(&ours.values().map(|g| l2(g)).collect::<Vec<_>>());
    let (single, double) =
        (table["global_norm_f32run"].as_f64().unwrap(), table["global_norm_f64run"].as_f64().unwrap());
    require("all parameters, norm".into(), norm, double, 10.0 * (single - double).abs().max(1e-6 * double));
    let silent = table["parameters_without_gradient"].as_array().unwrap();
    for name in silent.iter().filter_map(|name| name.as_str()) {
        if ours.contains_key(name) {
            failures.push(format!("{name} has a gradient"));
        }
    }
    let statistics = ours.keys().filter(|name| crossfade::nn::named::is_buffer(name));
    failures.extend(statistics.map(|name| format!("{name} has a gradient")));
    failures
}
