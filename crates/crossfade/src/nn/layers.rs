//! Convolution, dense layer and group normalisation with the layouts and names of PyTorch.
//!
//! The structs avoid the names `Conv2d`, `Linear` and `GroupNorm`, on which the engine's file adapters act.
//! The free functions are the operations themselves; nothing else in the toolkit convolves or normalises.
use burn::module::{Module, Param};
use burn::tensor::ops::{AvgPoolOptions, ConvOptions, InterpolateMode, InterpolateOptions};
use burn::tensor::{Tensor, activation, module};

use super::init::{Place, Start};
use crate::engine::is_fast;
use crate::engine::ops::{self, NORM_EPSILON};

/// A convolution of stride 1 that keeps the size of the image (§4.2: 3x3 padded by 1, or 1x1).
#[derive(Module, Debug)]
pub struct Conv {
    weight: Param<Tensor<4>>,
    bias: Param<Tensor<1>>,
}

impl Conv {
    /// Weights and biases uniform in ±1/√fan_in.
    pub fn new(place: &Place, cin: usize, cout: usize, kernel: usize) -> Self {
        Self::scaled(place, [cin, cout, kernel], 1.0, 1.0)
    }

    /// Starts at zero: the layer's branch is silent until it has learnt something.
    pub fn zero(place: &Place, cin: usize, cout: usize, kernel: usize) -> Self {
        Self::scaled(place, [cin, cout, kernel], 0.0, 0.0)
    }

    /// The last layer of a head: weights of variance 1/fan_in, no bias.
    pub fn last(place: &Place, cin: usize, cout: usize, kernel: usize) -> Self {
        Self::scaled(place, [cin, cout, kernel], 3f64.sqrt(), 0.0)
    }

    fn scaled(place: &Place, [cin, cout, kernel]: [usize; 3], weight: f64, bias: f64) -> Self {
        let fan_in = cin * kernel * kernel;
        Self {
            weight: place.param("weight", [cout, cin, kernel, kernel], fan(weight, fan_in)),
            bias: place.param("bias", [cout], fan(bias, fan_in)),
        }
    }

    /// # Shapes
    /// `[B, cin, H, W]` to `[B, cout, H, W]`.
    pub fn forward(&self, x: Tensor<4>) -> Tensor<4> {
        let weight = self.weight.val();
        let padding = weight.dims()[2] / 2;
        conv2d(x, weight, self.bias.val(), 1, padding)
    }

    /// The weights, `[cout, cin, k, k]`.
    pub fn weight(&self) -> Tensor<4> {
        self.weight.val()
    }

    /// The biases, `[cout]`.
    pub fn bias(&self) -> Tensor<1> {
        self.bias.val()
    }

    /// `base` plus the convolution of `x`.
    ///
    /// # Shapes
    /// `x` `[B, cin, H, W]`, `base` and the result `[B, cout, H, W]`.
    pub fn forward_onto(&self, base: Tensor<4>, x: Tensor<4>) -> Tensor<4> {
        let weight = self.weight.val();
        let padding = weight.dims()[2] / 2;
        conv2d_onto(base, x, weight, self.bias.val(), 1, padding)
    }
}

/// y = x Wᵀ + b with W stored `[out, in]`.
#[derive(Module, Debug)]
pub struct Dense {
    weight: Param<Tensor<2>>,
    bias: Option<Param<Tensor<1>>>,
}

impl Dense {
    /// Weights and biases uniform in ±1/√fan_in.
    pub fn new(place: &Place, cin: usize, cout: usize) -> Self {
        let start = fan(1.0, cin);
        Self { weight: place.param("weight", [cout, cin], start), bias: Some(place.param("bias", [cout], start)) }
    }

    /// Without bias, starting at zero.
    pub fn zero(place: &Place, cin: usize, cout: usize) -> Self {
        Self { weight: place.param("weight", [cout, cin], Start::Zeros), bias: None }
    }

    /// # Shapes
    /// `[B, in]` to `[B, out]`.
    pub fn forward(&self, x: Tensor<2>) -> Tensor<2> {
        linear(x, self.weight.val(), self.bias.as_ref().map(Param::val))
    }
}

