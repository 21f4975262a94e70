//! Reproducible images: every PNG contains the settings that it was made with as a text chunk.
use super::{GuideRecipe, Pipeline, StartNoise};
use crate::checkpoint::{Checkpoint, Weights};
use crate::config::{RunConfig, SampleConfig};
use crate::data::{Image, png_text};
use crate::engine::Device;
use crate::error::{Error, Result};
use crate::limits;
use crate::models;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// The keyword of the PNG text chunk.
const KEYWORD: &str = "crossfade";

/// Everything that an image depends on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recipe {
    /// The tool's version.
    pub version: String,
    /// The file name of the checkpoint, without its directory.
    pub checkpoint: String,
    /// Checksum of its weights.
    pub checksum: String,
    /// Which weights of the checkpoint were used.
    pub weights: Weights,
    /// The network that guided it, if another one did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guide: Option<GuideRecipe>,
    /// The sampling settings; the class is that of this image.
    pub sample: SampleConfig,
    /// The seed.
    pub seed: u64,
    /// The starting noise.
    pub start: StartNoise,
}

/// A reproduced image.
#[derive(Clone, Debug)]
pub struct Reproduced {
    /// The bytes of the PNG file.
    pub png: Vec<u8>,
    /// Whether they are equal to those of the original file.
    pub identical: bool,
    /// The recipe.
    pub recipe: Recipe,
}

impl Recipe {
    /// The recipe of one image that `pipeline` makes of the weights of `checkpoint`.
    pub fn new(
        checkpoint: &Checkpoint,
        weights: Weights,
        pipeline: &Pipeline,
        seed: u64,
        start: StartNoise,
    ) -> Result<Self> {
        let name = checkpoint.path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        Ok(Self {
            version: env!("CARGO_PKG_VERSION").into(),
            checkpoint: name,
            checksum: checkpoint.checksum.clone(),
            weights,
            guide: pipeline.guide.as_ref().map(|guide| guide.recipe.clone()),
            sample: pipeline.sample_config_of(seed, start)?,
            seed,
            start,
        })
    }

    /// Encodes `image` as a PNG that contains this recipe.
    pub fn png(&self, image: &Image) -> Result<Vec<u8>> {
        let text = serde_json::to_string(self).map_err(|e| Error::Run(e.to_string()))?;
        image.encode_png(&[(KEYWORD, &text)])
    }

    /// Reads the recipe of a PNG file; also returns the bytes of the file.
    pub fn read(path: &Path) -> Result<(Self, Vec<u8>)> {
        let (text, bytes) = stored_text(path, KEYWORD)?;
        let text = text.ok_or_else(|| Error::file(path, "contains no crossfade recipe; was it edited or re-saved?"))?;
        let recipe = serde_json::from_str(&text)
            .map_err(|e| Error::file(path, format!("its recipe is of another version or damaged: {e}")))?;
        Ok((recipe, bytes))
    }
}

/// How the PNG of a task tells about its making: the keyword and the text of a chunk. The settings of the sampler are resolved.
pub fn task_recipe(
    checkpoint: &Checkpoint,
    kind: &str,
    seed: u64,
    sample: &SampleConfig,
    evaluations: usize,
) -> (&'static str, String) {
    let recipe = serde_json::json!({
        "version": env!("CARGO_PKG_VERSION"), "task": kind, "checksum": checkpoint.checksum, "seed": seed,
        "sample": sample, "evaluations": evaluations,
    });
    ("crossfade-task", recipe.to_string())
}

