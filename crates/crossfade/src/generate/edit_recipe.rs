//! Reproducible edits: an edited PNG contains its settings and digests of the pictures that it was made from.
use super::recipe::{find, opened, stored_text};
use super::{GuideRecipe, Noise, Pipeline, StartNoise};
use crate::apply::{Application, Applied, Options};
use crate::checkpoint::{Checkpoint, Weights};
use crate::config::{RunConfig, SampleConfig};
use crate::data::image16::Target;
use crate::data::{Fit, Image, Image16, Planes};
use crate::digest::sha256;
use crate::engine::Device;
use crate::error::{Error, Result, Shown};
use crate::limits;
use crate::sample::Sampled;
use crate::task::TaskConfig;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// The keyword of the PNG text chunk.
const KEYWORD: &str = "crossfade-edit";

/// A picture that was edited.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PictureRecipe {
    /// Its file name, without its directory.
    pub name: String,
    /// SHA-256 of its file.
    pub sha256: String,
}

/// What was done.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Edit {
    /// The last share of the sampler's steps was run from the noised picture.
    Strength(f64),
    /// The sampler ran from the picture to noise and back.
    Invert,
    /// The noises of two pictures were interpolated.
    Between {
        /// The second picture.
        to: PictureRecipe,
        /// 0 for the first picture, 1 for the second.
        share: f64,
    },
}

/// Everything that an edited picture depends on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EditRecipe {
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
    /// The picture.
    pub picture: PictureRecipe,
    /// How it became square, if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fit: Option<Fit>,
    /// What was done with it.
    pub edit: Edit,
    /// The sampling settings; the class is that of this picture.
    pub sample: SampleConfig,
    /// The seed.
    pub seed: u64,
    /// The index of the noise.
    pub index: u64,
}

/// A picture that is read to be edited.
pub struct Source {
    /// The picture, with its transparency and bit depth.
    pub picture: Image16,
    /// How recipes name it.
    pub recipe: PictureRecipe,
    bytes: Vec<u8>,
    path: PathBuf,
}

impl Source {
    /// Reads a picture.
    pub fn read(path: &Path) -> Result<Self> {
        Self::decode(limits::read(path, &limits::IMAGE_FILE)?, path)
    }

    /// The picture in the bytes of a file; of `path` only the file name is used, for messages and recipes.
    pub fn decode(bytes: Vec<u8>, path: &Path) -> Result<Self> {
        let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        let recipe = PictureRecipe { name, sha256: sha256(&bytes) };
        Ok(Self { picture: Image16::decode(&bytes, path)?, recipe, bytes, path: path.to_path_buf() })
    }

    /// The picture at the network's size; transparent pixels are blended with white, as in a dataset.
    pub fn fitted(&self, pipeline: &Pipeline, fit: Option<Fit>) -> Result<Image> {
        let fitted = pipeline.fitted(&Image::decode(&self.bytes, &self.path)?, fit);
        fitted.map_err(|error| Error::request(format!("{}: {error}", self.path.shown())))
    }
}

/// A picture after its way to noise and back.
pub struct RoundTrip {
    /// The noise.
    pub noise: Noise,
    /// What the sampler made of it.
    pub image: Image,
    /// Network evaluations of both ways.
    pub evaluations: usize,
}

impl Pipeline {
    /// Changes a picture of any size with this strength and writes it as PNG; transparency and bit depth are kept. A picture
    /// that does not have the network's size is changed in overlapping tiles, unless it is fitted.
    pub fn change(&self, source: &Source, recipe: &EditRecipe, out: &Path) -> Result<Applied> {
        self.change_to(source, recipe, Target::File(out))
    }

    fn change_to(&self, source: &Source, recipe: &EditRecipe, out: Target) -> Result<Applied> {
        let Edit::Strength(strength) = recipe.edit else {
            return Err(Error::request("a picture is changed with a strength"));
        };
        let (_, side) = self.picture_size()?;
        let fitted = match recipe.fit {
            Some(_) => Some(Image16::from_image(&source.fitted(self, recipe.fit)?)),
            None => None,
        };
        let picture = fitted.as_ref().unwrap_or(&source.picture);
        let model = self.edit_model(strength, recipe.seed, (picture.width, picture.height) != (side, side))?;
        let options = Options { window: Some(side), ..Options::default() };
        let text = recipe.text()?;
        let texts = [(KEYWORD, text.as_str())];
        let application = Application { task: &TaskConfig::default(), model: &model, options: &options, texts: &texts };
        application.run_to(picture, None, recipe.index, out, &mut |_, _| ())
    }

    /// The picture to noise and back.
    pub fn round_trip(&self, picture: &Image, seed: u64) -> Result<RoundTrip> {
        let noise = self.invert(&Planes::from_image(picture), seed)?;
        let Sampled { x0, nfe, .. } = self.sample_noise(&noise.values, seed)?;
        let image = self.pictures(x0.0)?.pop().ok_or_else(|| Error::Run("the sampler returned no picture".into()))?;
        let evaluations = noise.evaluations + nfe;
        Ok(RoundTrip { noise, image, evaluations })
    }
}

