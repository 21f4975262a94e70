//! Samplers with every noise draw given: results, intermediate states, evaluations and their times.
use crossfade::engine::{Device, Images, from_host, to_host};
use crossfade::math::{Blend, Grid, GridKind, NoiseScale};
use crossfade::sample::{AttenuationProblem, Hooks, Sampler};

use crate::case::{Case, floats, usizes};
use crate::compare;
use crate::edge;
use crate::formula::Rule;
use crate::nets;

fn implemented(case: &Case) -> bool {
    nets::module(case).starts_with("uncond_unet")
}

pub fn skips(case: &Case) -> Vec<String> {
    if edge::is_edge(case) {
        return vec![];
    }
    if implemented(case) { vec![] } else { vec![format!("network {}", nets::module(case))] }
}

/// The reference's sampler in our words.
fn sampler(case: &Case) -> Sampler {
    match case.json["sample_type"].as_str().unwrap() {
        _ if case.name.ends_with("2order") => Sampler::ReferenceHeun,
        "stochastic" => Sampler::Alg2,
        _ => Sampler::FirstOrder,
    }
}

pub fn check(case: &Case) -> Vec<String> {
    if edge::is_edge(case) {
        return edge::sample(case);
    }
    if !implemented(case) {
        return vec![];
    }
    let device = Device::flex();
    let net = nets::denoiser(case, &device);
    let (evaluated, adm) = (net.conditioned(None), *net.process.adm().unwrap());
    let latent = case.json["latent"].as_bool().unwrap();
    let stochastic = sampler(case).is_stochastic();
    let shape: [usize; 4] = usizes(&case.json["inputs"]["initial noise"]["shape"]).try_into().unwrap();
    let draw = |name: &str| {
        let values = Rule::Unit.values(&format!("{}{name}", case.salt), shape.iter().product());
        Images(from_host(&values, shape, &device))
    };
    let mut failures = vec![];
    for (run, spec) in case.json["runs"].as_object().unwrap() {
        if spec["nan"].as_bool() == Some(true) {
            continue; // The reference divides 0 by 0 at N = 1.
        }
        let seen = floats(&spec["times_seen_by_net"]);
        let mut times = seen.clone();
        // Heun sees the end of a corrected step twice.
        times.dedup();
        failures.extend(grid_differences(case, run, &times));
        times.push(0.0);
        let mut problem = AttenuationProblem::new(&evaluated, adm);
        problem.blend = if stochastic { Blend::Reference } else { Blend::Heads };
        // §3.2: const clips pixels in the loop, const2 only its stochastic pixels.
        let clips = !latent && (stochastic || adm.noise == NoiseScale::Sqrt);
        problem.clip = clips.then_some(1.0);
        let mut states = vec![];
        let mut hooks = Hooks {
            noise: &mut |step| draw(&format!("noise.{step}")),
            observe: &mut |state| states.push(to_host(state.x_t.0.clone())),
        };
        let result = sampler(case).run(&problem, &times, draw("noise.init"), &mut hooks).unwrap();
        if result.nfe != spec["nfe"].as_u64().unwrap() as usize {
            failures.push(format!("{run}: {} evaluations, expected {}", result.nfe, spec["nfe"]));
        }
        let mut values = to_host(result.x0.0);
        if !latent {
            values.iter_mut().for_each(|v| *v = (v.clamp(-1.0, 1.0) + 1.0) / 2.0);
        }
        failures.extend(compare::output(case, &format!("{run}_result"), &values, false));
        for (k, state) in states.iter().enumerate() {
            let name = format!("{run}_x{k}");
            if case.json["outputs"][&name].is_object() {
                failures.extend(compare::output(case, &name, state, false));
            }
        }
    }
    failures
}

/// Our grid against the times that the reference used: its f32 bookkeeping drifts by up to 3e-7.
fn grid_differences(case: &Case, run: &str, seen: &[f64]) -> Vec<String> {
    let n: usize = run.trim_start_matches('N').parse().unwrap();
    let t_min = case.json["eps"].as_f64().unwrap();
    let sigma_min = case.json["sigma_min"].as_f64().unwrap();
    let const2 = case.json["module"].as_str().unwrap().contains("const_2");
    let stochastic = sampler(case).is_stochastic();
    let latent = case.json["latent"].as_bool().unwrap();
    let uniform = |n| Grid { kind: GridKind::UniformT, final_t: None }.times(n);
    let ours = match (nets::older(case), const2, stochastic) {
        _ if sampler(case) == Sampler::ReferenceHeun => {
            let step = 2.0 / n as f64;
            let times = (0..n).map(|i| 1.0 - i as f64 * step).filter(|t| *t > 1e-9).collect();
            Grid { kind: GridKind::Explicit { times }, final_t: Some(t_min) }.times(n)
        }
        (true, ..) => Grid { kind: GridKind::UniformT, final_t: Some(t_min) }.times(n),
        (false, true, true) if latent => Grid { kind: GridKind::UniformT, final_t: Some(t_min) }.times(n),
        (false, true, false) => uniform(n),
        _ => Grid { kind: GridKind::Reference { sigma_min }, final_t: None }.times(n),
    }
    .unwrap();
    let ours = &ours[..ours.len() - 1];
    let off = ours.len() != seen.len() || ours.iter().zip(seen).any(|(a, b)| (a - b).abs() > 1e-6);
    if off { vec![format!("{run}: our grid is {ours:?}, the reference used {seen:?}")] } else { vec![] }
}
