//! What all metrics have in common: a description in the registry, and a measurement in three steps.
//!
//! [`MetricSpec::open`] gives a [`Metric`]; [`Metric::prepare`] works through what images are compared with;
//! an [`Accumulator`] takes the produced images, batch by batch, and ends in a [`Report`]. `crossfade eval` and studies
//! both use metrics in this way, so that a metric that is registered can be swept too.
use super::raster::Raster;
use super::{Report, features, pairs};
use crate::data::{Dataset, Image};
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
    /// What captions and axes call it.
    pub title: &'static str,
    /// In which direction it improves.
    pub better: Better,
}

impl Value {
    /// A value of which less is better.
    pub(super) const fn lower(name: &'static str, title: &'static str) -> Self {
        Self { name, title, better: Better::Lower }
    }

    /// A value of which more is better.
    pub(super) const fn higher(name: &'static str, title: &'static str) -> Self {
        Self { name, title, better: Better::Higher }
    }
}

/// What a metric compares produced images with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compared {
    /// Nothing: the images alone are measured.
    Nothing,
    /// Another set of images, as a whole.
    ImageSet {
        /// Whether a file of statistics can stand for the set.
        statistics: bool,
    },
    /// The target of each image.
    Target,
    /// The ground-truth map of each map; both have one channel.
    Map,
    /// Human segmentations.
    Segmentations,
}

/// A network whose features a metric compares; its weights are a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FeatureNetwork {
    /// FID's Inception-v3; `crossfade weights get inception` fetches the weights.
    Inception,
    /// The backbone of LPIPS; its weights must be given.
    Lpips,
}

/// How `crossfade eval` offers a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// As `crossfade eval NAME` with the options that all metrics of its kind have; the text follows its help.
    Common {
        /// Examples.
        examples: &'static str,
    },
    /// As `crossfade eval NAME` with options of its own, in `crossfade-cli/src/commands/eval/`.
    Own,
    /// Not at all, for this reason.
    None {
        /// Why.
        reason: &'static str,
    },
}

/// What is known of a metric before anything is opened: one line of the registry.
#[derive(Debug)]
pub struct MetricSpec {
    /// Its name on the command line, in studies and in reports.
    pub name: &'static str,
    /// What it measures, in one line.
    pub about: &'static str,
    /// The values that tables can show; the first is shown unless another is asked for.
    pub values: &'static [Value],
    /// What it compares images with.
    pub compared: Compared,
    /// The network that it needs.
    pub network: Option<FeatureNetwork>,
    /// Its protocols by name, the default first; empty if there is one only.
    pub protocols: &'static [&'static str],
    /// The fewest images that can be measured.
    pub min_images: u64,
    /// Must be raised with every change after which the same images get other values. Results of studies are kept under a
    /// hash of this number, so that a corrected metric does not present values of the old one as its own.
    pub revision: u32,
    /// How `crossfade eval` offers it.
    pub verb: Verb,
    /// Opens it: reads weights, checks the protocol.
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

    /// The value called `name`, in any case and with hyphens or spaces; the first one without a name.
    pub fn value(&self, name: Option<&str>) -> Option<&'static Value> {
        let plain = |text: &str| text.to_lowercase().replace([' ', '_'], "-");
        match name {
            None => self.values.first(),
            Some(name) => self.values.iter().find(|value| plain(value.name) == plain(name)),
        }
    }

    /// Whether each image is compared with something of its own, which only a task can name.
    pub fn needs_targets(&self) -> bool {
        matches!(self.compared, Compared::Target | Compared::Map | Compared::Segmentations)
    }
}

/// How a metric is opened.
#[derive(Clone)]
pub struct MetricOptions<'a> {
    /// The protocol by name; the metric's first one without it.
    pub protocol: Option<&'a str>,
    /// How pairs of images are compared, in place of a named protocol.
    pub pairs: Option<pairs::Protocol>,
    /// Pixels that protocols of super-resolution leave out at every border: the scale factor.
    pub border: usize,
    /// The weights of the metric's network.
    pub weights: Option<&'a Path>,
    /// Whether equal images count as [`EQUAL_DB`], so that a mean over images stays finite.
    pub finite: bool,
    /// Where the network runs, if the tensor engine runs it.
    pub device: &'a Device,
}

