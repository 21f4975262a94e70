//! Models that ship: packing, names in place of checkpoints, verification, fine-tuning.
#![allow(clippy::unwrap_used)]
use crossfade::average::Snapshots;
use crossfade::checkpoint::{self, Checkpoint, Packed, Weights};
use crossfade::config::{AutoencoderRun, LatentConfig, RunConfig};
use crossfade::data::{DataConfig, Image};
use crossfade::engine::Device;
use crossfade::generate::{Job, Pipeline, Shard, reproduce, run};
use crossfade::loss::AutoencoderLoss;
use crossfade::models::{self, Content, Model};
use crossfade::nn::{AutoencoderConfig, UNetConfig, weights};
use crossfade::sample::{FittedTimes, Sampler};
use crossfade::tensorfile::{Element, TensorFile};
use crossfade::train::{FineTuning, RunDir, TrainState, fine_tuning_of, train, train_autoencoder, with_classes_of};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

/// A network with classes that trains in moments.
fn small() -> RunConfig {
    let mut config = RunConfig { seed: 3, ..RunConfig::default() };
    config.network = UNetConfig {
        resolution: 8,
        width: 16,
        mult: vec![1, 2],
        blocks: 1,
        attention: vec![],
        classes: 6,
        ..UNetConfig::default()
    }
    .into();
    config.data = DataConfig::Procedural { seed: 1, len: 64 };
    (config.train.steps, config.train.batch, config.train.checkpoint_every) = (3, 4, 1);
    (config.optim.warmup, config.optim.ema_after, config.optim.ema_every) = (0, 1, 1);
    config.sample.steps = 2;
    config.sample.class = "all".into();
    config.validate().unwrap();
    config
}

fn fit(config: &RunConfig, dir: &Path, resume: bool, last: u64) -> PathBuf {
    let stop = AtomicBool::new(false);
    let hear = &mut |step: &crossfade::train::StepReport| stop.store(step.step >= last, Ordering::Relaxed);
    train(config, &RunDir(dir.to_path_buf()), &Device::flex(), resume, &stop, hear).unwrap().checkpoint
}

fn trained(config: &RunConfig, dir: &Path) -> Checkpoint {
    Checkpoint::open(&fit(config, dir, false, u64::MAX)).unwrap()
}

fn pack(checkpoint: &Checkpoint, out: &Path, element: Element, sets: &[&str]) -> crossfade::Result<Packed> {
    checkpoint.pack(out, Weights::Ema, element, &sets.iter().map(ToString::to_string).collect::<Vec<_>>())
}

fn images(checkpoint: &Checkpoint) -> Vec<Image> {
    let sample = &checkpoint.config.sample;
    Pipeline::open(checkpoint, Weights::Ema, sample, &Device::flex()).unwrap().images(4, 0..3).unwrap()
}

fn error<T>(result: crossfade::Result<T>) -> String {
    result.err().unwrap().to_string()
}

