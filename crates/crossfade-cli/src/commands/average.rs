//! `crossfade average`.
use super::measure::MeasureArgs;
use super::sweep::ProgressBars;
use crate::context::Context;
use crate::interrupt::{Stopped, stop_on_interrupt};
use anyhow::{Context as _, Result};
use clap::Args;
use crossfade::Error;
use crossfade::average::{Averaged, Snapshots};
use crossfade::error::Shown;
use crossfade::study::{ProfileRequest, sweep_profiles};
use std::path::PathBuf;

/// Choose the average of a run's weights after its training
///
/// A run with optim.ema_profiles, for example [0.05, 0.1], stores power-function averages of its weights. From them the
/// average of any relative width is made afterwards: the width is the standard deviation of the averaged steps as a part
/// of the run. With --sweep averages of several widths are made and measured.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  crossfade train configs/tiny.toml --out runs/tiny --set optim.ema_profiles=[0.05,0.1] --set train.average_every=100
  crossfade average runs/tiny --sigma 0.15
  crossfade average runs/tiny --sigma 0.15 --at 1500 --out early.safetensors
  crossfade sample runs/tiny/sigma-0.15.safetensors --out pictures
  crossfade average runs/tiny --sweep 0.02..0.25 --points 6 --metric pixel-frechet --count 500 --out widths
  crossfade average runs/tiny --sweep 0.02..0.25 --points 6 --metric nll --count 500 --out widths

The options below --sweep are for it alone. Its directory gets the averages, profiles.svg
with the metric over the width, and the files of a study.")]
pub struct AverageArgs {
    /// Run directory
    #[arg(value_name = "RUN")]
    run: PathBuf,

    /// Relative width of the average, from 0.001 (the last steps) to 0.288 (all steps alike)
    #[arg(long, value_name = "S", required_unless_present = "sweep", conflicts_with = "sweep")]
    sigma: Option<f64>,

    /// Training step that the average ends at [default: that of the last stored averages]
    #[arg(long, value_name = "STEP")]
    at: Option<u64>,

    /// File to write, or the directory of a sweep [default: sigma-S.safetensors or widths in RUN]
    #[arg(long, value_name = "PATH")]
    out: Option<PathBuf>,

    /// Measure averages of widths between two numbers, in equal ratios
    #[arg(long, value_name = "FROM..TO", value_parser = range)]
    sweep: Option<(f64, f64)>,

    /// Number of widths of a sweep
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u16).range(2..=100))]
    points: u16,

    /// Sampler of a sweep [default: that of the run]
    #[arg(long, value_name = "NAME")]
    sampler: Option<String>,

    #[command(flatten)]
    measure: MeasureArgs,
}

fn range(text: &str) -> crossfade::Result<(f64, f64)> {
    let numbers = text.split_once("..").and_then(|(from, to)| Some((from.parse().ok()?, to.parse().ok()?)));
    let wrong = || Error::request(format!("'{text}': write FROM..TO with 0 < FROM < TO, for example 0.02..0.25"));
    numbers.filter(|(from, to): &(f64, f64)| 0.0 < *from && from < to).ok_or_else(wrong)
}

/// `points` widths in equal ratios, rounded to four decimals because they become names.
fn widths((from, to): (f64, f64), points: u16) -> Vec<f64> {
    let at = |i: u16| from * (to / from).powf(f64::from(i) / f64::from(points - 1));
    let mut all: Vec<f64> = (0..points).map(|i| (at(i) * 1e4).round() / 1e4).collect();
    all.dedup();
    all
}

/// The distance of a profile from the wanted one that is worth a warning.
const LARGE_ERROR: f64 = 0.05;

fn warn(averaged: &Averaged, context: &Context) {
    if averaged.error > LARGE_ERROR {
        context.note(format_args!(
            "the profile of sigma {} is {:.0} % off: {} stored averages are too few for it; train with a smaller \
             train.average_every",
            averaged.sigma,
            100.0 * averaged.error,
            averaged.stored
        ));
    }
}

/// Makes an average, or measures several.
pub fn run(args: &AverageArgs, context: &Context) -> Result<()> {
    let averaging = || format!("averaging {}", args.run.shown());
    let Some(sigma) = args.sigma else { return sweep(args, context).with_context(averaging) };
    let out = args.out.clone().unwrap_or_else(|| args.run.join(format!("sigma-{sigma}.safetensors")));
    let made = Snapshots::open(&args.run).and_then(|snapshots| snapshots.average(sigma, args.at, &out));
    let made = made.with_context(averaging)?;
    warn(&made, context);
    let text = format!(
        "average of relative width {sigma} after {} steps, from {} stored ones, error of the profile {:.1e}\nnext: \
         crossfade sample {} --out pictures",
        made.step,
        made.stored,
        made.error,
        out.shown()
    );
    context.print(text, serde_json::to_value(&made)?)
}

fn sweep(args: &AverageArgs, context: &Context) -> Result<()> {
    let Some(range) = args.sweep else { return Err(Error::request("--sigma or --sweep is needed").into()) };
    let out = args.out.clone().unwrap_or_else(|| args.run.join("widths"));
    let request = ProfileRequest {
        run: args.run.clone(),
        sigmas: widths(range, args.points),
        step: args.at,
        measuring: args.measure.measuring(args.sampler.iter().cloned().collect(), out)?,
    };
    let stop = stop_on_interrupt()?;
    let mut shown = ProgressBars::new(context);
    let found = sweep_profiles(&request, &context.device, &stop, &mut |event| shown.tell(&event))?;
    drop(shown);
    let Some(found) = found else { return Err(Stopped.into()) };
    found.averages.iter().for_each(|averaged| warn(averaged, context));
    context.note(format_args!("chart: {}", found.chart.shown()));
    context.print(found.results.markdown(), serde_json::to_value(&found)?)
}
