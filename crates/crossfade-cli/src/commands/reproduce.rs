//! `crossfade reproduce`.
use crate::context::Context;
use anyhow::{Result, bail};
use clap::Args;
use crossfade::files::write_atomic;
use crossfade::generate::reproduce;
use serde_json::json;
use std::path::PathBuf;

/// Options of `reproduce`.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  crossfade reproduce pictures/000003.png --out again.png

The file is remade from its own recipe and compared byte for byte (exit code 1 if it differs). On another kind of
processor pixels may differ by rounding.")]
pub struct ReproduceArgs {
    /// A PNG made by `crossfade sample`
    #[arg(value_name = "IMAGE.png")]
    pub image: PathBuf,

    /// The checkpoint, if it is not beside the image or one level up; its weights must be the same
    #[arg(long, value_name = "FILE")]
    pub checkpoint: Option<PathBuf>,

    /// Also write the PNG here
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}

/// Makes an image again.
pub fn run(args: &ReproduceArgs, context: &Context) -> Result<()> {
    let again = reproduce(&args.image, args.checkpoint.as_deref(), &context.device)?;
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
        "the picture came out differently; it was made by version {} or on another kind of processor",
        again.recipe.version
    )
}
