//! `crossfade completions`.
use crate::cli::Cli;
use crate::context::{Context, write_out};
use anyhow::Result;
use clap::{Args, CommandFactory};

/// Print a completion script for a shell
#[derive(Debug, Args)]
#[command(after_help = "Example:
  crossfade completions bash > ~/.local/share/bash-completion/completions/crossfade")]
pub struct CompletionsArgs {
    /// Shell to write the script for
    #[arg(value_name = "SHELL")]
    shell: clap_complete::Shell,
}

/// Prints the script.
pub fn run(args: &CompletionsArgs, _context: &Context) -> Result<()> {
    // Generated into memory first: clap_complete panics if standard output is closed early, as by `head`.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "crossfade", &mut script);
    write_out(&String::from_utf8(script)?)
}
