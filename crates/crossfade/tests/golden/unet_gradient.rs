//! Gradients of L = Σ phi·w_phi + Σ eps·w_eps with respect to the input and to every parameter.
use std::collections::BTreeMap;

use crossfade::engine::{Device, Tensor, from_host, to_host};
use crossfade::nn::Context;
use crossfade::nn::weights::gradients;
use crossfade::tensorfile::HostTensor;
use serde_json::Value;

use crate::case::{Case, floats};
use crate::compare::{self, l2};
use crate::nets;

pub fn check(case: &Case) -> Vec<String> {
    let device = Device::flex().autodiff();
    let net = nets::denoiser(case, &device);
    let shape: [usize; 4] = case.shape("x").try_into().unwrap();
    let input = |key: &str| from_host(&case.input(key, &shape), shape, &device);
    let x = input("x").require_grad();
    let labels = case.json["inputs"]["augment_labels"].is_object().then(|| {
        let shape: [usize; 2] = case.shape("augment_labels").try_into().unwrap();
        from_host(&case.input("augment_labels", &shape), shape, &device)
    });

    let heads = net.heads(x.clone(), &case.times(), &Context::default().with_labels(labels));
    let loss: Tensor<1> = (heads.phi * input("w_phi")).sum() + (heads.eps * input("w_eps")).sum();
    let mut failures = compare::output(case, "loss", &to_host(loss.clone()), false);
    let mut backward = loss.backward();
    failures.extend(compare::output(case, "grad_x", &to_host(x.grad_remove(&mut backward).unwrap()), false));
    failures.extend(parameters(case, &gradients(&net.network, backward)));
    failures
}

fn parameters(case: &Case, gradients: &[HostTensor]) -> Vec<String> {
    let ours: BTreeMap<String, Vec<f64>> = (gradients.iter())
        .map(|(name, _, values)| (format!("model.{name}"), values.iter().map(|&v| f64::from(v)).collect()))
        .collect();
    let all = &case.json["all_params"];
    let global = all["global_norm_f64run"].as_f64().unwrap();
    // What a sum that is exactly zero (k_conv.bias: softmax is shift-invariant) may leave in f32.
    let floor = 1e-9 * global;
    let mut failures = Vec::new();
    let mut require = |what: String, got: f64, want: f64, limit: f64| {
        if got.is_nan() || (got - want).abs() > limit {
            failures.push(format!("gradient of {what}: {got:.9e}, expected {want:.9e} ± {limit:.1e}"));
        }
    };
    for (name, want) in case.json["gradients"].as_object().unwrap() {
        let (got, error) = (&ours[name], &want["f32_vs_f64"]);
        let error = |key: &str| 10.0 * error[key].as_f64().unwrap();
        let size = want["l2"].as_f64().unwrap();
        let relative = error("rel_l2") * size + floor;
        for (i, (got, want)) in got.iter().zip(floats(&want["first16_f64run"])).enumerate() {
            require(format!("{name}[{i}]"), *got, want, error("max_abs") + floor);
        }
        require(format!("{name}, norm"), l2(got), size, relative);
        let sum = want["sum"].as_f64().unwrap();
        require(format!("{name}, sum"), got.iter().sum(), sum, relative * (got.len() as f64).sqrt());
    }
    let norms: &Value = &all["l2"];
    for (name, want) in norms.as_object().unwrap() {
        // Ten times the rounding errors of the reference (golden README, section 5).
        let relative = if name.contains("q_conv") { 6e-5 } else { 2.2e-5 };
        let want = want.as_f64().unwrap();
        require(format!("{name}, norm"), l2(&ours[name]), want, relative * want + floor);
    }
    let norm = l2(&ours.values().map(|g| l2(g)).collect::<Vec<_>>());
    require("all parameters, norm".into(), norm, global, 1e-6 * global);
    if norms.as_object().unwrap().len() != ours.len() {
        failures.push(format!(
            "{} parameters have gradients, {} expected",
            ours.len(),
            norms.as_object().unwrap().len()
        ));
    }
    failures
}
