//! `crossfade sweep`.
use super::sample::shard;
use crate::cli::text_path;
use crate::context::Context;
use crate::interrupt::{Stopped, stop_on_interrupt};
use crate::progress::Progress;
use anyhow::{Context as _, Result};
use clap::{Args, ValueEnum};
use crossfade::Error;
use crossfade::error::Shown;
use crossfade::generate::Shard;
use crossfade::study::{self, Event, Options, Plan, Results, merge};
use serde_json::json;
use std::path::{Path, PathBuf};

/// Run a study: compare models, samplers and step counts over several seeds
///
/// A study is one TOML file that lists models, samplers, steps, seeds and a metric; studies/README.md describes its keys.
/// Models that are missing are trained into DIR/models, every combination is measured, and the results are written as
/// table.md, results.csv, results.json, charts and report.html, one page without external files.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  crossfade sweep studies/tiny.toml --out runs/tiny-study           a minute or two, no files needed
  crossfade sweep studies/table1-nfe.toml --data-root /data --out runs/table1
  crossfade sweep studies/table1-nfe.toml --set sample.count=500 --dry-run
  mpirun -n 4 crossfade sweep STUDY.toml --out /shared/study        four processes that end with one report
  crossfade sweep STUDY.toml --out /shared/study --shard auto       one task of a Slurm, MPI or Kubernetes job
  crossfade sweep --merge part-0 part-1 --out whole                 the parts as one

After Ctrl-C or a kill the same command goes on: the interrupted measurement starts
over, an interrupted training continues from its last checkpoint. A finished study
does nothing; one that was interrupted exits with 130. A model that fails does not
keep the others from their results. The models, with their measurements, are divided among the shards;
with --only sample, when all models are trained, the measurements are divided.
Shards that write into one directory need no merge. Kubernetes says which indexed
job it is, not of how many: set JOB_COMPLETIONS.")]
pub struct SweepArgs {
    /// The study
    #[arg(value_name = "STUDY", required_unless_present = "merge")]
    study: Option<PathBuf>,

    /// Directory of the study
    #[arg(long, value_name = "DIR", required_unless_present = "dry_run")]
    out: Option<PathBuf>,

    /// Change one value of the study, as sample.count=1000, or for all models set=["train.steps=500"]; may be repeated
    #[arg(long = "set", value_name = "KEY=VALUE")]
    sets: Vec<String>,

    /// Directory that relative paths of images start from [default: the current one]
    #[arg(long, value_name = "DIR", value_parser = text_path)]
    data_root: Option<PathBuf>,

    /// Directory of trained models, for studies that share them [default: models in the directory of the study]
    #[arg(long, value_name = "DIR")]
    models: Option<PathBuf>,

    /// Do only portion i (from 0) of n; auto takes it from the environment of Slurm, MPI or Kubernetes [default: everything,
    /// which the processes of mpirun or srun share]
    #[arg(long, value_name = "I/N|auto", value_parser = shard)]
    pub shard: Option<Shard>,

    /// Do only this part of the work
    #[arg(long)]
    only: Option<Only>,

    /// Weights of the metric's network: Inception's [default: the cached ones] or those of LPIPS
    #[arg(long, value_name = "FILE")]
    weights: Option<PathBuf>,

    /// Images per batch; changes the speed and nothing else
    #[arg(long, value_name = "B", default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..=65536))]
    batch: u64,

    /// Check the study, list its models, rows and columns whether done or not, and stop
    #[arg(long)]
    dry_run: bool,

    /// Bring the results of shards together instead
    #[arg(long, value_name = "DIR", num_args = 1.., conflicts_with_all = ["study", "only", "shard", "dry_run", "sets", "models", "weights", "data_root"])]
    merge: Vec<PathBuf>,
}

/// A part of the work.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Only {
    /// Train the models
    Train,
    /// Measure models that are all trained
    Sample,
}

