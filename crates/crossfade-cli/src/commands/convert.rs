//! `crossfade convert`.
use super::config::named;
use crate::cli::Weights;
use crate::context::Context;
use anyhow::{Context as _, Result};
use clap::Args;
use crossfade::config::RunConfig;
use crossfade::convert::{self, InferredUnet, Report, Source, infer_unet, map_names, read};
use crossfade::math::Attenuation;
use crossfade::nn::{Decoders, UNetConfig};
use crossfade::{Error, checkpoint};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Options of `convert`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  crossfade convert model-80.pt model.safetensors
  crossfade convert model-80.pt model.safetensors --network configs/cifar10-const2.toml

Weights do not tell how the noise rises, nor dropout, nor the scaling of skip connections: unless a
configuration says otherwise, sigma = sqrt(t), 0.1 and none are taken.")]
pub struct ConvertArgs {
    /// The checkpoint: .pt, .pth or .ckpt of PyTorch, or safetensors
    #[arg(value_name = "IN")]
    input: PathBuf,

    /// The checkpoint to write, a safetensors file
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
    config.network = UNetConfig {
        resolution: net.resolution,
        channels: net.channels,
        width: net.width,
        mult: net.mult,
        blocks: net.blocks,
        attention: net.attention,
        decoders: if net.two_decoders { Decoders::Two } else { Decoders::One },
        augment_dim: net.augment_dim,
        ..UNetConfig::default()
    };
    Ok(config)
}

/// Converts a checkpoint.
pub fn run(args: &ConvertArgs, context: &Context) -> Result<()> {
    let converting = || format!("converting {}", args.input.display());
    if matches!((args.input.canonicalize(), args.output.canonicalize()), (Ok(a), Ok(b)) if a == b) {
        return Err(Error::request("the checkpoint would be overwritten by its own conversion"))
            .with_context(converting);
    }
    let source = read(&args.input, args.weights.into()).with_context(converting)?;
    let config = match &args.network {
        Some(name) => named(name)?,
        None => inferred_config(infer_unet(&source).with_context(converting)?)?,
    };
    let config = config.with_overrides(&args.sets)?;
    config.validate().with_context(converting)?;
    let report = write(source, &args.output, &config).with_context(converting)?;
    context.print(
        format_args!("{report}\n  {} mapped, {} missed", report.mapping.mapped.len(), report.mapping.missed.len()),
        serde_json::to_value(&report)?,
    )
}

/// Writes the weights as a checkpoint that `sample` reads, if they fit the network.
fn write(mut source: Source, output: &Path, config: &RunConfig) -> crossfade::Result<Report> {
    let mapping = map_names(&source, &config.network.parameter_shapes(config.phi_parts()));
    let mut problems = mapping.problems();
    let prefix = if source.weights == convert::Weights::Ema { "ema." } else { "model." };
    let mut dtypes = BTreeMap::new();
    let mut tensors = Vec::new();
    for (from, to) in &mapping.mapped {
        let Some(tensor) = source.tensors.remove(from) else { continue };
        if tensor.data.iter().any(|v| !v.is_finite()) {
            problems.push(format!("not finite: {to}"));
        }
        *dtypes.entry(tensor.dtype.to_string()).or_default() += 1;
        tensors.push((format!("{prefix}{to}"), tensor.shape, tensor.data));
    }
    if !problems.is_empty() {
        let (count, list) = (problems.len(), problems.join("\n  "));
        return Err(Error::request(format!("{count} parameters do not fit the network:\n  {list}")));
    }
    checkpoint::save(output, config, source.step.and_then(|s| s.try_into().ok()).unwrap_or(0), &tensors)?;
    Ok(Report {
        output: output.to_path_buf(),
        weights: source.weights,
        step: source.step,
        tensors: tensors.len(),
        parameters: tensors.iter().map(|(_, _, values)| values.len()).sum(),
        dtypes,
        mapping,
    })
}
