//! `crossfade eval NAME` for every metric of the registry that has no options of its own.
//!
//! The verbs are made from the registry, so that a new metric of image pairs or image sets appears here by itself.
use super::features::images;
use super::pairs::{ComponentArgs, evaluate_components};
use super::print;
use crate::context::Context;
use anyhow::Result;
use clap::{ArgMatches, Args, Command, FromArgMatches, Subcommand};
use crossfade::Error;
use crossfade::metrics::{Compared, MetricOptions, Reference, ReferenceWork, RegisteredMetric, Sample, Verb};

/// Images that are measured at a time.
const BATCH: usize = 64;

/// A metric and what it measures.
#[derive(Debug)]
pub struct RegisteredCommand {
    metric: RegisteredMetric,
    args: MetricArgs,
}

#[derive(Debug)]
enum MetricArgs {
    Set(SetArgs),
    Pairs(ComponentArgs),
}

/// Options of metrics that compare sets of images.
#[derive(Debug, Args)]
struct SetArgs {
    /// The images to measure, as for `eval fid`
    #[arg(value_name = "IMAGES")]
    images: String,

    /// The images to compare with
    #[arg(value_name = "REFERENCE")]
    reference: String,
}

/// The metrics whose verbs are made here, and the text after their help.
fn common() -> impl Iterator<Item = (RegisteredMetric, &'static str)> {
    RegisteredMetric::all().filter_map(|metric| match metric.verb {
        Verb::Common { examples } => Some((metric, examples)),
        Verb::Own | Verb::None { .. } => None,
    })
}

fn compares_sets(metric: RegisteredMetric) -> bool {
    matches!(metric.compared, Compared::ImageSet { .. })
}

impl Subcommand for RegisteredCommand {
    fn augment_subcommands(command: Command) -> Command {
        command.subcommands(common().map(|(metric, examples)| {
            let verb = Command::new(metric.name);
            let sets = compares_sets(metric);
            let verb = if sets { SetArgs::augment_args(verb) } else { ComponentArgs::augment_args(verb) };
            // The derived arguments bring their own description along, which is for programmers.
            verb.about(metric.about).after_help(examples)
        }))
    }

    fn augment_subcommands_for_update(command: Command) -> Command {
        Self::augment_subcommands(command)
    }

    fn has_subcommand(name: &str) -> bool {
        common().any(|(metric, _)| metric.name == name)
    }
}

impl FromArgMatches for RegisteredCommand {
    fn from_arg_matches(matches: &ArgMatches) -> std::result::Result<Self, clap::Error> {
        let missing = || clap::Error::new(clap::error::ErrorKind::MissingSubcommand);
        let (name, options) = matches.subcommand().ok_or_else(missing)?;
        let (metric, _) = common().find(|(metric, _)| metric.name == name).ok_or_else(missing)?;
        let args = if compares_sets(metric) {
            MetricArgs::Set(SetArgs::from_arg_matches(options)?)
        } else {
            MetricArgs::Pairs(ComponentArgs::from_arg_matches(options)?)
        };
        Ok(Self { metric, args })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> std::result::Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// Measures.
pub fn run(command: &RegisteredCommand, context: &Context) -> Result<()> {
    match &command.args {
        MetricArgs::Set(args) => evaluate_set(command.metric, args, context),
        MetricArgs::Pairs(args) => evaluate_components(command.metric, args, context),
    }
}

fn evaluate_set(metric: RegisteredMetric, args: &SetArgs, context: &Context) -> Result<()> {
    let (produced, reference) = (images(&args.images)?, images(&args.reference)?);
    if (produced.len() as u64) < metric.min_images {
        let (name, least) = (metric.name, metric.min_images);
        return Err(Error::request(format!("{} has too few images: {name} needs {least}", args.images)).into());
    }
    let mut opened = (metric.open)(&MetricOptions::new(&context.device))?;
    let mut progress = context.progress("reference", reference.len() as u64);
    let mut tell = |done: usize, all: usize| progress.set(done as u64, all as u64);
    let mut work = ReferenceWork { store: None, stop: &|| false, progress: &mut tell };
    opened.prepare(&Reference::Images(&*reference), &mut work)?;
    drop(progress);
    let mut progress = context.progress("images", produced.len() as u64);
    let mut accumulator = opened.accumulator();
    for first in (0..produced.len()).step_by(BATCH) {
        let last = (first + BATCH).min(produced.len());
        let sample = |k: usize| -> crossfade::Result<Sample> {
            let name = produced.name(k);
            Ok(Sample { origin: name.clone().into(), name, output: produced.get(k)?.into(), target: None, class: None })
        };
        accumulator.add((first..last).map(sample).collect::<crossfade::Result<_>>()?)?;
        progress.set(last as u64, produced.len() as u64);
    }
    drop(progress);
    let report = accumulator.finish()?.report;
    let report = report
        .with("images", produced.describe())
        .with("images count", produced.len())
        .with("reference", reference.describe())
        .with("reference count", reference.len());
    print(report, context)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The common verbs have neither `--weights` nor maps as input; metrics that need them bring a verb of their own.
    #[test]
    fn metrics_with_other_needs_have_verbs_of_their_own() {
        for (metric, examples) in common() {
            assert!(metric.network.is_none(), "{}", metric.name);
            assert!(matches!(metric.compared, Compared::ImageSet { .. } | Compared::Target), "{}", metric.name);
            assert!(examples.contains(&format!("crossfade eval {}", metric.name)), "{}", metric.name);
        }
    }
}
