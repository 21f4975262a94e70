//! Pictures that say how they were made: the settings as a text chunk of the PNG, and their reproduction.
use super::{Pipeline, StartNoise};
use crate::checkpoint::{Checkpoint, Weights};
use crate::config::{RunConfig, SampleConfig};
use crate::data::image::MAX_FILE;
use crate::data::{Image, png_text};
use crate::engine::Device;
use crate::error::{Error, Result};
use crate::files::read_limited;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// The keyword of the text chunk.
const KEYWORD: &str = "crossfade";

/// All that a picture depends on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recipe {
    /// The tool's version.
    pub version: String,
    /// File name of the checkpoint.
    pub checkpoint: String,
    /// Checksum of its weights.
    pub checksum: String,
    /// Which weights.
    pub weights: Weights,
    /// How it was sampled.
    pub sample: SampleConfig,
    /// The seed.
    pub seed: u64,
    /// Where it started.
    pub start: StartNoise,
}

/// A picture made again.
#[derive(Clone, Debug)]
pub struct Reproduced {
    /// The file's bytes.
    pub png: Vec<u8>,
    /// Whether they equal the original's.
    pub identical: bool,
    /// How it was made.
    pub recipe: Recipe,
}

impl Recipe {
    /// The recipe of one picture.
    pub fn new(checkpoint: &Checkpoint, weights: Weights, sample: &SampleConfig, seed: u64, start: StartNoise) -> Self {
        let name = checkpoint.path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        Self {
            version: env!("CARGO_PKG_VERSION").into(),
            checkpoint: name,
            checksum: checkpoint.checksum.clone(),
            weights,
            sample: sample.clone(),
            seed,
            start,
        }
    }

    /// `image` as a PNG that carries this recipe.
    pub fn png(&self, image: &Image) -> Result<Vec<u8>> {
        let text = serde_json::to_string(self).map_err(|e| Error::Run(e.to_string()))?;
        image.encode_png(&[(KEYWORD, &text)])
    }

    /// The recipe in a PNG file.
    pub fn read(path: &Path) -> Result<(Self, Vec<u8>)> {
        let bytes = read_limited(path, MAX_FILE)?;
        let texts = png_text(&bytes, path)?;
        let text = texts.into_iter().find(|(key, _)| key == KEYWORD).map(|(_, text)| text);
        let text = text.ok_or_else(|| Error::file(path, "carries no crossfade recipe; was it edited or re-saved?"))?;
        let recipe = serde_json::from_str(&text)
            .map_err(|e| Error::file(path, format!("its recipe is of another version or damaged: {e}")))?;
        Ok((recipe, bytes))
    }
}

/// Makes the picture in `path` again. Without `checkpoint` the file is looked for beside the picture and one level up.
pub fn reproduce(path: &Path, checkpoint: Option<&Path>, device: &Device) -> Result<Reproduced> {
    let (recipe, original) = Recipe::read(path)?;
    let file = match checkpoint {
        Some(file) => file.to_path_buf(),
        None => find(path, &recipe.checkpoint)?,
    };
    let checkpoint = Checkpoint::open(&file)?;
    if checkpoint.checksum != recipe.checksum {
        return Err(Error::file(
            &file,
            format!("holds other weights (checksum {}) than the picture's ({})", checkpoint.checksum, recipe.checksum),
        ));
    }
    // Whoever edited the picture may have written anything.
    let run = RunConfig { sample: recipe.sample.clone(), ..checkpoint.config.clone() };
    run.validate().map_err(|e| Error::file(path, format!("its recipe cannot be followed: {e}")))?;
    let pipeline = Pipeline::open(&checkpoint, recipe.weights, &recipe.sample, device)?;
    let sampled = pipeline.sample(recipe.seed, &[recipe.start], &mut |_| ())?;
    let image = pipeline.decode(sampled.x0.0).pop().ok_or_else(|| Error::Run("no image came out".into()))?;
    let png = recipe.png(&image)?;
    Ok(Reproduced { identical: png == original, png, recipe })
}

/// The checkpoint of that name near the picture.
fn find(picture: &Path, name: &str) -> Result<PathBuf> {
    // A recipe is untrusted text: only a plain file name is looked for.
    let plain = Path::new(name).file_name().is_some_and(|n| n == name);
    let here = picture.parent().unwrap_or(Path::new("."));
    let near = [here.to_path_buf(), here.join("checkpoints"), here.join(".."), here.join("../checkpoints")];
    let found = near.iter().map(|dir| dir.join(name)).find(|file| plain && file.is_file());
    found.ok_or_else(|| {
        Error::file(picture, format!("was made with the checkpoint {name:?}; say where it is with --checkpoint"))
    })
}
