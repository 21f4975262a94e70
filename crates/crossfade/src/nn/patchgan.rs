//! The discriminator of autoencoder training: one logit for each patch of an image (§5).
use burn::module::Module;
use burn::tensor::{Device, Tensor, activation};

use super::batch_norm::{BatchNorm2d, BatchNormOptions};
use super::init::{Init, Scope};
use super::layers::{Conv, ConvOptions};
use super::mode::Statistics;
use super::module_macros::enum_module;

/// Slope of the leaky ReLU for negative values.
const SLOPE: f64 = 0.2;
/// Standard deviation of the initial weights.
const STD: f64 = 0.02;
/// Side of every convolution's kernel.
const KERNEL: usize = 4;
/// PyTorch's constants.
const NORM: BatchNormOptions =
    BatchNormOptions { epsilon: 1e-5, momentum: 0.1, weight: Init::Normal { mean: 1.0, std: STD } };

/// One of the layers in sequence, which the reference numbers.
#[derive(Clone, Debug)]
enum Layer {
    Conv(Conv),
    Norm(BatchNorm2d),
    LeakyRelu,
}

enum_module!(Layer { Conv, Norm } empty LeakyRelu);

/// PatchGAN: strided convolutions, batch normalisation and leaky ReLUs.
#[derive(Module, Debug)]
pub struct PatchGan {
    main: Vec<Layer>,
}

impl PatchGan {
    /// For images of `channels` channels; `width` filters at first and `depth` levels (the reference: 64 and 3).
    pub fn new(channels: usize, width: usize, depth: usize, seed: u64, device: &Device) -> Self {
        let root = Scope::root(seed, device).at("loss.discriminator.main");
        let mut main = vec![];
        let filters = |level: usize| width * (1 << level).min(8);
        let conv = |main: &mut Vec<Layer>, cin: usize, cout: usize, stride: usize, bias: bool| {
            let bias = bias.then_some(Init::fan_in(cin * KERNEL * KERNEL));
            let weight = Init::Normal { mean: 0.0, std: STD };
            let options = ConvOptions { stride, padding: 1, weight, bias, ..ConvOptions::same(cin, cout, KERNEL) };
            main.push(Layer::Conv(Conv::with(&root.at(&main.len().to_string()), options)));
        };
        conv(&mut main, channels, width, 2, true);
        main.push(Layer::LeakyRelu);
        for level in 1..=depth {
            let stride = if level < depth { 2 } else { 1 };
            // The normalisation has a shift of its own.
            conv(&mut main, filters(level - 1), filters(level), stride, false);
            let norm = BatchNorm2d::new(&root.at(&main.len().to_string()), filters(level), NORM);
            main.extend([Layer::Norm(norm), Layer::LeakyRelu]);
        }
        conv(&mut main, filters(depth), 1, 1, true);
        Self { main }
    }

    /// Logits of the patches, by the running statistics; positive means real.
    ///
    /// # Shapes
    /// `[B, C, H, W]` to `[B, 1, H', W']`.
    pub fn forward(&self, x: Tensor<4>) -> Tensor<4> {
        self.main.iter().fold(x, |x, layer| match layer {
            Layer::Conv(conv) => conv.forward(x),
            Layer::Norm(norm) => norm.forward(x),
            Layer::LeakyRelu => activation::leaky_relu(x, SLOPE),
        })
    }

    /// Logits of the patches, by the statistics of the batch, which are noted in `statistics`.
    ///
    /// # Shapes
    /// As [`PatchGan::forward`].
    pub fn train_forward(&self, x: Tensor<4>, statistics: &Statistics) -> Tensor<4> {
        self.main.iter().fold(x, |x, layer| match layer {
            Layer::Conv(conv) => conv.forward(x),
            Layer::Norm(norm) => norm.forward_batch_composed(x, statistics),
            Layer::LeakyRelu => activation::leaky_relu(x, SLOPE),
        })
    }

    /// The smallest side of an image that leaves at least one patch.
    pub(crate) fn least_side(depth: usize) -> usize {
        // Two convolutions at the last resolution take one pixel each.
        3 << depth
    }
}
