//! `crossfade eval fid`.
use crate::context::Context;
use anyhow::{Result, bail};
use clap::Subcommand;

/// The verbs of this family.
#[derive(Debug, Subcommand)]
pub enum FeaturesCommand {
    /// Not there yet
    Fid,
}

/// Measures.
pub fn run(command: &FeaturesCommand, _context: &Context) -> Result<()> {
    bail!("{command:?} is not there yet")
}
