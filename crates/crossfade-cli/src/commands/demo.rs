//! `crossfade demo`.
use crate::context::Context;
use anyhow::{Result, bail};
use clap::Args;
use std::path::PathBuf;

/// Options of `demo`.
#[derive(Debug, Args)]
#[command(after_help = "Needs no files and no network: the images it learns from are drawn on the fly.")]
pub struct DemoArgs {
    /// Directory for the run, its samples and the comparison
    #[arg(long, value_name = "DIR", default_value = "crossfade-demo")]
    pub out: PathBuf,

    /// About how long to train
    #[arg(long, value_name = "M", default_value_t = 3.0, value_parser = minutes)]
    pub minutes: f64,
}

fn minutes(text: &str) -> Result<f64, String> {
    let value: f64 = text.parse().map_err(|_| "expected a number of minutes".to_string())?;
    if (0.01..=10_000.0).contains(&value) { Ok(value) } else { Err("expected 0.01 to 10000 minutes".into()) }
}

/// Shows the whole path.
pub fn run(_args: &DemoArgs, _context: &Context) -> Result<()> {
    bail!("the demonstration is not available yet")
}
