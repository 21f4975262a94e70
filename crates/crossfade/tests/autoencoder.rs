//! Autoencoders: training resumes to the bit, latents from disk are those made on the fly, one file holds both stages.
#![allow(clippy::unwrap_used, clippy::print_stderr)]
use crossfade::checkpoint::{self, Checkpoint, Weights, autoencoder_metadata};
use crossfade::config::{AutoencoderRun, LatentConfig, RunConfig, SampleConfig, is_autoencoder};
use crossfade::convert::convert;
use crossfade::data::{DataConfig, Dataset, Filter, Fit, Image};
use crossfade::engine::{Device, Tensor, from_host, to_host};
use crossfade::generate::{Edit, EditRecipe, Job, Pipeline, Shard, Source, reproduce, reproduce_edit, run};
use crossfade::latent::{AutoencoderCheckpoint, Batches, Latent, LatentCache, Originals, reconstruct};
use crossfade::loader::{LoaderConfig, Share};
use crossfade::loss::AutoencoderLoss;
use crossfade::nn::weights::{collect, gradients};
use crossfade::nn::{AutoencoderConfig, PatchGan, Statistics, UNetConfig};
use crossfade::task::TaskConfig;
use crossfade::tensorfile::{HostTensor, TensorFile, save_tensors};
use crossfade::train::{AutoencoderReport, Event, RunDir, train, train_autoencoder};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// An autoencoder that trains in moments, judged from its third step on.
fn small() -> AutoencoderRun {
    let mut config = AutoencoderRun { seed: 5, ..AutoencoderRun::default() };
    config.autoencoder =
        AutoencoderConfig { resolution: 16, width: 32, mult: vec![1, 1], blocks: 1, ..AutoencoderConfig::default() };
    config.loss = AutoencoderLoss { perceptual: 0.0, disc_start: 2, disc_width: 8, disc_depth: 2, ..config.loss };
    config.optim.lr = 1e-3;
    config.optim.warmup = 0;
    (config.optim.ema_after, config.optim.ema_every) = (1, 1);
    (config.train.steps, config.train.batch) = (5, 2);
    (config.train.log_every, config.train.checkpoint_every) = (1, 2);
    config.validate().unwrap();
    config
}

/// A network on the latents of [`small`].
fn on_latents(autoencoder: &Path) -> RunConfig {
    let mut config = RunConfig { seed: 3, ..RunConfig::default() };
    config.network = UNetConfig {
        resolution: 8,
        width: 16,
        mult: vec![1, 2],
        blocks: 1,
        attention: vec![],
        ..UNetConfig::default()
    }
    .into();
    config.data = crossfade::data::DataConfig::Procedural { seed: 1, len: 12 };
    (config.train.steps, config.train.batch) = (4, 4);
    (config.train.checkpoint_every, config.optim.warmup) = (2, 1);
    config.sample.clip = 0.0;
    config.sample.steps = 2;
    config.latent = Some(LatentConfig { autoencoder: autoencoder.to_path_buf(), scale: None, cache: None });
    config.validate().unwrap();
    config
}

fn fit(config: &AutoencoderRun, dir: &Path, resume: bool, last: u64) -> Vec<AutoencoderReport> {
    let (stop, mut reports) = (AtomicBool::new(false), vec![]);
    let mut hear = |event: Event| {
        if let Event::Step(step) = event {
            stop.store(step.step >= last, Ordering::Relaxed);
            reports.push(step.clone());
        }
    };
    train_autoencoder(config, &RunDir(dir.to_path_buf()), &Device::flex(), resume, &stop, &mut hear).unwrap();
    reports
}

fn fit_latents(config: &RunConfig, dir: &Path, resume: bool, last: u64) {
    let stop = AtomicBool::new(false);
    let hear = &mut |step: &crossfade::train::StepReport| stop.store(step.step >= last, Ordering::Relaxed);
    train(config, &RunDir(dir.to_path_buf()), &Device::flex(), resume, &stop, hear).unwrap();
}

fn last_bytes(dir: &Path) -> Vec<u8> {
    let (_, path) = checkpoint::list(&dir.join("checkpoints")).unwrap().pop().unwrap();
    std::fs::read(path).unwrap()
}

