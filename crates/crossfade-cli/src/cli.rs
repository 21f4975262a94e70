//! The command line: the global options and what several verbs share. The verbs are listed in `commands/mod.rs`.
use crate::commands::Command;
use clap::builder::{PossibleValue, PossibleValuesParser};
use clap::{Args, Parser, ValueEnum};
use crossfade::sample::Sampler;
use std::path::PathBuf;

/// Train, sample and compare few-step image diffusion models
#[derive(Debug, Parser)]
#[command(name = "crossfade", version, arg_required_else_help = true)]
#[command(after_help = "Exit codes:
  0    success
  1    failure
  2    invalid request: an unknown option or name, or a configuration that cannot work
  130  interrupted: `sweep` and `compare`, which the same command continues, or any verb that was
       interrupted twice")]
pub struct Cli {
    #[command(flatten)]
    pub global: Global,

    /// Print what is read of untrusted files at most, and exit
    #[arg(long)]
    pub limits: bool,

    #[command(subcommand)]
    pub command: Option<Command>,
}

/// Options of every verb.
#[derive(Debug, Args)]
pub struct Global {
    /// Number of CPU threads [default: all cores]
    #[arg(long, global = true, help_heading = "Global options", value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: Option<u16>,

    /// Device to compute on: cpu, or cuda, rocm, metal or vulkan with an optional :INDEX, if compiled in. Several with commas
    /// between them share the work, as ranks of mpirun do
    #[arg(
        long,
        global = true,
        help_heading = "Global options",
        value_name = "NAME",
        value_delimiter = ',',
        default_value = "cpu"
    )]
    pub device: Vec<String>,

    /// Print results as JSON on standard output; progress still goes to standard error
    #[arg(long, global = true, help_heading = "Global options")]
    pub json: bool,

    /// Print only results and errors, no progress and no notes
    #[arg(long, short, global = true, help_heading = "Global options")]
    pub quiet: bool,
}

/// Options of verbs that read a configuration file.
#[derive(Debug, Args)]
pub struct Overrides {
    /// Override one value of the configuration, for example train.batch=64; repeatable. VALUE is TOML, a bare word is a
    /// string
    #[arg(long = "set", value_name = "SECTION.KEY=VALUE")]
    pub sets: Vec<String>,

    /// Directory that relative data paths start from [default: the current directory]
    #[arg(long, value_name = "DIR", value_parser = text_path)]
    pub data_root: Option<PathBuf>,
}

/// The two copies of the weights that a checkpoint holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Weights {
    /// Exponential moving average of the weights: better images
    Ema,
    /// Weights as the optimiser left them
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

/// Value parser that accepts the names in `all` and lists them in errors, help and completions.
pub fn one_of(all: impl IntoIterator<Item = impl Into<PossibleValue>>) -> PossibleValuesParser {
    PossibleValuesParser::new(all)
}

/// Names of the samplers; the names of k-diffusion and diffusers are accepted too.
pub fn samplers() -> impl Iterator<Item = PossibleValue> {
    Sampler::ALL.iter().map(|s| PossibleValue::new(s.name()).aliases(s.aliases()))
}

/// Names of the samplers, and `auto` for the default of the process.
pub fn sampler_names() -> impl Iterator<Item = PossibleValue> {
    ["auto".into()].into_iter().chain(samplers())
}

/// Value parser for a path that becomes part of a configuration, which is UTF-8 text; other bytes are refused before the work.
pub fn text_path(text: &str) -> Result<PathBuf, std::convert::Infallible> {
    Ok(text.into())
}

/// Value parser for a number from 0 to 1.
pub fn unit_interval(text: &str) -> Result<f64, String> {
    let value = text.parse().ok().filter(|value| (0.0..=1.0).contains(value));
    value.ok_or_else(|| "expected a number from 0 to 1".into())
}

/// Value parser for a finite number above 0.
pub fn positive(text: &str) -> Result<f64, String> {
    let value: f64 = text.parse().map_err(|_| "expected a number".to_string())?;
    if value > 0.0 && value.is_finite() { Ok(value) } else { Err("expected a positive number".into()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn names_of_k_diffusion_and_diffusers_are_accepted() {
        for (name, sampler) in [
            ("euler_ancestral", Sampler::Ancestral),
            ("dpmpp_3m_sde", Sampler::Dpmpp3MSde),
            ("sample_lms", Sampler::Lms),
            ("Euler a", Sampler::Ancestral),
            ("DPM++ 2M SDE", Sampler::Dpmpp2MSde),
            ("EulerDiscreteScheduler", Sampler::Ddim),
            ("EulerAncestralDiscreteScheduler", Sampler::Ancestral),
            ("LMSDiscreteScheduler", Sampler::Lms),
            ("HeunDiscreteScheduler", Sampler::Heun),
            ("DPMSolverMultistepScheduler", Sampler::Dpmpp2M),
            ("DPMSolverSDEScheduler", Sampler::DpmppSde),
            ("UniPCMultistepScheduler", Sampler::UniPc),
        ] {
            assert!(Cli::try_parse_from(["crossfade", "sample", "run", "--sampler", name, "--out", "x"]).is_ok());
            assert!(Cli::try_parse_from(["crossfade", "lab", "--samplers", name]).is_ok());
            assert_eq!(Sampler::parse(name).unwrap(), sampler);
        }
        assert!(Cli::try_parse_from(["crossfade", "sample", "run", "--sampler", "dpmpp_4m", "--out", "x"]).is_err());
    }

    /// A doc comment that is missing on an option or a verb would leave an empty line in the help.
    #[test]
    fn every_verb_and_option_is_described() {
        fn check(command: &clap::Command, path: &str) {
            let path = format!("{path} {}", command.get_name());
            assert!(command.get_about().is_some(), "{path}: the options' type needs a doc comment");
            for arg in command.get_arguments() {
                assert!(arg.get_help().is_some(), "{path} {}: needs a doc comment", arg.get_id());
            }
            command.get_subcommands().for_each(|sub| check(sub, &path));
        }
        check(&Cli::command(), "");
    }
}
