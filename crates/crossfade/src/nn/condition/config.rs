//! The options of the conditional U-Net, and presets.
use burn::tensor::Device;
use crossfade_math::Problem;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

use super::cond_unet::CondUNet;
use super::swin::{BASE, SwinSize, TINY};
use super::unet_encoder;
use super::vgg::{self, VggLevel};
use crate::nn::backbone::{BackboneConfig, NetworkPorts, is_one, patch_problem, side_unit};
use crate::nn::config::Decoders;
use crate::nn::init::initialized;
use crate::nn::named::{is_buffer, shapes};

/// The encoder of the condition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum EncoderConfig {
    /// Swin-B, the reference's. Its first stage is at a quarter of the condition's size.
    SwinB,
    /// Swin-T.
    SwinT,
    /// A small U-Net.
    Unet {
        /// Channels of its first stage.
        width: usize,
        /// Pixels of the condition, along a side, to one of the first stage: 1, 2 or 4.
        stride: usize,
    },
    /// VGG-16 up to the last layer that is named.
    Vgg16 {
        /// For each level of `mult`, a convolution of VGG-16 whose output after the ReLU the level reads: `conv1_1` to
        /// `conv5_3`, or several joined by `+`. Level k is at 1/(patch·2^k) of the picture.
        layers: Vec<VggLevel>,
    },
}

impl EncoderConfig {
    pub(super) fn swin(&self) -> Option<SwinSize> {
        match self {
            Self::SwinB => Some(BASE),
            Self::SwinT => Some(TINY),
            Self::Unet { .. } | Self::Vgg16 { .. } => None,
        }
    }

    /// Channels of the first `levels` stages, for a network with this `patch`.
    pub fn channels(&self, levels: usize, patch: usize) -> Vec<usize> {
        match self {
            Self::SwinB => BASE.channels().into_iter().take(levels).collect(),
            Self::SwinT => TINY.channels().into_iter().take(levels).collect(),
            Self::Unet { width, .. } => unet_encoder::channels(*width, levels),
            Self::Vgg16 { layers } => vgg::channels(layers, patch),
        }
    }

    /// Whether the stem reads the first stage as its level does, projected to `width` channels. The stem is a convolution of
    /// 7x7, for which VGG-16 has too many channels: they would take most of the time, and drown x_t.
    pub(super) fn projects_first(&self) -> bool {
        matches!(self, Self::Vgg16 { .. })
    }
}

/// The layer between the bottleneck and each decoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Split {
    /// A gate computed by self-attention.
    #[default]
    Attention,
    /// DiffusionEdge's filter in frequency space.
    Fourier {
        /// Height and width of x_t in training; the filter is resampled for others.
        size: [usize; 2],
    },
}

/// The options of the conditional U-Net (§4.6).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CondUNetConfig {
    /// Channels of x_t: of the images, or of their latents.
    pub channels: usize,
    /// Side of the squares of pixels of x_t that the network reads and writes as one. The condition is encoded pixel by
    /// pixel; an encoder with the same stride fits.
    #[serde(skip_serializing_if = "is_one")]
    pub patch: usize,
    /// Channels of the condition.
    pub condition_channels: usize,
    /// Channels of the stem, "dim".
    pub width: usize,
    /// Channels after each level as multiples of `width`; Swin encoders need four levels.
    pub mult: Vec<usize>,
    /// The encoder of the condition.
    pub encoder: EncoderConfig,
    /// Whether the encoder stays as it is in training ("fix_bb").
    pub freeze_encoder: bool,
    /// A file of weights (`.pth` or safetensors) that the encoder starts from: torchvision's of a Swin transformer or of VGG-16,
    /// or those of LPIPS with VGG-16.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub encoder_weights: Option<PathBuf>,
    /// How the two outputs are made: `two` or `one`.
    pub decoders: Decoders,
    /// The layer between the bottleneck and each decoder.
    pub split: Split,
    /// For each level, the window that pools the condition before attention ("window_sizes1").
    pub condition_windows: Vec<[usize; 2]>,
    /// For each level, the window that pools the features ("window_sizes2").
    pub feature_windows: Vec<[usize; 2]>,
    /// Heads of every attention of x_t to itself, each of 32 channels.
    pub heads: usize,
    /// Deviation of the fixed frequencies of the time embedding.
    pub fourier_scale: f64,
}

