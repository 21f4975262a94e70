//! Batch normalisation with running statistics.
use burn::module::{Module, Param};
use burn::tensor::Tensor;

use super::functional::composed;
use super::init::{Init, Scope};
use super::layers::Conv;
use super::mode::{Mode, Statistics};
use crate::engine::{condition, has_kernels, to_host};

/// The constants of a batch normalisation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BatchNormOptions {
    /// Added to the variance.
    pub epsilon: f64,
    /// Share of a new batch in the running statistics.
    pub momentum: f32,
    /// Initial scales; shifts start at zero.
    pub weight: Init,
}

/// y = (x − mean)/√(var + ε)·γ + β for each channel.
///
/// The running statistics are buffers: parameters without gradient under the names that PyTorch gives them.
#[derive(Module, Debug)]
pub struct BatchNorm2d {
    weight: Param<Tensor<1>>,
    bias: Param<Tensor<1>>,
    running_mean: Param<Tensor<1>>,
    running_var: Param<Tensor<1>>,
    #[module(skip)]
    epsilon: f64,
    #[module(skip)]
    momentum: f32,
}

impl BatchNorm2d {
    /// For `channels` channels.
    pub fn new(scope: &Scope, channels: usize, options: BatchNormOptions) -> Self {
        Self {
            weight: scope.param("weight", [channels], options.weight),
            bias: scope.param("bias", [channels], Init::Zeros),
            running_mean: scope.buffer("running_mean", [channels], Init::Zeros),
            running_var: scope.buffer("running_var", [channels], Init::Ones),
            epsilon: options.epsilon,
            momentum: options.momentum,
        }
    }

    /// Normalises by the running statistics.
    ///
    /// # Shapes
    /// `[B, C, H, W]` to the same.
    pub fn forward(&self, x: Tensor<4>) -> Tensor<4> {
        let c = x.dims()[1];
        let column = |v: Tensor<1>| v.reshape([1, c, 1, 1]);
        let [mean, variance] = self.running().map(column);
        let gain = column(self.weight.val()) / (variance + self.epsilon).sqrt();
        (x - mean) * gain + column(self.bias.val())
    }

    /// Normalises by the batch's own statistics, which it notes, in the engine's operations on every device.
    ///
    /// [`BatchNorm2d::forward_batch`] computes the same to other bits; a discriminator that was trained by this goes on to
    /// the bit only by this.
    ///
    /// # Shapes
    /// `[B, C, H, W]` to the same.
    pub(crate) fn forward_batch_composed(&self, x: Tensor<4>, statistics: &Statistics) -> Tensor<4> {
        let count = samples(&x);
        let (y, batch) = composed::batch_norm(x, self.weight.val(), self.bias.val(), self.epsilon);
        self.note(batch.map(|values| to_host(values.detach())), count, statistics);
        y
    }

    /// Normalises by the batch's own statistics, which it notes.
    ///
    /// # Shapes
    /// `[B, C, H, W]` to the same.
    pub(crate) fn forward_batch(&self, x: Tensor<4>, statistics: &Statistics) -> Tensor<4> {
        if !has_kernels(&x) {
            return self.forward_batch_composed(x, statistics);
        }
        let count = samples(&x);
        let (y, moments) = condition::batch_norm(x, self.weight.val(), self.bias.val(), self.epsilon);
        self.note(moments.split(), count, statistics);
        y
    }

    /// This normalisation of the convolution of `x`. In evaluation it is an affine map of each channel, which is multiplied
    /// into the convolution's weights instead of being a pass over the image.
    ///
    /// # Shapes
    /// `[B, cin, H, W]` to `[B, C, H', W']`.
    pub(crate) fn forward_after(&self, conv: &Conv, x: Tensor<4>, mode: Mode) -> Tensor<4> {
        if let Mode::Train { statistics, .. } = mode {
            return self.forward_batch(conv.forward(x), statistics);
        }
        let c = self.weight.lazy_shape()[0];
        let [mean, variance] = self.running();
        let scale = self.weight.val() / (variance + self.epsilon).sqrt();
        let bias = (conv.bias() - mean) * scale.clone() + self.bias.val();
        conv.forward_with(x, conv.weight() * scale.reshape([c, 1, 1, 1]), bias)
    }

    /// Running mean and variance, as constants of the graph, `[C]` each.
    fn running(&self) -> [Tensor<1>; 2] {
        [&self.running_mean, &self.running_var].map(|buffer| buffer.val().detach())
    }

    /// Notes mean and biased variance of a batch of `count` values a channel.
    fn note(&self, [mean, variance]: [Vec<f32>; 2], count: usize, statistics: &Statistics) {
        // The running variance is the unbiased one, as in PyTorch.
        let unbiased = (count as f64 / (count.max(2) - 1) as f64) as f32;
        statistics.note(self.running_mean.id, self.momentum, mean);
        statistics.note(self.running_var.id, self.momentum, variance.iter().map(|v| v * unbiased).collect());
    }
}

/// Values a channel.
fn samples(x: &Tensor<4>) -> usize {
    let [b, _, h, w] = x.dims();
    b * h * w
}
