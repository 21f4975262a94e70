//! `crossfade lab --images`.
use super::{LabArgs, all_grids, select};
use crate::commands::eval::images;
use crate::commands::sample::open;
use crate::context::Context;
use anyhow::{Context as _, Result};
use crossfade::diagnose::{DiagnoseConfig, diagnose};
use crossfade::error::Shown;
use crossfade::generate::RATIOS;
use crossfade::lab::{SharesConfig, SharesReport, Spectrum, processes};
use crossfade::math::{Grid, GridKind, NoiseScale};
use crossfade::sample::Sampler;

/// Images that are sampled for each row unless --count says otherwise.
const COUNT: u64 = 1000;

/// Runs the laboratory on the spectrum of the images `data`, or measures a network against it.
pub fn run(args: &LabArgs, data: &str, context: &Context) -> Result<()> {
    let set = images(data)?;
    // Opened before the images are read, so that a wrong path is reported at once.
    let checkpoint = args.checkpoint.as_deref().map(open).transpose()?;
    let mut progress = context.progress("images", set.len() as u64);
    let spectrum = Spectrum::of(&*set, &mut |done, all| progress.set(done as u64, all as u64))?;
    drop(progress);
    let samplers = |default| args.samplers(default);
    let grids = |default| -> Vec<Grid> {
        let kinds = select(&args.grids, &all_grids(), GridKind::name, default);
        kinds.into_iter().map(|kind| Grid { kind, final_t: None }).collect()
    };
    let evaluations = if args.evaluations.is_empty() { vec![10] } else { args.evaluations.clone() };
    let report = match checkpoint {
        Some(checkpoint) => {
            let config = DiagnoseConfig {
                samplers: samplers(vec![]),
                grids: grids(vec![]),
                evaluations,
                count: args.count.unwrap_or(COUNT),
                seed: args.seed,
                weights: args.weights.into(),
            };
            let mut progress = context.progress("samples", 0);
            diagnose(&checkpoint, &*set, &spectrum, &config, &context.device, &mut |done, all| progress.set(done, all))
                .with_context(|| format!("measuring {}", checkpoint.path.shown()))?
        }
        None => {
            let all = processes(if args.noise == "linear" { NoiseScale::Linear } else { NoiseScale::Sqrt });
            let config = SharesConfig {
                processes: select(&args.processes, &all, |process| process.name(), all[..1].to_vec()),
                samplers: samplers(Sampler::ALL.to_vec()),
                grids: grids(vec![GridKind::Auto, GridKind::Images]),
                evaluations,
            };
            let (runs, mut rows) = (config.runs()?, vec![]);
            let mut progress = context.progress("runs", runs.len() as u64);
            for run in &runs {
                rows.push(run.linear(&spectrum)?);
                progress.set(rows.len() as u64, runs.len() as u64);
            }
            drop(progress);
            SharesReport::linear(set.describe(), &spectrum, rows, &RATIOS)
        }
    };
    if let Some(dir) = &args.out {
        report.save(dir).with_context(|| format!("writing to {}", dir.shown()))?;
        context.note(format_args!("wrote lab.json, lab.md, lab.svg and lab.png to {}", dir.shown()));
    }
    context.print(&report, serde_json::to_value(&report)?)
}
