//! Tasks that are trained, resumed and used.
use super::{apply, drawn_set, picture, to_picture};
use crossfade::apply::{Model, Options};
use crossfade::checkpoint::{self, Checkpoint, Weights};
use crossfade::config::{AutoencoderRun, LatentConfig, RunConfig};
use crossfade::data::{DataConfig, Filter};
use crossfade::engine::Device;
use crossfade::generate::{Pipeline, StartNoise};
use crossfade::loss::AutoencoderLoss;
use crossfade::math::process::TimeInput;
use crossfade::math::{Adm, Precond, Process};
use crossfade::nn::condition::{EncoderConfig, VggLevel};
use crossfade::nn::{AutoencoderConfig, BackboneConfig, CondUNetConfig, NetworkConfig, NetworkPorts, UNetConfig};
use crossfade::task::masks::{HoleBox, Mask};
use crossfade::task::{Depth, Edges, Inpainting, LowAs, Saliency, Sketch, SuperResolution, TaskConfig};
use crossfade::train::{RunDir, train, train_autoencoder};
use safetensors::tensor::{Dtype, TensorView, serialize_to_file};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// A network that trains in moments.
fn tiny(task: TaskConfig, data: DataConfig) -> RunConfig {
    let mut config = RunConfig { seed: 3, data, ..RunConfig::default() };
    config.network = CondUNetConfig {
        channels: task.task().target_channels().unwrap(),
        condition_channels: task.task().condition_channels(),
        width: 8,
        mult: vec![1, 2],
        encoder: EncoderConfig::Unet { width: 8, stride: 1 },
        condition_windows: vec![[2, 2], [1, 1]],
        feature_windows: vec![[2, 2], [1, 1]],
        ..CondUNetConfig::default()
    }
    .into();
    config.task = task;
    config.train.steps = 3;
    config.train.batch = 2;
    config.train.checkpoint_every = 1;
    config.train.sample_every = 3;
    config.train.log_every = 1;
    config.optim.warmup = 1;
    config.optim.ema_after = 1;
    config.optim.ema_every = 1;
    config.sample.steps = 2;
    config.validate().unwrap();
    config
}

/// The same run with a U-Net that reads the condition beside x_t, in patches.
fn concatenating(config: &RunConfig) -> RunConfig {
    let task = config.task.task();
    let network = UNetConfig {
        resolution: task.size().unwrap()[0],
        patch: 2,
        channels: task.target_channels().unwrap(),
        condition_channels: task.condition_channels(),
        width: 8,
        mult: vec![1, 2],
        blocks: 1,
        attention: vec![],
        ..UNetConfig::default()
    };
    RunConfig { network: network.into(), ..config.clone() }
}

fn fit(config: &RunConfig, dir: &Path, resume: bool, stop_after: u64) -> Vec<f64> {
    let stop = AtomicBool::new(false);
    let mut losses = vec![];
    train(config, &RunDir(dir.to_path_buf()), &Device::flex(), resume, &stop, &mut |r| {
        losses.push(r.loss);
        stop.store(r.step == stop_after, Ordering::Relaxed);
    })
    .unwrap();
    losses
}

fn newest(dir: &Path) -> Checkpoint {
    let (_, path) = checkpoint::list(&dir.join("checkpoints")).unwrap().pop().unwrap();
    Checkpoint::open(&path).unwrap()
}

fn pipeline(checkpoint: &Checkpoint) -> Pipeline {
    Pipeline::open(checkpoint, Weights::Ema, &checkpoint.config.sample, &Device::flex()).unwrap()
}

