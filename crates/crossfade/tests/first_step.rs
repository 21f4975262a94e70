//! The free first step (§3.5): what an ideal network returns at t = 1, known from the mean of the images.
#![allow(clippy::unwrap_used)]
use crossfade::checkpoint::{self, Checkpoint, Weights};
use crossfade::config::{RunConfig, SampleConfig};
use crossfade::data::{DataConfig, Planes};
use crossfade::engine::{Device, Images, to_host};
use crossfade::generate::{Pipeline, StartNoise};
use crossfade::lab::{GaussianOracle, Mixture, Oracle, Points, normals};
use crossfade::math::{Adm, Attenuation, Field, GaussianFn, NoiseScale, Process};
use crossfade::nn::{Decoders, UNetConfig};
use crossfade::sample::gaussian::GaussianProblem;
use crossfade::sample::{AttenuationProblem, EvaluationOptions, Form, Guidance, Hooks, Sampler, State};
use crossfade::tensorfile::save_tensors;
use crossfade::train::{RunDir, train};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

const FREE: EvaluationOptions = EvaluationOptions { guidance: Guidance::NONE, free_first_step: true };

/// A network that trains in moments, on eight images.
fn small() -> RunConfig {
    let network = UNetConfig {
        resolution: 8,
        width: 16,
        mult: vec![1, 2],
        blocks: 1,
        attention: vec![],
        decoders: Decoders::One,
        ..UNetConfig::default()
    };
    let data = DataConfig::Procedural { seed: 1, len: 8 };
    let mut config = RunConfig { seed: 3, network: network.into(), data, ..RunConfig::default() };
    (config.train.checkpoint_every, config.train.sample_every, config.optim.warmup) = (100, 3, 1);
    config
}

/// At t = 1 an ideal network returns what the mean of the data says, so that a run that uses the mean instead has the same
/// result with one evaluation less (§3.5).
#[test]
fn the_free_first_step_is_that_of_an_ideal_network() {
    let mixture = Mixture::random(2, 3, 0.2, 0.8, 1);
    let mean = |d: usize| mixture.weights.iter().zip(&mixture.means).map(|(w, m)| w * m[d]).sum::<f64>();
    let (dim, count) = (2, 16);
    let mean_x0 = Points { dim, data: (0..count).flat_map(|_| [mean(0), mean(1)]).collect() };
    let attenuations = Attenuation::ALL.iter().flat_map(|&a| NoiseScale::ALL.iter().map(move |&n| Adm::new(a, n)));
    let others = Process::all().into_iter().filter(|process| process.adm().is_none());
    let mut checked = 0;
    for process in attenuations.map(Process::Adm).chain(others) {
        for sampler in Sampler::fitting(&process) {
            let times = sampler.times(&process, &Default::default(), 5).unwrap();
            let run = |mean_x0: Option<Points>| {
                let noise = &mut |n: usize| normals(dim, count, 3, n as u64);
                let mut hooks = Hooks { noise, observe: &mut |_| () };
                let x = normals(dim, count, 2, 0);
                match sampler.form(&process).unwrap() {
                    Form::Attenuation(adm) => {
                        let oracle = Oracle::new(mixture.clone(), adm);
                        let mut problem = AttenuationProblem::new(&oracle, adm);
                        problem.mean_x0 = mean_x0;
                        Some(sampler.run(&problem, &times, x, &mut hooks).unwrap())
                    }
                    Form::Gaussian(gaussian) => {
                        let oracle = GaussianOracle { mixture: mixture.clone(), process: gaussian };
                        let mut problem = GaussianProblem::new(&oracle, gaussian);
                        problem.mean_x0 = mean_x0;
                        let x = x.scale(gaussian.sigma(1.0));
                        Some(sampler.run(&problem, &times, x, &mut hooks).unwrap())
                    }
                    Form::Velocity(_) => None,
                }
            };
            let (Some(whole), Some(free)) = (run(None), run(Some(mean_x0.clone()))) else { continue };
            let saved = usize::from(process.first_step_is_known());
            let name = format!("{process:?} {}", sampler.name());
            assert_eq!(whole.nfe, free.nfe + saved, "{name}");
            assert_eq!(sampler.evaluations(&process, &times, FREE).unwrap(), free.nfe, "{name}");
            let error = whole.x0.data.iter().zip(&free.x0.data).fold(0f64, |m, (a, b)| m.max((a - b).abs()));
            assert!(error < 1e-9, "{name}: {error}");
            checked += saved;
        }
        if !process.first_step_is_known() {
            continue;
        }
        // A first time below 1 is evaluated as any other.
        let own = Sampler::Auto.resolved(&process).unwrap();
        assert_eq!(own.evaluations(&process, &[0.9, 0.5, 0.0], FREE).unwrap(), 2);
    }
    assert!(checked > 50, "{checked}");
}

