//! `crossfade weights`.
use crate::context::Context;
use crate::output::bytes;
use anyhow::{Context as _, Result};
use clap::Subcommand;
use crossfade::metrics::features::registry::{ENTRIES, Entry, cache_directory, sha256};
use serde_json::json;
use std::io::Read;
use std::time::Duration;

/// What can be done with the weights that metrics need.
#[derive(Debug, Subcommand)]
pub enum WeightsCommand {
    /// Fetch weights into the cache; they are kept only if their SHA-256 is the known one
    #[command(after_help = "Example:
  crossfade weights get inception

The cache is CROSSFADE_CACHE, or `crossfade` in the platform's directory for caches.")]
    Get {
        /// Which ones; `weights list` shows them
        name: String,
    },
    /// Show what weights there are and which of them are in the cache
    List,
}

/// Runs a `weights` command.
pub fn run(command: &WeightsCommand, context: &Context) -> Result<()> {
    match command {
        WeightsCommand::Get { name } => get(Entry::named(name)?, context),
        WeightsCommand::List => list(context),
    }
}

fn get(entry: &Entry, context: &Context) -> Result<()> {
    let path = entry.path()?;
    if path.is_file() && sha256(&path)? == entry.sha256 {
        let text = format!("{} is there already: {}", entry.name, path.display());
        return context.print(text, json!({ "name": entry.name, "path": path, "sha256": entry.sha256 }));
    }
    context.note(format_args!("fetching {} ({})", entry.url, bytes(entry.bytes)));
    let failed = || -> Result<String> { Ok(format!("{} was not fetched; {}", entry.file, entry.by_hand()?)) };
    let fetched = match fetch(entry, context) {
        Ok(fetched) => fetched,
        Err(error) => return Err(error).context(failed()?),
    };
    let path = entry.store(&fetched)?;
    let text = format!("{}: {}", entry.name, path.display());
    context.print(text, json!({ "name": entry.name, "path": path, "sha256": entry.sha256 }))
}

fn fetch(entry: &Entry, context: &Context) -> Result<Vec<u8>> {
    let config = ureq::Agent::config_builder().timeout_connect(Some(Duration::from_secs(20))).build();
    let mut response = ureq::Agent::new_with_config(config).get(entry.url).call()?;
    let mut progress = context.progress("bytes", entry.bytes);
    // One byte more than expected tells that the file is another.
    let mut reader = response.body_mut().as_reader().take(entry.bytes + 1);
    let (mut fetched, mut block) = (Vec::with_capacity(entry.bytes as usize), vec![0; 1 << 16]);
    loop {
        match reader.read(&mut block)? {
            0 => return Ok(fetched),
            n => fetched.extend_from_slice(&block[..n]),
        }
        progress.set(fetched.len() as u64, entry.bytes);
    }
}

fn list(context: &Context) -> Result<()> {
    let (mut text, mut all) = (format!("cache: {}\n", cache_directory()?.display()), vec![]);
    for entry in ENTRIES {
        let cached = entry.path()?.is_file();
        let place = if cached { "in the cache" } else { "not in the cache" };
        text += &format!("{}  {}, {}; for {}\n", entry.name, place, bytes(entry.bytes), entry.purpose);
        text += &format!("  {}\n  sha256 {}\n", entry.url, entry.sha256);
        all.push(json!({ "name": entry.name, "purpose": entry.purpose, "file": entry.path()?, "url": entry.url,
            "sha256": entry.sha256, "bytes": entry.bytes, "cached": cached }));
    }
    context.print(text, json!(all))
}
