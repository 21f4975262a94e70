//! The autoencoder between images and latents (AutoencoderKL, §5), with the reference's names.
mod block;
mod config;
mod posterior;

pub use config::AutoencoderConfig;
pub use posterior::Posterior;

use burn::module::Module;
use burn::tensor::{Device, Tensor};

use super::init::Scope;
use super::layers::{Conv, GroupNorm2d};
use block::{Down, Middle, ResBlock, Up, norm};

/// Encoder, decoder and the two 1x1 convolutions between them.
#[derive(Module, Debug)]
pub struct Autoencoder {
    encoder: Encoder,
    decoder: Decoder,
    quant_conv: Conv,
    post_quant_conv: Conv,
}

#[derive(Module, Debug)]
struct Encoder {
    conv_in: Conv,
    down: Vec<EncoderLevel>,
    mid: Middle,
    norm_out: GroupNorm2d,
    conv_out: Conv,
}

#[derive(Module, Debug)]
struct EncoderLevel {
    block: Vec<ResBlock>,
    downsample: Option<Down>,
}

#[derive(Module, Debug)]
struct Decoder {
    conv_in: Conv,
    mid: Middle,
    up: Vec<DecoderLevel>,
    norm_out: GroupNorm2d,
    conv_out: Conv,
}

#[derive(Module, Debug)]
struct DecoderLevel {
    block: Vec<ResBlock>,
    upsample: Option<Up>,
}

/// `count` blocks, of which the first changes the number of channels.
fn blocks(scope: &Scope, cin: usize, cout: usize, count: usize) -> Vec<ResBlock> {
    let at = |i: usize| scope.at(&format!("block.{i}"));
    (0..count).map(|i| ResBlock::new(&at(i), if i == 0 { cin } else { cout }, cout)).collect()
}

impl Encoder {
    fn new(scope: &Scope, config: &AutoencoderConfig) -> Self {
        let last = config.mult.len() - 1;
        let level = |l: usize| {
            let scope = scope.at(&format!("down.{l}"));
            let (cin, cout) = (if l == 0 { config.width } else { config.channels_at(l - 1) }, config.channels_at(l));
            EncoderLevel {
                block: blocks(&scope, cin, cout, config.blocks),
                downsample: (l < last).then(|| Down::new(&scope.at("downsample"), cout)),
            }
        };
        let deep = config.channels_at(last);
        Self {
            conv_in: Conv::new(&scope.at("conv_in"), config.channels, config.width, 3),
            down: (0..=last).map(level).collect(),
            mid: Middle::new(&scope.at("mid"), deep),
            norm_out: norm(&scope.at("norm_out"), deep),
            conv_out: Conv::new(&scope.at("conv_out"), deep, 2 * config.bottleneck, 3),
        }
    }

    fn forward(&self, x: Tensor<4>) -> Tensor<4> {
        let x = self.down.iter().fold(self.conv_in.forward(x), |x, level| {
            let x = level.block.iter().fold(x, |x, block| block.forward(x));
            match &level.downsample {
                Some(down) => down.forward(x),
                None => x,
            }
        });
        self.conv_out.forward(self.norm_out.silu(self.mid.forward(x), None))
    }
}

impl Decoder {
    fn new(scope: &Scope, config: &AutoencoderConfig) -> Self {
        let last = config.mult.len() - 1;
        let level = |l: usize| {
            let scope = scope.at(&format!("up.{l}"));
            let (cin, cout) = (config.channels_at((l + 1).min(last)), config.channels_at(l));
            DecoderLevel {
                block: blocks(&scope, cin, cout, config.blocks + 1),
                upsample: (l > 0).then(|| Up::new(&scope.at("upsample"), cout)),
            }
        };
        let (deep, shallow) = (config.channels_at(last), config.channels_at(0));
        Self {
            conv_in: Conv::new(&scope.at("conv_in"), config.bottleneck, deep, 3),
            mid: Middle::new(&scope.at("mid"), deep),
            up: (0..=last).map(level).collect(),
            norm_out: norm(&scope.at("norm_out"), shallow),
            conv_out: Conv::new(&scope.at("conv_out"), shallow, config.channels, 3),
        }
    }

    /// All but the last convolution. Level 0 is full resolution, so levels run from the highest down.
    fn features(&self, z: Tensor<4>) -> Tensor<4> {
        let x = self.mid.forward(self.conv_in.forward(z));
        let x = self.up.iter().rev().fold(x, |x, level| {
            let x = level.block.iter().fold(x, |x, block| block.forward(x));
            match &level.upsample {
                Some(up) => up.forward(x),
                None => x,
            }
        });
        self.norm_out.silu(x, None)
    }
}

impl Autoencoder {
    pub(super) fn new(config: &AutoencoderConfig, seed: u64, device: &Device) -> Self {
        let root = Scope::root(seed, device);
        let (inner, latent) = (config.bottleneck, config.latent);
        Self {
            encoder: Encoder::new(&root.at("encoder"), config),
            decoder: Decoder::new(&root.at("decoder"), config),
            quant_conv: Conv::new(&root.at("quant_conv"), 2 * inner, 2 * latent, 1),
            post_quant_conv: Conv::new(&root.at("post_quant_conv"), latent, inner, 1),
        }
    }

    /// The distribution of an image's latent: an independent normal one for each of its numbers.
    ///
    /// # Shapes
    /// `[B, C, H, W]` in \[−1, 1\] to `[B, 2·latent, H/f, W/f]` of moments.
    pub fn encode(&self, x: Tensor<4>) -> Posterior {
        Posterior::new(self.quant_conv.forward(self.encoder.forward(x)))
    }

    /// The image of a latent, not limited to \[−1, 1\].
    ///
    /// # Shapes
    /// `[B, latent, H/f, W/f]` to `[B, C, H, W]`.
    pub fn decode(&self, z: Tensor<4>) -> Tensor<4> {
        self.last(self.features(z))
    }

    /// The input of the decoder's last convolution.
    ///
    /// # Shapes
    /// `[B, latent, H/f, W/f]` to `[B, width, H, W]`.
    pub fn features(&self, z: Tensor<4>) -> Tensor<4> {
        self.decoder.features(self.post_quant_conv.forward(z))
    }

    /// The last convolution of the decoder. The adversarial loss is balanced by the gradients at its weights (§5).
    ///
    /// # Shapes
    /// `[B, width, H, W]` to `[B, C, H, W]`.
    pub fn last(&self, features: Tensor<4>) -> Tensor<4> {
        self.decoder.conv_out.forward(features)
    }

    /// The gradient of the last convolution's weights, from a backward pass.
    pub(crate) fn last_gradient(&self, gradients: &burn::tensor::Gradients) -> Option<Tensor<4>> {
        self.decoder.conv_out.weight().grad(gradients)
    }
}
