//! The command `crossfade`: parses the command line, runs one verb, prints errors and sets the exit code.
mod cli;
mod commands;
mod context;
mod download;
mod interrupt;
mod jobs;
mod models;
mod output;
mod progress;
mod ranks;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};
use cli::Cli;
use commands::Command;
use context::{Context, start_threads};
use crossfade::limits;
use interrupt::Stopped;
use std::io::Write;
use std::process::ExitCode;
use std::time::Instant;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let started = Instant::now();
    crossfade::models::install(models::MODELS);
    let cli = Cli::parse();
    let devices = &cli.global.device;
    let own_threads = devices.len() > 1 || cli.command.as_ref().is_some_and(Command::has_own_threads);
    let is_shared = cli.command.as_ref().is_some_and(Command::is_shared);
    let work = |device: &str| {
        let context = Context::new(&cli.global, device, started)?;
        match &cli.command {
            _ if cli.limits => print_limits(&context),
            Some(command) => command.run(&context),
            None => Cli::command().error(ErrorKind::MissingSubcommand, "a verb is missing").exit(),
        }
    };
    let joined = if is_shared { ranks::join() } else { Ok(()) };
    let result =
        joined.and_then(|()| start_threads(cli.global.threads, own_threads)).and_then(|()| match &devices[..] {
            [device] => ranks::together(device, || work(device)),
            several => ranks::on_devices(several, is_shared, work),
        });
    let group = crossfade::ranks::current();
    let rank = (group.size() > 1).then(|| group.rank());
    drop(group);
    ranks::leave();
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            print_error(&error, rank);
            ExitCode::from(exit_code(&error))
        }
    }
}

/// Prints every limit of what is read of files, as `docs/TRUST.md` lists them.
fn print_limits(context: &Context) -> anyhow::Result<()> {
    let width = limits::ALL.iter().map(|limit| limit.name.len()).max().unwrap_or(0);
    let lines = limits::ALL.iter().map(|limit| format!("{:width$}  {}", limit.name, limit.amount()));
    context.print(lines.collect::<Vec<_>>().join("\n"), serde_json::to_value(limits::ALL)?)
}

/// Whether the reader of standard output closed it early, as `head` does: that is no failure.
fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<std::io::Error>().is_some_and(|e| e.kind() == std::io::ErrorKind::BrokenPipe)
}

/// 2 for a request that can never succeed as given, 130 after an interruption, 1 for everything else.
fn exit_code(error: &anyhow::Error) -> u8 {
    if error.is::<Stopped>() {
        return Stopped::CODE;
    }
    let is_invalid_request = |cause: &&(dyn std::error::Error + 'static)| {
        let error = cause.downcast_ref::<crossfade::Error>();
        matches!(error, Some(crossfade::Error::Request(_) | crossfade::Error::Config(_)))
    };
    if error.chain().any(|cause| is_invalid_request(&cause)) { 2 } else { 1 }
}

/// Prints the error and its causes, one a line, and the rank if there are several.
fn print_error(error: &anyhow::Error, rank: Option<usize>) {
    let rank = rank.map_or(String::new(), |rank| format!("rank {rank}: "));
    let (mut lines, mut previous) = (String::new(), String::new());
    for (depth, cause) in error.chain().enumerate() {
        let text = crossfade::error::visible_lines(&cause.to_string()).into_owned();
        if depth == 0 {
            lines += &format!("{rank}error: {text}\n");
        } else if !previous.ends_with(&text) {
            // Some errors end with the text of their cause already; printing that again would only repeat it.
            lines += &format!("{rank}caused by: {text}\n");
        }
        previous = text;
    }
    // One write, so that the lines of several ranks do not mix.
    let _ = std::io::stderr().lock().write_all(lines.as_bytes());
}
