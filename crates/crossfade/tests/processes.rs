//! Every process: its samplers against exact denoisers, its moments against Monte Carlo, its training and its pictures.
#![allow(clippy::unwrap_used)]
use crossfade::checkpoint::{Checkpoint, Weights, newest};
use crossfade::config::{AutoencoderRun, LatentConfig, RunConfig, SampleConfig, SampleOptions};
use crossfade::data::DataConfig;
use crossfade::engine::Device;
use crossfade::generate::{Job, Shard, reproduce, run};
use crossfade::lab::{
    Mixture, Normal, median, process_grids, process_samplers, processes, sliced_w2, solve_process, weak_error,
};
use crossfade::loss::AutoencoderLoss;
use crossfade::math::process::Cld;
use crossfade::math::{Adm, Attenuation, Blend, GaussianFn, GridKind, NoiseScale, Process};
use crossfade::nn::{AutoencoderConfig, Decoders, UNetConfig};
use crossfade::rng::{Purpose, Stream};
use crossfade::sample::gaussian::Churn;
use crossfade::sample::{EvaluationOptions, Sampler};
use crossfade::train::{RunDir, train, train_autoencoder};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

const DIM: usize = 4;

/// With many steps every sampler of every process brings the mixture back, on the grid that `auto` gives them.
#[test]
fn every_sampler_reaches_the_data_of_every_process() {
    let (mixture, count) = (Mixture::random(DIM, 3, 0.25, 1.0, 0), 1000);
    let data = mixture.sample(count, 1);
    let floor = sliced_w2(&data, &mixture.sample(count, 2));
    let (mut report, mut failed) = (String::new(), false);
    for process in processes(NoiseScale::Sqrt) {
        for sampler in process_samplers(&process) {
            let grid = sampler.grid(&process, &GridKind::Auto);
            let solved = solve_process(&mixture, &process, sampler, &grid, 200, (count, 0)).unwrap();
            assert!(solved.nfe <= 200 * sampler.evaluations_per_step() && solved.nfe >= 200, "{sampler:?}");
            let w2 = sliced_w2(&solved.x0, &data);
            report += &format!("{:6} {:18} {w2:.4} (floor {floor:.4})\n", process.name(), sampler.name());
            failed |= w2.is_nan() || w2 > floor + 0.05;
        }
    }
    assert!(!failed, "{report}");
}

/// Orders of convergence of the deterministic samplers on their grids.
#[test]
fn deterministic_samplers_reach_their_order() {
    let (mixture, count) = (Mixture::random(DIM, 3, 0.25, 1.0, 0), 100);
    let (mut report, mut failed) = (String::new(), false);
    // The discrete chain has no limit of small steps, and CLD no deterministic sampler.
    for process in processes(NoiseScale::Sqrt).into_iter().filter(|process| !["ddpm", "cld"].contains(&process.name()))
    {
        for sampler in process_samplers(&process).into_iter().filter(|s| !s.is_stochastic()) {
            let grid = process_grids(&process, sampler).pop().unwrap();
            let solve = |n: usize| solve_process(&mixture, &process, sampler, &grid, n, (count, 0)).unwrap().x0;
            // A sampler's own finer solution is its limit; that all limits are one is what the distance to the data says.
            let exact = solve(1280);
            let [coarse, fine] = [40, 80].map(|n| median(&solve(n), &exact));
            let order = (coarse / fine).log2();
            let (kind, name) = (process.name(), sampler.name());
            report += &format!("{kind:6} {name:18} {} {coarse:.2e} {fine:.2e} order {order:.2}\n", grid.name());
            failed |= order.is_nan() || order < f64::from(sampler.order()) - 0.35;
        }
    }
    assert!(!failed, "{report}");
}