/// Reproduces the image in `path`. Without `checkpoint`, the checkpoint is searched for beside the image, one level up and among
/// the models that ship, and so is the network that guided it without `guide`.
pub fn reproduce(path: &Path, checkpoint: Option<&Path>, guide: Option<&Path>, device: &Device) -> Result<Reproduced> {
    let (recipe, original) = Recipe::read(path)?;
    let checkpoint = opened(path, checkpoint, (&recipe.checkpoint, &recipe.checksum), "--checkpoint")?;
    // The file may have been edited, so the recipe is validated like user input.
    let run = RunConfig { sample: recipe.sample.clone(), ..checkpoint.config.clone() };
    run.validate().map_err(|e| Error::file(path, format!("its recipe is invalid: {e}")))?;
    let mut pipeline = Pipeline::open(&checkpoint, recipe.weights, &recipe.sample, device)?;
    if let Some(of) = &recipe.guide {
        pipeline = pipeline.guided_by(&opened(path, guide, (&of.checkpoint, &of.checksum), "--guide")?, of.weights)?;
    }
    let sampled = pipeline.sample(recipe.seed, &[recipe.start], &mut |_| ())?;
    let image =
        pipeline.pictures(sampled.x0.0)?.pop().ok_or_else(|| Error::Run("the sampler returned no image".into()))?;
    let png = recipe.png(&image)?;
    Ok(Reproduced { identical: png == original, png, recipe })
}

/// How much a picture is like the one that was made again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Likeness {
    /// All pixels are equal.
    SamePixels,
    /// They differ by rounding: by at most this many of 255 levels.
    Near(u8),
    /// It is another picture.
    Other,
}

/// The largest difference that other vector instructions make; few steps amplify rounding little.
const NEAR: u8 = 8;

/// Compares the picture in `path` with the PNG that was made again, which is not the same file.
pub fn likeness(path: &Path, again: &[u8]) -> Result<Likeness> {
    let (a, b) = (Image::read(path)?, Image::decode(again, path)?);
    if (a.width, a.height, a.channels) != (b.width, b.height, b.channels) {
        return Ok(Likeness::Other);
    }
    Ok(match a.pixels.iter().zip(&b.pixels).map(|(a, b)| a.abs_diff(*b)).max().unwrap_or(0) {
        0 => Likeness::SamePixels,
        levels @ 1..=NEAR => Likeness::Near(levels),
        _ => Likeness::Other,
    })
}

/// The text of a PNG file with this keyword, if it has one, and the bytes of the file.
pub(super) fn stored_text(path: &Path, keyword: &str) -> Result<(Option<String>, Vec<u8>)> {
    let bytes = limits::read(path, &limits::IMAGE_FILE)?;
    let text = png_text(&bytes, path)?.into_iter().find(|(key, _)| key == keyword).map(|(_, text)| text);
    Ok((text, bytes))
}

/// The checkpoint of an image's recipe, which has this name and checksum: the given one, or one near the image.
///
/// Recipes contain no paths, which would reveal the directories of the machine, but a checksum of the weights.
pub(super) fn opened(
    picture: &Path,
    given: Option<&Path>,
    (name, checksum): (&str, &str),
    option: &str,
) -> Result<Checkpoint> {
    let file = given.map_or_else(|| find(picture, name, "checkpoint", option), |file| Ok(file.to_path_buf()))?;
    let checkpoint = Checkpoint::open(&file)?;
    if checkpoint.checksum != checksum {
        let found = &checkpoint.checksum;
        let problem = format!("holds other weights (checksum {found}) than the picture's ({checksum})");
        return Err(Error::file(&file, problem));
    }
    Ok(checkpoint)
}

/// Searches for the checkpoint or picture `name` near the image.
pub(super) fn find(picture: &Path, name: &str, what: &str, option: &str) -> Result<PathBuf> {
    // A recipe is untrusted input: names with directories (such as `../../file`) are not searched for.
    let plain = Path::new(name).file_name().is_some_and(|n| n == name);
    let here = picture.parent().unwrap_or(Path::new("."));
    let near = [here.to_path_buf(), here.join("checkpoints"), here.join(".."), here.join("../checkpoints")];
    let found = near.iter().map(|dir| dir.join(name)).find(|file| plain && file.is_file());
    // A picture of a model that ships names the model, or its file if it was sampled from that.
    let model = models::of(Path::new(name.strip_suffix(".safetensors").unwrap_or(name)));
    let found = found.or_else(|| model.map(|model| PathBuf::from(model.name)));
    found.ok_or_else(|| {
        Error::file(picture, format!("was made with the {what} {name:?}; say where it is with {option}"))
    })
}