#[test]
fn a_packed_model_holds_what_sampling_needs() {
    let dir = tempfile::tempdir().unwrap();
    let mut checkpoint = trained(&small(), &dir.path().join("run"));
    let times =
        FittedTimes { sampler: Sampler::Ab2, steps: 4, kappa_max: 12.0, kappa_min: 0.1, curvature: 0.1, distance: 0.7 };
    checkpoint.keep_times(&[times]).unwrap();
    let [a, b, c] = ["a.safetensors", "b.safetensors", "c.safetensors"].map(|name| dir.path().join(name));
    let packed = pack(&checkpoint, &a, Element::F16, &["sample.steps=4"]).unwrap();
    assert_eq!((packed.task, packed.dtype), ("generate", "f16"));
    assert!(packed.bytes * 6 < std::fs::metadata(&checkpoint.path).unwrap().len(), "{} bytes", packed.bytes);
    assert_eq!(packed.sha256, crossfade::digest::sha256_file(&a).unwrap());
    // The same checkpoint gives the same bytes, and a packed model packs to itself.
    pack(&checkpoint, &b, Element::F16, &["sample.steps=4"]).unwrap();
    let opened = Checkpoint::open(&a).unwrap();
    let again = pack(&opened, &c, Element::F16, &[]).unwrap();
    let read = |path: &Path| std::fs::read(path).unwrap();
    assert!(read(&a) == read(&b) && read(&a) == read(&c));
    assert_eq!((again.rounding.largest, again.rounding.rms), (0.0, 0.0));

    assert_eq!((opened.step, &opened.class_names), (3, &checkpoint.class_names));
    assert_eq!((opened.config.sample.steps, &opened.config.sample.fitted[..]), (4, &[times][..]));
    let names: Vec<String> = TensorFile::open(&a).unwrap().shapes().into_iter().map(|(name, _)| name).collect();
    assert!(names.iter().all(|name| !name.starts_with("adam") && !name.starts_with("model.")), "{names:?}");
    // Each number is the averaged one, rounded to 11 bits.
    let (before, after) = (checkpoint.read().unwrap(), opened.read().unwrap());
    let (mut largest, mut exact) = (0f32, 0);
    for (name, (shape, values)) in &after {
        let (was, original) = &before[&format!("ema.{name}")];
        assert_eq!(was, shape);
        for (a, b) in values.iter().zip(original) {
            assert!((a - b).abs() <= b.abs() / 2048.0 + 0.5f32.powi(25), "{name}: {a} for {b}");
            largest = largest.max((a - b).abs());
        }
        exact += usize::from(values == original && shape.len() == 1);
    }
    assert_eq!(f64::from(largest), packed.rounding.largest);
    assert!(exact > 5, "vectors stay exact");
    // Nearly the pictures of the exact weights.
    let exact = pack(&checkpoint, &b, Element::F32, &["sample.steps=4"]).unwrap();
    assert_eq!(exact.rounding.largest, 0.0);
    for (half, whole) in images(&opened).iter().zip(images(&Checkpoint::open(&b).unwrap())) {
        assert!(half.psnr(&whole) > 40.0, "{}", half.psnr(&whole));
    }
    assert!(error(pack(&checkpoint, &c, Element::F16, &["train.steps=9"])).contains("only the section [sample]"));
    // Keeping times in a packed file leaves its weights as they are.
    let (mut opened, checksum) = (opened, Checkpoint::open(&a).unwrap().checksum);
    opened.keep_times(&[FittedTimes { steps: 7, ..times }]).unwrap();
    assert_eq!((opened.checksum.clone(), opened.config.sample.fitted.len()), (checksum, 2));
}

/// An average that is made after the training can be packed, too.
#[test]
fn averages_keep_the_names_of_classes() {
    let dir = tempfile::tempdir().unwrap();
    let (run, out) = (dir.path().join("run"), dir.path().join("average.safetensors"));
    let mut config = small();
    config.optim.ema_profiles = vec![0.05, 0.1];
    let names = trained(&config, &run).class_names;
    Snapshots::open(&run).unwrap().average(0.07, None, &out).unwrap();
    let average = Checkpoint::open(&out).unwrap();
    assert_eq!(average.class_names, names);
    pack(&average, &dir.path().join("packed.safetensors"), Element::F16, &[]).unwrap();
}

/// Directories of the machine are not shipped.
#[test]
fn a_packed_model_names_no_directories() {
    let dir = tempfile::tempdir().unwrap();
    let pictures = dir.path().join("private/pictures");
    std::fs::create_dir_all(&pictures).unwrap();
    for k in 0..4u8 {
        let image = Image::new(8, 8, 3, vec![k * 60; 192]);
        std::fs::write(pictures.join(format!("{k}.png")), image.encode_png(&[]).unwrap()).unwrap();
    }
    let mut config = small();
    config.network.as_unet_mut().unwrap().classes = 0;
    config.sample.class = "random".into();
    config.data = DataConfig::Folder { path: pictures, fit: Default::default(), filter: Default::default() };
    let checkpoint = trained(&config, &dir.path().join("run"));
    let file = dir.path().join("packed.safetensors");
    pack(&checkpoint, &file, Element::F16, &[]).unwrap();
    let text = String::from_utf8_lossy(&std::fs::read(&file).unwrap()).into_owned();
    assert!(text.contains("pictures") && !text.contains("private"));
    // The mean of the training images is kept exactly: a sampling step is computed from it.
    let mean = |path: &Path| TensorFile::open(path).unwrap().read("mean_x0").unwrap();
    assert_eq!(mean(&file), mean(&checkpoint.path));
}

fn leaked(bytes: Vec<u8>) -> &'static [u8] {
    Box::leak(bytes.into_boxed_slice())
}

