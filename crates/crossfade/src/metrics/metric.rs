//! What all metrics have in common: a description in the registry, and a measurement in three steps.
//!
//! [`MetricSpec::open`] returns a [`Metric`]. [`Metric::prepare`] processes the reference that images are compared
//! with. An [`Accumulator`] receives the produced images in batches and ends in a [`Report`]. Both `crossfade eval`
//! and studies use metrics in this way, so that every registered metric can be used in a sweep.
use super::raster::Raster;
use super::{Report, features, pairs};
use crate::data::{Classes, Dataset, Image};
use crate::engine::Device;
use crate::error::{Error, Result};
use std::path::{Path, PathBuf};

/// In which direction a value improves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    /// A distance or an error.
    Lower,
    /// A similarity or a score.
    Higher,
}

/// One of the values of a metric that a table can show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Value {
    /// Its name in reports; a study may write it in lower case with hyphens.
    pub name: &'static str,
    /// Its title in captions and on axes.
    pub title: &'static str,
    /// In which direction it improves.
    pub better: Better,
}

impl Value {
    /// A value that is better if lower.
    pub(super) const fn lower(name: &'static str, title: &'static str) -> Self {
        Self { name, title, better: Better::Lower }
    }

    /// A value that is better if higher.
    pub(super) const fn higher(name: &'static str, title: &'static str) -> Self {
        Self { name, title, better: Better::Higher }
    }
}

/// What a metric compares produced images with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compared {
    /// Nothing: the images alone are measured.
    Nothing,
    /// The distribution of another set of images.
    ImageSet {
        /// Whether a file of statistics can replace the images.
        statistics: bool,
        /// Whether it also has a value for each class of the set.
        classes: bool,
    },
    /// No images are produced: the network itself is measured on images of the data.
    Data,
    /// The target of each image.
    Target,
    /// The ground-truth map of each map; both have one channel.
    Map,
    /// Human segmentations.
    Segmentations,
}

/// A network whose features a metric compares; its weights are in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FeatureNetwork {
    /// FID's Inception-v3; `crossfade weights get inception` fetches the weights.
    Inception,
    /// The backbone of LPIPS; the user must provide its weights.
    Lpips,
}

/// How `crossfade eval` offers a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// As `crossfade eval NAME` with the options that all metrics of its kind have.
    Common {
        /// Examples that follow the help text.
        examples: &'static str,
    },
    /// As `crossfade eval NAME` with options of its own, in `crossfade-cli/src/commands/eval/`.
    Own,
    /// Not at all.
    None {
        /// The reason for the error message.
        reason: &'static str,
    },
}

/// The description of a metric in the registry, before anything is opened.
#[derive(Debug)]
pub struct MetricSpec {
    /// Its name on the command line, in studies and in reports.
    pub name: &'static str,
    /// What it measures, in one line.
    pub about: &'static str,
    /// The values that tables can show; the first is the default.
    pub values: &'static [Value],
    /// What it compares images with.
    pub compared: Compared,
    /// The network that it needs, if any.
    pub network: Option<FeatureNetwork>,
    /// The names of its protocols, the default first; empty if there is only one.
    pub protocols: &'static [&'static str],
    /// The minimum number of images.
    pub min_images: u64,
    /// Must be increased with every change after which the same images get other values. Results of studies are
    /// stored under a hash of this number, so that values of an old version are never taken for those of a corrected
    /// one.
    pub revision: u32,
    /// How `crossfade eval` offers it.
    pub verb: Verb,
    /// Opens the metric: reads weights and checks the protocol.
    pub open: fn(&MetricOptions) -> Result<Box<dyn Metric>>,
}

impl MetricSpec {
    /// The protocol called `name`, or the default one.
    pub fn protocol(&self, name: Option<&str>) -> Result<Option<&'static str>> {
        let Some(name) = name else { return Ok(self.protocols.first().copied()) };
        match self.protocols.iter().find(|known| **known == name) {
            Some(known) => Ok(Some(known)),
            None if self.protocols.is_empty() => {
                Err(Error::request(format!("{} has one protocol only; leave it out", self.name)))
            }
            None => {
                let known = self.protocols.join(", ");
                Err(Error::request(format!("{} has no protocol `{name}`; known: {known}", self.name)))
            }
        }
    }

    /// The value called `name`, in any case and with hyphens or spaces; the first value if there is no name.
    pub fn value(&self, name: Option<&str>) -> Option<&'static Value> {
        let plain = |text: &str| text.to_lowercase().replace([' ', '_'], "-");
        match name {
            None => self.values.first(),
            Some(name) => self.values.iter().find(|value| plain(value.name) == plain(name)),
        }
    }

    /// Whether each image is compared with a target of its own, which only a task can provide.
    pub fn needs_targets(&self) -> bool {
        matches!(self.compared, Compared::Target | Compared::Map | Compared::Segmentations)
    }

    /// Whether it measures the network on data, so that nothing is sampled.
    pub fn measures_network(&self) -> bool {
        self.compared == Compared::Data
    }

    /// Whether it can also have a value for each class.
    pub fn has_classes(&self) -> bool {
        matches!(self.compared, Compared::ImageSet { classes: true, .. })
    }
}

/// The options with which a metric is opened.
#[derive(Clone)]
pub struct MetricOptions<'a> {
    /// The name of the protocol; `None` for the metric's first one.
    pub protocol: Option<&'a str>,
    /// A custom protocol for image pairs, instead of a named one.
    pub pairs: Option<pairs::Protocol>,
    /// The width of the border that super-resolution protocols leave out, in pixels: the scale factor.
    pub border: usize,
    /// The weights of the metric's network.
    pub weights: Option<&'a Path>,
    /// Whether equal images count as [`EQUAL_DB`], so that a mean over images stays finite.
    pub finite: bool,
    /// The device of the network, if the tensor engine runs it.
    pub device: &'a Device,
}

