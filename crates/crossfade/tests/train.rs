//! Training: it learns, resumes to the bit, does not depend on threads, and fails cleanly.
#![allow(clippy::unwrap_used)]
use crossfade::average::Snapshots;
use crossfade::checkpoint::{self, Checkpoint, Weights};
use crossfade::config::{RunConfig, SampleConfig};
use crossfade::data::Image;
use crossfade::engine::Device;
use crossfade::generate::{Job, Pipeline, Recipe, Shard, StartNoise, reproduce, run};
use crossfade::math::{Adm, Attenuation, NoiseScale, Precond, Weighting};
use crossfade::nn::{Decoders, UNetConfig};
use crossfade::sample::Sampler;
use crossfade::train::{RunDir, StepReport, loss_curve, train};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// A network that trains in moments.
fn small() -> RunConfig {
    let mut config = RunConfig {
        seed: 3,
        network: UNetConfig {
            resolution: 8,
            width: 16,
            mult: vec![1, 2],
            blocks: 1,
            attention: vec![],
            dropout: 0.1,
            ..UNetConfig::default()
        }
        .into(),
        ..RunConfig::default()
    };
    config.train.steps = 6;
    config.train.batch = 4;
    config.train.checkpoint_every = 2;
    config.train.log_every = 1;
    config.optim.warmup = 2;
    config.optim.ema_after = 1;
    config.optim.ema_every = 2;
    config
}

fn fit(config: &RunConfig, dir: &Path, resume: bool) -> Vec<StepReport> {
    let mut reports = vec![];
    let stop = AtomicBool::new(false);
    let dir = RunDir(dir.to_path_buf());
    train(config, &dir, &Device::flex(), resume, &stop, &mut |r| reports.push(r.clone())).unwrap();
    reports
}

fn last_bytes(dir: &Path) -> Vec<u8> {
    let (_, path) = checkpoint::list(&dir.join("checkpoints")).unwrap().pop().unwrap();
    std::fs::read(path).unwrap()
}