/// Everything that needs installed models is one test, because a program installs them once.
#[test]
fn names_stand_for_checkpoints() {
    let dir = tempfile::tempdir().unwrap();
    let checkpoint = trained(&small(), &dir.path().join("run"));
    let file = dir.path().join("packed.safetensors");
    let packed = pack(&checkpoint, &file, Element::F16, &[]).unwrap();
    let bytes = leaked(std::fs::read(&file).unwrap());
    let mut changed = bytes.to_vec();
    *changed.last_mut().unwrap() ^= 1;
    let model = Model {
        name: "shapes",
        task: "generate",
        default: true,
        quality: "for tests",
        bytes: packed.bytes,
        sha256: String::leak(packed.sha256.clone()),
        card: "# shapes",
        content: Content::Embedded(bytes),
    };
    let list = [
        model,
        Model { name: "tampered", default: false, content: Content::Embedded(leaked(changed.clone())), ..model },
        Model { name: "elsewhere", default: false, content: Content::File { url: None }, ..model },
    ];
    models::install(Vec::leak(list.to_vec()));

    let opened = Checkpoint::open(Path::new("shapes")).unwrap();
    assert_eq!(images(&opened), images(&Checkpoint::open(&file).unwrap()));
    assert_eq!(opened.sha256().unwrap(), Checkpoint::open(&file).unwrap().sha256().unwrap());
    assert_eq!(models::default_of("generate").unwrap().name, "shapes");
    assert!(models::default_of("saliency").is_none());
    assert!(error(Checkpoint::open(Path::new("tampered"))).contains("SHA-256"));
    assert!(error(Checkpoint::open(Path::new("shaeps"))).contains("did you mean `shapes`?"));
    assert!(error(Checkpoint::open(Path::new("absent/shapes"))).contains("absent"), "a path is no name");
    assert!(error(models::named("shapse")).contains("did you mean `shapes`?"));
    // A model that ships cannot be changed.
    let mut opened = opened;
    assert!(error(opened.keep_times(&[])).contains("models get shapes"));

    // A file that is not there, one that was tampered with, and the right one.
    let elsewhere = Path::new("elsewhere");
    let message = error(Checkpoint::open(elsewhere));
    assert!(message.contains("not on this machine") && message.contains("elsewhere.safetensors"), "{message}");
    let place = models::directories().into_iter().find(|place| place.ends_with("deps/models")).unwrap();
    std::fs::create_dir_all(&place).unwrap();
    std::fs::write(place.join("elsewhere.safetensors"), &changed).unwrap();
    assert!(error(Checkpoint::open(elsewhere)).contains("SHA-256"));
    std::fs::write(place.join("elsewhere.safetensors"), bytes).unwrap();
    assert_eq!(Checkpoint::open(elsewhere).unwrap().checksum, opened.checksum);
    std::fs::remove_dir_all(&place).unwrap();

    // Pictures of a model name it, and are reproduced without its file.
    let out = dir.path().join("pictures");
    let shard = Shard::ALL;
    let job = Job {
        seed: 1,
        first: 0,
        count: 2,
        shard,
        batch: 2,
        trajectory: false,
        between: None,
        guide: None,
        out: out.clone(),
    };
    run(&opened, Weights::Ema, &opened.config.sample, &job, &Device::flex(), &mut |_, _| ()).unwrap();
    assert!(reproduce(&out.join("000001.png"), None, None, &Device::flex()).unwrap().identical);

    // Fine-tuning by name; the name is kept in the configuration.
    let mut config = fine_tuning_of(Path::new("shapes")).unwrap();
    assert_eq!((config.train.from.as_deref(), config.train.steps), (Some(Path::new("shapes")), 2000));
    (config.train.steps, config.train.checkpoint_every) = (1, 1);
    let tuned = trained(&config, &dir.path().join("tuned"));
    assert_eq!(tuned.config.train.from.as_deref(), Some(Path::new("shapes")));
}

