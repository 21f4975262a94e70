//! Image datasets behind one trait, and the `[data]` section of a configuration.
//!
//! A source (one file each: [`cifar10`], [`idx`], [`folder`], [`zip`], [`procedural`], [`paired`]) returns its images
//! as they are stored. [`DataConfig::open`] wraps it so that all images are square and have one resolution and number
//! of channels. Nothing here depends on tasks, batches or the tensor engine.
use std::borrow::Cow;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::limits::sharing;

pub mod check;
pub mod cifar10;
mod cifar_pickle;
pub mod classes;
mod content;
pub mod folder;
pub mod idx;
pub mod image;
pub mod image16;
pub mod label_map;
pub mod mat;
pub mod matlab_resize;
pub mod paired;
pub(crate) mod planes;
pub mod procedural;
pub mod resize;
pub mod sheet;
pub mod zip;

pub use check::{CheckReport, check};
pub use classes::Classes;
pub use content::content_digest;
pub use image::{IMAGE_ENDINGS, Image, Rect, dimensions, png_text};
pub use image16::Image16;
pub use label_map::LabelMap;
use paired::Paired;
pub use planes::Planes;
pub use resize::{Filter, PassOrder, resize};
pub use sheet::{contact_sheet, sheet_name};

/// A set of images, read by index.
pub trait Dataset: Send + Sync {
    /// The number of images; never zero.
    fn len(&self) -> usize;

    /// Image `index`; an error names the file.
    fn get(&self, index: usize) -> Result<Image>;

    /// The name of image `index` for messages: its file, or its position in a file.
    fn name(&self, index: usize) -> String;

    /// One line that describes the set, for reports.
    fn describe(&self) -> String;

    /// The map that belongs to image `index` (a mask, edges, depth, a sketch); none if the set has images only.
    fn label(&self, _index: usize) -> Result<Option<LabelMap>> {
        Ok(None)
    }

    /// Whether every image has a map.
    fn has_labels(&self) -> bool {
        false
    }

    /// The class of every image, read when it is asked for; none if the set has no classes.
    fn classes(&self) -> Result<Option<Classes>> {
        Ok(None)
    }

    /// Whether `get` is little more than a copy, so that keeping its results would be a waste.
    fn in_memory(&self) -> bool {
        false
    }

    /// Always false: a set without images does not open.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// How an image becomes square.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fit {
    /// Crop the largest centred square.
    #[default]
    Crop,
    /// Resize the complete image to the square, which changes its aspect ratio.
    Stretch,
}

/// Which part of a dataset that has a training and a test part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Split {
    /// The training images.
    #[default]
    Train,
    /// The test images.
    Test,
}

/// Where images come from; the `[data]` section of a configuration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum DataConfig {
    /// Drawn on the fly, without files.
    Procedural {
        /// The seed from which all images are drawn.
        #[serde(default)]
        seed: u64,
        /// How many images the set has.
        #[serde(default = "procedural::default_len")]
        len: usize,
    },
    /// CIFAR-10, binary or Python layout.
    Cifar10 {
        /// The directory of the batches, or the one above it.
        path: PathBuf,
        /// Training batches or the test batch.
        #[serde(default)]
        split: Split,
    },
    /// MNIST and other sets in the same format.
    Idx {
        /// An IDX file of images, gzipped or not, or the directory of the training images.
        path: PathBuf,
    },
    /// PNG, JPEG and WebP files, also in directories below.
    Folder {
        /// The directory.
        path: PathBuf,
        /// How an image becomes square.
        #[serde(default)]
        fit: Fit,
        /// How an image is resized.
        #[serde(default)]
        filter: Filter,
    },
    /// A zip of PNG, JPEG and WebP files, read in place.
    Zip {
        /// The archive.
        path: PathBuf,
        /// How an image becomes square.
        #[serde(default)]
        fit: Fit,
        /// How an image is resized.
        #[serde(default)]
        filter: Filter,
    },
    /// Two directories with images and maps of the same names.
    Pairs {
        /// The images.
        images: PathBuf,
        /// Their masks, edges, depths or sketches.
        labels: PathBuf,
    },
    /// The saliency dataset DUTS.
    Duts {
        /// The directory of `DUTS-TR` and `DUTS-TE`.
        path: PathBuf,
        /// DUTS-TR (train) or DUTS-TE (test).
        #[serde(default)]
        split: Split,
    },
    /// The edge dataset BSDS; the label is the mean of all annotators.
    Bsds {
        /// The directory of `images` and `groundTruth`.
        path: PathBuf,
        /// Train and validation images, or test images.
        #[serde(default)]
        split: Split,
    },
    /// NYU Depth v2 as BTS lays it out.
    NyuDepth {
        /// The directory of `train` and `test`.
        path: PathBuf,
        /// Train or test.
        #[serde(default)]
        split: Split,
    },
    /// SketchyCOCO's objects.
    SketchyCoco {
        /// The directory of `GT` and `Sketch`.
        path: PathBuf,
        /// Train or val.
        #[serde(default)]
        split: Split,
    },
}

