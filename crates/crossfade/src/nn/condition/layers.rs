//! Layers that only the conditional networks have.
use burn::module::{Module, Param};
use burn::tensor::Tensor;

use crate::engine::{condition, is_fast, to_host};
use crate::nn::init::{Place, Start};
use crate::nn::layers::{Conv, composed, conv2d, conv2d_onto, group_norm, group_norm_silu};
use crate::nn::mode::{Mode, Statistics};

/// Uniform in ±1/√fan_in, the default of convolutions and dense layers.
pub fn fan(fan_in: usize) -> Start {
    Start::Uniform(1.0 / (fan_in as f64).sqrt())
}

/// A convolution with any stride, padding and start.
#[derive(Module, Debug)]
pub struct AnyConv {
    weight: Param<Tensor<4>>,
    bias: Param<Tensor<1>>,
    stride: usize,
    padding: usize,
}

impl AnyConv {
    /// Weights and biases uniform in ±1/√fan_in.
    pub fn new(place: &Place, [cin, cout, kernel]: [usize; 3], stride: usize, padding: usize) -> Self {
        let start = fan(cin * kernel * kernel);
        Self {
            weight: place.param("weight", [cout, cin, kernel, kernel], start),
            bias: place.param("bias", [cout], start),
            stride,
            padding,
        }
    }

    /// A 1x1 convolution of Kaiming-normal weights, √(2/fan_in), and zero biases.
    pub fn kaiming(place: &Place, cin: usize, cout: usize) -> Self {
        let start = Start::Normal { mean: 0.0, std: (2.0 / cin as f64).sqrt() };
        Self {
            weight: place.param("weight", [cout, cin, 1, 1], start),
            bias: place.param("bias", [cout], Start::Zeros),
            stride: 1,
            padding: 0,
        }
    }

    /// # Shapes
    /// `[B, cin, H, W]` to `[B, cout, H', W']`.
    pub fn forward(&self, x: Tensor<4>) -> Tensor<4> {
        conv2d(x, self.weight.val(), self.bias.val(), self.stride, self.padding)
    }

    /// `base` plus the convolution of `x`.
    ///
    /// # Shapes
    /// `x` `[B, cin, H, W]`, `base` and the result `[B, cout, H', W']`.
    pub fn forward_onto(&self, base: Tensor<4>, x: Tensor<4>) -> Tensor<4> {
        conv2d_onto(base, x, self.weight.val(), self.bias.val(), self.stride, self.padding)
    }
}

/// y = x Wᵀ + b for many rows at once.
#[derive(Module, Debug)]
pub struct TokenDense {
    weight: Param<Tensor<2>>,
    bias: Option<Param<Tensor<1>>>,
}

impl TokenDense {
    /// Weights by `start`, zero biases if any.
    pub fn new(place: &Place, cin: usize, cout: usize, start: Start, bias: bool) -> Self {
        Self {
            weight: place.param("weight", [cout, cin], start),
            bias: bias.then(|| place.param("bias", [cout], Start::Zeros)),
        }
    }

    /// # Shapes
    /// `[N, in]` to `[N, out]`.
    pub fn forward(&self, x: Tensor<2>) -> Tensor<2> {
        composed::linear(x, self.weight.val(), self.bias.as_ref().map(Param::val))
    }
}

/// Group normalisation over a given number of groups.
#[derive(Module, Debug)]
pub struct GroupNormed {
    weight: Param<Tensor<1>>,
    bias: Param<Tensor<1>>,
    groups: usize,
}

impl GroupNormed {
    /// Starts as the identity after normalisation.
    pub fn new(place: &Place, channels: usize, groups: usize) -> Self {
        Self {
            weight: place.param("weight", [channels], Start::Ones),
            bias: place.param("bias", [channels], Start::Zeros),
            groups,
        }
    }

    /// # Shapes
    /// `[B, C, H, W]` to the same.
    pub fn forward(&self, x: Tensor<4>) -> Tensor<4> {
        group_norm(x, self.weight.val(), self.bias.val(), self.groups)
    }

    /// Normalises, modulates if asked, applies SiLU.
    ///
    /// # Shapes
    /// `[B, C, H, W]` to the same; `scale_shift` `[B, 2C]`.
    pub fn silu(&self, x: Tensor<4>, scale_shift: Option<Tensor<2>>) -> Tensor<4> {
        group_norm_silu(x, self.weight.val(), self.bias.val(), self.groups, scale_shift)
    }
}

/// Layer normalisation of rows, ε = 1e-5: group normalisation of images of one pixel and one group.
#[derive(Module, Debug)]
pub struct TokenNorm {
    weight: Param<Tensor<1>>,
    bias: Param<Tensor<1>>,
}

impl TokenNorm {
    /// Starts as the identity after normalisation.
    pub fn new(place: &Place, channels: usize) -> Self {
        Self {
            weight: place.param("weight", [channels], Start::Ones),
            bias: place.param("bias", [channels], Start::Zeros),
        }
    }