/// Weak orders of the stochastic samplers: the distribution that they make of one Gaussian, followed exactly.
#[test]
fn stochastic_samplers_reach_their_order() {
    let data = Normal { mean: 0.3, std: 0.25 };
    let (mut report, mut failed) = (String::new(), false);
    for process in processes(NoiseScale::Sqrt).into_iter().filter(|process| process.name() != "ddpm") {
        for sampler in Sampler::fitting(&process).into_iter().filter(|s| s.is_stochastic()) {
            let grid = process_grids(&process, sampler).pop().unwrap();
            let errors = [40, 320, 640].map(|n| weak_error(data, &process, sampler, &grid, n).unwrap());
            let order = (errors[1] / errors[2]).log2();
            report +=
                &format!("{:6} {:18} {} {errors:.6?} order {order:.2}\n", process.name(), sampler.name(), grid.name());
            // The error of the second-order Alg. 2 changes its sign near 100 steps and is 1e-5 here: its slope still rises.
            let slack = if sampler == Sampler::Alg2Second { 0.6 } else { 0.2 };
            failed |= order.is_nan() || order < f64::from(sampler.order()) - slack || errors[0] > 0.06;
        }
    }
    assert!(!failed, "{report}");
}

/// The splitting of CLD needs fewer steps than Euler–Maruyama, and both close in on the data at first order.
#[test]
fn critically_damped_diffusion_converges() {
    let (mixture, count) = (Mixture::gaussian(1, 0.25), 20_000);
    let process = Process::Cld(Cld::default());
    // Mean and deviation, off by how much.
    let error = |sampler: Sampler, n: usize| {
        let x = solve_process(&mixture, &process, sampler, &GridKind::UniformSqrt, n, (count, 0)).unwrap().x0.data;
        let mean = x.iter().sum::<f64>() / count as f64;
        let deviation = (x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / count as f64).sqrt();
        (mean - mixture.means[0][0]).hypot(deviation - mixture.std)
    };
    let table = [Sampler::EulerMaruyama, Sampler::Sscs].map(|s| [10, 20, 40, 160].map(|n| error(s, n)));
    assert!(table[1][0] < 0.6 * table[0][0], "ten steps: {table:?}");
    for row in table {
        assert!(row[1] < 0.75 * row[0] && row[2] < 0.75 * row[1] && row[3] < 0.01, "{table:?}");
    }
}

/// CLD's mean and 2x2 covariance against the equation itself, by many small steps of many points.
#[test]
fn moments_of_critically_damped_diffusion_agree_with_monte_carlo() {
    let (cld, x0, t, steps, count) = (Cld::default(), 0.8, 0.3, 600, 40_000);
    let h = cld.integral(t) / steps as f64;
    let (mut sums, mut squares) = ([0.0; 2], [0.0; 3]);
    for k in 0..count {
        let mut z = Stream::new(4, k, 0, Purpose::Lab);
        let (mut x, mut v) = (x0, (cld.gamma * cld.mass()).sqrt() * z.normal());
        for _ in 0..steps {
            let push = -x - cld.damping() * cld.inverse_mass * v;
            x += h * cld.inverse_mass * v;
            v += h * push + (2.0 * cld.damping() * h).sqrt() * z.normal();
        }
        sums = [sums[0] + x, sums[1] + v];
        squares = [squares[0] + x * x, squares[1] + x * v, squares[2] + v * v];
    }
    let n = count as f64;
    let mean = sums.map(|s| s / n);
    let cov =
        [squares[0] / n - mean[0] * mean[0], squares[1] / n - mean[0] * mean[1], squares[2] / n - mean[1] * mean[1]];
    let (expected, exact) = (cld.mean(t), cld.covariance(t));
    assert!((mean[0] - expected.0 * x0).abs() < 0.02 && (mean[1] - expected.1 * x0).abs() < 0.02, "{mean:?}");
    for (ours, truth) in cov.iter().zip([exact.xx, exact.xv, exact.vv]) {
        assert!((ours - truth).abs() < 0.015, "{cov:?} {exact:?}");
    }
    // What training draws has this covariance too.
    let [[_, a, _], [_, b, c]] = cld.forward(t);
    assert!(
        (a * a - exact.xx).abs() < 1e-12
            && (a * b - exact.xv).abs() < 1e-12
            && (b * b + c * c - exact.vv).abs() < 1e-12
    );
}