impl EditRecipe {
    /// The recipe of an edit of `picture` with the noise of `index`.
    pub fn new(
        checkpoint: &Checkpoint,
        weights: Weights,
        pipeline: &Pipeline,
        (picture, fit): (&Source, Option<Fit>),
        edit: Edit,
        (seed, index): (u64, u64),
    ) -> Result<Self> {
        let name = checkpoint.path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        Ok(Self {
            version: env!("CARGO_PKG_VERSION").into(),
            checkpoint: name,
            checksum: checkpoint.checksum.clone(),
            weights,
            guide: pipeline.guide.as_ref().map(|guide| guide.recipe.clone()),
            picture: picture.recipe.clone(),
            fit,
            edit,
            sample: pipeline.sample_config_of(seed, StartNoise::Index(index))?,
            seed,
            index,
        })
    }

    /// The keyword and the text of the PNG chunk.
    pub fn chunk(&self) -> Result<(&'static str, String)> {
        Ok((KEYWORD, self.text()?))
    }

    /// As the text of a PNG chunk.
    pub fn text(&self) -> Result<String> {
        serde_json::to_string(self).map_err(|e| Error::Run(e.to_string()))
    }

    /// Encodes `image` as a PNG that contains this recipe.
    pub fn png(&self, image: &Image) -> Result<Vec<u8>> {
        image.encode_png(&[(KEYWORD, &self.text()?)])
    }

    /// Reads the recipe of an edited PNG file; none if the file is not one. Also returns the bytes of the file.
    pub fn read(path: &Path) -> Result<Option<(Self, Vec<u8>)>> {
        let (text, bytes) = stored_text(path, KEYWORD)?;
        let damaged = |e| Error::file(path, format!("its recipe is of another version or damaged: {e}"));
        text.map(|text| Ok((serde_json::from_str(&text).map_err(damaged)?, bytes))).transpose()
    }

    /// The bytes of the PNG, made again from the pictures.
    fn make(&self, pipeline: &Pipeline, picture: &Source, to: Option<&Source>) -> Result<Vec<u8>> {
        match (&self.edit, to) {
            (Edit::Strength(_), _) => {
                let mut png = vec![];
                pipeline.change_to(picture, self, Target::Memory(&mut png))?;
                Ok(png)
            }
            (Edit::Invert, _) => self.png(&pipeline.round_trip(&picture.fitted(pipeline, self.fit)?, self.seed)?.image),
            (Edit::Between { share, .. }, Some(to)) => {
                let noise = |source: &Source| {
                    pipeline.invert(&Planes::from_image(&source.fitted(pipeline, self.fit)?), self.seed)
                };
                let (mut images, _) = pipeline.between(&noise(picture)?, &noise(to)?, &[*share], self.seed)?;
                self.png(&images.pop().ok_or_else(|| Error::Run("the sampler returned no picture".into()))?)
            }
            (Edit::Between { .. }, None) => Err(Error::request("the second picture is missing")),
        }
    }
}

/// A reproduced edit.
#[derive(Clone, Debug)]
pub struct ReproducedEdit {
    /// The bytes of the PNG file.
    pub png: Vec<u8>,
    /// Whether they are equal to those of the original file.
    pub identical: bool,
    /// The recipe.
    pub recipe: EditRecipe,
}

/// Reproduces the edited picture in `path` from the pictures that it was made of. What is not given is searched for beside
/// the image and one level up; none if the file is not an edited picture.
pub fn reproduce_edit(
    path: &Path,
    checkpoint: Option<&Path>,
    guide: Option<&Path>,
    pictures: &[PathBuf],
    device: &Device,
) -> Result<Option<ReproducedEdit>> {
    let Some((recipe, original)) = EditRecipe::read(path)? else { return Ok(None) };
    let found = opened(path, checkpoint, (&recipe.checkpoint, &recipe.checksum), "--checkpoint")?;
    // The file may have been changed, so the recipe is validated like user input.
    let run = RunConfig { sample: recipe.sample.clone(), ..found.config.clone() };
    run.validate().map_err(|e| Error::file(path, format!("its recipe is invalid: {e}")))?;
    let mut pipeline = Pipeline::open(&found, recipe.weights, &recipe.sample, device)?;
    if let Some(of) = &recipe.guide {
        let guide = opened(path, guide, (&of.checkpoint, &of.checksum), "--guide")?;
        pipeline = pipeline.guided_by(&guide, of.weights)?;
    }
    let read = |number: usize, wanted: &PictureRecipe| -> Result<Source> {
        let near = || find(path, &wanted.name, "picture", "--input");
        let source = Source::read(&pictures.get(number).map_or_else(near, |file| Ok(file.clone()))?)?;
        if source.recipe.sha256 != wanted.sha256 {
            let problem =
                format!("is not the picture that was edited, {:?} with sha256 {}", wanted.name, wanted.sha256);
            return Err(Error::file(&source.path, format!("{problem}; give that one with --input")));
        }
        Ok(source)
    };
    let picture = read(0, &recipe.picture)?;
    let to = match &recipe.edit {
        Edit::Between { to, .. } => Some(read(1, to)?),
        _ => None,
    };
    let png = recipe.make(&pipeline, &picture, to.as_ref())?;
    Ok(Some(ReproducedEdit { identical: png == original, png, recipe }))
}