#[test]
fn a_resumed_run_ends_with_the_same_bytes() {
    let mut config = small();
    config.train.accumulate = 2;
    config.train.augment = 0.5;
    config.network.as_unet_mut().unwrap().augment_dim = 9;
    let (whole, parts) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fit(&config, whole.path(), false);
    // Stops after step 3, where no checkpoint is due, then after step 5.
    for after in [3, 5] {
        let stop = AtomicBool::new(false);
        let dir = RunDir(parts.path().to_path_buf());
        let resume = after > 3;
        let summary = train(&config, &dir, &Device::flex(), resume, &stop, &mut |r| {
            stop.store(r.step == after, Ordering::Relaxed);
        })
        .unwrap();
        assert_eq!((summary.step, summary.stopped), (after, true));
    }
    let rest = fit(&config, parts.path(), true);
    assert_eq!(rest.len(), 1);
    assert!(last_bytes(whole.path()) == last_bytes(parts.path()), "weights, EMA or optimiser differ");
    let steps: Vec<f64> = loss_curve(&parts.path().join("log.jsonl")).unwrap().iter().map(|p| p.0).collect();
    assert_eq!(steps, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
}

/// With patches of 2x2 pixels: a run resumes to the same bytes, and its checkpoint samples.
#[test]
fn a_network_with_patches_trains_resumes_and_samples() {
    let mut config = small();
    config.process = Adm::new(Attenuation::Linear, NoiseScale::default()).into();
    let network = config.network.as_unet_mut().unwrap();
    (network.resolution, network.patch, network.attention) = (16, 2, vec![8]);
    assert_eq!(RunConfig::parse(&config.to_toml().unwrap(), "x").unwrap(), config);
    assert!(config.to_toml().unwrap().contains("patch = 2") && !small().to_toml().unwrap().contains("patch"));
    let (whole, parts) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fit(&config, whole.path(), false);
    let (stop, dir) = (AtomicBool::new(false), RunDir(parts.path().to_path_buf()));
    train(&config, &dir, &Device::flex(), false, &stop, &mut |r| stop.store(r.step == 3, Ordering::Relaxed)).unwrap();
    assert_eq!(fit(&config, parts.path(), true).len(), 3);
    assert!(last_bytes(whole.path()) == last_bytes(parts.path()), "weights, EMA or optimiser differ");
    let (_, path) = checkpoint::list(&whole.path().join("checkpoints")).unwrap().pop().unwrap();
    let checkpoint = Checkpoint::open(&path).unwrap();
    assert_eq!(checkpoint.config.network, config.network);
    let sample = SampleConfig { sampler: Sampler::Alg2, steps: 2, ..SampleConfig::default() };
    let pipeline = Pipeline::open(&checkpoint, Weights::Ema, &sample, &Device::flex()).unwrap();
    let images = pipeline.sample(0, &[StartNoise::Index(0), StartNoise::Index(1)], &mut |_| ()).unwrap();
    assert_eq!(images.x0.0.dims(), [2, 3, 16, 16]);
}

/// The averages that a run keeps are those of its weights, a resumed run has the same ones, and any other is made of them.
#[test]
fn averages_are_chosen_after_the_training() {
    let mut config = small();
    config.optim.ema_profiles = vec![0.05, 0.1];
    config.optim.ema_sigma = Some(0.1);
    config.optim.lr = 1e-3;
    (config.train.steps, config.train.checkpoint_every, config.train.average_every) = (12, 1, 2);
    config.train.keep = 12;
    let (whole, parts) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fit(&config, whole.path(), false);
    let stop = AtomicBool::new(false);
    let dir = RunDir(parts.path().to_path_buf());
    train(&config, &dir, &Device::flex(), false, &stop, &mut |r| stop.store(r.step == 7, Ordering::Relaxed)).unwrap();
    fit(&config, parts.path(), true);
    let files = |run: &Path| -> Vec<Vec<u8>> {
        let found = checkpoint::list(&run.join("averages")).unwrap();
        assert_eq!(found.iter().map(|(step, _)| *step).collect::<Vec<_>>(), [2, 4, 6, 8, 10, 12]);
        found.iter().map(|(_, path)| std::fs::read(path).unwrap()).collect()
    };
    assert!(files(whole.path()) == files(parts.path()) && last_bytes(whole.path()) == last_bytes(parts.path()));

    // The weights after every step are in the checkpoints: the average is their direct sum.
    let at = |step: u64| {
        let path = whole.path().join("checkpoints").join(checkpoint::file_name(step));
        Checkpoint::open(&path).unwrap().read().unwrap()
    };
    let weights: Vec<_> = (1..=12).map(at).collect();
    let names: Vec<_> = weights[0].keys().filter_map(|name| name.strip_prefix("model.")).collect();
    let snapshots = Snapshots::open(whole.path()).unwrap();
    let out = whole.path().join("average.safetensors");
    for (sigma, end, most) in [(0.1, 12u64, 1e-6), (0.05, 8, 1e-6), (0.07, 12, 2e-3), (0.15, 12, 2e-3)] {
        let made = snapshots.average(sigma, Some(end), &out).unwrap();
        assert!(made.step == end && (made.error == 0.0) == (most < 1e-5), "{made:?}");
        let averaged = Checkpoint::open(&out).unwrap();
        let found = averaged.read().unwrap();
        let gamma = crossfade::math::PowerProfile::new(sigma).unwrap().gamma;
        let power = |i: u64| (i as f64 / end as f64).powf(gamma + 1.0);
        for name in &names {
            let own: Vec<_> = weights.iter().map(|w| &w[&format!("model.{name}")].1).collect();
            for (k, value) in found[*name].1.iter().enumerate() {
                let part = |(i, w): (u64, &&Vec<f32>)| (power(i) - power(i - 1)) * f64::from(w[k]);
                let direct: f64 = (1..=end).zip(&own).map(part).sum();
                assert!((f64::from(*value) - direct).abs() < most, "{sigma} {name}: {value} {direct}");
            }
            if made.error == 0.0 {
                assert!(found[*name] == at(end)[&format!("average-{sigma}.{name}")], "a stored average, as it is");
            }
            if sigma == 0.1 {
                assert!(found[*name] == at(end)[&format!("ema.{name}")], "the moving average is of this width");
            }
        }
        let sample = SampleConfig { steps: 2, ..SampleConfig::default() };
        let pipeline = Pipeline::open(&averaged, Weights::Ema, &sample, &Device::flex()).unwrap();
        assert_eq!(pipeline.images(0, 0..2).unwrap().len(), 2);
    }
    for (sigma, step) in [(0.5, None), (0.1, Some(13)), (0.1, Some(1))] {
        assert!(snapshots.average(sigma, step, &out).is_err(), "{sigma} {step:?}");
    }
    // An average cannot begin in the middle of a run.
    config.optim.ema_profiles = vec![0.05];
    let error = train(&config, &dir, &Device::flex(), true, &stop, &mut |_| ()).unwrap_err().to_string();
    assert!(error.contains("optim.ema_profiles"), "{error}");
}

#[test]
fn weights_do_not_depend_on_threads() {
    let config = small();
    let run = |threads| {
        let dir = tempfile::tempdir().unwrap();
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| fit(&config, dir.path(), false));
        last_bytes(dir.path())
    };
    assert!(run(1) == run(2));
}