impl DataConfig {
    /// The paths in this section, and their keys.
    pub fn paths_mut(&mut self) -> Vec<(&'static str, &mut PathBuf)> {
        match self {
            Self::Procedural { .. } => vec![],
            Self::Pairs { images, labels } => vec![("images", images), ("labels", labels)],
            Self::Cifar10 { path, .. }
            | Self::Idx { path }
            | Self::Folder { path, .. }
            | Self::Zip { path, .. }
            | Self::Duts { path, .. }
            | Self::Bsds { path, .. }
            | Self::NyuDepth { path, .. }
            | Self::SketchyCoco { path, .. } => vec![("path", path)],
        }
    }

    /// The images at exactly `resolution` x `resolution` with 1 or 3 `channels`.
    pub fn open(&self, resolution: usize, channels: usize) -> Result<Box<dyn Dataset>> {
        if !(1..=4096).contains(&resolution) || !matches!(channels, 1 | 3) {
            return Err(Error::request(format!(
                "images of {resolution}x{resolution} with {channels} channels: \
                 the resolution must be 1 to 4096, the channels 1 or 3"
            )));
        }
        let (fit, filter) = match *self {
            Self::Folder { fit, filter, .. } | Self::Zip { fit, filter, .. } => (fit, filter),
            _ => (Fit::default(), Filter::default()),
        };
        Ok(Box::new(Fitted { source: self.source(resolution)?, resolution, channels, fit, filter }))
    }

    /// The images as they are stored; only procedural images use `resolution`.
    pub fn source(&self, resolution: usize) -> Result<Box<dyn Dataset>> {
        Ok(match self {
            Self::Procedural { seed, len } => Box::new(procedural::Procedural::new(*seed, *len, resolution)?),
            Self::Cifar10 { path, split } => Box::new(cifar10::Cifar10::open(path, *split)?),
            Self::Idx { path } => Box::new(idx::Idx::open(path)?),
            Self::Folder { path, .. } => Box::new(folder::Folder::open(path)?),
            Self::Zip { path, .. } => Box::new(zip::Zip::open(path)?),
            Self::Pairs { images, labels } => Box::new(Paired::folders(images, labels)?),
            Self::Duts { path, split } => Box::new(Paired::duts(path, *split)?),
            Self::Bsds { path, split } => Box::new(Paired::bsds(path, *split)?),
            Self::NyuDepth { path, split } => Box::new(Paired::nyu(path, *split)?),
            Self::SketchyCoco { path, split } => Box::new(Paired::sketchy(path, *split)?),
        })
    }
}

/// The images of any set at exactly `resolution` x `resolution` with 1 or 3 `channels`: the middle square, resized.
pub fn fitted(source: Box<dyn Dataset>, resolution: usize, channels: usize) -> Box<dyn Dataset> {
    Box::new(Fitted { source, resolution, channels, fit: Fit::default(), filter: Filter::default() })
}

/// A source whose images are converted to one shape.
struct Fitted {
    source: Box<dyn Dataset>,
    resolution: usize,
    channels: usize,
    fit: Fit,
    filter: Filter,
}

impl Dataset for Fitted {
    fn len(&self) -> usize {
        self.source.len()
    }

    /// Converts channels, then crops, then resizes, in the order of the usual PyTorch pipelines
    /// (`Image.open(f).convert("RGB")` comes first), because each step rounds.
    fn get(&self, index: usize) -> Result<Image> {
        sharing(|| {
            let image = self.source.get(index)?;
            let image = image.with_channels(self.channels);
            let square = match self.fit {
                Fit::Crop => image.centre_square(),
                Fit::Stretch => Cow::Borrowed(&*image),
            };
            Ok(resize(&square, self.resolution, self.resolution, self.filter, PassOrder::HorizontalFirst))
        })
    }

    fn name(&self, index: usize) -> String {
        self.source.name(index)
    }

    fn describe(&self) -> String {
        format!("{}, at {r}x{r}x{c}", self.source.describe(), r = self.resolution, c = self.channels)
    }

    fn classes(&self) -> Result<Option<Classes>> {
        self.source.classes()
    }

    fn in_memory(&self) -> bool {
        self.source.in_memory()
    }
}

/// Whether a file name (without directories) is that of an image and not hidden.
fn is_image_name(name: &str) -> bool {
    let extension = name.rsplit_once('.').map(|(_, e)| e.to_ascii_lowercase());
    !name.starts_with('.') && extension.is_some_and(|e| IMAGE_ENDINGS.contains(&e.as_str()))
}