    /// # Shapes
    /// `[N, C]` to the same.
    pub fn forward(&self, x: Tensor<2>) -> Tensor<2> {
        let [n, c] = x.dims();
        group_norm(x.reshape([n, c, 1, 1]), self.weight.val(), self.bias.val(), 1).reshape([n, c])
    }
}

/// (x − mean)/√(var + 1e-5)·g over the channels of every pixel (§4.6, "LayerNorm").
///
/// # Shapes
/// `x` `[B, C, H, W]` to the same, `gain` `[1, C, 1, 1]`.
pub fn channel_norm(x: Tensor<4>, gain: Tensor<4>) -> Tensor<4> {
    if is_fast(&x) {
        return condition::channel_norm(x, gain);
    }
    composed_channel_norm(x, gain)
}

/// [`channel_norm`] in the engine's own operations.
///
/// # Shapes
/// As there.
pub fn composed_channel_norm(x: Tensor<4>, gain: Tensor<4>) -> Tensor<4> {
    let centred = x.clone() - x.mean_dim(1);
    let variance = centred.clone().square().mean_dim(1);
    centred / (variance + 1e-5).sqrt() * gain
}

/// Batch normalisation, ε = 1e-3. Its running statistics are buffers under the reference's names.
#[derive(Module, Debug)]
pub struct BatchNormed {
    weight: Param<Tensor<1>>,
    bias: Param<Tensor<1>>,
    running_mean: Param<Tensor<1>>,
    running_var: Param<Tensor<1>>,
}

const BATCH_EPSILON: f64 = 1e-3;

impl BatchNormed {
    /// Starts as the identity.
    pub fn new(place: &Place, channels: usize) -> Self {
        Self {
            weight: place.param("weight", [channels], Start::Ones),
            bias: place.param("bias", [channels], Start::Zeros),
            running_mean: place.param("running_mean", [channels], Start::Zeros),
            running_var: place.param("running_var", [channels], Start::Ones),
        }
    }

    /// This normalisation of `conv` of `x`. In evaluation it is an affine map, which goes into the weights.
    ///
    /// # Shapes
    /// `[B, cin, H, W]` to `[B, C, H, W]`.
    pub fn after(&self, conv: &Conv, x: Tensor<4>, mode: Mode) -> Tensor<4> {
        let Mode::Train { statistics, .. } = mode else {
            let (weight, c) = (conv.weight(), self.weight.lazy_shape()[0]);
            let variance = self.running_var.val().detach();
            let scale = self.weight.val() / (variance + BATCH_EPSILON).sqrt();
            let bias = (conv.bias() - self.running_mean.val().detach()) * scale.clone() + self.bias.val();
            let padding = weight.dims()[2] / 2;
            return conv2d(x, weight * scale.reshape([c, 1, 1, 1]), bias, 1, padding);
        };
        self.of_batch(conv.forward(x), statistics)
    }

    /// By the statistics of the batch.
    ///
    /// # Shapes
    /// `[B, C, H, W]` to the same.
    pub fn of_batch(&self, x: Tensor<4>, statistics: &Statistics) -> Tensor<4> {
        let [b, _, h, w] = x.dims();
        let (gamma, beta) = (self.weight.val(), self.bias.val());
        let (y, mean, variance) = if is_fast(&x) {
            let (y, moments) = condition::batch_norm(x, gamma, beta, BATCH_EPSILON);
            let (mean, variance) = moments.split();
            (y, mean, variance)
        } else {
            composed_batch_norm(x, gamma, beta)
        };
        // The running variance is the unbiased one, as in PyTorch.
        let count = b * h * w;
        let unbiased = (count as f64 / (count.max(2) - 1) as f64) as f32;
        statistics.note(self.running_mean.id, mean);
        statistics.note(self.running_var.id, variance.iter().map(|v| v * unbiased).collect());
        y
    }
}

/// Batch normalisation in the engine's own operations, with mean and biased variance of the batch.
///
/// # Shapes
/// `x` `[B, C, H, W]` to the same, `gamma` and `beta` `[C]`.
pub fn composed_batch_norm(x: Tensor<4>, gamma: Tensor<1>, beta: Tensor<1>) -> (Tensor<4>, Vec<f32>, Vec<f32>) {
    let [b, c, h, w] = x.dims();
    let rows: Tensor<2> = x.clone().swap_dims(0, 1).reshape([c, b * h * w]);
    let mean = rows.clone().mean_dim(1);
    let variance = (rows - mean.clone()).square().mean_dim(1);
    let (mean, variance): (Tensor<1>, Tensor<1>) = (mean.reshape([c]), variance.reshape([c]));
    let scale = gamma / (variance.clone() + BATCH_EPSILON).sqrt();
    let shift = beta - mean.clone() * scale.clone();
    let y = x * scale.reshape([1, c, 1, 1]) + shift.reshape([1, c, 1, 1]);
    (y, to_host(mean.detach()), to_host(variance.detach()))
}