/// With attention, dropout, skips and resampling, so that every cheap operation is computed again.
#[test]
fn recomputation_changes_no_bit() {
    let mut config = small();
    config.network.as_unet_mut().unwrap().attention = vec![4];
    config.train.steps = 2;
    let run = |recompute: bool| {
        let (mut config, dir) = (config.clone(), tempfile::tempdir().unwrap());
        config.train.recompute = recompute;
        fit(&config, dir.path(), false);
        let (_, path) = checkpoint::list(&dir.path().join("checkpoints")).unwrap().pop().unwrap();
        Checkpoint::open(&path).unwrap().read().unwrap()
    };
    assert!(run(false) == run(true));
}

/// Every attenuation, decoder and a few objectives train: the loss on the same few images falls.
#[test]
fn every_kind_of_network_learns_a_few_images() {
    let variants = [
        (Attenuation::Constant, Decoders::Two, Weighting::Adaptive),
        (Attenuation::Constant, Decoders::One, Weighting::Adaptive),
        (Attenuation::Constant, Decoders::Conv, Weighting::Reference),
        (Attenuation::Linear, Decoders::Two, Weighting::Adaptive),
        (Attenuation::Quadratic, Decoders::Two, Weighting::Adaptive),
        (Attenuation::Exponential, Decoders::Two, Weighting::Adaptive),
        (Attenuation::Sine, Decoders::Two, Weighting::Adaptive),
    ];
    for (attenuation, decoders, weighting) in variants {
        let mut config = small();
        config.process = Adm::new(attenuation, NoiseScale::default()).into();
        config.network.as_unet_mut().unwrap().decoders = decoders;
        config.loss.weighting = weighting;
        config.data = crossfade::data::DataConfig::Procedural { seed: 1, len: 4 };
        config.train.steps = 60;
        config.train.batch = 8;
        config.train.flip = false;
        config.train.checkpoint_every = 60;
        config.optim.lr = 3e-3;
        let dir = tempfile::tempdir().unwrap();
        let reports = fit(&config, dir.path(), false);
        let mean = |r: &[StepReport]| r.iter().map(|r| r.loss).sum::<f64>() / r.len() as f64;
        let (early, late) = (mean(&reports[..10]), mean(&reports[50..]));
        assert!(late < 0.8 * early, "{attenuation:?} {decoders:?} {weighting:?}: {early} to {late}");
    }
}

#[test]
fn checkpoints_are_kept_and_damaged_ones_passed_over() {
    let mut config = small();
    config.train.keep = 2;
    let dir = tempfile::tempdir().unwrap();
    fit(&config, dir.path(), false);
    let found = checkpoint::list(&dir.path().join("checkpoints")).unwrap();
    assert_eq!(found.iter().map(|(s, _)| *s).collect::<Vec<_>>(), [4, 6]);
    let whole = std::fs::read(&found[1].1).unwrap();
    // One flipped bit in a tensor, and half a file.
    let mut flipped = whole.clone();
    let place = whole.len() - 100;
    flipped[place] ^= 1;
    for bad in [flipped, whole[..whole.len() / 2].to_vec()] {
        std::fs::write(&found[1].1, bad).unwrap();
        let stop = AtomicBool::new(false);
        let run_dir = RunDir(dir.path().to_path_buf());
        let summary = train(&config, &run_dir, &Device::flex(), true, &stop, &mut |_| ()).unwrap();
        assert_eq!(summary.passed_over.len(), 1, "{:?}", summary.passed_over);
        assert!(std::fs::read(&found[1].1).unwrap() == whole, "the run was repaired to the same bytes");
    }
    let foreign = dir.path().join("foreign.safetensors");
    std::fs::write(&foreign, b"\x02\0\0\0\0\0\0\0{}").unwrap();
    assert!(Checkpoint::open(&foreign).err().unwrap().to_string().contains("not a crossfade checkpoint"));
}