#[test]
fn a_resumed_autoencoder_ends_with_the_same_bytes() {
    let config = small();
    let (whole, parts) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let reports = fit(&config, whole.path(), false, u64::MAX);
    assert_eq!(reports.iter().map(|r| r.disc_loss.is_some()).collect::<Vec<_>>(), [false, false, true, true, true]);
    assert!(reports[4].terms.verdict_weight > 0.0 && reports[0].terms.verdict_weight == 0.0);
    fit(&config, parts.path(), false, 1);
    fit(&config, parts.path(), true, 3);
    assert_eq!(fit(&config, parts.path(), true, u64::MAX).len(), 2);
    assert!(last_bytes(whole.path()) == last_bytes(parts.path()), "weights, averages, statistics or optimisers differ");
    let mut other = config.clone();
    other.loss.kl_weight = 1.0;
    let opened = AutoencoderCheckpoint::open(whole.path()).unwrap();
    assert!(opened.config.must_resume_as(&other).unwrap_err().to_string().contains("kl_weight"));
    let error = Checkpoint::open(&opened.path).err().unwrap().to_string();
    assert!(error.contains("autoencoder") && error.contains("reconstruct"), "{error}");
}

#[test]
fn an_autoencoder_learns_to_keep_images() {
    let mut config = small();
    config.data = crossfade::data::DataConfig::Procedural { seed: 1, len: 4 };
    config.loss.disc_start = 1000;
    (config.train.steps, config.train.batch, config.train.flip) = (40, 4, false);
    config.optim.lr = 3e-3;
    let dir = tempfile::tempdir().unwrap();
    let reports = fit(&config, dir.path(), false, u64::MAX);
    let (first, last) = (reports[0].terms.nll, reports[39].terms.nll);
    assert!(last < 0.6 * first, "{first} to {last}");
}

/// The gradients of one pass with balanced losses are those of the loss itself.
#[test]
fn gradients_are_those_of_the_whole_loss() {
    let (config, device) = (small(), Device::flex());
    let tracked = device.clone().autodiff();
    let net = config.autoencoder.init(1, &tracked);
    let disc = PatchGan::new(3, 8, 2, 2, &tracked);
    let wave = |count: usize, step: f32| (0..count).map(|i| (i as f32 * step).sin()).collect::<Vec<_>>();
    let x: Tensor<4> = from_host(&wave(2 * 3 * 256, 0.37), [2, 3, 16, 16], &device);
    let noise: Tensor<4> = from_host(&wave(2 * 3 * 64, 1.7), [2, 3, 8, 8], &device);
    let square = |a: Tensor<4>, b: Tensor<4>| (a - b).square().flatten::<2>(1, 3).mean_dim(1);
    let loss = AutoencoderLoss { perceptual: 0.5, kl_weight: 0.01, ..config.loss };
    let step = loss.generator_step(&net, Some(&disc), x.clone(), noise.clone(), Some(&square));
    let posterior = net.encode(x.clone());
    let kl = posterior.kl().mean();
    let x_hat = net.decode(posterior.sample(noise));
    let nll = loss.reconstruction(x, x_hat.clone(), Some(&square));
    let verdict = -disc.train_forward(x_hat, &Statistics::default()).mean();
    let total = nll + kl * loss.kl_weight + verdict * step.terms.verdict_weight;
    let value = f64::from(total.clone().into_scalar::<f32>());
    assert!((value / step.terms.total - 1.0).abs() < 1e-5, "{value} {:?}", step.terms);
    let (got, want) = (gradients(&net, step.gradients), gradients(&net, total.backward()));
    assert_eq!(got.len(), want.len());
    for ((name, _, a), (_, _, b)) in got.iter().zip(&want) {
        let size = b.iter().map(|v| v * v).sum::<f32>().sqrt();
        let off = a.iter().zip(b).map(|(a, b)| (a - b).powi(2)).sum::<f32>().sqrt();
        assert!(off <= 1e-4 * size + 1e-3, "{name}: {off} of {size}");
    }
}

