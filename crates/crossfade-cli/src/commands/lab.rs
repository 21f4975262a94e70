//! `crossfade lab`.
use crate::cli::one_of;
use crate::context::Context;
use anyhow::{Context as _, Result};
use clap::Args;
use crossfade::lab::{LabConfig, processes, run as run_lab};
use crossfade::math::{Attenuation, GridKind, NoiseScale};
use crossfade::sample::Sampler;
use std::path::PathBuf;

/// Options of `lab`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  crossfade lab --out lab                             about a minute, with chart and JSON
  crossfade lab --std 0.05 --evaluations 5,10,20      thin modes, few steps
  crossfade lab --processes all --out lab             DDPM to CLD, every sampler that fits
  crossfade lab --attenuations all --samplers ab2,pc  every attenuation, two samplers")]
pub struct LabArgs {
    /// Coordinates of a point, 1 to 64 [default: 8]
    #[arg(long, value_name = "N")]
    dim: Option<usize>,

    /// Gaussians in the mixture, 1 to 64 [default: 6]
    #[arg(long, value_name = "N")]
    components: Option<usize>,

    /// Deviation of each Gaussian; 0.05 makes thin modes, as images have [default: 0.2]
    #[arg(long, value_name = "S")]
    std: Option<f64>,

    /// Points a run; more make the distance to the data (W2) sharper [default: 1000]
    #[arg(long, value_name = "N")]
    samples: Option<usize>,

    /// Seed of the mixture, the noise and the data
    #[arg(long, default_value_t = 0)]
    seed: u64,

    /// Attenuations to compare, or all [default: constant]
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', value_parser = one_of(attenuations()))]
    attenuations: Vec<String>,

    /// How the noise rises: sqrt (the paper's) or linear (rectified flow)
    #[arg(long, default_value = "sqrt", value_parser = one_of(["sqrt", "linear"]))]
    noise: String,

    /// Processes to compare in place of attenuations, or all: adm, ddpm, vp, ve, edm, flow, cld, each with the samplers
    /// that fit it and the grids that suit both
    #[arg(long, conflicts_with = "grids", value_name = "NAME,…", value_delimiter = ',', value_parser = one_of(process_names()))]
    processes: Vec<String>,

    /// Samplers to compare, or all [default: all of attenuation, or all that fit --processes]
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', value_parser = one_of(samplers()))]
    samplers: Vec<String>,

    /// Grids of times to compare, or all [default: uniform-sqrt,uniform-t,reference]
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', value_parser = one_of(grids()))]
    grids: Vec<String>,

    /// Numbers of network evaluations, ascending [default: 5,10,20,40,80,160,320]
    #[arg(long, value_name = "N,…", value_delimiter = ',')]
    evaluations: Vec<usize>,

    /// Directory for lab.json, lab.md, lab.svg and lab.png
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

fn attenuations() -> impl Iterator<Item = &'static str> {
    Attenuation::ALL.iter().map(|a| a.name()).chain(["all"])
}

fn process_names() -> Vec<&'static str> {
    processes(NoiseScale::Sqrt).iter().map(|law| law.name()).chain(["all"]).collect()
}

fn samplers() -> impl Iterator<Item = &'static str> {
    Sampler::ALL.iter().map(|s| s.name()).chain(["all"])
}

fn grids() -> Vec<&'static str> {
    GridKind::all_in_time().iter().map(GridKind::name).chain(["all"]).collect()
}

/// The chosen ones of `all`, each once and in the order chosen: the chart shows the first. `default` if none is chosen.
fn chosen<T: Clone + PartialEq>(
    names: &[String],
    all: &[T],
    name: impl Fn(&T) -> &'static str,
    default: Vec<T>,
) -> Vec<T> {
    if names.is_empty() {
        return default;
    }
    let mut items: Vec<T> = Vec::new();
    for wanted in names {
        for item in all.iter().filter(|item| wanted == "all" || wanted == name(item)) {
            if !items.contains(item) {
                items.push(item.clone());
            }
        }
    }
    items
}

impl LabArgs {
    fn config(&self) -> LabConfig {
        let default = LabConfig::default();
        let noise = if self.noise == "linear" { NoiseScale::Linear } else { NoiseScale::Sqrt };
        let attenuations = if self.processes.is_empty() { default.attenuations } else { vec![] };
        LabConfig {
            dim: self.dim.unwrap_or(default.dim),
            components: self.components.unwrap_or(default.components),
            std: self.std.unwrap_or(default.std),
            samples: self.samples.unwrap_or(default.samples),
            seed: self.seed,
            attenuations: chosen(&self.attenuations, Attenuation::ALL, |a| a.name(), attenuations),
            processes: chosen(&self.processes, &processes(noise), |law| law.name(), default.processes),
            noise,
            samplers: chosen(&self.samplers, Sampler::ALL, |s| s.name(), default.samplers),
            grids: chosen(&self.grids, &GridKind::all_in_time(), GridKind::name, default.grids),
            evaluations: if self.evaluations.is_empty() { default.evaluations } else { self.evaluations.clone() },
        }
    }
}

/// Runs the laboratory.
pub fn run(args: &LabArgs, context: &Context) -> Result<()> {
    if let Some(dir) = &args.out {
        std::fs::create_dir_all(dir).with_context(|| format!("making {}", dir.display()))?;
    }
    let mut progress = context.progress("curves", 0);
    let report = run_lab(&args.config(), &mut |done, all| progress.set(done as u64, all as u64))?;
    drop(progress);
    if let Some(dir) = &args.out {
        report.save(dir).with_context(|| format!("writing into {}", dir.display()))?;
        context.note(format_args!("lab.json, lab.md, lab.svg and lab.png are in {}", dir.display()));
    }
    context.print(&report, serde_json::to_value(&report)?)
}
