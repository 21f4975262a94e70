//! `crossfade config`.
use super::sample::open;
use crate::cli::Overrides;
use crate::context::Context;
use crate::output::{bytes, thousands};
use anyhow::Result;
use clap::Subcommand;
use crossfade::Error;
use crossfade::config::{AutoencoderRun, RunConfig, Sizes, is_autoencoder, read_text};
use crossfade::error::Shown;
use crossfade::models;
use crossfade::nn::{BackboneConfig, Decoders, NetworkPorts, PRESETS, UNetConfig, preset};
use serde_json::json;
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// Show, list and check configurations
#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Print a configuration with all defaults filled in, and the size of the run
    #[command(after_help = "Examples:
  crossfade config show configs/tiny.toml --set train.batch=64
  crossfade config show cifar10-two-m192 --set process.attenuation=linear
  crossfade config show runs/tiny                 that of a run's newest checkpoint, with times fitted to it")]
    Show {
        /// Configuration file, name of a network (see `config list`), run directory, checkpoint or
        /// model that ships
        #[arg(value_name = "FILE|PRESET|CHECKPOINT")]
        config: String,
        #[command(flatten)]
        overrides: Overrides,
    },
    /// List the named networks with their exact parameter counts
    List,
    /// Validate configuration files; every problem is printed with its line
    Check {
        /// Configuration files
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
    },
}

/// Runs a `config` command.
pub fn run(command: &ConfigCommand, context: &Context) -> Result<()> {
    match command {
        ConfigCommand::Show { config, overrides } if is_autoencoder_file(config) => {
            let config = overrides.load_autoencoder(Path::new(config))?;
            let parameters = config.autoencoder.parameter_count() as u64;
            let text = format!("{}\n# parameters: {}\n", config.to_toml()?, thousands(parameters));
            context.print(text, json!({ "config": config, "parameters": parameters }))
        }
        ConfigCommand::Show { config, overrides } if is_checkpoint(Path::new(config)) => {
            show(&overrides.apply(open(Path::new(config))?.config)?, context)
        }
        ConfigCommand::Show { config, overrides } => show(&overrides.apply(named(config)?)?, context),
        ConfigCommand::List => list(context),
        ConfigCommand::Check { files } => check(files, context),
    }
}

/// Whether `path` is a run directory, a checkpoint or a model that ships, and not a configuration.
pub fn is_checkpoint(path: &Path) -> bool {
    (models::of(path).is_some() && !path.is_file())
        || path.is_dir()
        || path.extension().is_some_and(|e| e == "safetensors")
}

/// Whether `name` is a configuration file of an autoencoder.
fn is_autoencoder_file(name: &str) -> bool {
    read_text(Path::new(name)).is_ok_and(|text| is_autoencoder(&text))
}

/// The configuration in the file `name`, or the default one with the network called `name`.
pub fn named(name: &str) -> Result<RunConfig> {
    let path = Path::new(name);
    match preset(name) {
        Some(network) if !path.is_file() => Ok(RunConfig { network: network.into(), ..RunConfig::default() }),
        None if !path.exists() && !name.contains(['/', '.']) => Err(Error::request(format!(
            "{name:?} is neither a file nor the name of a network; the networks are {}",
            PRESETS.join(", ")
        ))
        .into()),
        _ => Ok(RunConfig::load(path)?),
    }
}

/// The sizes of a run as TOML comments, so that the output of `show` is itself a valid configuration.
pub fn describe(sizes: &Sizes) -> String {
    let parts = if sizes.phi_parts == 1 { "1 part".into() } else { format!("{} parts", sizes.phi_parts) };
    format!(
        "# parameters: {} (phi has {parts})\n\
         # weights: {}; checkpoint with moving average and optimiser state: {}\n\
         # estimated memory: {} to train, {} to sample\n",
        thousands(sizes.parameters),
        bytes(sizes.weights_bytes),
        bytes(sizes.checkpoint_bytes),
        bytes(sizes.train_bytes),
        bytes(sizes.sample_bytes),
    )
}

fn show(config: &RunConfig, context: &Context) -> Result<()> {
    let sizes = config.sizes();
    let text = format!("{}\n{}", config.to_toml()?, describe(&sizes));
    context.print(text, json!({ "config": config, "sizes": sizes }))
}

/// Parameter counts for one, two and three parts of phi; a network with one decoder allows only one part.
fn counts(network: &UNetConfig) -> Vec<u64> {
    let most = if network.decoders == Decoders::One { 1 } else { 3 };
    (1..=most).map(|parts| network.parameter_count(NetworkPorts::with_phi_parts(parts)) as u64).collect()
}

fn list(context: &Context) -> Result<()> {
    let mut text = format!(
        "{:<17} {:>5} {:>6} {:<12} {:>6} {:<8} {:>15} {:>15} {:>15}\n",
        "network", "size", "width", "levels", "blocks", "decoders", "constant", "2 parts of phi", "3 parts of phi"
    );
    let mut facts = Vec::new();
    for name in PRESETS {
        let Some(network) = preset(name) else { continue };
        let counts = counts(&network);
        let mult: Vec<_> = network.mult.iter().map(ToString::to_string).collect();
        let decoders = serde_json::to_value(network.decoders)?;
        let UNetConfig { resolution, width, blocks, .. } = network;
        let decoders_text = decoders.as_str().unwrap_or_default();
        write!(text, "{name:<17} {resolution:>5} {width:>6} {:<12} {blocks:>6} {decoders_text:<8}", mult.join(","))?;
        for parts in 0..3 {
            write!(text, " {:>15}", counts.get(parts).map_or("-".into(), |n| thousands(*n)))?;
        }
        text.push('\n');
        facts.push(json!({ "name": name, "network": network, "parameters": counts }));
    }
    context.print(text, json!(facts))
}

fn check(files: &[PathBuf], context: &Context) -> Result<()> {
    let (mut good, mut problems) = (Vec::new(), Vec::new());
    for file in files {
        let parameters = read_text(file).and_then(|text| {
            if is_autoencoder(&text) {
                AutoencoderRun::load(file).map(|config| config.autoencoder.parameter_count() as u64)
            } else {
                RunConfig::load(file).and_then(|config| {
                    // What only training refuses is a problem of the file, too: it is written to be trained.
                    config.validate_training().map_err(|error| Error::file(file, error.to_string()))?;
                    Ok(config.sizes().parameters)
                })
            }
        });
        match parameters {
            Ok(parameters) => good.push((file, parameters)),
            Err(Error::Config(found)) => problems.extend(found),
            Err(other) => problems.extend(other.to_string().lines().map(str::to_string)),
        }
    }
    let lines: Vec<_> = good.iter().map(|(f, n)| format!("{}: ok, {} parameters", f.shown(), thousands(*n))).collect();
    let facts =
        good.iter().map(|(file, n)| json!({ "file": file.to_string_lossy(), "parameters": n })).collect::<Vec<_>>();
    if !good.is_empty() || context.json {
        context.print(lines.join("\n"), json!({ "ok": facts, "problems": problems }))?;
    }
    if problems.is_empty() { Ok(()) } else { Err(Error::Config(problems).into()) }
}