#[test]
fn latents_from_disk_are_those_made_on_the_fly() {
    let dir = tempfile::tempdir().unwrap();
    fit(&small(), dir.path(), false, 1);
    let latent = Latent::open(&on_latents(dir.path()).latent.unwrap(), &Device::flex()).unwrap();
    assert_eq!((latent.latent_channels(), latent.factor(), latent.image_channels()), (3, 2, 3));
    let set = |seed| -> Arc<dyn Dataset> {
        Arc::from(crossfade::data::DataConfig::Procedural { seed, len: 19 }.open(16, 3).unwrap())
    };
    let loading = |batch| LoaderConfig { batch, seed: 9, flip: true, threads: 1, cache: false, share: Share::ALL };
    let cache = dir.path().join("below/latents.safetensors");
    let start = |set, batch, cache: Option<&Path>| {
        Batches::start(set, TaskConfig::default(), loading(batch), 7, Some(&latent), cache, &mut |_, _| ())
    };
    let mut live = start(set(2), 5, None).unwrap();
    let mut made = start(set(2), 5, Some(&cache)).unwrap();
    let mut read = start(set(2), 10, Some(&cache)).unwrap();
    // Over the end of an epoch, so that images come back with other noise.
    for _ in 0..3 {
        let both = read.next_batch().unwrap();
        let halves = [made.next_batch().unwrap(), made.next_batch().unwrap()];
        for half in &halves {
            assert_eq!(*half, live.next_batch().unwrap());
        }
        assert_eq!(halves.map(|h| h.x0).concat(), both.x0);
        assert_eq!(both.shape, [10, 3, 8, 8]);
    }
    let error = start(set(4), 5, Some(&cache)).map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("other images"), "{error}");
    // D9: changed numbers are no latents of these images, although their file has the right header.
    let bytes = std::fs::read(&cache).unwrap();
    for at in [bytes.len() - 1, bytes.len() / 2] {
        let mut changed = bytes.clone();
        changed[at] ^= 1;
        std::fs::write(&cache, changed).unwrap();
        let error = start(set(2), 5, Some(&cache)).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains("checksum") && error.contains("latents.safetensors"), "{error}");
    }
    // The numbers in another shape, with a checksum and notes that are right.
    std::fs::write(&cache, &bytes).unwrap();
    let file = TensorFile::open(&cache).unwrap();
    let (notes, (shape, values)) = (file.metadata(), file.read("moments").unwrap());
    assert_eq!(shape, [38, 6, 8, 8]);
    for (name, shape) in [("moments", vec![38, 6, 4, 16]), ("moments", vec![38, 384]), ("others", shape)] {
        save_tensors(&cache, &[(name.into(), shape, values.clone())], &notes).unwrap();
        let error = start(set(2), 5, Some(&cache)).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains("of the shape [38, 6, 8, 8]") && error.contains("latents.safetensors"), "{error}");
    }
    std::fs::write(&cache, bytes).unwrap();
    assert!(start(set(2), 5, Some(&cache)).is_ok());
}

/// D9: a cache is refused if one picture was changed, or if the autoencoder was trained on, under the same names.
#[test]
fn a_cache_of_other_pictures_or_of_another_autoencoder_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (stage, photos, cache) = (dir.path().join("ae"), dir.path().join("photos"), dir.path().join("latents"));
    std::fs::create_dir(&photos).unwrap();
    let paint = |brightness: u8| {
        let image = Image::new(16, 16, 3, vec![brightness; 3 * 16 * 16]);
        std::fs::write(photos.join("b.png"), image.encode_png(&[]).unwrap()).unwrap();
    };
    paint(10);
    for name in ["a.png", "c.png"] {
        std::fs::copy(photos.join("b.png"), photos.join(name)).unwrap();
    }
    let mut run = small();
    run.train.checkpoint_every = 1;
    let open = || {
        let latent = Latent::open(&on_latents(&stage).latent.unwrap(), &Device::flex()).unwrap();
        let (fit, filter) = (Fit::default(), Filter::default());
        let set = DataConfig::Folder { path: photos.clone(), fit, filter }.open(16, 3).unwrap();
        LatentCache::open(&cache, &*set, &latent, false, &mut |_, _| ()).map(|_| ())
    };
    fit(&run, &stage, false, 1);
    open().unwrap();
    open().unwrap();
    paint(11);
    let error = open().unwrap_err().to_string();
    assert!(error.contains("other images") && error.contains("latents"), "{error}");
    paint(10);
    open().unwrap();
    fit(&run, &stage, true, 2);
    let error = open().unwrap_err().to_string();
    assert!(error.contains("another autoencoder"), "{error}");
}