/// The PSNR of two equal images in dB, where a finite number is needed.
pub const EQUAL_DB: f64 = 100.0;

impl<'a> MetricOptions<'a> {
    /// The default options of every metric.
    pub fn new(device: &'a Device) -> Self {
        Self { protocol: None, pairs: None, border: 0, weights: None, finite: false, device }
    }

    /// The weights, or an error that tells how to provide them.
    pub(super) fn weights_of(&self, metric: &str) -> Result<&'a Path> {
        self.weights.ok_or_else(|| Error::request(format!("{metric} needs the weights of its network: give --weights")))
    }
}

/// An opened metric.
pub trait Metric: Send + Sync {
    /// The facts of the measurement that a study states, besides the name of the protocol and the weights.
    fn facts(&self) -> Vec<(String, String)> {
        vec![]
    }

    /// Processes the reference that images are compared with, or loads its stored result. Returns false if it was
    /// stopped before the end; the progress until then may be stored. Metrics without a reference, or with one target
    /// per image, do nothing.
    fn prepare(&mut self, _reference: &Reference, _work: &mut ReferenceWork) -> Result<bool> {
        Ok(true)
    }

    /// An empty accumulator.
    fn accumulator(&self) -> Box<dyn Accumulator + '_>;
}

/// A measurement in progress.
pub trait Accumulator {
    /// Adds produced images. The result does not depend on how they are split into batches, but may depend on their
    /// order.
    fn add(&mut self, samples: Vec<Sample>) -> Result<()>;

    /// The values of all images that were added.
    fn finish(self: Box<Self>) -> Result<Measurement>;
}

/// A produced image, and its target if there is one.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// Its name in lists of values.
    pub name: String,
    /// Its file or other origin, for error messages.
    pub origin: PathBuf,
    /// The image or map.
    pub output: Raster,
    /// The target or ground truth, of the same size.
    pub target: Option<Raster>,
    /// Its class, as the classes of the reference are numbered; none if it has no class or values of classes are not
    /// wanted.
    pub class: Option<u32>,
}

impl Sample {
    /// The target; an error if there is none.
    pub(super) fn target(&self) -> Result<&Raster> {
        self.target.as_ref().ok_or_else(|| self.error("there is no target to compare it with"))
    }

    /// An error if output or target holds values that are no numbers: rounded to 8 bits they would be black.
    pub(super) fn check(&self) -> Result<()> {
        let rasters = [Some(&self.output), self.target.as_ref()];
        if rasters.into_iter().flatten().all(Raster::is_finite) {
            return Ok(());
        }
        Err(self.error("it holds values that are no numbers"))
    }

    /// An error that names the image.
    pub(super) fn error(&self, message: impl Into<String>) -> Error {
        Error::file(&self.origin, message)
    }
}

/// The result of a measurement.
#[derive(Clone, Debug, PartialEq)]
pub struct Measurement {
    /// Values, protocol and warnings.
    pub report: Report,
    /// Name and value of each image, for metrics that have a value per image.
    pub images: Vec<(String, f64)>,
}

impl From<Report> for Measurement {
    fn from(report: Report) -> Self {
        Self { report, images: vec![] }
    }
}

/// What a set of produced images is compared with.
pub enum Reference<'a> {
    /// Nothing, or a target for each image.
    None,
    /// A set of images.
    Images(&'a dyn Dataset),
    /// A set of images with their classes, each of which is also compared alone.
    Classes(&'a dyn Dataset, &'a Classes),
    /// Statistics of a set of images.
    Statistics(&'a features::Statistics),
}

impl Reference<'_> {
    /// The images, for metrics that need all of them.
    pub(super) fn images(&self, metric: &str) -> Result<&dyn Dataset> {
        match self {
            Self::Images(images) | Self::Classes(images, _) => Ok(*images),
            Self::Statistics(_) => Err(Error::request(format!("{metric} needs the images, not their statistics"))),
            Self::None => Err(Error::request(format!("{metric} needs images to compare with"))),
        }
    }
}

/// How a reference is processed, and where its result is stored between runs.
pub struct ReferenceWork<'a> {
    /// Where the result is stored; `None` if it is not.
    pub store: Option<ReferenceStore<'a>>,
    /// Returns true if the work should stop.
    pub stop: &'a dyn Fn() -> bool,
    /// Called with the number of finished images and of all images.
    pub progress: &'a mut dyn FnMut(usize, usize),
}

/// The directories in which the result for a reference is stored.
#[derive(Clone, Debug)]
pub struct ReferenceStore<'a> {
    /// A hash of everything on which the stored file depends.
    pub key: String,
    /// The directory for writing.
    pub cache: &'a Path,
    /// A directory that is searched first; it may be read-only.
    pub shared: Option<&'a Path>,
}

/// Produced images as a dataset, for networks that read datasets.
pub(super) struct Produced(pub Vec<Image>);

impl Produced {
    pub fn new(samples: Vec<Sample>) -> Result<Self> {
        samples.iter().try_for_each(Sample::check)?;
        Ok(Self(samples.into_iter().map(|sample| sample.output.into_image()).collect()))
    }
}

impl Dataset for Produced {
    fn len(&self) -> usize {
        self.0.len()
    }
    fn get(&self, index: usize) -> Result<Image> {
        Ok(self.0[index].clone())
    }
    fn name(&self, index: usize) -> String {
        format!("image {index} of a batch")
    }
    fn describe(&self) -> String {
        format!("{} produced images", self.0.len())
    }
    fn in_memory(&self) -> bool {
        true
    }
}