#[test]
fn fine_tuning_starts_from_the_weights_and_resumes_exactly() {
    let dir = tempfile::tempdir().unwrap();
    let (base, device) = (dir.path().join("base"), Device::flex());
    let source = trained(&small(), &base);
    let mut config = RunConfig { seed: 8, ..small() };
    config.train.from = Some(base.clone());
    config.train.steps = 6;
    let started = weights::collect(&TrainState::begin(&config, &device).unwrap().net.network);
    let averaged = source.read().unwrap();
    for (name, _, values) in &started {
        assert_eq!(*values, averaged[&format!("ema.{name}")].1, "{name}");
    }
    // Another number of classes: the embedding starts anew, the rest is kept.
    let mut other = config.clone();
    other.network.as_unet_mut().unwrap().classes = 4;
    let start = FineTuning::open(&base, &other).unwrap();
    assert!(start.note(&other).unwrap().contains("4 classes in place of 6"));
    for (name, _, values) in weights::collect(&TrainState::begin(&other, &device).unwrap().net.network) {
        assert_eq!(name == "map_label.weight", values != averaged[&format!("ema.{name}")].1, "{name}");
    }
    assert!(FineTuning::open(&base, &config).unwrap().note(&config).is_none());
    // Another network: the error names the parameter.
    other.network.as_unet_mut().unwrap().width = 32;
    let message = error(TrainState::begin(&other, &device));
    assert!(message.contains("map_layer0.weight has the shape [64, 16] there and [128, 32] here"), "{message}");

    // A resumed run needs neither the option nor the checkpoint that it was started from.
    let (whole, parts) = (dir.path().join("whole"), dir.path().join("parts"));
    let last = fit(&config, &whole, false, u64::MAX);
    fit(&config, &parts, false, 2);
    std::fs::rename(&base, dir.path().join("gone")).unwrap();
    let plain = RunConfig { train: crossfade::config::TrainConfig { from: None, ..config.train.clone() }, ..config };
    let resumed = fit(&plain, &parts, true, u64::MAX);
    assert!(std::fs::read(last).unwrap() == std::fs::read(resumed).unwrap(), "the resumed run differs");
}

#[test]
fn classes_follow_the_images() {
    let mut config = small();
    config.sample.guidance = 2.0;
    let set = config.data.open(8, 3).unwrap();
    assert_eq!(with_classes_of(config.clone(), &*set).unwrap(), config, "six palettes are six classes");
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("a.png"), Image::new(8, 8, 3, vec![7; 192]).encode_png(&[]).unwrap()).unwrap();
    let plain = DataConfig::Folder { path: dir.path().into(), fit: Default::default(), filter: Default::default() };
    let without = with_classes_of(config, &*plain.open(8, 3).unwrap()).unwrap();
    assert_eq!((without.network.as_unet().unwrap().classes, without.sample.guidance), (0, 1.0));
    assert_eq!(without.sample.class, "random");
}

/// Both stages of a model on latents are packed, and a fine-tuning takes the autoencoder from it.
#[test]
fn models_on_latents_keep_their_autoencoder() {
    let dir = tempfile::tempdir().unwrap();
    let stage = dir.path().join("ae");
    let mut first = AutoencoderRun { seed: 5, ..AutoencoderRun::default() };
    first.autoencoder =
        AutoencoderConfig { resolution: 16, width: 32, mult: vec![1, 1], blocks: 1, ..AutoencoderConfig::default() };
    first.loss = AutoencoderLoss { perceptual: 0.0, disc_start: 9, disc_width: 8, disc_depth: 2, ..first.loss };
    (first.train.steps, first.train.batch, first.optim.warmup) = (1, 2, 0);
    let run = RunDir(stage.clone());
    train_autoencoder(&first, &run, &Device::flex(), false, &AtomicBool::new(false), &mut |_| ()).unwrap();
    let mut config = small();
    config.sample.clip = 0.0;
    config.latent = Some(LatentConfig { autoencoder: stage.clone(), scale: None, cache: None });
    let checkpoint = trained(&config, &dir.path().join("run"));
    let file = dir.path().join("packed.safetensors");
    pack(&checkpoint, &file, Element::F16, &[]).unwrap();
    std::fs::rename(&stage, dir.path().join("gone")).unwrap();
    let packed = Checkpoint::open(&file).unwrap();
    for (a, b) in images(&packed).iter().zip(images(&checkpoint)) {
        assert_eq!((a.width, a.height), (16, 16));
        assert!(a.psnr(&b) > 35.0, "{}", a.psnr(&b));
    }
    let mut tuned = fine_tuning_of(&file).unwrap();
    (tuned.train.steps, tuned.train.checkpoint_every, tuned.train.batch) = (1, 1, 2);
    let tuned = trained(&tuned, &dir.path().join("tuned"));
    let parts = |checkpoint: &Checkpoint| checkpoint.first_stage().unwrap().map(|(_, tensors, scale)| (tensors, scale));
    assert!(parts(&tuned) == parts(&packed), "the autoencoder and its scale are those of the model");
    assert_eq!(checkpoint::newest(&dir.path().join("tuned")).unwrap(), tuned.path);
}
