//! Classes: labels of datasets, training with them, and sampling by class with guidance.
#![allow(clippy::unwrap_used)]
mod labels;
mod sampling;
mod study;
mod training;

use crossfade::checkpoint::{self, Checkpoint};
use crossfade::config::RunConfig;
use crossfade::data::DataConfig;
use crossfade::engine::Device;
use crossfade::math::Process;
use crossfade::nn::UNetConfig;
use crossfade::train::{RunDir, train};
use std::path::Path;
use std::sync::atomic::AtomicBool;

/// A network with the six classes of the procedural set that trains in moments.
fn small() -> RunConfig {
    let network = UNetConfig {
        resolution: 8,
        width: 16,
        mult: vec![1, 2],
        blocks: 1,
        attention: vec![],
        dropout: 0.1,
        classes: 6,
        ..UNetConfig::default()
    };
    let data = DataConfig::Procedural { seed: 1, len: 40 };
    let mut config = RunConfig { seed: 3, network: network.into(), data, ..RunConfig::default() };
    config.train.steps = 6;
    config.train.batch = 4;
    config.train.checkpoint_every = 2;
    config.train.log_every = 1;
    config.train.label_dropout = 0.3;
    config.optim.lr = 1e-2;
    config.optim.warmup = 1;
    config.optim.ema_after = 1;
    config.optim.ema_every = 1;
    config
}

/// The small configuration for another process.
fn small_of(process: &str) -> RunConfig {
    let mut config = small();
    config.process = Process::all().into_iter().find(|p| p.name() == process).unwrap();
    if process != "adm" {
        config.network.as_unet_mut().unwrap().decoders = crossfade::nn::Decoders::One;
    }
    config
}

fn fit(config: &RunConfig, dir: &Path, resume: bool) -> Checkpoint {
    let stop = AtomicBool::new(false);
    train(config, &RunDir(dir.to_path_buf()), &Device::flex(), resume, &stop, &mut |_| ()).unwrap();
    let (_, path) = checkpoint::list(&dir.join("checkpoints")).unwrap().pop().unwrap();
    Checkpoint::open(&path).unwrap()
}

fn failure(config: &RunConfig, dir: &Path) -> String {
    let stop = AtomicBool::new(false);
    let run = RunDir(dir.to_path_buf());
    train(config, &run, &Device::flex(), false, &stop, &mut |_| ()).err().unwrap().to_string()
}