impl Default for CondUNetConfig {
    fn default() -> Self {
        let windows = vec![[8, 8], [4, 4], [2, 2], [1, 1]];
        Self {
            channels: 3,
            patch: 1,
            condition_channels: 3,
            width: 128,
            mult: vec![1, 2, 4, 4],
            encoder: EncoderConfig::SwinB,
            freeze_encoder: false,
            encoder_weights: None,
            decoders: Decoders::Two,
            split: Split::Attention,
            condition_windows: windows.clone(),
            feature_windows: windows,
            heads: 4,
            fourier_scale: 16.0,
        }
    }
}

/// Largest sensible value of any size: beyond it is a slip of the pen, and counts could overflow.
const LIMIT: usize = crate::limits::NETWORK_SIZE.size();

impl CondUNetConfig {
    /// A network with initial weights from `seed`.
    pub fn init(&self, ports: NetworkPorts, seed: u64, device: &Device) -> CondUNet {
        initialized(CondUNet::new(self, ports, seed, device))
    }

    /// A network whose weights are not drawn until they are used; for weights that come from elsewhere.
    pub fn lazy(&self, ports: NetworkPorts, device: &Device) -> CondUNet {
        CondUNet::new(self, ports, 0, device)
    }

    /// Names and shapes of the integer buffers in the reference's state dicts. They are constants or counts, so that loading
    /// ignores them.
    pub fn ignored_buffers(&self) -> Vec<(String, Vec<usize>)> {
        let state = self.state_shapes(NetworkPorts::default());
        let swap = |name: &str, end: &str, buffer: &str| name.strip_suffix(end).map(|start| format!("{start}{buffer}"));
        let buffer = |(name, _): &(String, _)| {
            let index = swap(name, "relative_position_bias_table", "relative_position_index");
            let count = swap(name, "running_var", "num_batches_tracked");
            index.map(|name| (name, vec![2401])).or(count.map(|name| (name, vec![])))
        };
        state.iter().filter_map(buffer).collect()
    }

    /// Channels at the start and after every level.
    pub(super) fn dims(&self) -> Vec<usize> {
        std::iter::once(self.width).chain(self.mult.iter().map(|m| m * self.width)).collect()
    }
}