/// Every task trains for a few steps by the common loop, resumes to the same bytes, and works on a picture of odd size.
#[test]
fn every_task_trains_resumes_and_works() {
    let dir = tempfile::tempdir().unwrap();
    drawn_set(dir.path(), "images", "labels", &["a.png", "b.png", "c.png"]);
    let pairs = || DataConfig::Pairs { images: dir.path().join("images"), labels: dir.path().join("labels") };
    let drawn = || DataConfig::Procedural { seed: 1, len: 8 };
    let sr = |low, residual| TaskConfig::SuperResolution(SuperResolution { scale: 2, size: 16, low, residual });
    let holes = |mask_files: bool| {
        TaskConfig::Inpainting(Inpainting { size: 16, mask_channel: !mask_files, mask_files, ..Inpainting::default() })
    };
    let tasks = [
        (sr(LowAs::Enlarged, 0.0), drawn()),
        (sr(LowAs::Enlarged, 4.0), drawn()),
        (sr(LowAs::Small, 0.0), drawn()),
        (holes(false), drawn()),
        (holes(true), pairs()),
        (TaskConfig::Saliency(Saliency { size: 16 }), pairs()),
        (TaskConfig::Edges(Edges { size: 16, ..Edges::default() }), pairs()),
        (TaskConfig::Depth(Depth { size: [16, 24], ..Depth::default() }), pairs()),
        (TaskConfig::Sketch(Sketch { size: 16 }), pairs()),
    ];
    let configs = tasks.into_iter().map(|(task, data)| tiny(task, data));
    let configs = configs.flat_map(|config| [concatenating(&config), config]);
    // A U-Net takes conditions of the size of x_0 only, and squares.
    for (k, config) in configs.filter(|config| config.validate().is_ok()).enumerate() {
        let name = config.task.name();
        let (whole, parts) = (dir.path().join(format!("whole{k}")), dir.path().join(format!("parts{k}")));
        let losses = fit(&config, &whole, false, 0);
        assert!(losses.len() == 3 && losses.iter().all(|l| l.is_finite()), "{name}: {losses:?}");
        assert!(whole.join("samples/step-00000003.png").is_file());
        fit(&config, &parts, false, 2);
        assert_eq!(fit(&config, &parts, true, 0).len(), 1);
        let (a, b) = (newest(&whole), newest(&parts));
        assert!(std::fs::read(&a.path).unwrap() == std::fs::read(&b.path).unwrap(), "{name}: the resumed run differs");
        let statistics =
            a.read().unwrap().into_iter().filter(|(n, _)| n.starts_with("model.") && n.ends_with("running_var"));
        assert!(
            statistics.into_iter().all(|(_, (_, v))| v.iter().any(|v| *v != 1.0)),
            "{name}: statistics stood still"
        );
        let pipeline = pipeline(&a);
        let model = pipeline.task_model(name, 1).unwrap();
        let input = to_picture(&picture(37, 21));
        let mask = (name == "inpainting").then(|| Mask::boxes(37, 21, &[HoleBox([3, 3, 9, 9])]).unwrap());
        let make = |batch| {
            let options = Options { batch, ..Options::default() };
            apply(&a.config.task, &model, &options, &input, mask.as_ref(), &dir.path().join("o.png"))
        };
        let made = make(1);
        let scale = a.config.task.task().scale();
        assert_eq!((made.width, made.height), (37 * scale, 21 * scale));
        let worst = made.values.iter().zip(make(4).values).map(|(a, b)| a.abs_diff(b)).max();
        assert!(worst <= Some(257), "{name}: windows at a time change the result by {worst:?}");
    }
}

#[test]
fn learning_a_task_lowers_its_loss_also_with_other_processes_and_a_frozen_encoder() {
    let others = ["ddpm-x0", "edm", "cld"].map(|name| (Process::parse(name).unwrap(), false));
    let adm = Process::default();
    for (process, frozen) in [(adm, false), (adm, true)].into_iter().chain(others) {
        let task =
            TaskConfig::SuperResolution(SuperResolution { scale: 2, size: 16, low: LowAs::Enlarged, residual: 0.0 });
        let mut config = tiny(task, DataConfig::Procedural { seed: 1, len: 4 });
        config.train.steps = 40;
        config.train.batch = 4;
        config.train.checkpoint_every = 40;
        config.train.sample_every = 0;
        config.optim.lr = 5e-3;
        config.optim.weight_decay = 0.1;
        config.process = process;
        config.network.as_cond_unet_mut().unwrap().freeze_encoder = frozen;
        let dir = tempfile::tempdir().unwrap();
        let losses = fit(&config, dir.path(), false, 0);
        let mean = |l: &[f64]| l.iter().sum::<f64>() / l.len() as f64;
        let (early, late) = (mean(&losses[..8]), mean(&losses[32..]));
        assert!(late < 0.85 * early, "{process:?}, frozen {frozen}: {early} to {late}");
        let checkpoint = newest(dir.path());
        assert_eq!(RunConfig::parse(&checkpoint.config.to_toml().unwrap(), "x").unwrap(), config);
        let pipeline = pipeline(&checkpoint);
        let model = pipeline.task_model("super-resolution", 0).unwrap();
        let heun = matches!(process, Process::Edm(_));
        assert_eq!(pipeline.evaluations().unwrap(), if heun { 3 } else { 2 });
        let out = dir.path().join("o.png");
        apply(&checkpoint.config.task, &model, &Options::default(), &to_picture(&picture(20, 9)), None, &out);
        let encoder = |checkpoint: &Checkpoint| {
            let all = checkpoint.read().unwrap().into_iter();
            all.filter(|(name, _)| name.starts_with("model.init_conv_mask.")).collect::<Vec<_>>()
        };
        let mut start = config.clone();
        start.train.steps = 1;
        let first = tempfile::tempdir().unwrap();
        fit(&start, first.path(), false, 0);
        assert_eq!(encoder(&newest(first.path())) == encoder(&checkpoint), frozen, "a frozen encoder stays as it is");
    }
}

