//! `crossfade reproduce`.
use crate::context::Context;
use anyhow::{Result, anyhow, bail};
use clap::Args;
use crossfade::error::{Shown, visible};
use crossfade::files::write_atomic;
use crossfade::generate::{Likeness, likeness, reproduce, reproduce_edit};
use serde_json::json;
use std::path::PathBuf;

/// Regenerate an image from the settings stored in its PNG, and compare
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  crossfade reproduce pictures/000003.png --out again.png
  crossfade reproduce changed.png --checkpoint runs/cifar/checkpoints/step-00020000.safetensors --input photo.png

The image is generated again and compared byte for byte; the exit code is 1 if it differs. On a
processor with other vector instructions pixels may differ by rounding.")]
pub struct ReproduceArgs {
    /// PNG written by `crossfade sample` or `crossfade edit`
    #[arg(value_name = "IMAGE.png")]
    pub image: PathBuf,

    /// Checkpoint with the same weights [default: searched for beside the image, one level up and
    /// among the models that ship]
    #[arg(long, value_name = "FILE")]
    pub checkpoint: Option<PathBuf>,

    /// Checkpoint of the network that guided the image [default: searched for as the checkpoint]
    #[arg(long, value_name = "FILE")]
    pub guide: Option<PathBuf>,

    /// The picture that was edited, and the one of --to after it [default: searched for as the checkpoint]
    #[arg(long, value_name = "FILE", num_args = 1..=2)]
    pub input: Vec<PathBuf>,

    /// Also write the regenerated PNG to this file
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}

/// Regenerates the image.
pub fn run(args: &ReproduceArgs, context: &Context) -> Result<()> {
    let (checkpoint, guide) = (args.checkpoint.as_deref(), args.guide.as_deref());
    let edited = reproduce_edit(&args.image, checkpoint, guide, &args.input, &context.device)?;
    let (identical, png, version, recipe) = match edited {
        Some(again) => (again.identical, again.png, again.recipe.version.clone(), serde_json::to_value(again.recipe)?),
        None if !args.input.is_empty() => bail!("{}: was not edited; leave --input out", args.image.shown()),
        None => {
            let again = reproduce(&args.image, checkpoint, guide, &context.device)?;
            (again.identical, again.png, again.recipe.version.clone(), serde_json::to_value(again.recipe)?)
        }
    };
    if let Some(out) = &args.out {
        write_atomic(out, &png)?;
    }
    let verdict = if identical { "identical, byte for byte" } else { "NOT identical" };
    let text = format!("{}: {verdict}\n{}", args.image.shown(), serde_json::to_string_pretty(&recipe)?);
    context.print(text, json!({ "identical": identical, "recipe": recipe }))?;
    if identical {
        return Ok(());
    }
    let version = visible(&version);
    Err(anyhow!(match likeness(&args.image, &png)? {
        Likeness::SamePixels =>
            "the pixels are the same, but the file is not: it was saved again, or its texts were changed".into(),
        Likeness::Near(levels) => format!(
            "pixels differ by at most {levels} of 255 levels; the original was made by version {version}, maybe on another kind \
             of processor"
        ),
        Likeness::Other if version != env!("CARGO_PKG_VERSION") => format!(
            "the regenerated image is another one: the original was made by version {version}, or it or its recipe was changed"
        ),
        Likeness::Other => "the regenerated image is another one: the picture or its recipe was changed".into(),
    }))
}