/// α_t and σ_t of every process against its forward equation dx = f x dt + g dw, by many small steps of many points.
#[test]
fn moments_of_every_process_agree_with_monte_carlo() {
    let (x0, from, steps, count) = (0.8, 0.1, 200, 20_000);
    for process in processes(NoiseScale::Sqrt) {
        let Some(gaussian) = process.gaussian() else { continue };
        // f is infinite where the picture is gone: not to the very end.
        let to = 0.7;
        let h = (to - from) / f64::from(steps);
        let (mut sum, mut square) = (0.0, 0.0);
        for k in 0..count {
            let mut z = Stream::new(6, k, 0, Purpose::Lab);
            let mut x = gaussian.alpha(from) * x0 + gaussian.sigma(from) * z.normal();
            for n in 0..steps {
                // Rates at the middle of a step: second order in the moments.
                let (f, g2) = gaussian.rates(from + h * (f64::from(n) + 0.5));
                x += f * x * h + 0.5 * (f * h).powi(2) * x + (g2 * h).sqrt() * (1.0 + 0.5 * f * h) * z.normal();
            }
            (sum, square) = (sum + x, square + x * x);
        }
        let mean = sum / count as f64;
        let deviation = (square / count as f64 - mean * mean).sqrt();
        let (alpha, sigma) = (gaussian.alpha(to), gaussian.sigma(to));
        // Four standard errors.
        let tolerance = 4.0 / (count as f64).sqrt();
        assert!((mean - alpha * x0).abs() < tolerance * sigma, "{}: {mean} {}", process.name(), alpha * x0);
        assert!((deviation / sigma - 1.0).abs() < tolerance, "{}: {deviation} {sigma}", process.name());
    }
}

/// Constant attenuation has the form x_t = α_t x_0 + σ_t eps and may use its samplers; all else gets an error that lists what fits.
#[test]
fn samplers_that_do_not_fit_are_refused_with_those_that_do() {
    let fits = |process: &Process, sampler: Sampler| Sampler::fitting(process).contains(&sampler);
    let constant = Process::default();
    assert!(fits(&constant, Sampler::UniPc) && fits(&constant, Sampler::Ab2));
    assert!(!fits(&constant, Sampler::EulerMaruyama));
    let linear = Process::Adm(Adm::new(Attenuation::Linear, NoiseScale::Sqrt));
    assert!(!fits(&linear, Sampler::UniPc));
    for process in baselines() {
        let own = Sampler::Auto.resolved(&process).unwrap();
        assert!(fits(&process, own) && !fits(&process, Sampler::Alg2), "{}", process.name());
        let error = Sampler::Alg2.resolved(&process).unwrap_err().to_string();
        assert!(error.contains("alg2") && error.contains(process.name()) && error.contains(own.name()), "{error}");
        let times = own.times(&process, &Default::default(), 7).unwrap();
        assert_eq!(
            own.evaluations(&process, &times, EvaluationOptions::default()).unwrap(),
            if own == Sampler::Heun { 13 } else { 7 }
        );
    }
}

#[test]
fn options_of_settings_give_them_back_on_a_checkpoint_with_others() {
    for process in Process::all() {
        let blend = if process.blends(&Blend::Average) { Blend::Average } else { Blend::Heads };
        let own = SampleConfig { steps: 3, guidance: 2.0, blend, ..SampleConfig::default() };
        let run = RunConfig { process, sample: own, ..RunConfig::default() };
        for sampler in Sampler::fitting(&process) {
            let wanted = SampleConfig {
                sampler,
                steps: 7,
                clip: if process.estimates_x0() { 0.0 } else { 1.0 },
                eta: if sampler == Sampler::Ddim { 0.5 } else { 0.0 },
                churn: match sampler {
                    Sampler::HeunChurn => Churn { amount: 3.0, ..Churn::default() },
                    _ => Churn::default(),
                },
                class: "3".into(),
                ..SampleConfig::default()
            };
            let wanted = wanted.resolved(&process).unwrap();
            let given = SampleOptions::of(&wanted, &run);
            let stored: SampleOptions = serde_json::from_str(&serde_json::to_string(&given).unwrap()).unwrap();
            assert_eq!(stored, given);
            let found = given.applied(&run, str::to_string).unwrap();
            assert_eq!(found, wanted, "{} {}", process.name(), sampler.name());
        }
    }
}