fn fan(gain: f64, fan_in: usize) -> Start {
    if gain == 0.0 { Start::Zeros } else { Start::Uniform(gain / (fan_in as f64).sqrt()) }
}

/// Group normalisation over min(32, C/4) groups.
#[derive(Module, Debug)]
pub struct Norm {
    weight: Param<Tensor<1>>,
    bias: Param<Tensor<1>>,
    groups: usize,
}

impl Norm {
    /// Starts as the identity after normalisation.
    pub fn new(place: &Place, channels: usize) -> Self {
        Self {
            weight: place.param("weight", [channels], Start::Ones),
            bias: place.param("bias", [channels], Start::Zeros),
            groups: groups(channels),
        }
    }

    /// Normalises only.
    ///
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

/// The number of groups for `channels` (§4.2).
pub fn groups(channels: usize) -> usize {
    (channels / 4).clamp(1, 32)
}

/// 2-D convolution.
///
/// # Shapes
/// `x` `[B, cin, H, W]`, `weight` `[cout, cin, k, k]`, `bias` `[cout]`.
pub fn conv2d(x: Tensor<4>, weight: Tensor<4>, bias: Tensor<1>, stride: usize, padding: usize) -> Tensor<4> {
    if is_fast(&x) {
        return ops::conv2d(x, weight, bias, None, stride, padding);
    }
    composed::conv2d(x, weight, bias, stride, padding)
}

/// `base` plus [`conv2d`].
///
/// # Shapes
/// As there; `base` has the shape of the result.
pub fn conv2d_onto(
    base: Tensor<4>,
    x: Tensor<4>,
    weight: Tensor<4>,
    bias: Tensor<1>,
    stride: usize,
    padding: usize,
) -> Tensor<4> {
    if is_fast(&x) {
        return ops::conv2d(x, weight, bias, Some(base), stride, padding);
    }
    base + composed::conv2d(x, weight, bias, stride, padding)
}

/// y = (x − mean)/√(var + 1e-5)·γ + β, mean and (biased) variance over each sample's groups of channels.
///
/// # Shapes
/// `x` `[B, C, H, W]`, `gamma` and `beta` `[C]`.
pub fn group_norm(x: Tensor<4>, gamma: Tensor<1>, beta: Tensor<1>, groups: usize) -> Tensor<4> {
    if is_fast(&x) {
        return ops::norm(x, gamma, beta, groups, None, false);
    }
    composed::group_norm(x, gamma, beta, groups)
}

/// SiLU(GN(x)), or SiLU(GN(x)·(1 + scale) + shift) (§4.2).
///
/// # Shapes
/// `x` `[B, C, H, W]`, `gamma` and `beta` `[C]`, `scale_shift` `[B, 2C]`, scale first.
pub fn group_norm_silu(
    x: Tensor<4>,
    gamma: Tensor<1>,
    beta: Tensor<1>,
    groups: usize,
    scale_shift: Option<Tensor<2>>,
) -> Tensor<4> {
    if is_fast(&x) {
        return ops::norm(x, gamma, beta, groups, scale_shift, true);
    }
    composed::group_norm_silu(x, gamma, beta, groups, scale_shift)
}

/// y = x Wᵀ + b.
///
/// # Shapes
/// `x` `[B, in]`, `weight` `[out, in]`, `bias` `[out]` to `[B, out]`.
pub fn linear(x: Tensor<2>, weight: Tensor<2>, bias: Option<Tensor<1>>) -> Tensor<2> {
    if is_fast(&x) {
        return ops::linear(whole_vectors(x), whole_vectors(weight), bias);
    }
    composed::linear(x, weight, bias)
}

/// With zeros up to the width that the kernel computes with: the engine's own product would sum a sample in an order that
/// depends on its batch.
///
/// # Shapes
/// `[n, in]` to `[n, in']`, in' a multiple of [`ops::LINEAR_WIDTH`].
fn whole_vectors(x: Tensor<2>) -> Tensor<2> {
    let [rows, columns] = x.dims();
    match columns.next_multiple_of(ops::LINEAR_WIDTH) - columns {
        0 => x,
        missing => {
            let zeros = Tensor::zeros([rows, missing], &x.device().without_autodiff());
            Tensor::cat(vec![x, zeros], 1)
        }
    }
}

/// The channels of `a`, then those of `b`.
///
/// # Shapes
/// `[B, C, H, W]` and `[B, D, H, W]` to `[B, C + D, H, W]`.
pub fn concat(a: Tensor<4>, b: Tensor<4>) -> Tensor<4> {
    if is_fast(&a) { ops::concat(a, b) } else { Tensor::cat(vec![a, b], 1) }
}

/// SiLU(x) = x/(1 + e^(−x)).
pub fn silu<const D: usize>(x: Tensor<D>) -> Tensor<D> {
    if is_fast(&x) { ops::silu(x) } else { activation::silu(x) }
}

/// The mean of every 2x2 square.
///
/// # Shapes
/// `[B, C, H, W]` to `[B, C, H/2, W/2]`.
pub fn halve(x: Tensor<4>) -> Tensor<4> {
    if is_fast(&x) { ops::halve(x) } else { composed::halve(x) }
}

/// Every pixel becomes a 2x2 square.
///
/// # Shapes
/// `[B, C, H, W]` to `[B, C, 2H, 2W]`.
pub fn double(x: Tensor<4>) -> Tensor<4> {
    if is_fast(&x) { ops::double(x) } else { composed::double(x) }
}

/// The same in the engine's own operations, for every device but the CPU and as the measure of the fast ones.
pub mod composed {
    use super::*;