/// Runs a study, or joins its shards.
pub fn run(args: &SweepArgs, context: &Context) -> Result<()> {
    let wanted = || Error::request("--out DIR is needed");
    let Some(path) = &args.study else {
        let out = args.out.as_ref().ok_or_else(wanted)?;
        return print(&merge(&args.merge, out)?, out, context);
    };
    let plan =
        Plan::open(path, &args.sets, args.data_root.as_deref()).with_context(|| format!("reading {}", path.shown()))?;
    if args.dry_run {
        return describe(&plan, context);
    }
    let out = args.out.as_ref().ok_or_else(wanted)?;
    let shard = args.shard.unwrap_or(Shard::ALL);
    let options = Options {
        out: out.clone(),
        models: args.models.clone(),
        shard,
        only: match args.only {
            None => study::Only::Both,
            Some(Only::Train) => study::Only::Train,
            Some(Only::Sample) => study::Only::Sample,
        },
        weights: args.weights.clone(),
        batch: args.batch as usize,
    };
    if options.only != study::Only::Sample && shard.index >= plan.models.len() as u64 {
        context.note(format_args!(
            "nothing to do for this shard: the models are divided, and there are {}; train them first with --only train, \
             then share the measurements with --only sample",
            plan.models.len()
        ));
    }
    let stop = stop_on_interrupt()?;
    let mut shown = ProgressBars::new(context);
    let (outcome, results) = study::run(&plan, &options, &context.device, &stop, &mut |event| shown.tell(&event))?;
    drop(shown);
    let (done, cells) = (outcome.done, outcome.cells);
    context.note(format_args!("{} measured now; {done} of {cells} measurements are done", outcome.measured));
    print(&results, out, context)?;
    if !outcome.failed.is_empty() {
        return Err(Error::Run(outcome.failed.join("\n")).into());
    }
    if outcome.stopped { Err(Stopped.into()) } else { Ok(()) }
}

fn print(results: &Results, out: &Path, context: &Context) -> Result<()> {
    context.note(format_args!("report: {}", out.join("report.html").shown()));
    context.print(results.markdown(), serde_json::to_value(results)?)
}

/// Prints the models, rows and columns of a study.
fn describe(plan: &Plan, context: &Context) -> Result<()> {
    let rows = plan.rows();
    let sample = &plan.study.sample;
    let cells = plan.measurements();
    let mut text = format!("{}\n\n", plan.study.title);
    for model in &plan.models {
        let how = match &model.checkpoint {
            Some(path) => format!("weights {}", path.shown()),
            None => format!("trained for {} steps of {}", model.config.train.steps, model.config.train.batch),
        };
        text += &format!("{}: {} parameters, {how}\n", model.training.name, model.config.sizes().parameters);
    }
    text += &format!("\n{} rows:\n", rows.len());
    rows.iter().for_each(|row| text += &format!("  {}\n", row.label));
    text += &format!(
        "columns: {:?} {}; seeds {:?}; {} images each; {cells} measurements of {}\n",
        sample.columns(),
        sample.columns_are(),
        sample.seeds,
        sample.count,
        plan.study.evaluate.tabled().map_or("nothing", |value| value.title)
    );
    let names: Vec<&str> = rows.iter().map(|row| row.label.as_str()).collect();
    context.print(text, json!({ "study": plan.study, "rows": names, "measurements": cells }))
}

/// Shows the progress of a run, one bar at a time.
pub struct ProgressBars<'a> {
    context: &'a Context,
    bar: Option<(String, Progress)>,
}

impl<'a> ProgressBars<'a> {
    /// Shows nothing yet.
    pub fn new(context: &'a Context) -> Self {
        Self { context, bar: None }
    }

    /// The bar of that label, or a new one that begins at `done`.
    fn bar(&mut self, label: &str, done: u64, total: u64) -> &mut Progress {
        if self.bar.as_ref().is_none_or(|(shown, _)| shown != label) {
            self.bar = None;
        }
        let new = || {
            let mut bar = self.context.progress(label, total);
            bar.begin_at(done);
            (label.to_string(), bar)
        };
        &mut self.bar.get_or_insert_with(new).1
    }

    /// Shows an event.
    pub fn tell(&mut self, event: &Event) {
        match event {
            Event::Training { model, step, steps } => {
                let bar = self.bar(&format!("training {model}"), step.step - 1, *steps);
                bar.detail(format!("loss {:.4}, {:.0} images/s", step.loss, step.images_per_second));
                bar.set(step.step, *steps);
            }
            Event::Waiting { model } => {
                self.bar = None;
                self.context.note(format_args!("waiting: another process trains {model}"));
            }
            Event::Reference { done, all } => {
                self.bar("reference", *done as u64, *all as u64).set(*done as u64, *all as u64)
            }
            Event::Sampling { row, column, seed, done, all } => {
                let bar = self.bar("evaluations", *done, *all);
                bar.detail(format!("{row}, {column}, seed {seed}"));
                bar.set(*done, *all);
            }
        }
    }
}
