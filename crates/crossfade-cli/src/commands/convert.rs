//! `crossfade convert`.
use super::config::named;
use crate::cli::Weights;
use crate::context::Context;
use anyhow::{Context as _, Result};
use clap::Args;
use crossfade::Error;
use crossfade::checkpoint::{autoencoder_metadata, metadata};
use crossfade::config::{AutoencoderRun, RunConfig, is_autoencoder, read_text};
use crossfade::convert::{InferredUnet, convert_source, infer_unet};
use crossfade::math::Attenuation;
use crossfade::torchfile::{Source, read};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Options of `convert`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  crossfade convert model-80.pt model.safetensors
  crossfade convert model-80.pt model.safetensors --network configs/cifar10-const2.toml
  crossfade convert model-60.pt ae.safetensors --network configs/ae-celeba-f4.toml     an autoencoder

Weights do not tell how the noise rises: unless a configuration says so, sigma = sqrt(t) is taken. Dropout and the
scaling of skip connections are not told either.")]
pub struct ConvertArgs {
    /// The checkpoint: .pt, .pth or .ckpt of PyTorch, or safetensors
    #[arg(value_name = "IN")]
    input: PathBuf,

    /// The safetensors file to write
    #[arg(value_name = "OUT")]
    output: PathBuf,

    /// Which copy of the weights to take from a trainer's checkpoint
    #[arg(long, default_value = "ema")]
    weights: Weights,

    /// The network that the weights are for, by name or as a configuration [default: read off the weights]
    #[arg(long, value_name = "PRESET|CONFIG")]
    network: Option<String>,

    /// Change one value of the configuration that is stored with the weights; may be given many times
    #[arg(long = "set", value_name = "SECTION.KEY=VALUE")]
    sets: Vec<String>,
}

/// The configuration that a network read off its weights belongs to, as far as they tell.
fn inferred_config(net: InferredUnet) -> Result<RunConfig> {
    let mut config = RunConfig::default();
    config.process.attenuation = match net.phi_parts {
        1 => Attenuation::Constant,
        2 => Attenuation::Linear,
        3 => Attenuation::Quadratic,
        n => {
            return Err(
                Error::request(format!("no attenuation has {n} parameters; name the network with --network")).into()
            );
        }
    };
    config.network = net.config;
    Ok(config)
}

/// Names and shapes of a network.
type Shapes = Vec<(String, Vec<usize>)>;

/// What the weights are to fit, and the text entries that make them a checkpoint.
fn target(args: &ConvertArgs, source: &Source) -> Result<(Shapes, BTreeMap<String, String>)> {
    let step = source.step.unwrap_or(0).max(0) as u64;
    let file = args.network.as_deref().map(Path::new).filter(|path| path.is_file());
    if let Some(path) = file
        && is_autoencoder(&read_text(path)?)
    {
        let run = AutoencoderRun::load(path)?.with_overrides(&args.sets)?;
        return Ok((run.autoencoder.parameter_shapes(), autoencoder_metadata(&run, step)?));
    }
    let config = match &args.network {
        Some(name) => named(name)?,
        None => inferred_config(infer_unet(source)?)?,
    };
    let config = config.with_overrides(&args.sets)?;
    config.validate()?;
    if config.latent.is_some() {
        let problem = "a network on latents needs its autoencoder in the same file; convert the autoencoder alone, \
                       with a configuration that has an [autoencoder] section";
        return Err(Error::request(problem).into());
    }
    let expected = match &config.condition {
        Some(network) => network.state_shapes(config.ends()),
        None => config.network.parameter_shapes(config.ends()),
    };
    Ok((expected, metadata(&config, step)?))
}

/// Converts a checkpoint.
pub fn run(args: &ConvertArgs, context: &Context) -> Result<()> {
    let converting = || format!("converting {}", args.input.display());
    if args.output.exists() && same_file(&args.input, &args.output) {
        return Err(Error::request("the checkpoint would be overwritten by its own conversion"))
            .with_context(converting);
    }
    let source = read(&args.input, args.weights.into()).with_context(converting)?;
    let (expected, metadata) = target(args, &source).with_context(converting)?;
    let metadata: Vec<_> = metadata.into_iter().collect();
    let report = convert_source(&source, &args.output, &expected, &metadata).with_context(converting)?;
    context.print(
        format_args!("{report}\n  {} mapped, {} missed", report.mapping.mapped.len(), report.mapping.missed.len()),
        serde_json::to_value(&report)?,
    )
}

fn same_file(a: &Path, b: &Path) -> bool {
    matches!((a.canonicalize(), b.canonicalize()), (Ok(a), Ok(b)) if a == b)
}