#[test]
fn one_checkpoint_holds_both_stages() {
    let dir = tempfile::tempdir().unwrap();
    let stage = dir.path().join("ae");
    fit(&small(), &stage, false, 2);
    let mut config = on_latents(&stage);
    let whole = dir.path().join("whole");
    fit_latents(&config, &whole, false, u64::MAX);
    // Resumed without the autoencoder's own files, and with latents from disk.
    let parts = dir.path().join("parts");
    fit_latents(&config, &parts, false, 3);
    std::fs::rename(&stage, dir.path().join("gone")).unwrap();
    config.latent.as_mut().unwrap().cache = Some(dir.path().join("cache.safetensors"));
    fit_latents(&config, &parts, true, u64::MAX);
    let open = |run: &Path| Checkpoint::open(&checkpoint::newest(run).unwrap()).unwrap();
    assert!(open(&whole).read().unwrap() == open(&parts).read().unwrap(), "a resumed run differs");
    let trained = open(&whole);
    let latent = Latent::of(&trained, &Device::flex()).unwrap().unwrap();
    assert!(latent.scale() > 0.0 && latent.scale() != 1.0, "the scale was not measured");
    let out = dir.path().join("pictures");
    let job = Job {
        seed: 1,
        first: 0,
        count: 3,
        shard: Shard::ALL,
        batch: 2,
        trajectory: true,
        between: None,
        guide: None,
        out: out.clone(),
    };
    let report = run(&trained, Weights::Ema, &trained.config.sample, &job, &Device::flex(), &mut |_, _| ()).unwrap();
    assert_eq!(report.images, 3);
    let picture = out.join("000001.png");
    let image = crossfade::data::Image::decode(&std::fs::read(&picture).unwrap(), &picture).unwrap();
    assert_eq!((image.width, image.height), (16, 16));
    assert!(reproduce(&picture, Some(&trained.path), None, &Device::flex()).unwrap().identical);
    edits_on_latents(&trained, &picture, &dir.path().join("edited.png"));
    // The pictures through the autoencoder once more, also at a size that its factor does not divide.
    let originals = Originals { path: &out, limit: 9, resolution: Some(15) };
    let seen =
        reconstruct(&trained.path, Weights::Ema, &originals, &dir.path().join("back"), &Device::flex(), &mut |_, _| ())
            .unwrap();
    assert!(seen.images.len() == 6 && seen.mean_psnr > 3.0, "{seen:?}");
}

/// Editing encodes the picture, also in tiles, and is made again from its recipe; strength 1 makes the image of the seed.
fn edits_on_latents(trained: &Checkpoint, picture: &Path, out: &Path) {
    let sample = SampleConfig { steps: 4, ..trained.config.sample.clone() };
    let pipeline = Pipeline::open(trained, Weights::Ema, &sample, &Device::flex()).unwrap();
    assert_eq!(pipeline.picture_size().unwrap(), (3, 16));
    let source = Source::read(picture).unwrap();
    let edit = |strength: f64, index: u64| {
        let edit = (Edit::Strength(strength), (1, index));
        let recipe = EditRecipe::new(trained, Weights::Ema, &pipeline, (&source, None), edit.0, edit.1).unwrap();
        let applied = pipeline.change(&source, &recipe, out).unwrap();
        assert_eq!((applied.width, applied.height, applied.windows), (16, 16, 1));
        let input = [picture.to_path_buf()];
        let again = reproduce_edit(out, Some(&trained.path), None, &input, &Device::flex()).unwrap().unwrap();
        assert!(again.identical);
        crossfade::data::Image::read(out).unwrap()
    };
    assert_eq!(edit(1.0, 2), pipeline.images(1, 2..3).unwrap()[0]);
    assert!(edit(0.5, 0) != edit(0.5, 1));
    assert_eq!(edit(0.0, 0), crossfade::data::Image::read(picture).unwrap(), "nothing is encoded without a step");
    let large = crossfade::data::DataConfig::Procedural { seed: 9, len: 4 }.open(40, 3).unwrap().get(2).unwrap();
    let file = out.with_extension("large.png");
    std::fs::write(&file, large.encode_png(&[]).unwrap()).unwrap();
    let source = Source::read(&file).unwrap();
    let edit = Edit::Strength(0.5);
    let recipe = EditRecipe::new(trained, Weights::Ema, &pipeline, (&source, None), edit, (1, 0)).unwrap();
    let tiles = pipeline.change(&source, &recipe, out).unwrap();
    assert!(tiles.width == 40 && tiles.windows > 4, "{tiles:?}");
}