impl BackboneConfig for CondUNetConfig {
    fn channels(&self) -> usize {
        self.channels
    }
    fn condition_channels(&self) -> Option<usize> {
        Some(self.condition_channels)
    }
    fn decoders(&self) -> Decoders {
        self.decoders
    }
    fn unit(&self) -> usize {
        side_unit(self.patch, self.mult.len())
    }
    fn resolution(&self) -> Option<usize> {
        None
    }
    fn classes(&self) -> usize {
        0
    }
    fn augment_dim(&self) -> usize {
        0
    }
    fn log_time(&self) -> bool {
        true
    }
    fn state_shapes(&self, ports: NetworkPorts) -> Vec<(String, Vec<usize>)> {
        shapes(&CondUNet::new(self, ports, 0, &Device::flex()))
    }
    /// Not trained are running statistics, the frequencies of the time embedding, the classifier of a Swin encoder (which
    /// only state dicts have a use for), and a frozen encoder.
    fn is_trained(&self, name: &str) -> bool {
        let encoder = name.strip_prefix("init_conv_mask.");
        let classifier =
            self.encoder.swin().is_some() && encoder.is_some_and(|n| n.starts_with("norm.") || n.starts_with("head."));
        !(is_buffer(name) || name == "time_mlp.0.W" || classifier || self.freeze_encoder && encoder.is_some())
    }
    fn validate(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        let mut require = |ok, key, message: String| Problem::require(&mut problems, ok, key, message);
        let levels = self.mult.len();
        for (key, size) in [("channels", self.channels), ("condition_channels", self.condition_channels)] {
            require((1..=LIMIT).contains(&size), key, format!("must be between 1 and {LIMIT}, not {size}"));
        }
        require((1..=64).contains(&self.heads), "heads", format!("must be between 1 and 64, not {}", self.heads));
        // Every group normalisation has 8 groups.
        let eights = |size: usize| size > 0 && size <= LIMIT && size.is_multiple_of(8);
        let width = |size: usize| format!("must be a positive multiple of 8, at most {LIMIT}, not {size}");
        require(eights(self.width), "width", width(self.width));
        let mults = self.mult.iter().all(|m| (1..=LIMIT).contains(m)) && (1..=8).contains(&levels);
        require(mults, "mult", format!("must name 1 to 8 levels of 1 to {LIMIT}, not {:?}", self.mult));
        match &self.encoder {
            EncoderConfig::Unet { width: size, stride } => {
                require(eights(*size), "encoder.width", width(*size));
                require([1, 2, 4].contains(stride), "encoder.stride", format!("must be 1, 2 or 4, not {stride}"));
            }
            EncoderConfig::Vgg16 { .. } => {}
            EncoderConfig::SwinB | EncoderConfig::SwinT => {
                require(levels == 4, "mult", format!("must name the four levels of a Swin encoder, not {levels}"))
            }
        }
        for (key, windows) in
            [("condition_windows", &self.condition_windows), ("feature_windows", &self.feature_windows)]
        {
            let fits = windows.len() == levels && windows.iter().flatten().all(|w| (1..=LIMIT).contains(w));
            require(fits, key, format!("must have one pair of positive sizes for each of the {levels} levels"));
        }
        let loadable = self.encoder_weights.is_none() || !matches!(self.encoder, EncoderConfig::Unet { .. });
        require(loadable, "encoder_weights", "are for Swin and VGG-16 encoders".into());
        let decoders = self.decoders != Decoders::Conv;
        require(decoders, "decoders", "must be 'two' or 'one' for a conditional network".into());
        require(self.fourier_scale.is_finite(), "fourier_scale", "must be a number".into());
        if let Split::Fourier { size } = self.split {
            let fits = levels <= 8 && size.iter().all(|&s| s > 0 && s <= LIMIT && s.is_multiple_of(self.unit()));
            require(fits, "split.size", format!("must be positive multiples of {}, not {size:?}", self.unit()));
        }
        problems.extend(patch_problem(self.patch));
        if let EncoderConfig::Vgg16 { layers } = &self.encoder {
            problems.extend(vgg::problems(layers, levels, self.patch, self.condition_channels));
        }
        problems
    }
}

/// The names that [`condition_preset`] knows: the reference's networks by task, and small ones.
pub const CONDITION_PRESETS: [&str; 9] = [
    "small",
    "small-swin",
    "inpainting",
    "super-resolution",
    "saliency",
    "saliency-pixels",
    "depth-pixels",
    "sketch",
    "diffusion-edge",
];

/// The network with a name of [`CONDITION_PRESETS`] (appendix A). All but `small` and the two on pixels work on latents of three channels.
pub fn condition_preset(name: &str) -> Option<CondUNetConfig> {
    let base = CondUNetConfig::default();
    Some(match name {
        "small" => CondUNetConfig {
            width: 32,
            mult: vec![1, 2, 2],
            encoder: EncoderConfig::Unet { width: 32, stride: 1 },
            condition_windows: vec![[8, 8], [4, 4], [2, 2]],
            feature_windows: vec![[8, 8], [4, 4], [2, 2]],
            ..base
        },
        "small-swin" => CondUNetConfig { width: 32, encoder: EncoderConfig::SwinT, ..base },
        "inpainting" => CondUNetConfig { width: 96, mult: vec![1, 2, 4, 8], ..base },
        "super-resolution" => CondUNetConfig { feature_windows: vec![[4, 4], [2, 2], [1, 1], [1, 1]], ..base },
        "saliency" => base,
        "saliency-pixels" => CondUNetConfig { channels: 1, ..base },
        "depth-pixels" => {
            let windows = vec![[6, 8], [3, 4], [1, 2], [1, 1]];
            CondUNetConfig { channels: 1, condition_windows: windows.clone(), feature_windows: windows, ..base }
        }
        "sketch" => CondUNetConfig { condition_channels: 1, ..base },
        "diffusion-edge" => CondUNetConfig { split: Split::Fourier { size: [80, 80] }, ..base },
        _ => return None,
    })
}
