//! `crossfade compare`.
use super::measure::MeasureArgs;
use super::sweep::ProgressBars;
use crate::context::Context;
use crate::interrupt::{Stopped, stop_on_interrupt};
use anyhow::{Context as _, Result};
use clap::Args;
use crossfade::error::Shown;
use crossfade::study::{Request, compare};
use std::path::PathBuf;

/// Compare two checkpoints from the same starting noise with the same metric
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  crossfade compare runs/a runs/b --metric pixel-frechet --count 1000       needs no weights
  crossfade compare runs/a runs/b --evaluations 5,10,25 --count 5000 --out a-against-b
  crossfade compare old.safetensors new.safetensors --samplers ab2 --steps 10 --json
  crossfade compare runs/a runs/b --metric nll --held-out data.split=test --count 1000 --evaluations 8
  crossfade compare runs/sr-a runs/sr-b --metric psnr --held-out data.path=photos/test --count 50
  crossfade compare runs/sal-a runs/sal-b --metric saliency --value max-f --held-out data.split=test --count 500

Both make images from the same noise; without --samplers each by its own sampler. The directory gets comparison.html and
report.html, pages that need nothing else; a comparison that was stopped goes on in the same directory.")]
pub struct CompareArgs {
    /// A run directory, a checkpoint or a model that ships
    #[arg(value_name = "A")]
    a: PathBuf,

    /// Another run directory, checkpoint or model that ships
    #[arg(value_name = "B")]
    b: PathBuf,

    /// Directory for results and pages
    #[arg(long, value_name = "DIR", default_value = "comparison")]
    out: PathBuf,

    /// Samplers [default: each one's own]
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    samplers: Vec<String>,

    #[command(flatten)]
    measure: MeasureArgs,
}

impl CompareArgs {
    fn request(&self) -> Result<Request> {
        Ok(Request {
            checkpoints: [self.a.clone(), self.b.clone()],
            measuring: self.measure.measuring(self.samplers.clone(), self.out.clone())?,
        })
    }
}

/// Compares.
pub fn run(args: &CompareArgs, context: &Context) -> Result<()> {
    let stop = stop_on_interrupt()?;
    let mut shown = ProgressBars::new(context);
    let found = compare(&args.request()?, &context.device, &stop, &mut |event| shown.tell(&event))
        .with_context(|| format!("comparing {} and {}", args.a.shown(), args.b.shown()))?;
    drop(shown);
    let Some(found) = found else {
        return Err(Stopped.into());
    };
    context.note(format_args!("pages: {} and report.html", args.out.join("comparison.html").shown()));
    context.print(&found, serde_json::to_value(&found)?)
}