/// A trained network counts one evaluation less, its mean is that of the images, and where there is none it is refused.
#[test]
fn a_checkpoint_knows_its_first_step() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = small();
    (config.train.steps, config.train.batch) = (4, 4);
    config.sample.free_first_step = true;
    config.validate().unwrap();
    let run = dir.path().join("run");
    let stop = AtomicBool::new(false);
    // Killed in the middle: the mean goes on exactly.
    train(&config, &RunDir(run.clone()), &Device::flex(), false, &stop, &mut |r| {
        stop.store(r.step == 2, Ordering::Relaxed);
    })
    .unwrap();
    stop.store(false, Ordering::Relaxed);
    train(&config, &RunDir(run.clone()), &Device::flex(), true, &stop, &mut |_| ()).unwrap();
    let whole = dir.path().join("whole");
    train(&config, &RunDir(whole.clone()), &Device::flex(), false, &stop, &mut |_| ()).unwrap();
    let open = |run: &Path| Checkpoint::open(&checkpoint::newest(run).unwrap()).unwrap();
    let (tensors, checkpoint) = (open(&run).read().unwrap(), open(&whole));
    assert!(tensors == checkpoint.read().unwrap());
    // Four batches of four are two epochs of the eight images, some of them mirrored: columns i and −i together have the mean
    // of the images.
    let (shape, mean) = &tensors["mean_x0"];
    let side = shape[2];
    let set = config.data.open(side, shape[0]).unwrap();
    let mut expected = vec![0.0; mean.len()];
    for k in 0..8 {
        let image = set.get(k).unwrap();
        let planes = Planes::from_image(&image);
        expected.iter_mut().zip(&planes.values).for_each(|(sum, v)| *sum += f64::from(*v) / 8.0);
    }
    for (row, (found, wanted)) in mean.chunks(side).zip(expected.chunks(side)).enumerate() {
        for i in 0..side {
            let found = f64::from(found[i] + found[side - 1 - i]);
            assert!((found - wanted[i] - wanted[side - 1 - i]).abs() < 1e-5, "row {row}: {found}");
        }
    }
    let settings = |free_first_step| SampleConfig { steps: 5, free_first_step, ..SampleConfig::default() };
    let pipeline = |free| Pipeline::open(&checkpoint, Weights::Ema, &settings(free), &Device::flex()).unwrap();
    let sample = |pipeline: &Pipeline| pipeline.sample(0, &[StartNoise::Index(0)], &mut |_| ()).unwrap();
    for (free, evaluations) in [(true, 4), (false, 5)] {
        let pipeline = pipeline(free);
        assert_eq!((pipeline.evaluations().unwrap(), sample(&pipeline).nfe), (evaluations, evaluations));
    }
    let first = |pipeline: Pipeline| {
        let mut x0 = vec![];
        let observe = &mut |state: State<'_, Images>| {
            if state.t == 1.0 {
                x0 = to_host(state.x0.0.clone());
            }
        };
        pipeline.sample(0, &[StartNoise::Index(0)], observe).unwrap();
        x0
    };
    let x0 = first(pipeline(true));
    // x̂_0 = x_1 − H_1(phi) − eps is the mean up to rounding.
    let symmetric = |row: &[f32]| (0..side).all(|i| (row[i] - row[side - 1 - i]).abs() < 1e-5);
    assert!(x0.chunks(side).all(symmetric), "images are mirrored half of the time");

    // Without the mean: an error that says what to do.
    let mut tensors: Vec<_> = tensors.into_iter().map(|(name, (shape, values))| (name, shape, values)).collect();
    tensors.retain(|(name, ..)| name != "mean_x0");
    let bare = dir.path().join("bare.safetensors");
    save_tensors(&bare, &tensors, &checkpoint::metadata(&config, 4).unwrap()).unwrap();
    let bare = Checkpoint::open(&bare).unwrap();
    let error = Pipeline::open(&bare, Weights::Ema, &settings(true), &Device::flex()).err().unwrap().to_string();
    assert!(error.contains("bare.safetensors") && error.contains("free_first_step"), "{error}");
    assert!(Pipeline::open(&bare, Weights::Ema, &settings(false), &Device::flex()).is_ok());
    let sets = |set: &str| config.clone().with_overrides(&[set]).unwrap_err().to_string();
    for set in ["process.kind=edm", "process.attenuation=sine"] {
        assert!(sets(set).contains("free_first_step"), "{}", sets(set));
    }
    config
        .clone()
        .with_overrides(&["sample.free_first_step=false", "process.kind=edm", "network.decoders=one"])
        .unwrap();
}
