//! `crossfade eval fid`, `kid`, `pr`, `is`, `stats` and `merge`.
mod distances;
mod sources;
mod stats;

use super::about;
use crate::cli::one_of;
use crate::context::Context;
use anyhow::Result;
use clap::{Args, Subcommand};
use crossfade::metrics::features::Protocol;
pub use sources::images;
use std::path::PathBuf;

const SOURCES: &str = "What images can be:
  FOLDER            PNG, JPEG and WebP files, also in folders below; sizes may differ
  FILE.zip          the same in a zip
  DIR:train|test    CIFAR-10, binary or Python layout
  FILE.npz          images as uint8 of shape N, H, W, C (key arr_0, or the first)
  FILE.npz          statistics: mu and sigma, of `eval stats` or of pytorch-fid (fid only)
Any of these but statistics may end in [START:END] for a part of it, as in samples[0:5000].

Weights are read from --weights, or from the cache that `crossfade weights get inception` fills.";

/// Verbs that run the Inception network or use its statistics.
#[derive(Debug, Subcommand)]
pub enum FeaturesCommand {
    #[command(about = about("fid"), after_help = format!("Examples:
  crossfade eval fid samples cifar10:train
  crossfade eval fid samples reference.npz --protocol pytorch-fid --interval --json

{SOURCES}"))]
    Fid(FidArgs),
    #[command(about = about("kid"), after_help = format!("Example:
  crossfade eval kid samples cifar10:test

{SOURCES}"))]
    Kid(KidArgs),
    #[command(about = about("pr"), after_help = format!("Example:
  crossfade eval pr samples cifar10:test

{SOURCES}"))]
    Pr(PrArgs),
    #[command(about = about("is"), after_help = format!("Example:
  crossfade eval is samples

{SOURCES}"))]
    Is(IsArgs),
    /// Sum up the features of an image set in a file, for FID later or for merging
    #[command(after_help = format!("Examples:
  crossfade eval stats cifar10:train cifar10-train.npz
  crossfade eval stats samples[0:5000] shard-0.npz

The file holds mu and sigma as pytorch-fid has them, and the sums (n, sum, outer) that `eval merge` adds up.
Processes that mpirun or srun has started share the images and write one file, the same as that of one process.

{SOURCES}"))]
    Stats(StatsArgs),
    /// Join the statistics of shards, exactly as if all images had been in one set
    #[command(after_help = "Example:
  crossfade eval merge shard-0.npz shard-1.npz all.npz")]
    Merge(MergeArgs),
}

/// Options that all verbs share which run the network.
#[derive(Debug, Args)]
pub struct NetworkArgs {
    /// How images are resized for the network
    #[arg(long, default_value = "torch-fidelity", value_parser = one_of(Protocol::NAMES.iter().copied()))]
    protocol: String,

    /// Weights of the Inception network: .pth of pytorch-fid, or safetensors [default: the cached ones]
    #[arg(long, value_name = "FILE")]
    weights: Option<PathBuf>,
}

/// Options of `eval fid`.
#[derive(Debug, Args)]
pub struct FidArgs {
    /// The images to measure, or their statistics
    #[arg(value_name = "IMAGES")]
    a: String,

    /// The images to compare with, or their statistics
    #[arg(value_name = "REFERENCE")]
    b: String,

    #[command(flatten)]
    network: NetworkArgs,

    /// Also print the uncertainty: standard error, 95 % interval and the value for infinitely many IMAGES, by leaving out
    /// a tenth of them in turn
    #[arg(long)]
    interval: bool,
}

/// Options of `eval kid`.
#[derive(Debug, Args)]
pub struct KidArgs {
    /// The images to measure
    #[arg(value_name = "IMAGES")]
    a: String,

    /// The images to compare with
    #[arg(value_name = "REFERENCE")]
    b: String,

    #[command(flatten)]
    network: NetworkArgs,

    /// How many random subsets to average over
    #[arg(long, value_name = "N", default_value_t = 100)]
    subsets: usize,

    /// Images in each subset
    #[arg(long, value_name = "N", default_value_t = 1000)]
    subset_size: usize,

    /// Seed of the subsets, as torch-fidelity's --rng-seed
    #[arg(long, default_value_t = crossfade::metrics::features::SEED)]
    seed: u32,
}

/// Options of `eval pr`.
#[derive(Debug, Args)]
pub struct PrArgs {
    /// The generated images
    #[arg(value_name = "IMAGES")]
    a: String,

    /// The real images
    #[arg(value_name = "REFERENCE")]
    b: String,

    #[command(flatten)]
    network: NetworkArgs,

    /// Which neighbour sets the size of a ball
    #[arg(long, value_name = "K", default_value_t = 3)]
    neighbours: usize,
}

/// Options of `eval is`.
#[derive(Debug, Args)]
pub struct IsArgs {
    /// The images to measure
    images: String,

    #[command(flatten)]
    network: NetworkArgs,

    /// Parts the images are split into
    #[arg(long, value_name = "N", default_value_t = 10)]
    splits: usize,

    /// Seed of the shuffle before the split, as torch-fidelity's --rng-seed
    #[arg(long, default_value_t = crossfade::metrics::features::SEED)]
    seed: u32,
}

/// Options of `eval stats`.
#[derive(Debug, Args)]
pub struct StatsArgs {
    /// The images
    images: String,

    /// The npz to write
    #[arg(value_name = "OUT.npz")]
    out: PathBuf,

    #[command(flatten)]
    network: NetworkArgs,
}

/// Options of `eval merge`.
#[derive(Debug, Args)]
pub struct MergeArgs {
    /// Statistics of the shards, then the npz to write
    #[arg(value_name = "SHARD.npz … OUT.npz", required = true, num_args = 2..)]
    files: Vec<PathBuf>,
}

/// Measures.
pub fn run(command: &FeaturesCommand, context: &Context) -> Result<()> {
    match command {
        FeaturesCommand::Fid(args) => distances::fid(args, context),
        FeaturesCommand::Kid(args) => distances::kid(args, context),
        FeaturesCommand::Pr(args) => distances::pr(args, context),
        FeaturesCommand::Is(args) => distances::is(args, context),
        FeaturesCommand::Stats(args) => stats::stats(args, context),
        FeaturesCommand::Merge(args) => stats::merge(args, context),
    }
}