#[test]
fn another_run_is_not_resumed_or_overwritten() {
    let config = small();
    let dir = tempfile::tempdir().unwrap();
    fit(&config, dir.path(), false);
    let before = last_bytes(dir.path());
    let attempt = |config: &RunConfig, resume| {
        let stop = AtomicBool::new(false);
        let run_dir = RunDir(dir.path().to_path_buf());
        train(config, &run_dir, &Device::flex(), resume, &stop, &mut |_| ()).err().unwrap().to_string()
    };
    assert!(attempt(&config, false).contains("--resume"));
    let mut other = config.clone();
    other.optim.lr = 1e-3;
    other.train.batch = 5;
    let message = attempt(&other, true);
    assert!(message.contains("lr") && message.contains("batch"), "{message}");
    assert!(before == last_bytes(dir.path()));
}

#[test]
fn a_loss_that_is_no_number_stops_the_run_and_names_step_and_samples() {
    let mut config = small();
    config.optim.lr = 1e30;
    config.optim.lr_floor = 1e29;
    config.optim.clip = 0.0;
    config.train.steps = 50;
    let dir = tempfile::tempdir().unwrap();
    let stop = AtomicBool::new(false);
    let run_dir = RunDir(dir.path().to_path_buf());
    let error = train(&config, &run_dir, &Device::flex(), false, &stop, &mut |_| ()).err().unwrap().to_string();
    assert!(error.contains("step ") && error.contains("samples "), "{error}");
}

fn trained(dir: &Path) -> Checkpoint {
    fit(&small(), dir, false);
    let (_, path) = checkpoint::list(&dir.join("checkpoints")).unwrap().pop().unwrap();
    Checkpoint::open(&path).unwrap()
}

#[test]
fn image_k_is_the_same_for_every_batch_shard_and_thread_count() {
    let dir = tempfile::tempdir().unwrap();
    let checkpoint = trained(dir.path());
    let make = |name: &str, batch, shards: u64, threads| {
        let out = dir.path().join(name);
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        for index in 0..shards {
            let job = Job {
                seed: 5,
                first: 10,
                count: 9,
                shard: Shard { index, count: shards },
                batch,
                trajectory: false,
                between: None,
                guide: None,
                out: out.clone(),
            };
            let config = SampleConfig { sampler: Sampler::Alg2, steps: 4, ..SampleConfig::default() };
            pool.install(|| run(&checkpoint, Weights::Ema, &config, &job, &Device::flex(), &mut |_, _| ())).unwrap();
        }
        (10..19).map(|k| std::fs::read(out.join(format!("{k:06}.png"))).unwrap()).collect::<Vec<_>>()
    };
    let one = make("one", 1, 1, 1);
    assert_eq!(one.len(), 9);
    assert_ne!(one[0], one[1]);
    for (name, batch, shards, threads) in [("seven", 7, 1, 2), ("all", 64, 1, 1), ("sharded", 2, 3, 2)] {
        assert!(make(name, batch, shards, threads) == one, "{name}");
    }
}