/// Every process but attenuation.
fn baselines() -> Vec<Process> {
    Process::all().into_iter().filter(|process| process.adm().is_none()).collect()
}

/// A network that trains in moments.
fn small(process: Process) -> RunConfig {
    let decoders = if process.name() == "ddpm-x0" { Decoders::Conv } else { Decoders::One };
    let mut config = RunConfig {
        seed: 3,
        process,
        network: UNetConfig {
            resolution: 8,
            width: 16,
            mult: vec![1, 2],
            blocks: 1,
            attention: vec![],
            dropout: 0.1,
            decoders,
            ..UNetConfig::default()
        }
        .into(),
        data: DataConfig::Procedural { seed: 1, len: 4 },
        ..RunConfig::default()
    };
    config.train.steps = 3;
    config.train.batch = 4;
    config.train.checkpoint_every = 100;
    config.train.sample_every = 3;
    config.optim.warmup = 1;
    config.optim.ema_after = 1;
    config.optim.ema_every = 1;
    config.sample.steps = 3;
    config
}

fn fit(config: &RunConfig, dir: &Path, resume: bool, until: u64) -> Vec<f64> {
    let (mut losses, stop) = (vec![], AtomicBool::new(false));
    let dir = RunDir(dir.to_path_buf());
    train(config, &dir, &Device::flex(), resume, &stop, &mut |r| {
        losses.push(r.loss);
        stop.store(r.step == until, Ordering::Relaxed);
    })
    .unwrap();
    losses
}

/// An autoencoder after one step, for latents of 8x8.
fn first_stage(dir: &Path) -> LatentConfig {
    let mut run = AutoencoderRun { seed: 5, ..AutoencoderRun::default() };
    run.autoencoder = AutoencoderConfig {
        resolution: 16,
        channels: 3,
        width: 32,
        mult: vec![1, 1],
        blocks: 1,
        ..AutoencoderConfig::default()
    };
    run.loss = AutoencoderLoss { perceptual: 0.0, disc_start: 9, disc_width: 8, disc_depth: 2, ..run.loss };
    run.data = DataConfig::Procedural { seed: 1, len: 4 };
    run.train.steps = 1;
    run.train.batch = 2;
    let out = RunDir(dir.to_path_buf());
    train_autoencoder(&run, &out, &Device::flex(), false, &AtomicBool::new(false), &mut |_| ()).unwrap();
    LatentConfig { autoencoder: dir.to_path_buf(), scale: None, cache: None }
}

