//! What the rest of the toolkit asks of a network, whichever it is.
//!
//! A process decides what a network reads and predicts ([`NetworkPorts`]); a [`BackboneConfig`] answers questions about a
//! network before it exists; a [`Backbone`] is one that can be run. [`Network`](super::Network) is any of them.
use burn::tensor::Tensor;
use crossfade_math::Problem;

use super::condition::Features;
use super::config::Decoders;
use super::mode::Mode;
use super::named::is_buffer;
use super::unet::RawHeads;

/// What a process asks of the input and output channels of a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NetworkPorts {
    /// How many times the channels of an image the network reads: 2 where the state is an image and its velocity.
    pub inputs: usize,
    /// How many times the channels of an image its first output has: one for each part of phi.
    pub phi_parts: usize,
    /// Whether there is a learnt weight for each channel that mixes the output with the one that fits normal data (LSGM).
    pub mixed: bool,
}

impl Default for NetworkPorts {
    /// One image in, one part of phi out.
    fn default() -> Self {
        Self { inputs: 1, phi_parts: 1, mixed: false }
    }
}

impl NetworkPorts {
    /// One image in, `phi_parts` parts of phi out.
    pub fn with_phi_parts(phi_parts: usize) -> Self {
        Self { phi_parts, ..Self::default() }
    }
}

/// What a network knows beside x_t and the time.
///
/// It does not depend on the time, so that sampling computes it once and uses it in every step.
#[derive(Clone, Debug, Default)]
pub struct Context {
    /// What the condition encoder found; none for a network without one.
    pub features: Option<Features>,
    /// The condition itself, `[B, condition_channels, H, W]`, for a network that reads it beside x_t.
    pub image: Option<Tensor<4>>,
    /// Labels of the augmentation that the images went through, `[B, augment_dim]`; training only.
    pub labels: Option<Tensor<2>>,
    /// The class of each sample, `[B, classes]`: 1 at the class, zeros for no class ([`one_hot`](super::one_hot)). None is
    /// no class for all of them.
    pub classes: Option<Tensor<2>>,
}

impl Context {
    /// The same context with labels of the augmentation.
    ///
    /// # Shapes
    /// `labels` `[B, augment_dim]`.
    pub fn with_labels(self, labels: Option<Tensor<2>>) -> Self {
        Self { labels, ..self }
    }

    /// The same context with classes.
    ///
    /// # Shapes
    /// `classes` `[B, classes]`.
    pub fn with_classes(self, classes: Option<Tensor<2>>) -> Self {
        Self { classes, ..self }
    }

    /// The context of twice as many samples: these, and the same without a class.
    pub(crate) fn and_without_class(self) -> Self {
        let condition = self.features.is_some() || self.image.is_some();
        assert!(!condition, "only a class can be left out");
        let classes = self.classes.map(|classes| Tensor::cat(vec![classes.clone(), classes.zeros_like()], 0));
        let labels = self.labels.map(|labels| Tensor::cat(vec![labels; 2], 0));
        Self { classes, labels, ..self }
    }

    /// Whether the samples of both can be in one batch.
    pub(super) fn joins(&self, other: &Self) -> bool {
        let width = |rows: &Option<Tensor<2>>| rows.as_ref().map(|rows| rows.dims()[1]);
        let features = match (&self.features, &other.features) {
            (Some(a), Some(b)) => a.joins(b),
            (a, b) => a.is_none() && b.is_none(),
        };
        let size = |image: &Option<Tensor<4>>| image.as_ref().map(|image| image.dims()[1..].to_vec());
        let images = size(&self.image) == size(&other.image);
        features
            && images
            && width(&self.labels) == width(&other.labels)
            && width(&self.classes) == width(&other.classes)
    }

    /// The context of the samples of all `contexts` in their order, which must join each other.
    pub(super) fn joined(contexts: &[&Self]) -> Self {
        let rows = |of: fn(&Self) -> &Option<Tensor<2>>| {
            let rows: Option<Vec<_>> = contexts.iter().map(|context| of(context).clone()).collect();
            rows.map(|rows| Tensor::cat(rows, 0))
        };
        let images: Option<Vec<_>> = contexts.iter().map(|context| context.image.clone()).collect();
        let features: Option<Vec<_>> = contexts.iter().map(|context| context.features.as_ref()).collect();
        Self {
            features: features.map(|features| Features::joined(&features)),
            image: images.map(|images| Tensor::cat(images, 0)),
            labels: rows(|context| &context.labels),
            classes: rows(|context| &context.classes),
        }
    }
}

