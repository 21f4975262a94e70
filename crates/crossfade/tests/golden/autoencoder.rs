//! The autoencoder, its discriminator and their losses.
use crossfade::engine::{Device, Tensor, from_host, to_host};
use crossfade::loss::{AutoencoderLoss, hinge};
use crossfade::nn::named::shapes;
use crossfade::nn::weights::{apply, collect, gradients};
use crossfade::nn::{Autoencoder, AutoencoderConfig, PatchGan, Posterior, Statistics};
use serde_json::Value;

use crate::case::{Case, usizes};
use crate::compare::{self, l2};
use crate::formula::{Rule, parameter};

/// The constructor settings of a case, in our words.
pub fn config(case: &Case) -> AutoencoderConfig {
    let settings = &case.json["settings"];
    let inner = &settings["ddconfig"];
    let number = |key: &str| inner[key].as_u64().unwrap() as usize;
    assert!(inner["attn_resolutions"].as_array().unwrap().is_empty() && inner["double_z"].as_bool().unwrap());
    assert_eq!(number("in_channels"), number("out_ch"));
    AutoencoderConfig {
        resolution: usizes(&inner["resolution"])[0],
        channels: number("in_channels"),
        width: number("ch"),
        mult: usizes(&inner["ch_mult"]),
        blocks: number("num_res_blocks"),
        bottleneck: number("z_channels"),
        latent: settings["embed_dim"].as_u64().unwrap() as usize,
    }
}

fn network(case: &Case, device: &Device) -> Autoencoder {
    let config = config(case);
    let shapes: std::collections::BTreeMap<_, _> = config.parameter_shapes().into_iter().collect();
    let source =
        |name: &str| Some((shapes.get(name)?.clone(), parameter(&format!("{}{name}", case.salt), &shapes[name])));
    apply(config.init(0, device), &source).unwrap()
}

fn discriminator(case: &Case, [channels, width, depth]: [usize; 3], prefix: &str, device: &Device) -> PatchGan {
    let net = PatchGan::new(channels, width, depth, 0, device);
    let shapes: std::collections::BTreeMap<_, _> = shapes(&net).into_iter().collect();
    let source = |name: &str| {
        Some((shapes.get(name)?.clone(), parameter(&format!("{}{prefix}{name}", case.salt), &shapes[name])))
    };
    apply(net, &source).unwrap()
}

fn input(case: &Case, key: &str, device: &Device) -> Tensor<4> {
    let shape: [usize; 4] = case.shape(key).try_into().unwrap();
    from_host(&case.input(key, &shape), shape, device)
}

pub fn check(case: &Case) -> Vec<String> {
    let device = Device::flex();
    let net = network(case, &device);
    let mut failures = vec![];
    let count = config(case).parameter_count();
    if case.json["param_count_without_loss"].as_u64() != Some(count as u64) {
        failures.push(format!("{count} parameters"));
    }
    let posterior = net.encode(input(case, "x", &device));
    let mut compare = |name: &str, values: Vec<f32>| failures.extend(compare::output(case, name, &values, false));
    // The stored moments are not yet clamped; these never reach the bounds.
    compare("moments", to_host(posterior.clone().moments()));
    compare("std", to_host(posterior.std()));
    compare("kl", to_host(posterior.kl()));
    compare("roundtrip_mode", to_host(net.decode(posterior.mode())));
    compare("decode_z", to_host(net.decode(input(case, "z", &device))));
    failures
}

pub fn check_discriminator(case: &Case) -> Vec<String> {
    let device = Device::flex();
    let sizes = ["input_nc", "ndf", "n_layers"].map(|key| case.json["settings"][key].as_u64().unwrap() as usize);
    let net = discriminator(case, sizes, "", &device);
    let x = input(case, "x", &device);
    let mut failures = compare::output(case, "logits_eval", &to_host(net.forward(x.clone())), false);
    let seen = Statistics::default();
    let logits = net.train_forward(x, &seen);
    failures.extend(compare::output(case, "logits_train", &to_host(logits), false));
    let after = collect(&seen.into_module(net));
    for output in case.json["outputs"].as_object().unwrap().keys() {
        let Some(name) = output.strip_prefix("after_train_") else { continue };
        // main_3_running_mean is main.3.running_mean.
        let name = name.replacen('_', ".", 2);
        let (_, _, values) = after.iter().find(|(n, ..)| *n == name).unwrap();
        failures.extend(compare::output(case, output, values, false));
    }
    failures
}

