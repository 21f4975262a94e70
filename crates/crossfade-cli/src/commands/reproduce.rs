//! `crossfade reproduce`.
use crate::context::Context;
use anyhow::{Result, bail};
use clap::Args;
use crossfade::files::write_atomic;
use crossfade::generate::reproduce;
use serde_json::json;
use std::path::PathBuf;

/// Regenerate an image from the settings stored in its PNG, and compare
#[derive(Debug, Args)]
#[command(after_help = "Example:
  crossfade reproduce pictures/000003.png --out again.png

The image is generated again and compared byte for byte; the exit code is 1 if it differs. On a
processor with other vector instructions pixels may differ by rounding.")]
pub struct ReproduceArgs {
    /// PNG written by `crossfade sample`
    #[arg(value_name = "IMAGE.png")]
    pub image: PathBuf,

    /// Checkpoint with the same weights [default: searched for beside the image, one level up and
    /// among the models that ship]
    #[arg(long, value_name = "FILE")]
    pub checkpoint: Option<PathBuf>,

    /// Checkpoint of the network that guided the image [default: searched for as the checkpoint]
    #[arg(long, value_name = "FILE")]
    pub guide: Option<PathBuf>,

    /// Also write the regenerated PNG to this file
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}

/// Regenerates the image.
pub fn run(args: &ReproduceArgs, context: &Context) -> Result<()> {
    let again = reproduce(&args.image, args.checkpoint.as_deref(), args.guide.as_deref(), &context.device)?;
    if let Some(out) = &args.out {
        write_atomic(out, &again.png)?;
    }
    let verdict = if again.identical { "identical, byte for byte" } else { "NOT identical" };
    let text = format!("{}: {verdict}\n{}", args.image.display(), serde_json::to_string_pretty(&again.recipe)?);
    context.print(text, json!({ "identical": again.identical, "recipe": again.recipe }))?;
    if again.identical {
        return Ok(());
    }
    bail!(
        "the regenerated image differs; the original was made by version {}, maybe on another kind of processor",
        again.recipe.version
    )
}
