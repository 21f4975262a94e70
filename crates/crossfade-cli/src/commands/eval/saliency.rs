//! `crossfade eval saliency`.
use crate::context::Context;
use anyhow::{Result, bail};
use clap::Subcommand;

/// The verbs of this family.
#[derive(Debug, Subcommand)]
pub enum SaliencyCommand {
    /// Not there yet
    Saliency,
}

/// Measures.
pub fn run(command: &SaliencyCommand, _context: &Context) -> Result<()> {
    bail!("{command:?} is not there yet")
}