/// Numbers of a `vae_loss` run, within ten times the rounding of the reference and at least 1e-5.
fn near(run: &str, key: &str, got: f64, want: [&Value; 2]) -> Option<String> {
    let [f32run, f64run] = want.map(|v| v.as_f64().unwrap());
    let tolerance = (10.0 * (f32run - f64run).abs()).max(1e-5 * f64run.abs());
    ((got - f64run).abs() > tolerance || got.is_nan())
        .then(|| format!("{run}: {key} {got:.9}, expected {f64run:.9} ± {tolerance:.1e}"))
}

pub fn check_loss(case: &Case) -> Vec<String> {
    let device = Device::flex();
    let tracked = device.clone().autodiff();
    let net = network(case, &tracked);
    let options = &case.json["settings"]["lossconfig"];
    let number = |key: &str| options[key].as_f64().unwrap();
    let loss = AutoencoderLoss {
        kl_weight: number("kl_weight"),
        disc_weight: number("disc_weight"),
        disc_start: number("disc_start") as u64,
        perceptual: number("perceptual_weight"),
        ..AutoencoderLoss::default()
    };
    let channels = options["disc_in_channels"].as_u64().unwrap_or(3) as usize;
    let disc = discriminator(case, [channels, loss.disc_width, loss.disc_depth], "loss.discriminator.", &tracked);
    let x = input(case, "x", &device);
    let mut failures = vec![];
    for (run, want) in case.json["runs"].as_object().unwrap() {
        let (step, optimizer) = run.trim_start_matches("step").split_once("_optimizer").unwrap();
        let plays = step.parse::<u64>().unwrap() >= loss.disc_start;
        let noise = input(case, "posterior noise", &device);
        let generator = loss.generator_step(&net, plays.then_some(&disc), x.clone(), noise, None);
        let (logged, norms) = if optimizer == "0" {
            let t = generator.terms;
            let size = x.dims()[1..].iter().product::<usize>() as f64;
            let mut logged =
                vec![("loss", t.total), ("kl_loss", t.kl), ("nll_loss", t.nll), ("rec_loss", t.nll / size)];
            if plays {
                logged.extend([("g_loss", t.verdict), ("d_weight", t.verdict_weight)]);
            }
            (logged, gradients(&net, generator.gradients))
        } else if plays {
            let judged = loss.discriminator_step(&disc, x.clone(), generator.x_hat);
            let [real, fake] = judged.verdicts;
            let logged = vec![("loss", judged.loss), ("logits_real", real), ("logits_fake", fake)];
            let named = gradients(&disc, judged.gradients).into_iter();
            (logged, named.map(|(name, s, g)| (format!("loss.discriminator.{name}"), s, g)).collect())
        } else {
            (vec![("loss", 0.0)], vec![])
        };
        let (f32run, f64run) = (&want["f32run"], &want["f64run"]);
        for (key, got) in logged {
            let pick = |run: &'static str| {
                if key == "loss" { &want[run]["loss"] } else { &want[run]["log"][format!("train/{key}")] }
            };
            failures.extend(near(run, key, got, [pick("f32run"), pick("f64run")]));
        }
        for (name, _, g) in norms {
            if f64run["grad_l2"][&name].is_number() {
                let norm = l2(&g.iter().map(|&v| f64::from(v)).collect::<Vec<_>>());
                failures.extend(near(run, &name, norm, [&f32run["grad_l2"][&name], &f64run["grad_l2"][&name]]));
            }
        }
    }
    failures
}

/// Cases of kind `functions` that are ours.
pub fn check_functions(case: &Case) -> Vec<String> {
    let device = Device::flex();
    let mut failures = vec![];
    let logits = |name: &str| {
        let shape: [usize; 4] = usizes(&case.json["inputs"][name]).try_into().unwrap();
        from_host(&Rule::Unit.values(&format!("{}{name}", case.salt), shape.iter().product()), shape, &device)
    };
    let got = f64::from(hinge(logits("logits_real"), logits("logits_fake")).into_scalar::<f32>());
    let want = &case.json["hinge_d_loss"];
    failures.extend(near("functions", "hinge", got, [&want["f32run"], &want["f64run"]]));
    let shape: [usize; 4] = case.shape("moments").try_into().unwrap();
    let u = Rule::Uniform.values(&format!("{}moments", case.salt), shape.iter().product());
    for (suffix, factor) in [("", 12.0f64), ("_wide", 48.0)] {
        // The factor is applied before the one rounding to f32, the times four after it.
        let values: Vec<f32> = crate::formula::values(&format!("{}moments", case.salt), u.len(), |u| 12.0 * u);
        let values: Vec<f32> = values.iter().map(|v| v * (factor / 12.0) as f32).collect();
        let posterior = Posterior::new(from_host(&values, shape, &device));
        failures.extend(compare::output(case, &format!("kl{suffix}"), &to_host(posterior.kl()), false));
        failures.extend(compare::output(case, &format!("std{suffix}"), &to_host(posterior.std()), false));
    }
    failures
}
