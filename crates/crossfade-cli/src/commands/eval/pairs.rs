//! `crossfade eval psnr`, `ssim`, `ms-ssim` and `lpips`.
use crate::cli::one_of;
use crate::context::Context;
use anyhow::Result;
use clap::{Args, Subcommand, ValueEnum};
use crossfade::metrics::pairs::{self, Channel, Evaluation, Metric, Pairs, Protocol};
use crossfade::nn::lpips::{Backbone, Lpips};
use serde_json::json;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

/// The verbs of this family.
#[derive(Debug, Subcommand)]
pub enum PairsCommand {
    /// Peak signal-to-noise ratio of outputs against targets
    #[command(after_help = "Examples:
  crossfade eval psnr outputs targets
  crossfade eval psnr upscaled Set5/HR --protocol basicsr --crop 4 --per-image

Protocols:
  adm        all channels, no border left out, floats as they are (the default)
  basicsr    y of BT.601, unrounded; --crop N as wide as the scale factor
  sr-matlab  the same, y rounded as MATLAB's rgb2ycbcr does for 8-bit images
  skimage    as adm; SSIM with scikit-image's default window

Files are paired by their names without ending; .npy arrays of floats from 0 to 1 are read too.")]
    Psnr(PlanesArgs),
    /// Structural similarity of outputs against targets
    #[command(after_help = "Examples:
  crossfade eval ssim outputs targets
  crossfade eval ssim upscaled Set5/HR --protocol basicsr --crop 4
  crossfade eval ssim outputs targets --protocol skimage

The window is 11x11 Gaussian with sigma 1.5, or 7x7 uniform with --protocol skimage. The other protocols are those of
`eval psnr`.")]
    Ssim(PlanesArgs),
    /// Structural similarity over five scales, for images of 161 pixels or more
    #[command(after_help = "Example:
  crossfade eval ms-ssim outputs targets --per-image")]
    MsSsim(PlanesArgs),
    /// Learned perceptual distance (LPIPS 0.1); smaller is more alike
    #[command(after_help = "Examples:
  crossfade eval lpips outputs targets --weights lpips_alex_fp32.safetensors
  crossfade eval lpips outputs targets --net vgg --weights lpips_vgg_fp32.safetensors

The weights are a safetensors file with conv0.weight, conv0.bias, ... of the network in PyTorch's layout and lin0.weight
to lin4.weight of LPIPS.")]
    Lpips(LpipsArgs),
}

/// What is compared.
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

/// Options of `psnr`, `ssim` and `ms-ssim`.
#[derive(Debug, Args)]
pub struct PlanesArgs {
    #[command(flatten)]
    pairs: PairArgs,

    /// How to compare
    #[arg(long, value_name = "NAME", default_value = "adm", value_parser = one_of(Protocol::NAMES))]
    protocol: String,

    /// What to compare, instead of the protocol's
    #[arg(long)]
    channel: Option<ChannelArg>,

    /// Pixels to leave out at every border
    #[arg(long, value_name = "N")]
    crop: Option<usize>,

    /// Round floats to 8 bits first
    #[arg(long)]
    quantise: bool,
}

/// What of a picture is compared.
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
    #[arg(long, value_name = "NAME", default_value = "alex", value_parser = one_of(Backbone::ALL.map(Backbone::name)))]
    net: String,

    /// Its weights, a safetensors file
    #[arg(long, value_name = "FILE")]
    weights: PathBuf,
}

impl PlanesArgs {
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

/// Measures.
pub fn run(command: &PairsCommand, context: &Context) -> Result<()> {
    let (metric, args) = match command {
        PairsCommand::Psnr(args) => (Metric::Psnr, args),
        PairsCommand::Ssim(args) => (Metric::Ssim, args),
        PairsCommand::MsSsim(args) => (Metric::MsSsim, args),
        PairsCommand::Lpips(args) => return lpips(args, context),
    };
    let protocol = args.protocol()?;
    measure(&args.pairs, context, |pairs, progress| pairs::evaluate(metric, pairs, &protocol, progress))
}

fn lpips(args: &LpipsArgs, context: &Context) -> Result<()> {
    let backbone = if args.net == Backbone::Vgg.name() { Backbone::Vgg } else { Backbone::Alex };
    let net = Lpips::load(&args.weights, backbone, &context.device)?;
    measure(&args.pairs, context, |pairs, progress| pairs::lpips(&net, pairs, &context.device, progress))
}

/// Opens the pairs, measures them and prints the outcome.
fn measure(
    args: &PairArgs,
    context: &Context,
    evaluate: impl FnOnce(&Pairs, pairs::Progress) -> crossfade::Result<Evaluation>,
) -> Result<()> {
    let pairs = Pairs::open(&args.outputs, &args.targets, &args.suffix)?;
    let progress = Mutex::new(context.progress("images", pairs.pairs.len() as u64));
    let found = evaluate(&pairs, &|done, all| {
        progress.lock().unwrap_or_else(PoisonError::into_inner).set(done as u64, all as u64);
    })?;
    drop(progress);
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