#[test]
fn what_does_not_fit_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let task = || TaskConfig::Saliency(Saliency { size: 16 });
    let drawn = DataConfig::Procedural { seed: 1, len: 4 };
    let config = tiny(task(), drawn.clone());
    let stop = AtomicBool::new(false);
    let run = RunDir(dir.path().join("run"));
    let error = train(&config, &run, &Device::flex(), false, &stop, &mut |_| ()).unwrap_err().to_string();
    assert!(error.contains("saliency") && error.contains("data.kind"), "{error}");
    let problems = |change: &dyn Fn(&mut RunConfig)| {
        let mut config = config.clone();
        change(&mut config);
        config.validate().unwrap_err().to_string()
    };
    let error = problems(&|c| c.network = NetworkConfig::default());
    assert!(error.contains("task.kind: ") && error.contains("network.kind = \"cond-unet\""), "{error}");
    let error = problems(&|c| c.task = TaskConfig::default());
    assert!(error.contains("network.kind: ") && error.contains("[task]"), "{error}");
    assert!(problems(&|c| c.task = TaskConfig::Saliency(Saliency { size: 17 })).contains("task.size"));
    assert!(problems(&|c| c.network.as_cond_unet_mut().unwrap().channels = 3).contains("network.channels"));
    assert!(problems(&|c| c.network.as_cond_unet_mut().unwrap().width = 9).contains("network.width"));
    assert!(problems(&|c| c.train.augment = 0.1).contains("train.augment"));
    let text = "[task]\nkind = \"edges\"\nthreshold = 2.0\nsise = 3\n";
    let error = RunConfig::parse(text, "x.toml").unwrap_err().to_string();
    assert!(error.contains("x.toml:4") && error.contains("size"), "{error}");
    // A checkpoint of another task.
    let sr = TaskConfig::SuperResolution(SuperResolution { scale: 2, size: 16, low: LowAs::Small, residual: 0.0 });
    fit(&tiny(sr, drawn), &dir.path().join("sr"), false, 0);
    let checkpoint = newest(&dir.path().join("sr"));
    let pipeline = pipeline(&checkpoint);
    let error = pipeline.task_model("edges", 0).err().unwrap().to_string();
    assert!(error.contains("super-resolution") && error.contains("crossfade sr"), "{error}");
    let refused = [pipeline.size().err(), pipeline.sample(0, &[StartNoise::Index(0)], &mut |_| ()).err()];
    refused.into_iter().for_each(|error| assert!(error.unwrap().to_string().contains("task")));
}

