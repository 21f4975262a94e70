//! `crossfade eval psnr`.
use crate::context::Context;
use anyhow::{Result, bail};
use clap::Subcommand;

/// The verbs of this family.
#[derive(Debug, Subcommand)]
pub enum PairsCommand {
    /// Not there yet
    Psnr,
}

/// Measures.
pub fn run(command: &PairsCommand, _context: &Context) -> Result<()> {
    bail!("{command:?} is not there yet")
}
