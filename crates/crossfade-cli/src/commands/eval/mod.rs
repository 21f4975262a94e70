//! `crossfade eval`: metrics of the registry, and what is done with their files and reports. One file per kind of input.
mod edges;
mod features;
mod likelihood;
mod nearest;
mod pairs;
mod regions;
mod registered;
mod saliency;
mod statistics;

use crate::context::Context;
use anyhow::Result;
use clap::Subcommand;
use crossfade::metrics::{RegisteredMetric, Report};
pub use features::images;

/// Compute metrics: FID, KID, bits per dimension, PSNR, SSIM, LPIPS, saliency, edges, regions, statistics
#[derive(Debug, Subcommand)]
pub enum EvalCommand {
    #[command(flatten)]
    Features(features::FeaturesCommand),
    #[command(flatten)]
    Likelihood(likelihood::LikelihoodCommand),
    #[command(flatten)]
    Nearest(nearest::NearestCommand),
    #[command(flatten)]
    Registered(registered::RegisteredCommand),
    #[command(flatten)]
    Lpips(pairs::LpipsCommand),
    #[command(flatten)]
    Saliency(saliency::SaliencyCommand),
    #[command(flatten)]
    Edges(edges::EdgesCommand),
    #[command(flatten)]
    Regions(regions::RegionsCommand),
    #[command(flatten)]
    Statistics(statistics::StatisticsCommand),
}

impl EvalCommand {
    /// Whether ranks share the work.
    pub fn is_shared(&self) -> bool {
        matches!(self, Self::Features(features::FeaturesCommand::Stats(_)))
    }
}

/// Measures what was asked for.
pub fn run(command: &EvalCommand, context: &Context) -> Result<()> {
    match command {
        EvalCommand::Features(command) => features::run(command, context),
        EvalCommand::Likelihood(command) => likelihood::run(command, context),
        EvalCommand::Nearest(command) => nearest::run(command, context),
        EvalCommand::Registered(command) => registered::run(command, context),
        EvalCommand::Lpips(command) => pairs::lpips(command, context),
        EvalCommand::Saliency(command) => saliency::run(command, context),
        EvalCommand::Edges(command) => edges::run(command, context),
        EvalCommand::Regions(command) => regions::run(command, context),
        EvalCommand::Statistics(command) => statistics::run(command, context),
    }
}

/// Prints a report, if its values mean something.
fn print(report: Report, context: &Context) -> Result<()> {
    let report = report.checked()?;
    context.print(&report, serde_json::to_value(&report)?)
}

/// What the registry says that a metric measures, for the help of verbs with options of their own.
fn about(metric: &str) -> &'static str {
    RegisteredMetric::parse(metric).map_or("", |metric| metric.about)
}
