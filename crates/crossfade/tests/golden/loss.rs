//! Training losses and their gradients at given x_0, noise and t.
use crossfade::engine::{Device, Images, Tensor, column, from_host, to_host};
use crossfade::loss::{AuxEstimate, AuxWeight, Auxiliary, Noised, Objective, Pairing, Reduction};
use crossfade::math::{Adm, Attenuation, LossNorm, NoiseScale, Precond, Weighting};
use crossfade::nn::functional::upsample2x;
use crossfade::nn::weights::gradients;
use crossfade::nn::{Context, Denoiser, Mode};
use serde_json::Value;

use crate::case::Case;
use crate::compare::{self, l2};
use crate::edge;
use crate::formula::Rule;
use crate::nets;

/// What a case trains: the reference's class.
fn class(case: &Case) -> &str {
    case.json["module"].as_str().unwrap()
}

fn implemented(case: &Case) -> bool {
    nets::module(case).starts_with("uncond_unet")
}

pub fn skips(case: &Case) -> Vec<String> {
    let checked = implemented(case) || edge::is_edge(case);
    if checked { vec![] } else { vec![format!("network {}", nets::module(case))] }
}

fn process(case: &Case) -> Adm {
    let attenuation = if class(case).contains("linear") { Attenuation::Linear } else { Attenuation::Constant };
    let noise = if class(case).contains("const_2") { NoiseScale::Linear } else { NoiseScale::Sqrt };
    let precond = match case.json["preconditioning"].as_str() {
        Some(text) if text.starts_with("off") => Precond::None,
        Some(_) => Precond::Repeated,
        None if nets::older(case) => Precond::OlderRelease,
        None => Precond::default(),
    };
    Adm { t_min: case.json["eps"].as_f64().unwrap(), precond, ..Adm::new(attenuation, noise) }
}

fn denoiser(case: &Case, device: &Device) -> Denoiser {
    let mut net = nets::denoiser(case, device);
    net.process = process(case).into();
    net
}

/// The objective of the reference's class with a variant's options (§2.2–2.4).
fn objective(case: &Case, variant: &Value) -> Objective {
    let (latent, linear) = (class(case).contains("Latent"), class(case).contains("linear"));
    let older = nets::older(case) || linear;
    let noise = process(case).noise;
    let weighting = match (variant["weighting_loss"].as_bool().unwrap(), older, noise) {
        (false, ..) => Weighting::Ones,
        (true, true, _) => Weighting::OlderRelease,
        (true, false, NoiseScale::Sqrt) => Weighting::Reference,
        (true, false, NoiseScale::Linear) => Weighting::ReferenceLinear,
    };
    let auxiliary = if older {
        Auxiliary {
            estimate: AuxEstimate::Heads,
            l1: Some(Reduction::Mean),
            weight: if latent { AuxWeight::Linear } else { AuxWeight::Square },
            pairing: Pairing::Mixed,
        }
    } else {
        let phi = !latent && noise == NoiseScale::Sqrt;
        Auxiliary {
            estimate: if phi { AuxEstimate::Phi } else { AuxEstimate::Heads },
            l1: latent.then_some(Reduction::Sum),
            weight: AuxWeight::HalfLog,
            pairing: Pairing::MixedSum,
        }
    };
    Objective {
        supervise: Default::default(),
        weighting,
        norm: if variant["use_l1"].as_bool().unwrap() { LossNorm::L1L2 } else { LossNorm::L2 },
        reduction: if older { Reduction::Mean } else { Reduction::Sum },
        l1_reduction: if latent && !older { Reduction::Sum } else { Reduction::Mean },
        auxiliary: Some(auxiliary),
        ..Objective::default()
    }
}

/// The stand-in for the perceptual network: the mean squared difference of each sample.
fn stand_in(a: Tensor<4>, b: Tensor<4>) -> Tensor<2> {
    (a - b).square().flatten::<2>(1, 3).mean_dim(1)
}

/// The term of `use_disloss` with the stand-in decoder that the case describes.
fn injected(case: &Case, net: &Denoiser, batch: &Noised) -> Tensor<1> {
    let heads = net.heads(batch.x_t.0.clone(), &batch.t, &Context::default());
    let coefs = |f: fn(f64) -> f64| column(&batch.t.iter().map(|&t| f(t)).collect::<Vec<_>>(), &Device::flex());
    // x_t − t·C − √t·eps, for constant attenuation.
    let estimate = batch.x_t.0.clone() - heads.phi * coefs(|t| t) - heads.eps * coefs(f64::sqrt);
    let text = case.json["variants"]["w0_l2_disloss"]["use_disloss"].as_str().unwrap();
    let scale = text.split("scale_factor ").find_map(|part| part.split(')').next()?.parse::<f64>().ok()).unwrap();
    let decoded = upsample2x(estimate.clone() / scale).clamp(-1.0, 1.0);
    let shape = decoded.dims();
    let values = Rule::Uniform.values(&format!("{}ori_input", case.salt), shape.iter().product());
    injected_gradient(estimate, decoded, from_host(&values, shape, &Device::flex()), &batch.t)
}

