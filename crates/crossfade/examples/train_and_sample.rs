//! Trains a tiny network for a minute and samples it with two samplers.
//!
//! `cargo run --release --example train_and_sample`
#![allow(clippy::print_stdout)]
use crossfade::data::contact_sheet;
use crossfade::engine::device;
use crossfade::sample::Sampler;
use crossfade::train::train;
use crossfade::{Checkpoint, Pipeline, RunConfig, RunDir, SampleConfig, Weights};
use std::sync::atomic::AtomicBool;

/// A configuration holds everything that determines a run; keys that are left out have defaults. The file
/// configs/tiny.toml has the same layout. `kind = "procedural"` draws the training images on the fly.
const CONFIG: &str = r#"
[data]
kind = "procedural"
[network]
resolution = 16
width = 32
mult = [1, 2]
blocks = 1
attention = [8]
dropout = 0.0
[optim]
lr = 1e-3
warmup = 20
ema_beta = 0.99
ema_after = 50
ema_every = 1
[train]
steps = 400
batch = 16
"#;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let config = RunConfig::parse(CONFIG, "the example's configuration")?;
    let device = device("cpu")?;

    // Training writes a log and checkpoints into a directory. `true` resumes what is there, so a second run of this
    // program continues or, if the training is complete, goes straight to sampling.
    let run = RunDir("crossfade-example".into());
    let never_stop = AtomicBool::new(false);
    let summary = train(&config, &run, &device, true, &never_stop, &mut |step| {
        if step.step % 50 == 0 {
            println!("step {:3}: loss {:.3}", step.step, step.loss);
        }
    })?;

    // A checkpoint holds the configuration too, so it is all that sampling needs. The moving average of the weights (EMA)
    // gives better images than the last weights.
    let checkpoint = Checkpoint::open(&summary.checkpoint)?;
    let mut images = vec![];
    for sampler in [Sampler::Alg2, Sampler::Ab2] {
        let settings = SampleConfig { sampler, steps: 5, ..SampleConfig::default() };
        let pipeline = Pipeline::open(&checkpoint, Weights::Ema, &settings, &device)?;
        // Image k of a seed is always the same image: both rows of the sheet start from the same noise.
        images.extend(pipeline.images(0, 0..8)?);
        println!("{}: {} network evaluations", sampler.name(), pipeline.evaluations()?);
    }
    let sheet = contact_sheet(&images, 8, 2, 4);
    std::fs::write("crossfade-example/samples.png", sheet.encode_png(&[])?)?;
    println!("wrote crossfade-example/samples.png");
    Ok(())
}
