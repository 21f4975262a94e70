//! `crossfade models`.
use crate::cli::{Weights, one_of};
use crate::context::Context;
use crate::download::{fetch, read};
use crate::output::{bytes, thousands};
use anyhow::{Context as _, Result};
use clap::{Args, Subcommand};
use crossfade::checkpoint::Packed;
use crossfade::error::Shown;
use crossfade::files::write_atomic;
use crossfade::models::{self, Content, Model};
use crossfade::tensorfile::Element;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// List the models that ship, show their cards, fetch or make them
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
#[command(after_help = "Examples:
  crossfade models
  crossfade models show emoji
  crossfade models get cifar10
  crossfade models pack runs/emoji models/emoji.safetensors

A name stands wherever a checkpoint is asked for, unless a file of that name exists. The default model
of each task is part of the program; other models are looked for in the directory CROSSFADE_MODELS, in
`models` beside the program or up to two levels above it, and in the data directory. The SHA-256 of every
model is verified before it is used.")]
pub struct ModelsArgs {
    #[command(subcommand)]
    command: Option<ModelsCommand>,
}

/// What to do with a model.
#[derive(Debug, Subcommand)]
enum ModelsCommand {
    /// List the models (the default)
    List,
    /// Print the card of a model: data and licences, training, quality, what it is for and not for
    Show {
        /// Name of the model
        name: String,
    },
    /// Fetch a model that is not on this machine, or write any model to a file
    Get {
        /// Name of the model
        name: String,

        /// Use this file, fetched by other means, instead of downloading with curl
        #[arg(long, value_name = "FILE")]
        from: Option<PathBuf>,

        /// Write the model to this file instead of the data directory
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
    },
    /// Write a trained checkpoint as a model that ships: averaged weights in half the space, no optimiser state
    #[command(after_help = "Examples:
  crossfade models pack runs/emoji models/emoji.safetensors
  crossfade models pack runs/sr models/sr-x4.safetensors --set sample.steps=1
  crossfade models pack runs/emoji models/emoji.safetensors --dtype bf16 --set sample.guidance=1.5

The file holds what sampling needs: weights, configuration without directories, class names, mean image,
fitted times, and the autoencoder of a network on latents. The same checkpoint gives the same bytes.")]
    Pack {
        /// Run directory or checkpoint
        #[arg(value_name = "CHECKPOINT")]
        checkpoint: PathBuf,

        /// File to write
        #[arg(value_name = "FILE.safetensors")]
        out: PathBuf,

        /// Which copy of the checkpoint's weights to use
        #[arg(long, default_value = "ema")]
        weights: Weights,

        /// Type of the numbers of matrices and convolutions; vectors stay f32
        #[arg(long, value_name = "TYPE", default_value = "f16", value_parser = one_of(Element::ALL.map(Element::name)))]
        dtype: String,

        /// Change a value of the section [sample], which holds the model's defaults, for example sample.steps=10; repeatable
        #[arg(long = "set", value_name = "sample.KEY=VALUE")]
        sets: Vec<String>,
    },
}

/// Runs a `models` command.
pub fn run(args: &ModelsArgs, context: &Context) -> Result<()> {
    match &args.command {
        None | Some(ModelsCommand::List) => list(context),
        Some(ModelsCommand::Show { name }) => show(models::named(name)?, context),
        Some(ModelsCommand::Get { name, from, out }) => {
            get(models::named(name)?, from.as_deref(), out.as_deref(), context)
        }
        Some(ModelsCommand::Pack { checkpoint, out, weights, dtype, sets }) => {
            let element = Element::named(dtype).unwrap_or_default();
            let checkpoint = super::sample::open(checkpoint)?;
            let packed = checkpoint.pack(out, (*weights).into(), element, sets)?;
            context.print(describe(&packed), serde_json::to_value(&packed)?)
        }
    }
}

/// Where a model is, in a word or a path.
fn place(model: &Model) -> String {
    match (model.content, model.found()) {
        (Content::Embedded(_), _) => "embedded".into(),
        (_, Some(file)) => file.shown(),
        (Content::File { url: Some(_) }, None) => format!("not here: `crossfade models get {}`", model.name),
        (Content::File { url: None }, None) => "not here".into(),
    }
}

fn facts(model: &Model) -> Value {
    let url = if let Content::File { url } = model.content { url } else { None };
    json!({
        "name": model.name, "task": model.task, "default": model.default, "quality": model.quality,
        "bytes": model.bytes, "sha256": model.sha256, "embedded": model.is_embedded(), "file": model.found().map(|file| file.to_string_lossy().into_owned()), "url": url,
    })
}

fn list(context: &Context) -> Result<()> {
    let all = models::all();
    let mut text = String::new();
    if all.is_empty() {
        text += "no models ship with this program\n";
    }
    let width = all.iter().map(|model| model.name.len()).max().unwrap_or(0);
    for model in all {
        let default = if model.default { ", default" } else { "" };
        let (name, task, size) = (model.name, model.task, bytes(model.bytes));
        let _ = writeln!(text, "{name:width$}  {task}{default}, {size}, {}", place(model));
        let _ = writeln!(text, "{:width$}  {}\n{:width$}  sha256 {}", "", model.quality, "", model.sha256);
    }
    context.print(text, all.iter().map(facts).collect())
}

fn show(model: &Model, context: &Context) -> Result<()> {
    let mut value = facts(model);
    value["card"] = json!(model.card);
    context.print(model.card, value)
}

fn get(model: &Model, from: Option<&Path>, out: Option<&Path>, context: &Context) -> Result<()> {
    let done = |place: String| {
        let text = format!("{}: {place}", model.name);
        context.print(text, json!({ "name": model.name, "place": place, "sha256": model.sha256 }))
    };
    let present = model.is_embedded() || model.found().is_some();
    let fetched = match (from, model.content) {
        (Some(file), _) => Some(read(file, model.bytes)?),
        (None, _) if present => None,
        (None, Content::File { url: Some(url) }) => {
            context.note(format_args!("downloading {url} ({})", bytes(model.bytes)));
            let advice = || format!("{url} could not be downloaded; fetch it by other means and use --from FILE");
            Some(fetch(url, model.bytes, context).with_context(advice)?)
        }
        // `read` says where to put the file.
        (None, _) => Some(model.read()?.into_owned()),
    };
    let stored = fetched.map(|fetched| model.store(&fetched)).transpose()?;
    match (out, stored) {
        (Some(out), _) => {
            write_atomic(out, &model.read()?)?;
            done(out.shown())
        }
        (None, Some(stored)) => done(stored.shown()),
        (None, None) => {
            model.read()?;
            done(place(model))
        }
    }
}

/// What was packed, and the line that registers it.
fn describe(packed: &Packed) -> String {
    let Packed { file, task, bytes: size, sha256, dtype, rounding } = packed;
    let name = file.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    format!(
        "{}: {}, {} numbers as {dtype}\n\
         rounding: largest {:.2e} (in {}), rms {:.2e}, which is {:.2e} of the rms of the numbers\n\
         sha256 {sha256}\n\
         to ship it, write its card {} and add this line to crates/crossfade-cli/src/models.rs:\n  \
         embedded!({name:?}, {task:?}, default: false, {sha256:?}, \"QUALITY IN ONE LINE\"),",
        file.shown(),
        bytes(*size),
        thousands(rounding.numbers),
        rounding.largest,
        if rounding.largest_in.is_empty() { "none" } else { &rounding.largest_in },
        rounding.rms,
        rounding.relative_rms,
        file.with_extension("md").shown(),
    )
}
