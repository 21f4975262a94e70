//! The options of the autoencoder.
use burn::tensor::Device;
use crossfade_math::Problem;
use serde::{Deserialize, Serialize};

use super::Autoencoder;
use crate::nn::named::shapes;

/// Groups of every normalisation.
pub(crate) const GROUPS: usize = 32;

/// Largest sensible width and side.
const LIMIT: usize = crate::limits::NETWORK_SIZE.size();

/// The sizes of an autoencoder; the `[autoencoder]` section of a configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AutoencoderConfig {
    /// Side of the images it is trained on; it works at any multiple of its factor.
    pub resolution: usize,
    /// Channels of an image: 1 or 3.
    pub channels: usize,
    /// Channels at full resolution; a multiple of 32.
    pub width: usize,
    /// Channels of each level in units of `width`; each level but the first halves the image.
    pub mult: Vec<usize>,
    /// Residual blocks a level; the decoder has one more.
    pub blocks: usize,
    /// Channels between encoder and decoder, before the two 1x1 convolutions.
    pub bottleneck: usize,
    /// Channels of a latent.
    pub latent: usize,
}

impl Default for AutoencoderConfig {
    fn default() -> Self {
        Self { resolution: 256, channels: 3, width: 128, mult: vec![1, 2, 4], blocks: 2, bottleneck: 3, latent: 3 }
    }
}

impl AutoencoderConfig {
    /// Side of an image over side of its latent: 4 for three levels.
    pub fn factor(&self) -> usize {
        1 << (self.mult.len() - 1)
    }

    /// Channels of level `l`.
    pub(super) fn channels_at(&self, level: usize) -> usize {
        self.width * self.mult[level]
    }

    /// All that is wrong with the options; empty if a network can be made.
    pub fn validate(&self) -> Vec<Problem> {
        let mut problems = vec![];
        let mut require = |ok, key, message: String| Problem::require(&mut problems, ok, key, message);
        let c = self.channels;
        require(matches!(c, 1 | 3), "channels", format!("images have 1 or 3 channels, not {c}"));
        let width = self.width;
        let fits = width > 0 && width.is_multiple_of(GROUPS) && width <= LIMIT;
        require(fits, "width", format!("must be a multiple of {GROUPS} up to {LIMIT}, not {width}"));
        let levels = self.mult.len();
        require((1..=6).contains(&levels), "mult", format!("needs 1 to 6 levels, not {levels}"));
        let mults = self.mult.iter().all(|m| (1..=64).contains(m));
        require(mults, "mult", "must be from 1 to 64 at each level".into());
        require((1..=16).contains(&self.blocks), "blocks", format!("must be from 1 to 16, not {}", self.blocks));
        for (key, value) in [("bottleneck", self.bottleneck), ("latent", self.latent)] {
            require((1..=256).contains(&value), key, format!("must be from 1 to 256, not {value}"));
        }
        if (1..=6).contains(&levels) {
            let (side, factor) = (self.resolution, self.factor());
            let fits = side > 0 && side.is_multiple_of(factor) && side <= LIMIT;
            require(fits, "resolution", format!("must be a multiple of {factor} up to {LIMIT}, not {side}"));
        }
        problems
    }

    /// A network with initial weights from `seed`, which are drawn at their first use.
    pub fn init(&self, seed: u64, device: &Device) -> Autoencoder {
        Autoencoder::new(self, seed, device)
    }

    /// Names and shapes of all weights, in the order of the reference.
    pub fn parameter_shapes(&self) -> Vec<(String, Vec<usize>)> {
        shapes(&self.init(0, &Device::flex()))
    }

    /// The number of weights.
    pub fn parameter_count(&self) -> usize {
        self.parameter_shapes().iter().map(|(_, shape)| shape.iter().product::<usize>()).sum()
    }
}