/// A task on latents: one checkpoint holds both stages, resumes to the same bytes and makes maps of any size.
#[test]
fn a_task_works_on_latents() {
    let dir = tempfile::tempdir().unwrap();
    drawn_set(dir.path(), "images", "labels", &["a.png", "b.png", "c.png"]);
    let stage = dir.path().join("autoencoder");
    let mut first = AutoencoderRun { seed: 5, ..AutoencoderRun::default() };
    first.autoencoder = AutoencoderConfig {
        resolution: 16,
        channels: 1,
        width: 32,
        mult: vec![1, 1],
        blocks: 1,
        ..AutoencoderConfig::default()
    };
    first.loss = AutoencoderLoss { perceptual: 0.0, disc_start: 9, disc_width: 8, disc_depth: 2, ..first.loss };
    first.data =
        DataConfig::Folder { path: dir.path().join("labels"), fit: Default::default(), filter: Filter::Bicubic };
    first.train.steps = 1;
    first.train.batch = 2;
    let run = RunDir(stage.clone());
    train_autoencoder(&first, &run, &Device::flex(), false, &AtomicBool::new(false), &mut |_| ()).unwrap();

    let pairs = DataConfig::Pairs { images: dir.path().join("images"), labels: dir.path().join("labels") };
    let mut config = tiny(TaskConfig::Edges(Edges { size: 16, ..Edges::default() }), pairs);
    config.latent = Some(LatentConfig { autoencoder: stage.clone(), scale: None, cache: None });
    config.sample.clip = 0.0;
    config.network.as_cond_unet_mut().unwrap().channels = first.autoencoder.latent;
    config.validate().unwrap();
    let (whole, parts) = (dir.path().join("whole"), dir.path().join("parts"));
    fit(&config, &whole, false, 0);
    fit(&config, &parts, false, 2);
    // The checkpoint alone is enough: the first stage is not needed any more.
    std::fs::remove_dir_all(&stage).unwrap();
    fit(&config, &parts, true, 0);
    let (a, b) = (newest(&whole), newest(&parts));
    assert!(std::fs::read(&a.path).unwrap() == std::fs::read(&b.path).unwrap(), "the resumed run differs");
    let pipeline = pipeline(&a);
    let model = pipeline.task_model("edges", 1).unwrap();
    assert_eq!((model.channels(), model.unit()), (1, 4));
    let input = to_picture(&picture(37, 21));
    let map = apply(&a.config.task, &model, &Options::default(), &input, None, &dir.path().join("o.png"));
    assert_eq!((map.width, map.height, map.channels), (37, 21, 1));
}

/// A run whose encoder starts from a file of torchvision's weights and stays as it is.
#[test]
fn a_run_starts_from_the_encoders_weights() {
    let dir = tempfile::tempdir().unwrap();
    drawn_set(dir.path(), "images", "labels", &["a.png", "b.png"]);
    let pairs = DataConfig::Pairs { images: dir.path().join("images"), labels: dir.path().join("labels") };
    let mut config = tiny(TaskConfig::Saliency(Saliency { size: 32 }), pairs);
    let file = dir.path().join("swin_t.safetensors");
    let network = CondUNetConfig {
        mult: vec![1, 1, 1, 1],
        encoder: EncoderConfig::SwinT,
        freeze_encoder: true,
        condition_windows: vec![[1, 1]; 4],
        feature_windows: vec![[1, 1]; 4],
        ..config.network.as_cond_unet_mut().unwrap().clone()
    };
    // torchvision counts the stem as the first of its features.
    let theirs = |name: &str| match name.split_once('.') {
        Some(("first_coonv", rest)) => format!("features.0.{rest}"),
        Some(("features", rest)) => {
            let (stage, rest) = rest.split_once('.').unwrap();
            format!("features.{}.{rest}", stage.parse::<usize>().unwrap() + 1)
        }
        _ => name.to_owned(),
    };
    let encoder: Vec<(String, Vec<usize>)> = (network.state_shapes(NetworkPorts::default()).into_iter())
        .filter_map(|(name, shape)| Some((theirs(name.strip_prefix("init_conv_mask.")?), shape)))
        .collect();
    let value = |k: usize| 0.01 + 1e-5 * k as f32;
    let bytes: Vec<Vec<u8>> = (encoder.iter().enumerate())
        .map(|(k, (_, shape))| value(k).to_le_bytes().repeat(shape.iter().product()))
        .collect();
    let views = (encoder.iter().zip(&bytes))
        .map(|((name, shape), bytes)| (name.as_str(), TensorView::new(Dtype::F32, shape.clone(), bytes).unwrap()));
    serialize_to_file(views, None, &file).unwrap();
    config.network = CondUNetConfig { encoder_weights: Some(file), ..network }.into();
    config.train.steps = 1;
    config.train.sample_every = 0;
    config.validate().unwrap();
    fit(&config, &dir.path().join("run"), false, 0);
    let state = newest(&dir.path().join("run")).read().unwrap();
    for (k, (name, _)) in encoder.iter().enumerate() {
        let ours =
            state.iter().find(|(n, _)| n.strip_prefix("model.init_conv_mask.").is_some_and(|n| theirs(n) == *name));
        assert!(ours.is_some_and(|(_, (_, v))| v.iter().all(|v| *v == value(k))), "{name}");
    }
}

