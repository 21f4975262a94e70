//! DiffusionEdge: its training loss, its sampler and its balanced cross-entropy.
use crossfade::engine::{Device, Images, Tensor, from_host, to_host};
use crossfade::loss::{AuxEstimate, AuxWeight, Auxiliary, Noised, Objective, Pairing, Reduction};
use crossfade::math::{Adm, Blend, Grid, GridKind, LossNorm, Weighting};
use crossfade::nn::{Backbone, Mode};
use crossfade::sample::{AttenuationProblem, Hooks, Sampler};

use crate::case::{Case, floats, usizes};
use crate::formula::{Rule, values};
use crate::{compare, cond_nets};

/// Whether a case is about the network of `edge_forward`.
pub fn is_edge(case: &Case) -> bool {
    case.json["unet"].as_str().is_some_and(|unet| unet.contains("edge_forward"))
}

pub fn loss(case: &Case) -> Vec<String> {
    let device = Device::flex();
    let forward = cond_nets::edge_forward();
    let mut net = cond_nets::denoiser(&forward, &device);
    net.process = Adm { t_min: case.json["eps"].as_f64().unwrap(), ..*net.process.adm().unwrap() }.into();
    let shape: [usize; 4] = case.shape("x0").try_into().unwrap();
    let input = |key: &str| Images(from_host(&case.input(key, &shape), shape, &device));
    let batch = Noised::new(&net.process, input("x0"), &[], input("noise"), case.times());
    let context = net.network.encode(Some(cond_nets::condition(&forward, &device)), Mode::Eval);
    let raw = net.raw(batch.x_t.0.clone(), &batch.t, &context, Mode::Eval);
    let auxiliary = Auxiliary {
        estimate: AuxEstimate::Heads,
        l1: Some(Reduction::Mean),
        weight: AuxWeight::Square,
        pairing: Pairing::Mixed,
    };
    let mut failures = Vec::new();
    for (name, variant) in case.json["variants"].as_object().unwrap() {
        let objective = Objective {
            weighting: Weighting::DiffusionEdge,
            norm: if variant["use_l1"].as_bool().unwrap() { LossNorm::L1L2 } else { LossNorm::L2 },
            auxiliary: Some(auxiliary),
            ..Objective::default()
        };
        let loss = objective.of_raw(&net, &batch, raw.clone(), None);
        let parts = [
            ("train/loss", loss.total),
            ("train/loss_simple", loss.main),
            ("train/loss_vlb", loss.auxiliary.expect("an auxiliary term")),
        ];
        for (key, value) in parts {
            let got = f64::from(value.into_scalar::<f32>());
            let want = |run: &str| variant[&format!("logged_{run}")][key].as_f64().unwrap();
            let limit = 10.0 * (want("f32run") - want("f64run")).abs().max(1e-6 * want("f64run"));
            if got.is_nan() || (got - want("f64run")).abs() > limit {
                failures.push(format!("{name}: {key} {got:.9}, expected {:.9}", want("f64run")));
            }
        }
    }
    failures
}

/// N steps in N + 1 evaluations: the last interval is split at t_min.
pub fn sample(case: &Case) -> Vec<String> {
    let device = Device::flex();
    let forward = cond_nets::edge_forward();
    let net = cond_nets::denoiser(&forward, &device);
    let conditioned = net.conditioned(Some(cond_nets::condition(&forward, &device)));
    let shape: [usize; 4] = usizes(&case.json["inputs"]["initial noise"]["shape"]).try_into().unwrap();
    let draw = |name: &str| {
        let values = Rule::Unit.values(&format!("{}{name}", case.salt), shape.iter().product());
        Images(from_host(&values, shape, &device))
    };
    let mut failures = Vec::new();
    for (run, spec) in case.json["runs"].as_object().unwrap() {
        let n = spec["N"].as_u64().unwrap() as usize;
        let t_min = case.json["eps"].as_f64().unwrap();
        let ours = Grid { kind: GridKind::UniformT, final_t: Some(t_min) }.times(n).unwrap();
        let mut times = floats(&spec["times_seen_by_net"]);
        times.push(0.0);
        if ours.len() != times.len() || ours.iter().zip(&times).any(|(a, b)| (a - b).abs() > 1e-6) {
            failures.push(format!("{run}: our grid is {ours:?}, the reference used {times:?}"));
        }
        let mut problem = AttenuationProblem::new(&conditioned, *net.process.adm().unwrap());
        problem.blend = Blend::Reference;
        let mut hooks = Hooks { noise: &mut |step| draw(&format!("noise.{step}")), observe: &mut |_| () };
        let result = Sampler::Alg2.run(&problem, &times, draw("noise.init"), &mut hooks).unwrap();
        if result.nfe != spec["nfe"].as_u64().unwrap() as usize {
            failures.push(format!("{run}: {} evaluations, expected {}", result.nfe, spec["nfe"]));
        }
        failures.extend(compare::output(case, &format!("{run}_result"), &to_host(result.x0.0), false));
    }
    failures
}

pub fn cross_entropy(case: &Case) -> Vec<String> {
    let device = Device::flex();
    let shape: [usize; 4] = case.shape("pred").try_into().unwrap();
    let pred = from_host(&case.input("pred", &shape), shape, &device);
    let label = |u: f64| match (u + 1.0) / 2.0 {
        v if v > 0.7 => 1.0,
        v if v < 0.3 => 0.0,
        v if v < 0.5 => v - 0.25,
        v => v,
    };
    let name = format!("{}{}", case.salt, case.json["inputs"]["label"]["name"].as_str().unwrap());
    let label = from_host(&values(&name, shape.iter().product(), label), shape, &device);
    compare::output(case, "loss", &to_host(balanced_cross_entropy(pred, label)), false)
}

/// Labels up to this, but not zero, are too uncertain to count.
const UNCERTAIN: f32 = 0.3;
/// Weight of what is no edge beside that of edges.
const NEGATIVE: f32 = 1.1;

/// −w·(y ln p + (1 − y) ln(1 − p)), its mean over every sample (§6.6).
///
/// Of n₁ labels that are 1 and n₀ that are 0 in the whole batch, edges weigh n₀/(n₀ + n₁) and others 1.1·n₁/(n₀ + n₁);
/// labels in (0, 0.3] weigh nothing, all others their own value.
///
/// # Shapes
/// `prediction` in [0, 1] and `label` `[B, C, H, W]` to `[B, 1]`.
fn balanced_cross_entropy(prediction: Tensor<4>, label: Tensor<4>) -> Tensor<2> {
    let shape = label.dims();
    let device = prediction.device().without_autodiff();
    let y = to_host(label);
    let count = |value: f32| y.iter().filter(|&&y| y == value).count() as f32;
    let (edges, others) = (count(1.0), count(0.0));
    let all = (edges + others).max(1.0);
    let weight = |y: &f32| match *y {
        1.0 => others / all,
        0.0 => NEGATIVE * edges / all,
        y if y > 0.0 && y <= UNCERTAIN => 0.0,
        y => y,
    };
    let weights: Tensor<4> = from_host(&y.iter().map(weight).collect::<Vec<_>>(), shape, &device);
    let y: Tensor<4> = from_host(&y, shape, &device);
    // Logarithms end at −100, as in PyTorch.
    let log = |p: Tensor<4>| p.log().clamp_min(-100.0);
    let likelihood = y.clone() * log(prediction.clone()) + (y.neg() + 1.0) * log(prediction.neg() + 1.0);
    (weights * likelihood.neg()).flatten::<2>(1, 3).mean_dim(1)
}
