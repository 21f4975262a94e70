//! `crossfade demo`.
use super::train::fit;
use crate::context::Context;
use crate::output::duration;
use anyhow::{Context as _, Result};
use clap::Args;
use crossfade::bench;
use crossfade::checkpoint::{Checkpoint, Weights};
use crossfade::config::{RunConfig, SampleConfig};
use crossfade::data::{Image, contact_sheet};
use crossfade::files::write_atomic;
use crossfade::generate::{Pipeline, StartNoise};
use crossfade::nn::BackboneConfig;
use crossfade::plot::{Chart, Series, board};
use crossfade::sample::Sampler;
use crossfade::train::{RunDir, loss_curve};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

/// The configuration of the demo; only the number of steps is adapted to the time available.
const CONFIG: &str = include_str!("../../../../configs/demo.toml");

/// Train a tiny network, sample it and compare samplers, in minutes and without files
#[derive(Debug, Args)]
#[command(after_help = "Needs no files and no internet connection: the training images are drawn on
the fly. The result is DIR/demo.png.")]
pub struct DemoArgs {
    /// Directory for the run and the resulting image
    #[arg(long, value_name = "DIR", default_value = "crossfade-demo")]
    pub out: PathBuf,

    /// Approximate training time in minutes
    #[arg(long, value_name = "M", default_value_t = 3.0, value_parser = minutes)]
    pub minutes: f64,
}

fn minutes(text: &str) -> Result<f64, String> {
    let value: f64 = text.parse().map_err(|_| "expected a number of minutes".to_string())?;
    if (0.01..=10_000.0).contains(&value) { Ok(value) } else { Err("expected 0.01 to 10000 minutes".into()) }
}

/// Measures the machine, trains for the given time, samples, and draws the results.
pub fn run(args: &DemoArgs, context: &Context) -> Result<()> {
    let mut config = RunConfig::parse(CONFIG, "configs/demo.toml")?;
    context.note("Measuring the speed of this machine …");
    let timing = bench::unet(
        bench::What::Train { recompute: false },
        config.network.as_unet().context("the demonstration trains a U-Net")?.clone(),
        config.train.batch,
        1,
        3,
        &context.device,
    )?;
    config.train.steps = ((args.minutes * 60e3 / timing.median_ms) as u64).max(10);
    config.train.checkpoint_every = config.train.steps.div_ceil(4);
    config.optim.warmup = config.optim.warmup.min(config.train.steps / 10);
    config.optim.ema_after = config.optim.ema_after.min(config.train.steps / 4);
    context.note(format_args!(
        "Training a network with {} parameters on images drawn on the fly: {} steps of {} images, about {}.",
        timing.parameters,
        config.train.steps,
        config.train.batch,
        duration(args.minutes * 60.0)
    ));
    let began = std::time::Instant::now();
    let summary = fit(&config, &args.out, false, &AtomicBool::new(false), context)?;
    let trained = began.elapsed().as_secs_f64();
    context.note("Sampling …");
    let checkpoint = Checkpoint::open(&summary.checkpoint)?;
    let picture = args.out.join("demo.png");
    draw(&config, &checkpoint, &RunDir(args.out.clone()), context, &picture).context("drawing the results")?;
    let run = args.out.display();
    let text = format!(
        "Trained {} steps in {}. The results are in {}\n\n\
         Next, try\n  \
         crossfade sample {run} --steps 5 --sampler pc --trajectory --out {run}/pictures\n  \
         crossfade reproduce {run}/pictures/000003.png\n  \
         crossfade train configs/folder.toml --set data.path=YOUR_FOLDER --out runs/mine\n  \
         crossfade lab",
        summary.step,
        duration(trained),
        picture.display()
    );
    context.print(text, json!({ "steps": summary.step, "seconds": trained, "picture": picture }))
}

/// Draws training images, samples of two samplers at 5 and 10 steps, one trajectory and the loss curve.
fn draw(config: &RunConfig, checkpoint: &Checkpoint, dir: &RunDir, context: &Context, path: &Path) -> Result<()> {
    const COLUMNS: usize = 14;
    let (c, side) = (config.network.channels(), config.network.resolution().unwrap_or_default());
    let scale = (64 / side).max(1);
    let set = config.data.open(side, c)?;
    let real = (0..2 * COLUMNS).map(|k| set.get(k % set.len())).collect::<crossfade::Result<Vec<_>>>()?;
    let pipeline = Pipeline::open(checkpoint, Weights::Ema, &config.sample, &context.device)?;
    let starts: Vec<_> = (0..2 * COLUMNS as u64).map(StartNoise::Index).collect();
    let sheet = |images: &[Image]| contact_sheet(images, COLUMNS, 2, scale);
    let mut panels = vec![("Training images".to_string(), sheet(&real))];
    let mut trajectory: Vec<[Image; 2]> = vec![];
    for steps in [5, 10] {
        for (sampler, name) in [(Sampler::Alg2, "The paper's Alg. 2"), (Sampler::Ab2, "Second-order solver (ab2)")] {
            let how = SampleConfig { sampler, steps, ..config.sample.clone() };
            let keep = steps == 10 && sampler == Sampler::Ab2;
            let pipeline = pipeline.with_sample(&how)?;
            let sampled = pipeline.sample(config.seed, &starts, &mut |s| {
                if keep {
                    trajectory.push([s.x_t, s.x0].map(|x| pipeline.decode(x.0.clone()).swap_remove(0)));
                }
            })?;
            let images = pipeline.decode(sampled.x0.0);
            trajectory.extend(keep.then(|| [images[0].clone(), images[0].clone()]));
            panels.push((format!("{name}, {} network evaluations", sampled.nfe), sheet(&images)));
        }
    }
    let rows = [0, 1].map(|k| trajectory.iter().map(|pair| pair[k].clone()).collect::<Vec<_>>()).concat();
    let title = "Trajectory of the first image: x_t above, the estimate of x_0 below";
    panels.push((title.into(), contact_sheet(&rows, trajectory.len(), 2, scale)));
    let curve = Series { name: "training loss".into(), points: smooth(&loss_curve(&dir.log())?) };
    let chart =
        Chart { title: String::new(), x_label: "step".into(), y_label: "loss".into(), log: false, series: vec![curve] };
    panels.push(("Training loss".into(), chart.image()?));
    Ok(write_atomic(path, &board(&panels)?.encode_png(&[])?)?)
}

/// A running mean, because the loss of single batches is too noisy to show a trend.
fn smooth(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let window = (points.len() / 40).max(1);
    points.windows(window).map(|w| (w[w.len() - 1].0, w.iter().map(|p| p.1).sum::<f64>() / w.len() as f64)).collect()
}