/// VGG-16 from a file of LPIPS's names: frozen it stays as it is to the bit, otherwise it is trained; a run resumes to the same
/// bytes without the file, and works on a picture of odd size.
#[test]
fn a_vgg_encoder_is_kept_or_trained() {
    let dir = tempfile::tempdir().unwrap();
    drawn_set(dir.path(), "images", "labels", &["a.png", "b.png"]);
    let pairs = DataConfig::Pairs { images: dir.path().join("images"), labels: dir.path().join("labels") };
    let mut config = tiny(TaskConfig::Saliency(Saliency { size: 16 }), pairs);
    config.process = Adm { precond: Precond::Velocity, time_input: TimeInput::NoiseShare, ..Adm::default() }.into();
    let layers = ["conv1_2", "conv2_1"].map(|name| VggLevel::try_from(name.to_owned()).unwrap()).to_vec();
    let network = CondUNetConfig {
        encoder: EncoderConfig::Vgg16 { layers },
        ..config.network.as_cond_unet_mut().unwrap().clone()
    };
    let shapes = network.state_shapes(NetworkPorts::default()).into_iter();
    let encoder: Vec<(String, Vec<usize>)> = shapes
        .filter_map(|(name, shape)| Some((format!("conv{}", name.strip_prefix("init_conv_mask.conv.")?), shape)))
        .collect();
    let values: Vec<Vec<f32>> = (encoder.iter())
        .map(|(_, shape)| (0..shape.iter().product()).map(|i: usize| 0.1 * (i as f32 * 0.7).sin()).collect())
        .collect();
    let bytes: Vec<Vec<u8>> = values.iter().map(|v| v.iter().flat_map(|v| v.to_le_bytes()).collect()).collect();
    let file = dir.path().join("vgg16.safetensors");
    let views = (encoder.iter().zip(&bytes))
        .map(|((name, shape), bytes)| (name.as_str(), TensorView::new(Dtype::F32, shape.clone(), bytes).unwrap()));
    let views: Vec<_> = views.collect();
    for freeze_encoder in [true, false] {
        serialize_to_file(views.clone(), None, &file).unwrap();
        config.network =
            CondUNetConfig { encoder_weights: Some(file.clone()), freeze_encoder, ..network.clone() }.into();
        config.validate().unwrap();
        let (whole, parts) =
            (dir.path().join(format!("whole {freeze_encoder}")), dir.path().join(format!("parts {freeze_encoder}")));
        fit(&config, &whole, false, 0);
        fit(&config, &parts, false, 2);
        // The checkpoint alone is enough.
        std::fs::remove_file(&file).unwrap();
        fit(&config, &parts, true, 0);
        let (a, b) = (newest(&whole), newest(&parts));
        assert!(std::fs::read(&a.path).unwrap() == std::fs::read(&b.path).unwrap(), "the resumed run differs");
        let state = a.read().unwrap();
        for ((name, _), values) in encoder.iter().zip(&values) {
            let kept = |kind: &str| state[&format!("{kind}.init_conv_mask.conv.{}", &name[4..])].1 == *values;
            assert_eq!([kept("model"), kept("ema")], [freeze_encoder; 2], "{name}");
        }
        let pipeline = pipeline(&a);
        let model = pipeline.task_model("saliency", 1).unwrap();
        let input = to_picture(&picture(37, 21));
        let map = apply(&a.config.task, &model, &Options::default(), &input, None, &dir.path().join("o.png"));
        assert_eq!((map.width, map.height, map.channels), (37, 21, 1));
    }
}
