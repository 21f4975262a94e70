//! `crossfade eval ttest`.
use crate::context::Context;
use anyhow::{Result, bail};
use clap::Subcommand;

/// The verbs of this family.
#[derive(Debug, Subcommand)]
pub enum StatisticsCommand {
    /// Not there yet
    Ttest,
}

/// Measures.
pub fn run(command: &StatisticsCommand, _context: &Context) -> Result<()> {
    bail!("{command:?} is not there yet")
}
