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
use crossfade::error::Shown;
use crossfade::limits::STEPS;
use crossfade::math::{Adm, Attenuation};
use crossfade::nn::BackboneConfig;
use crossfade::torchfile::{Source, read};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Convert a PyTorch checkpoint of the reference implementation, without executing any code in it
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  crossfade convert model-80.pt model.safetensors
  crossfade convert model-80.pt model.safetensors --network configs/cifar10-const2.toml
  crossfade convert model-60.pt ae.safetensors --network configs/ae-celeba-f4.toml   an autoencoder

The weights do not contain the noise schedule, dropout or the scaling of skip connections.
Without a configuration the defaults are used, with sigma = sqrt(t).")]
pub struct ConvertArgs {
    /// Checkpoint to read: a PyTorch .pt, .pth or .ckpt file, or safetensors
    #[arg(value_name = "IN")]
    input: PathBuf,

    /// Safetensors file to write
    #[arg(value_name = "OUT")]
    output: PathBuf,

    /// Which copy of the weights to read from a training checkpoint
    #[arg(long, default_value = "ema")]
    weights: Weights,

    /// Network of the weights, as a name or a configuration file [default: inferred from the shapes of the weights]
    #[arg(long, value_name = "PRESET|CONFIG")]
    network: Option<String>,

    /// Override one value of the configuration that is stored with the weights; repeatable
    #[arg(long = "set", value_name = "SECTION.KEY=VALUE")]
    sets: Vec<String>,
}

/// The default configuration with the network that was inferred from the weights.
fn inferred_config(net: InferredUnet) -> Result<RunConfig> {
    let mut config = RunConfig::default();
    let attenuation = match net.phi_parts {
        1 => Attenuation::Constant,
        2 => Attenuation::Linear,
        3 => Attenuation::Quadratic,
        n => {
            return Err(Error::request(format!(
                "the phi head has {n} parts, which fits no attenuation; name the network with --network"
            ))
            .into());
        }
    };
    config.process = Adm { attenuation, ..Adm::default() }.into();
    config.network = net.config.into();
    Ok(config)
}

/// Names and shapes of a network's parameters.
type Shapes = Vec<(String, Vec<usize>)>;

/// The parameters that the weights must match, and the metadata that turns the file into a checkpoint.
fn target(args: &ConvertArgs, source: &Source) -> Result<(Shapes, BTreeMap<String, String>)> {
    let step = source.step.unwrap_or(0).max(0) as u64;
    STEPS.check(step).map_err(|why| Error::file(&args.input, format!("its step: {why}")))?;
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
        let problem = "a network on latents needs its autoencoder in the same file, which convert cannot write; convert \
                       the autoencoder alone, with --network and a configuration that has an [autoencoder] section";
        return Err(Error::request(problem).into());
    }
    Ok((config.network.state_shapes(config.ports()), metadata(&config, step)?))
}

/// Converts the checkpoint.
pub fn run(args: &ConvertArgs, context: &Context) -> Result<()> {
    let converting = || format!("converting {}", args.input.shown());
    if args.output.exists() && same_file(&args.input, &args.output) {
        return Err(Error::request("IN and OUT are the same file; choose another OUT")).with_context(converting);
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