#[test]
fn a_picture_reproduces_itself() {
    let dir = tempfile::tempdir().unwrap();
    let checkpoint = trained(dir.path());
    let out = dir.path().join("pictures");
    for (between, first) in [(None, "000000.png"), (Some((1, 2)), "000001-000002-001.png")] {
        let job = Job {
            seed: 1,
            first: 0,
            count: 3,
            shard: Shard::ALL,
            batch: 3,
            trajectory: true,
            between,
            guide: None,
            out: out.clone(),
        };
        let config = SampleConfig { sampler: Sampler::Alg2Second, steps: 3, ..SampleConfig::default() };
        run(&checkpoint, Weights::Ema, &config, &job, &Device::flex(), &mut |_, _| ()).unwrap();
        let picture = out.join(first);
        let again = reproduce(&picture, Some(&checkpoint.path), None, &Device::flex()).unwrap();
        assert!(again.identical && again.png == std::fs::read(&picture).unwrap());
        // Without being told, the checkpoint is found one level up.
        assert!(reproduce(&picture, None, None, &Device::flex()).unwrap().identical);
    }
    assert!(out.join("sheet.png").is_file() && out.join("000000-path.png").is_file());
    // A recipe is what somebody wrote into a picture: an absurd one is an error, not a crash.
    let (mut recipe, _) = Recipe::read(&out.join("000000.png")).unwrap();
    recipe.sample.steps = 2_000_000_000_000_000_000;
    std::fs::write(out.join("bad.png"), recipe.png(&Image::new(1, 1, 1, vec![0])).unwrap()).unwrap();
    let bad = reproduce(&out.join("bad.png"), Some(&checkpoint.path), None, &Device::flex()).err().unwrap().to_string();
    assert!(bad.contains("bad.png") && bad.contains("sample.steps"), "{bad}");
    let sheet = reproduce(&out.join("sheet.png"), None, None, &Device::flex()).err().unwrap().to_string();
    assert!(sheet.contains("no crossfade recipe"), "{sheet}");
}

/// Interpolation starts and ends at the two images themselves.
#[test]
fn interpolation_connects_two_images() {
    let dir = tempfile::tempdir().unwrap();
    let config = SampleConfig { steps: 3, ..SampleConfig::default() };
    let pipeline = Pipeline::open(&trained(dir.path()), Weights::Model, &config, &Device::flex()).unwrap();
    assert_eq!(pipeline.size().unwrap(), [3, 8, 8]);
    let sample = |start| {
        let out = pipeline.sample(0, &[start], &mut |_| ()).unwrap();
        pipeline.decode(out.x0.0).pop().unwrap().pixels
    };
    assert_eq!(sample(StartNoise::Between(4, 6, 0.0)), sample(StartNoise::Index(4)));
    let (end, six) = (sample(StartNoise::Between(4, 6, 1.0)), sample(StartNoise::Index(6)));
    assert!(end.iter().zip(&six).all(|(a, b)| a.abs_diff(*b) <= 1));
}

#[cfg(unix)]
#[test]
fn an_unwritable_directory_is_an_error_and_nothing_is_left() {
    let config = small();
    let error = {
        let stop = AtomicBool::new(false);
        let run_dir = RunDir("/proc/crossfade-cannot-write-here".into());
        train(&config, &run_dir, &Device::flex(), false, &stop, &mut |_| ()).err().unwrap().to_string()
    };
    assert!(error.contains("/proc/crossfade-cannot-write-here"), "{error}");
}

/// Targets of the adaptive weighting would be wrong under the older scalings: refused, with nothing left behind.
#[test]
fn a_weighting_that_does_not_fit_the_scalings_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    for precond in [Precond::OlderRelease, Precond::Conditional, Precond::DiffusionEdge] {
        let mut config = RunConfig { process: Adm { precond, ..Adm::default() }.into(), ..small() };
        config.loss.weighting = Weighting::Adaptive;
        let run = RunDir(dir.path().join("run"));
        let refused = train(&config, &run, &Device::flex(), false, &AtomicBool::new(false), &mut |_| ());
        assert!(refused.err().unwrap().to_string().contains("loss.weighting"), "{precond:?}");
        assert!(!run.0.exists(), "{precond:?}");
    }
    for kind in ["network.decoders=one", "network.decoders=two"] {
        let process = Adm { precond: Precond::None, ..Adm::default() }.into();
        let mut config = RunConfig { process, ..small() }.with_overrides(&[kind]).unwrap();
        config.loss.weighting = Weighting::Adaptive;
        config.train.steps = 1;
        let run = RunDir(dir.path().join(kind));
        let tried = train(&config, &run, &Device::flex(), false, &AtomicBool::new(false), &mut |_| ());
        let refused =
            tried.err().map(|e| e.to_string().contains("process.precond.kind = \"none\" asks one decoder for two"));
        assert_eq!(refused, kind.ends_with("one").then_some(true));
    }
}