/// A network that predicts the targets of a process.
pub trait Backbone {
    /// Looks at a condition. A network without a condition takes none and returns an empty context.
    ///
    /// # Shapes
    /// `condition` `[B, condition_channels, H, W]` in \[−1, 1\], of any size.
    fn encode(&self, condition: Option<Tensor<4>>, mode: Mode) -> Context;

    /// F(x; c_noise, context), for an `x` that is already multiplied by c_in.
    ///
    /// In training the mode brings the key of the dropout masks and takes the statistics of batch normalisations.
    ///
    /// # Shapes
    /// `x` `[B, inputs·C, H, W]` with sides that are multiples of [`BackboneConfig::unit`], `c_noise` `[B]`.
    fn forward(&self, x: Tensor<4>, c_noise: Tensor<1>, context: &Context, mode: Mode) -> RawHeads;

    /// The weight m of a mixed output, between 0 and 1; none if [`NetworkPorts::mixed`] was not asked for.
    ///
    /// # Shapes
    /// `[C]`.
    fn mixing(&self) -> Option<Tensor<1>>;
}

/// The multiple that sides must be of, for a network that reads squares of `patch` x `patch` pixels and halves its feature
/// maps between `levels` levels: patch·2^(levels−1).
pub(super) fn side_unit(patch: usize, levels: usize) -> usize {
    // Options are asked before they are validated, so that there may be any number of levels.
    let halvings = u32::try_from(levels.max(1) - 1).ok();
    halvings.and_then(|halvings| 1usize.checked_shl(halvings)).unwrap_or(usize::MAX).saturating_mul(patch.max(1))
}

/// The largest `patch` of a network.
const MAX_PATCH: usize = 16;

/// Whether `patch` is the default, which configurations do not write: a network without patches is described as it was
/// before there were any, and keeps its fingerprint.
#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
pub(super) fn is_one(patch: &usize) -> bool {
    *patch == 1
}

/// What is wrong with a `patch`.
pub(super) fn patch_problem(patch: usize) -> Option<Problem> {
    let wrong = !(1..=MAX_PATCH).contains(&patch);
    wrong.then(|| Problem::new("patch", format!("must be between 1 and {MAX_PATCH}, not {patch}")))
}

/// What can be asked of a network before it exists.
pub trait BackboneConfig {
    /// Channels of x_t: of an image, or of its latent.
    fn channels(&self) -> usize;
    /// Channels of the condition; none for a network without one.
    fn condition_channels(&self) -> Option<usize>;
    /// How the two outputs are made.
    fn decoders(&self) -> Decoders;
    /// Sides of x_t must be multiples of this.
    fn unit(&self) -> usize;
    /// The side of x_t in training, if the network fixes it.
    fn resolution(&self) -> Option<usize>;
    /// Number of augmentation labels that the network reads; 0 for none.
    fn augment_dim(&self) -> usize;
    /// Number of classes that the network knows; 0 for none.
    fn classes(&self) -> usize;
    /// Whether the network embeds the time by random frequencies, which are made for small numbers such as ln t
    /// (`ProcessFn::log_time_input`).
    fn log_time(&self) -> bool;
    /// Names and shapes of all that a checkpoint holds, in the order in which the reference registers them.
    fn state_shapes(&self, ports: NetworkPorts) -> Vec<(String, Vec<usize>)>;
    /// Whether gradients change the parameter of this name.
    fn is_trained(&self, name: &str) -> bool;
    /// All that is wrong with the options; empty if a network can be made.
    fn validate(&self) -> Vec<Problem>;

    /// The number of weights, running statistics not counted.
    fn parameter_count(&self, ports: NetworkPorts) -> usize {
        let weights = self.state_shapes(ports).into_iter().filter(|(name, _)| !is_buffer(name));
        weights.map(|(_, shape)| shape.iter().product::<usize>()).sum()
    }
}
