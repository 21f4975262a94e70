//! `crossfade weights`.
use crate::context::Context;
use crate::download::{fetch, read};
use crate::output::bytes;
use anyhow::{Context as _, Result};
use clap::Subcommand;
use crossfade::digest::sha256_file;
use crossfade::error::Shown;
use crossfade::metrics::features::registry::{ENTRIES, Entry, cache_directory};
use serde_json::json;
use std::path::{Path, PathBuf};

/// Download the pretrained weights that metrics need
#[derive(Debug, Subcommand)]
pub enum WeightsCommand {
    /// Download weights into the cache; a file with the wrong SHA-256 is rejected
    #[command(after_help = "Examples:
  crossfade weights get inception
  crossfade weights get inception --from Downloads/pt_inception-2015-12-05-6726825d.pth

The cache is the directory CROSSFADE_CACHE, or `crossfade` in the platform's cache directory.")]
    Get {
        /// Name of the weights (see `weights list`)
        name: String,

        /// Use this file, downloaded by other means, instead of downloading with curl
        #[arg(long, value_name = "FILE")]
        from: Option<PathBuf>,
    },
    /// List the known weights and whether they are in the cache
    List,
}

/// Runs a `weights` command.
pub fn run(command: &WeightsCommand, context: &Context) -> Result<()> {
    match command {
        WeightsCommand::Get { name, from } => get(Entry::named(name)?, from.as_deref(), context),
        WeightsCommand::List => list(context),
    }
}

fn get(entry: &Entry, from: Option<&Path>, context: &Context) -> Result<()> {
    let path = entry.path()?;
    if path.is_file() && sha256_file(&path)? == entry.sha256 {
        let text = format!("{} is already in the cache: {}", entry.name, path.shown());
        return context
            .print(text, json!({ "name": entry.name, "path": path.to_string_lossy(), "sha256": entry.sha256 }));
    }
    let fetched = match from {
        Some(file) => read(file, entry.bytes)?,
        None => {
            context.note(format_args!("downloading {} ({})", entry.url, bytes(entry.bytes)));
            let by_hand = entry.by_hand()?;
            fetch(entry.url, entry.bytes, context)
                .with_context(|| format!("{} could not be downloaded; {by_hand}", entry.file))?
        }
    };
    let path = entry.store(&fetched)?;
    let text = format!("{}: {}", entry.name, path.shown());
    context.print(text, json!({ "name": entry.name, "path": path.to_string_lossy(), "sha256": entry.sha256 }))
}

fn list(context: &Context) -> Result<()> {
    let (mut text, mut all) = (format!("cache: {}\n", cache_directory()?.shown()), vec![]);
    for entry in ENTRIES {
        let cached = entry.path()?.is_file();
        let place = if cached { "in the cache" } else { "not in the cache" };
        text += &format!("{}  {}, {}; for {}\n", entry.name, place, bytes(entry.bytes), entry.purpose);
        text += &format!("  {}\n  sha256 {}\n", entry.url, entry.sha256);
        all.push(json!({ "name": entry.name, "purpose": entry.purpose, "file": entry.path()?.to_string_lossy(), "url": entry.url,
            "sha256": entry.sha256, "bytes": entry.bytes, "cached": cached }));
    }
    context.print(text, json!(all))
}