pub fn check(case: &Case) -> Vec<String> {
    if edge::is_edge(case) {
        return edge::loss(case);
    }
    if !implemented(case) {
        return vec![];
    }
    let device = Device::flex();
    let net = denoiser(case, &device.clone().autodiff());
    let shape: [usize; 4] = case.shape("x0").try_into().unwrap();
    let input = |key: &str| Images(from_host(&case.input(key, &shape), shape, &device));
    let drawn: Vec<Images> = (process(case).drawn_parts() > 0).then(|| input("K")).into_iter().collect();
    let batch = Noised::new(&net.process, input("x0"), &drawn, input("noise"), case.times());
    let heads = net.heads(batch.x_t.0.clone(), &batch.t, &Context::default());
    let single = nets::config(case).decoders == crossfade::nn::Decoders::One;
    let mut failures = compare::output(case, "x_t", &to_host(batch.x_t.0.clone()), false);
    failures.extend(compare::output(case, "phi", &to_host(heads.phi.inner()), single));
    failures.extend(compare::output(case, "eps", &to_host(heads.eps.inner()), single));
    for (name, variant) in case.json["variants"].as_object().unwrap() {
        let perceptual = name.ends_with("_perc").then_some(&stand_in as &dyn Fn(_, _) -> _);
        let mut loss = objective(case, variant).loss(&net, &batch, &Context::default(), Mode::Eval, perceptual);
        if name.ends_with("disloss") {
            loss.total = loss.total + injected(case, &net, &batch);
        }
        let total = loss.total.clone().into_scalar::<f32>();
        let mut near = |what: &str, got: f64, want: f64, relative: f64| {
            if got.is_nan() || (got - want).abs() > relative * want.abs().max(1e-12) {
                failures.push(format!("{name}: {what} {got:.9}, expected {want:.9}"));
            }
        };
        // Ten times the rounding of the reference, at least ten units of f32.
        let tolerance = (10.0 * variant["rel_diff"].as_f64().unwrap()).max(1e-6);
        near("loss", f64::from(total), variant["loss_f64run"].as_f64().unwrap(), tolerance);
        let grads = gradients(&net.network, loss.total.backward());
        let norms: Vec<(String, f64)> = grads
            .iter()
            .map(|(name, _, g)| (format!("model.{name}"), l2(&g.iter().map(|&v| f64::from(v)).collect::<Vec<_>>())))
            .collect();
        let global = l2(&norms.iter().map(|(_, n)| *n).collect::<Vec<_>>());
        let want = |run: &str| variant[&format!("grad_global_norm_{run}")].as_f64().unwrap();
        let spread = ((want("f32run") / want("f64run") - 1.0).abs() * 10.0).max(1e-5);
        near("gradient norm", global, want("f64run"), spread);
        for (parameter, want) in variant["grad_l2_f64run"].as_object().unwrap() {
            let got = norms.iter().find(|(name, _)| name == parameter).unwrap().1;
            near(&format!("gradient of {parameter}"), got, want.as_f64().unwrap(), spread.max(2e-5));
        }
    }
    failures
}

/// The older release's "distillation" of decoded images (§2.4): a term whose value is 1. What is handed out as the gradient
/// of every element of `estimate` is one and the same number, mean((1 − t)²)·mean|decoded − image|/2 over the number of
/// elements. It is the gradient of nothing.
///
/// # Shapes
/// `estimate` `[B, C, H, W]` is x̂_0, `decoded` and `image` `[B, 3, f·H, f·W]` in [−1, 1], `t` one time a sample.
fn injected_gradient(estimate: Tensor<4>, decoded: Tensor<4>, image: Tensor<4>, t: &[f64]) -> Tensor<1> {
    let count = estimate.dims().iter().product::<usize>() as f64;
    let weight = t.iter().map(|t| (1.0 - t).powi(2)).sum::<f64>() / t.len() as f64;
    let distance = f64::from((decoded.inner() - image).abs().mean().into_scalar::<f32>()) / 2.0;
    let moved = estimate.clone() - estimate.detach();
    moved.sum() * (weight * distance / count) + 1.0
}