    /// As [`super::conv2d`].
    pub fn conv2d(x: Tensor<4>, weight: Tensor<4>, bias: Tensor<1>, stride: usize, padding: usize) -> Tensor<4> {
        let options = ConvOptions::new([stride, stride], [padding, padding], [1, 1], 1);
        module::conv2d(x, weight, Some(bias), options)
    }

    /// As [`super::group_norm`].
    pub fn group_norm(x: Tensor<4>, gamma: Tensor<1>, beta: Tensor<1>, groups: usize) -> Tensor<4> {
        let [b, c, h, w] = x.dims();
        let x = x.reshape([b, groups, c / groups * h * w]);
        let x = x.clone() - x.mean_dim(2);
        let variance = x.clone().square().mean_dim(2);
        let x = x / (variance + NORM_EPSILON).sqrt();
        x.reshape([b, c, h, w]) * gamma.reshape([1, c, 1, 1]) + beta.reshape([1, c, 1, 1])
    }

    /// As [`super::group_norm_silu`].
    pub fn group_norm_silu(
        x: Tensor<4>,
        gamma: Tensor<1>,
        beta: Tensor<1>,
        groups: usize,
        scale_shift: Option<Tensor<2>>,
    ) -> Tensor<4> {
        let [b, c, _, _] = x.dims();
        let y = group_norm(x, gamma, beta, groups);
        let y = match scale_shift {
            None => y,
            Some(modulation) => {
                let modulation = modulation.reshape([b, 2 * c, 1, 1]);
                y * (modulation.clone().narrow(1, 0, c) + 1.0) + modulation.narrow(1, c, c)
            }
        };
        activation::silu(y)
    }

    /// As [`super::linear`].
    pub fn linear(x: Tensor<2>, weight: Tensor<2>, bias: Option<Tensor<1>>) -> Tensor<2> {
        let y = x.matmul(weight.transpose());
        match bias {
            Some(bias) => y + bias.unsqueeze(),
            None => y,
        }
    }

    /// As [`super::halve`].
    pub fn halve(x: Tensor<4>) -> Tensor<4> {
        module::avg_pool2d(x, AvgPoolOptions::new([2, 2]))
    }

    /// As [`super::double`].
    pub fn double(x: Tensor<4>) -> Tensor<4> {
        let [_, _, h, w] = x.dims();
        module::interpolate(x, InterpolateOptions::new(InterpolateMode::Nearest).with_output_size([2 * h, 2 * w]))
    }
}
