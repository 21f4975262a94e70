//! `crossfade train` for a configuration with an `[autoencoder]` section.
use super::{TrainArgs, finish};
use crate::context::Context;
use crate::interrupt::stop_on_interrupt;
use crate::output::thousands;
use anyhow::{Context as _, Result};
use crossfade::Error;
use crossfade::config::AutoencoderRun;
use crossfade::error::Shown;
use crossfade::train::{Event, RunDir, train_autoencoder};
use serde_json::json;
use std::path::Path;

/// Trains the autoencoder.
pub fn run(args: &TrainArgs, file: &Path, context: &Context) -> Result<()> {
    if args.from.is_some() {
        return Err(Error::request("--from is for diffusion networks: an autoencoder starts anew").into());
    }
    let config = args.overrides.load_autoencoder(file)?;
    let config = AutoencoderRun { seed: args.seed.unwrap_or(config.seed), ..config };
    if args.dry_run {
        return dry_run(&config, context);
    }
    let Some(out) = &args.out else { return Err(Error::request("--out DIR is needed").into()) };
    let stop = stop_on_interrupt()?;
    let (steps, every) = (config.train.steps, config.train.log_every.max(1));
    let mut progress = context.progress("training", steps);
    let (mut smooth, mut failed) = (None::<f64>, None);
    let size = config.autoencoder.channels * config.autoencoder.resolution.pow(2);
    let mut on_event = |event: Event| match event {
        Event::Note(text) => context.note(text),
        Event::Step(step) => {
            let error = step.terms.nll / size as f64;
            let mean = smooth.map_or(error, |s| 0.98 * s + 0.02 * error);
            smooth = Some(mean);
            progress.detail(format!("reconstruction {mean:.4}, {:.1} images/s", step.images_per_second));
            progress.set(step.step, steps);
            if context.json && (step.step.is_multiple_of(every) || step.step == steps) {
                failed = failed.take().or(context.line(step).err());
            }
        }
    };
    let dir = RunDir(out.clone());
    let summary = train_autoencoder(&config, &dir, &context.device, args.resume, &stop, &mut on_event)
        .with_context(|| format!("training in {}", out.shown()))?;
    drop(progress);
    failed.map_or(Ok(()), Err)?;
    finish(&summary, &format!("crossfade reconstruct {} IMAGES OUT", out.shown()), context)
}

/// Prints the resolved configuration, its size and the dataset.
fn dry_run(config: &AutoencoderRun, context: &Context) -> Result<()> {
    let net = &config.autoencoder;
    let data = config.data.open(net.resolution, net.channels).context("opening the images")?;
    let parameters = net.parameter_count() as u64;
    let text = format!(
        "{}\n# parameters: {}, factor {}\n# images: {}\n",
        config.to_toml()?,
        thousands(parameters),
        net.factor(),
        data.describe()
    );
    let images = json!({ "set": data.describe(), "count": data.len() });
    context.print(text, json!({ "config": config, "parameters": parameters, "factor": net.factor(), "images": images }))
}
