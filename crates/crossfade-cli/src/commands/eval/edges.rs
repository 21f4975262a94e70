//! `crossfade eval edges`.
use crate::context::Context;
use anyhow::{Result, bail};
use clap::Subcommand;

/// The verbs of this family.
#[derive(Debug, Subcommand)]
pub enum EdgesCommand {
    /// Not there yet
    Edges,
}

/// Measures.
pub fn run(command: &EdgesCommand, _context: &Context) -> Result<()> {
    bail!("{command:?} is not there yet")
}
