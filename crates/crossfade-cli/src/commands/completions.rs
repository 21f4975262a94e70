//! `crossfade completions`.
use crate::cli::Cli;
use anyhow::Result;
use clap::CommandFactory;
use std::io::Write;

/// Prints the script.
pub fn run(shell: clap_complete::Shell) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "crossfade", &mut script);
    Ok(std::io::stdout().lock().write_all(&script)?)
}