/// What the PSNR of two equal images counts as where a finite number is needed, in dB.
pub const EQUAL_DB: f64 = 100.0;

impl<'a> MetricOptions<'a> {
    /// Everything as the metric has it.
    pub fn new(device: &'a Device) -> Self {
        Self { protocol: None, pairs: None, border: 0, weights: None, finite: false, device }
    }

    /// The weights, or an error that says how to get them.
    pub(super) fn weights_of(&self, metric: &str) -> Result<&'a Path> {
        self.weights.ok_or_else(|| Error::request(format!("{metric} needs the weights of its network: give --weights")))
    }
}

/// A metric ready to work.
pub trait Metric: Send + Sync {
    /// What a study states of how it measures, beyond the name of the protocol and the weights.
    fn facts(&self) -> Vec<(String, String)> {
        vec![]
    }

    /// Works through what images are compared with, or reads what was kept of it. False if it was stopped before the end;
    /// what was done by then may be kept. Metrics that compare with nothing, or with a target each, have nothing to do.
    fn prepare(&mut self, _reference: &Reference, _work: &mut ReferenceWork) -> Result<bool> {
        Ok(true)
    }

    /// A measurement of no images yet.
    fn accumulator(&self) -> Box<dyn Accumulator + '_>;
}

/// A measurement that is going on.
pub trait Accumulator {
    /// Adds produced images. Batches do not matter, their order does.
    fn add(&mut self, samples: Vec<Sample>) -> Result<()>;

    /// The values of all that was added.
    fn finish(self: Box<Self>) -> Result<Measurement>;
}

/// A produced image, and what it should have been if that is known.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// Its name in lists of values.
    pub name: String,
    /// Where it comes from, for messages.
    pub origin: PathBuf,
    /// The image or map.
    pub output: Raster,
    /// The target or ground truth, of the same size.
    pub target: Option<Raster>,
}

impl Sample {
    /// The target, which metrics that compare with one may rely on.
    pub(super) fn target(&self) -> Result<&Raster> {
        self.target.as_ref().ok_or_else(|| self.error("there is no target to compare it with"))
    }

    /// An error that names the image.
    pub(super) fn error(&self, message: impl Into<String>) -> Error {
        Error::file(&self.origin, message)
    }
}

/// What came out.
#[derive(Clone, Debug, PartialEq)]
pub struct Measurement {
    /// Values, protocol and warnings.
    pub report: Report,
    /// Name and value of each image, where a metric has a value for each.
    pub images: Vec<(String, f64)>,
}

impl From<Report> for Measurement {
    fn from(report: Report) -> Self {
        Self { report, images: vec![] }
    }
}

/// What a set of images is compared with.
pub enum Reference<'a> {
    /// Nothing, or a target for each image.
    None,
    /// A set of images.
    Images(&'a dyn Dataset),
    /// Statistics of a set of images.
    Statistics(&'a features::Statistics),
}

impl Reference<'_> {
    /// The images, for metrics that need them all.
    pub(super) fn images(&self, metric: &str) -> Result<&dyn Dataset> {
        match self {
            Self::Images(images) => Ok(*images),
            Self::Statistics(_) => Err(Error::request(format!("{metric} needs the images, not their statistics"))),
            Self::None => Err(Error::request(format!("{metric} needs images to compare with"))),
        }
    }
}

/// How a reference is worked through, and where it is kept from one run to the next.
pub struct ReferenceWork<'a> {
    /// Where it is kept; none if it need not be.
    pub store: Option<ReferenceStore<'a>>,
    /// Whether to stop.
    pub stop: &'a dyn Fn() -> bool,
    /// Is told how many images of how many are done.
    pub progress: &'a mut dyn FnMut(usize, usize),
}

/// Directories in which a reference is kept.
#[derive(Clone, Debug)]
pub struct ReferenceStore<'a> {
    /// A hash of everything that the kept file depends on.
    pub key: String,
    /// Where it is written.
    pub cache: &'a Path,
    /// Where it is looked for first; this may be read-only.
    pub shared: Option<&'a Path>,
}

/// Produced images as a set, for networks that read sets.
pub(super) struct Produced(pub Vec<Image>);

impl Produced {
    pub fn new(samples: Vec<Sample>) -> Self {
        Self(samples.into_iter().map(|sample| sample.output.into_image()).collect())
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
