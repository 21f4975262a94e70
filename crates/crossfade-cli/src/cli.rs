//! The command line: global options and the list of verbs. Each verb's options are beside its code.
use crate::commands::{
    bench, calibrate, compare, config, convert, cost, data, demo, eval, lab, reconstruct, reproduce, sample, sweep,
    task, train, weights,
};
use clap::builder::PossibleValuesParser;
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::path::PathBuf;

/// Train, sample and compare few-step image diffusion models.
#[derive(Debug, Parser)]
#[command(name = "crossfade", version, arg_required_else_help = true)]
#[command(
    after_help = "Exit codes: 0 done, 1 failed, 2 bad request (options, names or configurations that cannot work),\n130 interrupted: a sweep or compare, which can go on, or any run that was interrupted twice."
)]
pub struct Cli {
    #[command(flatten)]
    pub global: Global,

    #[command(subcommand)]
    pub command: Command,
}

/// Options of every verb.
#[derive(Debug, Args)]
pub struct Global {
    /// Threads to compute with [default: all cores]
    #[arg(long, global = true, help_heading = "Global options", value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: Option<u16>,

    /// Where to compute: cpu, or cuda, rocm, metal, vulkan with an optional :INDEX, if compiled in
    #[arg(long, global = true, help_heading = "Global options", value_name = "NAME", default_value = "cpu")]
    pub device: String,

    /// Print facts as JSON on standard output; progress stays on standard error
    #[arg(long, global = true, help_heading = "Global options")]
    pub json: bool,

    /// No progress and no notes; results and errors only
    #[arg(long, short, global = true, help_heading = "Global options")]
    pub quiet: bool,
}

/// The verbs.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Train a network from a configuration, into a directory that can be resumed
    Train(train::TrainArgs),
    /// Make images with a trained network
    Sample(sample::SampleArgs),
    /// Make pictures larger with a network trained for super-resolution
    Sr(task::SrArgs),
    /// Fill holes in pictures with a network trained for inpainting
    Inpaint(task::InpaintArgs),
    /// Find what catches the eye with a network trained for saliency
    Saliency(task::MapArgs),
    /// Find edges with a network trained for them
    Edge(task::MapArgs),
    /// Estimate depth with a network trained for it
    Depth(task::PlainArgs),
    /// Make photographs from sketches with a network trained for it
    Sketch(task::PlainArgs),
    /// Compare models, samplers and steps over seeds: tables, charts and a report from one file
    ///
    /// A study is one file: models, samplers, steps, seeds and a metric; studies/README.md has its options. Models that are
    /// missing are trained into DIR/models, every combination is measured, and the results are written as table.md,
    /// results.csv, results.json, charts and report.html, one page that needs nothing else.
    Sweep(sweep::SweepArgs),
    /// Compare two checkpoints from the same noise by the same metric
    Compare(compare::CompareArgs),
    /// Measure how the two heads of a trained network are best blended
    Calibrate(calibrate::CalibrateArgs),
    /// See what a trained autoencoder keeps of images
    Reconstruct(reconstruct::ReconstructArgs),
    /// Make an image again from what is written inside it
    Reproduce(reproduce::ReproduceArgs),
    /// Measure samplers against exact denoisers; no training, no files
    ///
    /// For Gaussian mixtures the best possible network is known in closed form. Deterministic samplers are compared with the
    /// exact solution of their own equation from the same noise, stochastic ones by the distribution that they make of one
    /// Gaussian, all of them with the distribution of the data. So an order of convergence is measured, not claimed.
    Lab(lab::LabArgs),
    /// See the whole path once: train a tiny network, sample it, compare samplers
    Demo(demo::DemoArgs),
    /// Show, list and check configurations
    #[command(subcommand)]
    Config(config::ConfigCommand),
    /// Look at image sets
    #[command(subcommand)]
    Data(data::DataCommand),
    /// Measure images: FID, KID, PSNR, SSIM, LPIPS, saliency, edges, statistics
    #[command(subcommand)]
    Eval(eval::EvalCommand),
    /// Fetch the weights that metrics need
    #[command(subcommand)]
    Weights(weights::WeightsCommand),
    /// Turn a PyTorch checkpoint of the reference into one to sample, without executing anything in it
    Convert(convert::ConvertArgs),
    /// Count and measure what a network costs: parameters, arithmetic, evaluations, speed, memory
    Cost(cost::CostArgs),
    /// Measure speed
    #[command(subcommand)]
    Bench(bench::BenchCommand),
    /// Print a completion script for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
}

/// A configuration with assignments on top.
#[derive(Debug, Args)]
pub struct Overrides {
    /// Change one value of the configuration; may be given many times. Values are TOML, bare words are strings
    #[arg(long = "set", value_name = "SECTION.KEY=VALUE")]
    pub sets: Vec<String>,

    /// Directory that relative paths of images start from [default: the current one]
    #[arg(long, value_name = "DIR")]
    pub data_root: Option<PathBuf>,
}

/// Which copy of trained weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Weights {
    /// Their moving average: better images
    Ema,
    /// As the optimiser left them
    Model,
}

impl From<Weights> for crossfade::checkpoint::Weights {
    fn from(weights: Weights) -> Self {
        match weights {
            Weights::Ema => Self::Ema,
            Weights::Model => Self::Model,
        }
    }
}

/// A parser that knows the names `all`, for errors, help and completions.
pub fn one_of(all: impl IntoIterator<Item = &'static str>) -> PossibleValuesParser {
    PossibleValuesParser::new(all.into_iter().collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