#[test]
fn moments_and_scale_do_what_they_say() {
    let device = Device::flex();
    let config = small().autoencoder;
    let mut latent = Latent::new(config.clone(), config.init(1, &device), 0.5, &device);
    let wave: Vec<f32> = (0..4 * 3 * 256).map(|i| (i as f32 * 0.731).sin()).collect();
    let images = || from_host(&wave, [4, 3, 16, 16], &device);
    let z = to_host(latent.encode(images(), 1, &[0, 1, 2, 3]));
    assert_eq!(z, to_host(latent.encode(images(), 1, &[0, 1, 2, 3])), "the same samples have the same noise");
    assert_ne!(z, to_host(latent.encode(images(), 1, &[4, 1, 2, 3])));
    latent.measure(images(), 1, &[0, 1, 2, 3]).unwrap();
    let scaled = to_host(latent.encode(images(), 1, &[0, 1, 2, 3]));
    let mean = scaled.iter().map(|&v| f64::from(v)).sum::<f64>() / scaled.len() as f64;
    let variance = scaled.iter().map(|&v| (f64::from(v) - mean).powi(2)).sum::<f64>() / (scaled.len() - 1) as f64;
    assert!((variance - 1.0).abs() < 1e-4, "{variance}");
    let ratio = f64::from(z[7]) / 0.5 * latent.scale() / f64::from(scaled[7]);
    assert!((ratio - 1.0).abs() < 1e-4, "{ratio}");
    assert!(latent.must_fit(4).unwrap_err().to_string().contains("latents have 3"));
}

#[test]
fn bad_configurations_are_explained() {
    let text = "[autoencoder]\nwidth = 33\nresolution = 30\n[loss]\ndisc_depht = 2\n";
    assert!(is_autoencoder(text));
    let error = AutoencoderRun::parse(text, "a.toml").unwrap_err().to_string();
    let parts = ["a.toml:2: autoencoder.width", "a.toml:3: autoencoder.resolution", "disc_depth"];
    parts.iter().for_each(|part| assert!(error.contains(part), "{part} in {error}"));
    let text = "[latent]\nautoencoder = \"runs/ae\"\n[network]\nchannels = 4\n[train]\naugment = 0.1\n[network]";
    let error = RunConfig::parse(text.trim_end_matches("\n[network]"), "b.toml").unwrap_err().to_string();
    assert!(error.contains("sample.clip") && error.contains("train.augment"), "{error}");
    assert!(!error.contains("1 or 3 channels"), "{error}");
}

/// The autoencoder of a reference's trainer, beside its training loss, becomes a checkpoint that opens as any other.
#[test]
fn a_reference_autoencoder_is_converted() {
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (dir.path().join("theirs.safetensors"), dir.path().join("ours.safetensors"));
    let config = small();
    let weights = collect(&config.autoencoder.init(7, &Device::flex()));
    let prefixed = |(name, shape, values): &HostTensor| (format!("model.{name}"), shape.clone(), values.clone());
    let mut theirs: Vec<HostTensor> = weights.iter().map(prefixed).collect();
    theirs.push(("model.loss.logvar".into(), vec![1], vec![0.0]));
    save_tensors(&from, &theirs, &BTreeMap::new()).unwrap();
    let metadata: Vec<_> = autoencoder_metadata(&config, 60).unwrap().into_iter().collect();
    let report = convert(&from, &to, Weights::Model, &config.autoencoder.parameter_shapes(), &metadata).unwrap();
    assert_eq!((report.tensors, report.mapping.missed.len()), (weights.len(), 0));
    assert_eq!(report.mapping.ignored.len(), 1);
    let checkpoint = AutoencoderCheckpoint::open(&to).unwrap();
    assert_eq!((checkpoint.step, &checkpoint.config), (60, &config));
    for which in [Weights::Ema, Weights::Model] {
        assert!(collect(&checkpoint.autoencoder(which, &Device::flex()).unwrap()) == weights);
    }
}
