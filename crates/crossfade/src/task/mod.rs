//! Tasks define x_0 and the condition, and how a training example is made from files. One file and one line of the
//! registry below for each.
//!
//! Tasks do not depend on networks: a task turns images into a target x_0 and a condition, and network outputs back
//! into images.
mod crop;
mod depth;
mod edges;
mod generate;
mod inpainting;
pub mod masks;
mod saliency;
mod sketch;
mod super_resolution;

pub use depth::Depth;
pub use edges::{Cropping, Edges};
pub use generate::Generate;
pub use inpainting::Inpainting;
pub use saliency::Saliency;
pub use sketch::Sketch;
pub use super_resolution::{LowAs, SuperResolution};

use crate::data::{Filter, Image, LabelMap, PassOrder, Planes, resize};
use crate::error::{Error, Result};
use crate::rng::{Purpose, Stream};
use crossfade_math::{Problem, registry};

/// A training example.
#[derive(Clone, Debug, PartialEq)]
pub struct Example {
    /// The clean data x_0 that the network learns to generate.
    pub target: Planes,
    /// The network's second input; `None` if the task is unconditional.
    pub condition: Option<Planes>,
}

/// The key of a sample's random choices: equal keys give equal examples, whatever the thread, batch or order.
#[derive(Clone, Copy, Debug)]
pub struct SampleKey {
    /// The seed of the run.
    pub seed: u64,
    /// The running number of the sample.
    pub counter: u64,
    /// Whether the sample is mirrored left to right.
    pub flip: bool,
}

impl SampleKey {
    /// The sample's stream of random numbers for `purpose`.
    pub fn stream(&self, purpose: Purpose) -> Stream {
        Stream::new(self.seed, self.counter, 0, purpose)
    }
}

/// How a network is applied to an image that does not have the training size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fitting {
    /// In overlapping tiles of the training size.
    Windows,
    /// The complete image is resized to the training size, and the output is resized back: for tasks that need the
    /// complete scene.
    Resized,
}

/// What a task defines.
pub trait Task: Send + Sync {
    /// Height and width of x_0 in training; `None` if the images of the dataset keep their size.
    fn size(&self) -> Option<[usize; 2]>;
    /// Channels of x_0, 1 or 3; `None` if the network's configuration decides.
    fn target_channels(&self) -> Option<usize>;
    /// Channels of the condition; 0 if there is none.
    fn condition_channels(&self) -> usize;
    /// How many times larger than the condition each side of the target is.
    fn scale(&self) -> usize {
        1
    }
    /// Whether the dataset must have a map for each image.
    fn needs_labels(&self) -> bool {
        false
    }
    /// How the network is applied to images of another size.
    fn fitting(&self) -> Fitting {
        Fitting::Windows
    }
    /// The training example for `image` and its map.
    fn example(&self, image: &Image, label: Option<&LabelMap>, key: &SampleKey) -> Result<Example>;
    /// The condition for a part of an image to which the network is applied; `x` is that part in [−1, 1] as RGB.
    fn condition(&self, x: Planes) -> Result<Planes> {
        Ok(x)
    }
    /// The image in [−1, 1] for the network's output `made` under `condition`.
    fn output(&self, made: Planes, _condition: &Planes) -> Planes {
        made
    }
    /// Whether the condition has the size of x_0, so that the two can be concatenated.
    fn condition_has_target_size(&self) -> bool {
        true
    }
    /// Whether x_0 is an image or a map that an autoencoder can encode.
    fn makes_images(&self) -> bool {
        true
    }
    /// All problems of its options.
    fn validate(&self) -> Vec<Problem>;
}

registry! {
    /// The `[task]` section of a configuration.
    pub enum TaskConfig("task", tag = "kind", dispatch = each_task) {
        /// Images from noise alone.
        Generate(Generate) = "generate" => "sample",
        /// A larger image from a small one.
        SuperResolution(SuperResolution) = "super-resolution" => "sr",
        /// The part of an image behind a mask.
        Inpainting(Inpainting) = "inpainting" => "inpaint",
        /// Which pixels of an image draw attention.
        Saliency(Saliency) = "saliency" => "saliency",
        /// Edges as people draw them.
        Edges(Edges) = "edges" => "edge",
        /// The distance of each pixel from the camera.
        Depth(Depth) = "depth" => "depth",
        /// A photograph from a sketch.
        Sketch(Sketch) = "sketch" => "sketch",
    }
}

impl Default for TaskConfig {
    fn default() -> Self {
        Self::Generate(Generate {})
    }
}

impl TaskConfig {
    /// The command line verb that applies the task.
    pub fn verb(&self) -> &'static str {
        each_task!(self, entry verb => verb)
    }

    /// The options of the task behind its trait.
    pub fn task(&self) -> &dyn Task {
        each_task!(self, options task => task)
    }

    /// Whether there is no condition.
    pub fn is_unconditional(&self) -> bool {
        self.task().condition_channels() == 0
    }
}

/// An image resized to a square, mirrored if `flip` is set.
fn resized_square(image: &Image, side: usize, flip: bool) -> Planes {
    let square = resize(image, side, side, Filter::Bilinear, PassOrder::HorizontalFirst);
    Planes::from_image(&square).flipped(flip)
}

/// The map of an image; an error if there is none or its size differs.
fn required_label<'a>(label: Option<&'a LabelMap>, image: &Image, what: &str) -> Result<&'a LabelMap> {
    let label = label.ok_or_else(|| Error::request(format!("has no {what}; use a set of images with maps")))?;
    if (label.width, label.height) != (image.width, image.height) {
        return Err(Error::request(format!(
            "the image has {}x{} pixels, its {what} {}x{}",
            image.width, image.height, label.width, label.height
        )));
    }
    Ok(label)
}

/// Problems of the side of training images, which must be from 1 to 4096 and a multiple of `of`.
fn side_problems(key: &str, side: usize, of: usize) -> Vec<Problem> {
    let fine = (1..=4096).contains(&side) && side.is_multiple_of(of.max(1));
    let message = || format!("must be from 1 to 4096 and a multiple of {of}, not {side}");
    if fine { vec![] } else { vec![Problem::new(key, message())] }
}