/// Each process trains, resumes to the same bytes, makes finite pictures with every sampler that fits, and remakes them.
#[test]
fn every_process_trains_resumes_and_samples() {
    let dir = tempfile::tempdir().unwrap();
    for process in baselines() {
        let name = process.name();
        let mut config = small(process);
        if name == "lsgm" {
            config.latent = Some(first_stage(&dir.path().join("autoencoder")));
            config.network.as_unet_mut().unwrap().channels = AutoencoderConfig::default().latent;
            config.sample.clip = 0.0;
        }
        config.validate().unwrap();
        assert_eq!(RunConfig::parse(&config.to_toml().unwrap(), "x").unwrap(), config);
        let (whole, parts) = (dir.path().join(format!("{name}-whole")), dir.path().join(format!("{name}-parts")));
        fit(&config, &whole, false, 0);
        fit(&config, &parts, false, 2);
        assert_eq!(fit(&config, &parts, true, 0).len(), 1);
        let [a, b] = [&whole, &parts].map(|run| newest(run).unwrap());
        assert!(std::fs::read(&a).unwrap() == std::fs::read(&b).unwrap(), "{name}: the resumed run differs");
        let checkpoint = Checkpoint::open(&a).unwrap();
        assert_eq!(checkpoint.config.process, process);
        for sampler in Sampler::fitting(&process) {
            let how = crossfade::config::SampleConfig { sampler, ..checkpoint.config.sample.clone() };
            let out = dir.path().join("pictures");
            let job = Job {
                seed: 1,
                first: 0,
                count: 2,
                shard: Shard::ALL,
                batch: 2,
                trajectory: false,
                between: None,
                guide: None,
                out: out.clone(),
            };
            let made = run(&checkpoint, Weights::Ema, &how, &job, &Device::flex(), &mut |_, _| ()).unwrap();
            assert_eq!(made.evaluations, how.evaluations(&process).unwrap(), "{name} {sampler:?}");
            assert!(reproduce(&out.join("000001.png"), Some(&a), None, &Device::flex()).unwrap().identical, "{name}");
        }
    }
}

/// The loss falls on a few images, also of attenuation without image supervision.
#[test]
fn every_process_learns_a_few_images() {
    for process in Process::all().into_iter().filter(|process| !process.needs_latents()) {
        let mut config = small(process);
        if process.adm().is_some() {
            config.loss.supervise = crossfade::loss::Supervise::Eps;
        }
        config.validate().unwrap();
        config.train.steps = 80;
        config.train.batch = 8;
        config.train.sample_every = 0;
        config.train.flip = false;
        config.optim.lr = 3e-3;
        config.network.as_unet_mut().unwrap().dropout = 0.0;
        let dir = tempfile::tempdir().unwrap();
        let losses = fit(&config, dir.path(), false, 0);
        let mean = |l: &[f64]| l.iter().sum::<f64>() / l.len() as f64;
        let (early, late) = (mean(&losses[..10]), mean(&losses[65..]));
        assert!(late < 0.8 * early, "{process:?}: {early} to {late}");
    }
}

#[test]
fn what_does_not_fit_a_process_is_said() {
    let problems = |sets: &[&str]| {
        let base = RunConfig::default().with_overrides(&["network.decoders=one"]).unwrap();
        base.with_overrides(sets).unwrap_err().to_string()
    };
    assert!(problems(&["process.kind=ddpmx"]).contains("ddpm-x0"));
    assert!(problems(&["process.kind=ddpm-x0"]).contains("conv"));
    assert!(problems(&["process.kind=vp", "network.decoders=conv"]).contains("network.decoders"));
    assert!(problems(&["process.kind=vp", "sample.blend=phi"]).contains("sample.blend"));
    assert!(problems(&["sample.blend={ table = [0.5, 5.0] }"]).contains("from 0 to 1"));
    assert!(problems(&["process.kind=edm", "process.log_mean=inf"]).contains("log_mean"));
    assert!(problems(&["process.kind=lsgm"]).contains("[latent]"));
    assert!(problems(&["process.kind=edm", "sample.sampler=ab2"]).contains("heun"));
    assert!(problems(&["process.kind=cld", "sample.grid.kind=karras"]).contains("karras"));
    assert!(problems(&["process.kind=ddpm", "sample.steps=2000"]).contains("1000"));
    assert!(problems(&["loss.supervise=eps", "network.decoders=two"]).contains("single decoder"));
    assert!(problems(&["process.kind=edm", "loss.weighting=ones"]).contains("loss.weighting"));
    assert!(problems(&["process.kind=vp", "process.t_min=0.01"]).contains("process.t_min"));
    assert!(problems(&["process.kind=ddpm", "sample.grid.final_t=0.0001"]).contains("final_t"));
    let both = problems(&["process.kind=edm", "process.sigma_min=90", "process.log_std=-1", "sample.eta=2"]);
    assert!(both.contains("sigma_min") && both.contains("log_std") && both.contains("eta"), "{both}");
}
