//! `crossfade eval`: one file a family of metrics.
mod edges;
mod features;
mod pairs;
mod regions;
mod saliency;
mod statistics;

use crate::context::Context;
use anyhow::Result;
use clap::Subcommand;

/// Compute metrics: FID, KID, PSNR, SSIM, LPIPS, saliency, edges, regions, statistics
#[derive(Debug, Subcommand)]
pub enum EvalCommand {
    #[command(flatten)]
    Features(features::FeaturesCommand),
    #[command(flatten)]
    Pairs(pairs::PairsCommand),
    #[command(flatten)]
    Saliency(saliency::SaliencyCommand),
    #[command(flatten)]
    Edges(edges::EdgesCommand),
    #[command(flatten)]
    Regions(regions::RegionsCommand),
    #[command(flatten)]
    Statistics(statistics::StatisticsCommand),
}

/// Measures what was asked for.
pub fn run(command: &EvalCommand, context: &Context) -> Result<()> {
    match command {
        EvalCommand::Features(command) => features::run(command, context),
        EvalCommand::Pairs(command) => pairs::run(command, context),
        EvalCommand::Saliency(command) => saliency::run(command, context),
        EvalCommand::Edges(command) => edges::run(command, context),
        EvalCommand::Regions(command) => regions::run(command, context),
        EvalCommand::Statistics(command) => statistics::run(command, context),
    }
}
