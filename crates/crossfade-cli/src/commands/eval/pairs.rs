//! Metrics of image pairs: the options that they share, and `crossfade eval lpips`.
use super::about;
use crate::cli::one_of;
use crate::context::Context;
use anyhow::Result;
use clap::{Args, Subcommand, ValueEnum};
use crossfade::metrics::pairs::{self, Channel, PairedFiles, Protocol};
use crossfade::metrics::{Metric, MetricOptions, RegisteredMetric};
use crossfade::nn::lpips::FeatureNet;
use serde_json::json;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

/// The verb of LPIPS, which needs the weights of a network.
#[derive(Debug, Subcommand)]
pub enum LpipsCommand {
    #[command(about = about("lpips"), after_help = "Examples:
  crossfade eval lpips outputs targets --weights lpips_alex_fp32.safetensors
  crossfade eval lpips outputs targets --net vgg --weights lpips_vgg_fp32.safetensors

The weights are a safetensors file with conv0.weight, conv0.bias, ... of the network in PyTorch's layout and lin0.weight
to lin4.weight of LPIPS.")]
    Lpips(LpipsArgs),
}

/// The files that are compared.
#[derive(Debug, Args)]
struct PairArgs {
    /// A folder of outputs, or one image
    #[arg(value_name = "OUTPUTS")]
    outputs: PathBuf,

    /// The folder of targets with the same names, or one image
    #[arg(value_name = "TARGETS")]
    targets: PathBuf,

    /// Ending of the outputs' names that those of the targets lack, as x4 in babyx4.png
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    suffix: String,

    /// Also print the value of every image
    #[arg(long)]
    per_image: bool,
}

/// Options of metrics that compare channels, such as `psnr` and `ssim`.
#[derive(Debug, Args)]
pub struct ComponentArgs {
    #[command(flatten)]
    pairs: PairArgs,

    /// How to compare
    #[arg(long, value_name = "NAME", default_value = "adm", value_parser = one_of(Protocol::NAMES))]
    protocol: String,

    /// Which channels to compare, instead of the protocol's
    #[arg(long)]
    channel: Option<ChannelArg>,

    /// Pixels to leave out at every border
    #[arg(long, value_name = "N")]
    crop: Option<usize>,

    /// Round floats to 8 bits first
    #[arg(long)]
    quantise: bool,
}

/// Which channels are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ChannelArg {
    /// All channels
    Rgb,
    /// The brightness of BT.601, from 16 to 235
    Y,
}

/// Options of `lpips`.
#[derive(Debug, Args)]
pub struct LpipsArgs {
    #[command(flatten)]
    pairs: PairArgs,

    /// The network whose features are compared
    #[arg(long, value_name = "NAME", default_value = "alex", value_parser = one_of(FeatureNet::ALL.map(FeatureNet::name)))]
    net: String,

    /// Its weights, a safetensors file
    #[arg(long, value_name = "FILE")]
    weights: PathBuf,
}

impl ComponentArgs {
    fn protocol(&self) -> Result<Protocol> {
        let named = Protocol::named(&self.protocol, self.crop)?;
        let mut protocol = named.clone();
        protocol.quantise |= self.quantise;
        match self.channel {
            Some(ChannelArg::Rgb) => (protocol.channel, protocol.round_luma) = (Channel::Rgb, false),
            Some(ChannelArg::Y) => protocol.channel = Channel::Y,
            None => (),
        }
        let usual_crop = self.crop.is_none() || named.channel == Channel::Y;
        if protocol != named || !usual_crop {
            protocol.name = "custom";
        }
        Ok(protocol)
    }
}

/// Measures pairs of files by a metric that compares channels.
pub fn evaluate_components(metric: RegisteredMetric, args: &ComponentArgs, context: &Context) -> Result<()> {
    let options = MetricOptions { pairs: Some(args.protocol()?), ..MetricOptions::new(&context.device) };
    evaluate(&*(metric.open)(&options)?, &args.pairs, context)
}

/// Measures pairs of files by LPIPS.
pub fn lpips(LpipsCommand::Lpips(args): &LpipsCommand, context: &Context) -> Result<()> {
    let (protocol, weights) = (Some(args.net.as_str()), Some(args.weights.as_path()));
    let options = MetricOptions { protocol, weights, ..MetricOptions::new(&context.device) };
    evaluate(&*(RegisteredMetric::parse("lpips")?.open)(&options)?, &args.pairs, context)
}

/// Opens the pairs, measures them and prints the outcome.
fn evaluate(metric: &dyn Metric, args: &PairArgs, context: &Context) -> Result<()> {
    let files = PairedFiles::open(&args.outputs, &args.targets, &args.suffix)?;
    let progress = Mutex::new(context.progress("images", files.pairs.len() as u64));
    let mut found = pairs::evaluate(metric, &files, &|done, all| {
        progress.lock().unwrap_or_else(PoisonError::into_inner).set(done as u64, all as u64);
    })?;
    drop(progress);
    found.report = found.report.checked()?;
    let mut json = serde_json::to_value(&found.report)?;
    let mut text = String::new();
    if args.per_image {
        let width = found.images.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
        let lines = found.images.iter().map(|(name, value)| format!("{name:width$}  {value:.6}\n"));
        text = lines.collect::<String>() + "\n";
        json["images"] = found.images.iter().map(|(name, value)| json!([name, value])).collect();
    }
    context.print(text + &found.report.to_string(), json)
}
