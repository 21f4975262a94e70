//! `crossfade distill`.
use super::sample::{not_negative, open};
use crate::cli::{Overrides, Weights};
use crate::context::Context;
use crate::interrupt::stop_on_interrupt;
use anyhow::{Context as _, Result};
use clap::Args;
use crossfade::error::Shown;
use crossfade::math::GridKind;
use crossfade::train::{DistillRequest, Distillation, Stage, StageSummary};
use serde_json::json;
use std::path::PathBuf;

/// Teach a trained network to need fewer steps (progressive distillation)
///
/// The network teaches a copy of itself: one step of the student equals two of its own. The student then teaches the next
/// one, until the fewest steps are reached. The student of N steps is the run OUT/N, which samples with N steps by default.
///
/// A student has the network, the process, the images and the classes of its teacher. Processes: adm with constant
/// attenuation, ddpm, ddpm-x0, vp, ve, edm, flow and lsgm, on pixels and latents, with classes and for tasks.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  crossfade distill runs/tiny --to 4,2,1 --out runs/tiny-fast
  crossfade distill runs/tiny --to 4,2,1 --out runs/tiny-fast --resume
  crossfade sample runs/tiny-fast/4 --out pictures
  crossfade distill runs/cifar --to 4,2,1 --from 32 --steps 5000 --data-root /data --out runs/cifar-fast
  crossfade distill runs/cifar10-classes --to 4 --guidance 1.5 --data-root /data --out runs/guided-fast
  crossfade distill runs/tiny-fast/4 --to 2,1 --out runs/tiny-faster

On Ctrl-C or SIGTERM the run writes a checkpoint and stops. --resume then continues to exactly
the same weights as an uninterrupted run.")]
pub struct DistillArgs {
    /// Run directory of the teacher, or one of its checkpoints
    #[arg(value_name = "CHECKPOINT")]
    checkpoint: PathBuf,

    /// Sampling steps of the students, each half of the one before
    #[arg(long, value_name = "N,…", required = true, value_delimiter = ',')]
    to: Vec<usize>,

    /// Directory for the students; the one of N steps is the run OUT/N
    #[arg(long, value_name = "DIR")]
    out: PathBuf,

    /// Sampling steps of the first teacher, a multiple of the first student's [default: twice as many]
    #[arg(long, value_name = "N")]
    from: Option<usize>,

    /// Training steps of each student [default: a quarter of the teacher's training]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=i64::MAX as u64))]
    steps: Option<u64>,

    /// Time grid of the first teacher, as in `crossfade sample`; students have every second of these times [default: images]
    #[arg(long, value_name = "NAME", value_parser = GridKind::from_argument)]
    grid: Option<GridKind>,

    /// Weight of guidance that the first student learns, so that it needs one network evaluation where the guided teacher
    /// needs two [default: from the configuration, which is 1 for none]
    #[arg(long, value_name = "X", value_parser = not_negative)]
    guidance: Option<f64>,

    /// Which copy of the teacher's weights to use
    #[arg(long, default_value = "ema")]
    weights: Weights,

    /// Continue an interrupted distillation; without this option an existing one is an error
    #[arg(long)]
    resume: bool,

    #[command(flatten)]
    overrides: Overrides,
}

/// Distils the network.
pub fn run(args: &DistillArgs, context: &Context) -> Result<()> {
    let request = DistillRequest {
        to: args.to.clone(),
        from: args.from,
        steps: args.steps,
        grid: args.grid.clone(),
        guidance: args.guidance,
        weights: args.weights.into(),
        sets: args.overrides.sets.clone(),
        data_root: args.overrides.data_root.clone(),
    };
    let plan = Distillation::new(open(&args.checkpoint)?, &request)?;
    let stop = stop_on_interrupt()?;
    let (all, every) = (plan.config().train.steps, plan.config().train.log_every.max(1));
    let label = |stage: &Stage| format!("distilling to {} steps", stage.steps);
    let mut progress = plan.stages().first().map(|stage| (stage.steps, context.progress(&label(stage), all)));
    let (mut smooth, mut failed) = (None::<f64>, None);
    let done = plan
        .run(&args.out, &context.device, args.resume, &stop, &mut |stage, step| {
            if progress.as_ref().is_none_or(|(steps, _)| *steps != stage.steps) {
                (progress, smooth) = (Some((stage.steps, context.progress(&label(stage), all))), None);
            }
            let mean = smooth.map_or(step.loss, |s| 0.98 * s + 0.02 * step.loss);
            smooth = Some(mean);
            if let Some((_, bar)) = &mut progress {
                bar.detail(format!("loss {mean:.4}, {:.0} images/s", step.images_per_second));
                bar.set(step.step, all);
            }
            if context.json && (step.step.is_multiple_of(every) || step.step == all) {
                let line = json!({ "sampling_steps": stage.steps, "report": step });
                failed = failed.take().or(context.line(&line).err());
            }
        })
        .with_context(|| format!("distilling in {}", args.out.shown()))?;
    drop(progress);
    failed.map_or(Ok(()), Err)?;
    finish(&done, plan.config().task.verb(), context)
}

/// Prints how the stages ended and the command to run next.
fn finish(done: &[StageSummary], verb: &str, context: &Context) -> Result<()> {
    for damaged in done.iter().flat_map(|stage| &stage.summary.passed_over) {
        context.note(format_args!("skipped a damaged checkpoint: {damaged}"));
    }
    if context.json {
        return context.line(&done);
    }
    let line = |stage: &StageSummary| {
        let outcome = if stage.summary.stopped { "stopped" } else { "finished" };
        let (steps, trained) = (stage.sampling_steps, stage.summary.step);
        format!("{steps} steps: {outcome} after {trained} training steps; {}\n", stage.summary.checkpoint.shown())
    };
    let mut text: String = done.iter().map(line).collect();
    if let Some(last) = done.iter().rfind(|stage| !stage.summary.stopped) {
        let run = last.run.shown();
        text.push_str(&match verb {
            "sample" => format!("next: crossfade sample {run} --out pictures"),
            verb => format!("next: crossfade {verb} IN OUT --checkpoint {run}"),
        });
    }
    context.print(text, json!(null))
}
