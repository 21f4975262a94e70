//! Networks that train in moments.
#![allow(dead_code)]
use crossfade::config::RunConfig;
use crossfade::data::DataConfig;
use crossfade::engine::Device;
use crossfade::math::Process;
use crossfade::nn::condition::EncoderConfig;
use crossfade::nn::{CondUNetConfig, UNetConfig};
use crossfade::task::{Inpainting, LowAs, SuperResolution, TaskConfig};
use crossfade::train::{RunDir, train};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;

fn quick(config: &mut RunConfig) {
    config.train.steps = 4;
    config.train.batch = 4;
    config.train.checkpoint_every = 4;
    config.train.log_every = 4;
    config.optim.lr = 1e-2;
    config.optim.warmup = 1;
    config.optim.ema_after = 1;
    config.optim.ema_every = 1;
    config.sample.steps = 3;
}

/// Six classes of 8x8 pixels.
fn classes() -> RunConfig {
    let network = UNetConfig {
        resolution: 8,
        width: 16,
        mult: vec![1, 2],
        blocks: 1,
        attention: vec![4],
        dropout: 0.1,
        classes: 6,
        ..UNetConfig::default()
    };
    let data = DataConfig::Procedural { seed: 1, len: 40 };
    let mut config = RunConfig { seed: 3, network: network.into(), data, ..RunConfig::default() };
    quick(&mut config);
    config.train.label_dropout = 0.3;
    config
}

/// Rectified flow without classes, 8x8 pixels.
fn flow() -> RunConfig {
    let mut config = classes();
    config.process = Process::all().into_iter().find(|p| p.name() == "flow").unwrap();
    let network = config.network.as_unet_mut().unwrap();
    (network.decoders, network.classes) = (crossfade::nn::Decoders::One, 0);
    config.train.label_dropout = RunConfig::default().train.label_dropout;
    config
}

fn task(task: TaskConfig) -> RunConfig {
    let data = DataConfig::Procedural { seed: 1, len: 8 };
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
    quick(&mut config);
    config.train.batch = 2;
    config
}

/// The runs of all networks: `classes`, `flow`, `sr` and `inpaint`, trained once for a test program.
pub fn runs() -> &'static Path {
    static RUNS: OnceLock<tempfile::TempDir> = OnceLock::new();
    let made = RUNS.get_or_init(|| {
        let dir = tempfile::tempdir().unwrap();
        let sr = SuperResolution { scale: 2, size: 16, low: LowAs::Enlarged, residual: 0.0 };
        let holes = Inpainting { size: 16, mask_channel: true, mask_files: false, ..Inpainting::default() };
        let all = [
            ("classes", classes()),
            ("flow", flow()),
            ("sr", task(TaskConfig::SuperResolution(sr))),
            ("inpaint", task(TaskConfig::Inpainting(holes))),
        ];
        for (name, config) in all {
            let run = RunDir(dir.path().join(name));
            train(&config, &run, &Device::flex(), false, &AtomicBool::new(false), &mut |_| ()).unwrap();
        }
        dir
    });
    made.path()
}

/// The checkpoint of a run.
pub fn checkpoint(name: &str) -> PathBuf {
    crossfade::checkpoint::newest(&runs().join(name)).unwrap()
}
