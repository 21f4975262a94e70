//! `crossfade bench`.
mod kernels;

use crate::context::Context;
use crate::output::thousands;
use anyhow::Result;
use clap::{Args, Subcommand, ValueEnum};
use crossfade::nn::{BackboneConfig, Decoders, UNetConfig};
use crossfade::{Error, bench};
use serde_json::json;

/// Benchmark the network and its kernels
#[derive(Debug, Subcommand)]
pub enum BenchCommand {
    /// Time the network: a forward pass, a training step or sampling
    #[command(after_help = "Examples:
  crossfade bench unet --what train --batch 32 --threads 2
  crossfade bench unet --what sample --steps 10 --json")]
    Unet(UnetArgs),
    /// Time every kernel by shape, and compare with the limits of the processor
    #[command(after_help = "Examples:
  crossfade bench kernels --networks default --batch 16
  crossfade bench kernels --filter 'conv 3x3' --filter attention --threads 1
  crossfade bench kernels --filter @8 --json

Run nothing else meanwhile. Rates of convolutions count the operations of the direct method.
Those marked W use Winograd's F(4x4,3x3), which needs a quarter of the multiplications and can
therefore exceed 100 % of the peak. Memory-bound kernels are compared with a memory triad;
tensors that fit into a cache can exceed its rate.")]
    Kernels(kernels::KernelsArgs),
}

/// Options of `bench unet`.
#[derive(Debug, Args)]
pub struct UnetArgs {
    /// What to time
    #[arg(long, default_value = "forward")]
    pub what: What,

    /// Height and width of the images
    #[arg(long, value_name = "N", default_value_t = 32)]
    pub resolution: usize,

    /// Side of the squares of pixels that the network reads as one, e.g. `--resolution 64 --patch 2`
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub patch: usize,

    /// Channels of the first level
    #[arg(long, value_name = "N", default_value_t = 64)]
    pub width: usize,

    /// Channels of each level as multiples of the width
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "1,2,2,2")]
    pub mult: Vec<usize>,

    /// Blocks per level
    #[arg(long, value_name = "N", default_value_t = 2)]
    pub blocks: usize,

    /// Sides of the feature maps that have attention
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "16,8")]
    pub attention: Vec<usize>,

    /// Number of decoders, 1 or 2
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=2))]
    pub decoders: u8,

    /// Batch size
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u64).range(1..=65536))]
    pub batch: u64,

    /// Number of sampler steps, for `--what sample`
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub steps: u64,

    /// For `--what train`: recompute cheap activations in the backward pass instead of storing them
    #[arg(long)]
    pub recompute: bool,

    /// Number of timed runs, after two for warm-up; the median and the best are reported
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..))]
    pub repeat: u64,
}

/// What `bench unet` times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum What {
    /// One forward pass
    Forward,
    /// One training step: forward, backward, optimiser and moving average
    Train,
    /// Sampling from noise
    Sample,
}

impl UnetArgs {
    /// The network to time.
    pub fn network(&self) -> Result<UNetConfig> {
        let network = UNetConfig {
            resolution: self.resolution,
            patch: self.patch,
            width: self.width,
            mult: self.mult.clone(),
            blocks: self.blocks,
            attention: self.attention.clone(),
            decoders: if self.decoders == 2 { Decoders::Two } else { Decoders::One },
            ..UNetConfig::default()
        };
        let problems = network.validate();
        if problems.is_empty() { Ok(network) } else { Err(Error::config(&problems).into()) }
    }
}

/// Runs a `bench` command.
pub fn run(command: &BenchCommand, context: &Context) -> Result<()> {
    match command {
        BenchCommand::Unet(args) => unet(args, context),
        BenchCommand::Kernels(args) => kernels::run(args, context),
    }
}

/// Times the network. `--json` prints one line in the format of tools/compare_peers.py.
fn unet(args: &UnetArgs, context: &Context) -> Result<()> {
    let what = match args.what {
        What::Forward => bench::What::Forward,
        What::Train => bench::What::Train { recompute: args.recompute },
        What::Sample => bench::What::Sample,
    };
    let (batch, steps, repeat) = (args.batch as usize, args.steps as usize, args.repeat as usize);
    let timing = bench::unet(what, args.network()?, batch, steps, repeat, &context.device)?;
    if !context.json {
        let text = format!(
            "{:?}, batch {}: median {:.1} ms, best {:.1} ms; {} parameters, peak memory {} MiB",
            args.what,
            timing.batch,
            timing.median_ms,
            timing.best_ms,
            thousands(timing.parameters as u64),
            timing.peak_rss_mb
        );
        return context.print(text, json!(null));
    }
    let mut line = serde_json::to_value(&timing)?;
    line["peer"] = json!(concat!("crossfade ", env!("CARGO_PKG_VERSION")));
    line["what"] = json!(format!("{:?}", args.what).to_lowercase());
    line["threads"] = json!(rayon::current_num_threads());
    context.line(&line)
}
