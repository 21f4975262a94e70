//! The command `crossfade`: reads the command line, runs one verb, prints errors.
mod cli;
mod commands;
mod context;
mod jobs;
mod output;
mod progress;

use clap::Parser;
use commands::train::Stopped;
use std::io::Write;
use std::process::ExitCode;
use std::time::Instant;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let began = Instant::now();
    let cli = cli::Cli::parse();
    match commands::run(cli, began) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            print_error(&error);
            ExitCode::from(exit_code(&error))
        }
    }
}

/// Whether whoever read our output has had enough, as `head` does.
fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<std::io::Error>().is_some_and(|e| e.kind() == std::io::ErrorKind::BrokenPipe)
}

/// 2 for a request that can never succeed as it is, 130 for one that was interrupted, 1 for all else.
fn exit_code(error: &anyhow::Error) -> u8 {
    if error.is::<Stopped>() {
        return Stopped::CODE;
    }
    let bad_request = |cause: &&(dyn std::error::Error + 'static)| {
        let error = cause.downcast_ref::<crossfade::Error>();
        matches!(error, Some(crossfade::Error::Request(_) | crossfade::Error::Config(_)))
    };
    if error.chain().any(|cause| bad_request(&cause)) { 2 } else { 1 }
}

/// The error and its causes, line by line.
fn print_error(error: &anyhow::Error) {
    let mut stderr = std::io::stderr().lock();
    let mut said = String::new();
    for (depth, cause) in error.chain().enumerate() {
        let text = cause.to_string();
        // Errors that already quote their cause are not repeated.
        if depth == 0 {
            let _ = writeln!(stderr, "error: {text}");
        } else if !said.ends_with(&text) {
            let _ = writeln!(stderr, "caused by: {text}");
        }
        said = text;
    }
}
