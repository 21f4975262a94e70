//! The layers that all networks are made of, with the parameter names and layouts of PyTorch.
//!
//! The structs avoid the names `Conv2d`, `Linear`, `GroupNorm` and `BatchNorm`, on which the engine's file adapters act.
//! What they compute is in [`functional`](super::functional).
use burn::module::{Module, Param};
use burn::tensor::Tensor;

use super::functional::{composed, conv2d, conv2d_onto, group_norm, group_norm_silu, linear};
use super::init::{Init, Scope};

/// Sizes and initial values of a convolution.
#[derive(Clone, Copy, Debug)]
pub struct ConvOptions {
    /// Input channels.
    pub cin: usize,
    /// Output channels.
    pub cout: usize,
    /// Side of the kernel.
    pub kernel: usize,
    /// Pixels of the input from one output to the next.
    pub stride: usize,
    /// Zeros on every side of the input.
    pub padding: usize,
    /// Initial weights.
    pub weight: Init,
    /// Initial biases; none for a convolution without.
    pub bias: Option<Init>,
}

impl ConvOptions {
    /// A convolution that keeps the size of the image, for an odd kernel, with PyTorch's initial values.
    pub fn same(cin: usize, cout: usize, kernel: usize) -> Self {
        let init = Init::fan_in(cin * kernel * kernel);
        Self { cin, cout, kernel, stride: 1, padding: kernel / 2, weight: init, bias: Some(init) }
    }
}

/// A 2-D convolution.
#[derive(Module, Debug)]
pub struct Conv {
    weight: Param<Tensor<4>>,
    bias: Option<Param<Tensor<1>>>,
    stride: usize,
    padding: usize,
}

impl Conv {
    /// A convolution that keeps the size of the image; weights and biases uniform in ±1/√fan_in.
    pub fn new(scope: &Scope, cin: usize, cout: usize, kernel: usize) -> Self {
        Self::with(scope, ConvOptions::same(cin, cout, kernel))
    }

    /// As [`Conv::new`], but zero: the residual branch that it ends is silent until it has learnt something.
    pub fn zero(scope: &Scope, cin: usize, cout: usize, kernel: usize) -> Self {
        let zeros = Init::Zeros;
        Self::with(scope, ConvOptions { weight: zeros, bias: Some(zeros), ..ConvOptions::same(cin, cout, kernel) })
    }

    /// As [`Conv::new`] for the last layer of a head: weights of variance 1/fan_in (that is U(±√3/√fan_in)), zero biases.
    pub fn last(scope: &Scope, cin: usize, cout: usize, kernel: usize) -> Self {
        let weight = Init::Uniform(3f64.sqrt() / ((cin * kernel * kernel) as f64).sqrt());
        Self::with(scope, ConvOptions { weight, bias: Some(Init::Zeros), ..ConvOptions::same(cin, cout, kernel) })
    }

    /// Any other convolution.
    pub fn with(scope: &Scope, options: ConvOptions) -> Self {
        let ConvOptions { cin, cout, kernel, stride, padding, weight, bias } = options;
        Self {
            weight: scope.param("weight", [cout, cin, kernel, kernel], weight),
            bias: bias.map(|init| scope.param("bias", [cout], init)),
            stride,
            padding,
        }
    }

    /// # Shapes
    /// `[B, cin, H, W]` to `[B, cout, H', W']`.
    pub fn forward(&self, x: Tensor<4>) -> Tensor<4> {
        self.forward_with(x, self.weight(), self.bias())
    }

    /// As [`Conv::forward`] with other weights and biases of the same shapes, made from this layer's own.
    ///
    /// # Shapes
    /// As [`Conv::forward`]; `weight` `[cout, cin, k, k]`, `bias` `[cout]`.
    pub(super) fn forward_with(&self, x: Tensor<4>, weight: Tensor<4>, bias: Tensor<1>) -> Tensor<4> {
        conv2d(x, weight, bias, self.stride, self.padding)
    }

    /// `base` plus the convolution of `x`: the end of a residual block.
    ///
    /// # Shapes
    /// `x` `[B, cin, H, W]`, `base` and the result `[B, cout, H', W']`.
    pub fn forward_onto(&self, base: Tensor<4>, x: Tensor<4>) -> Tensor<4> {
        conv2d_onto(base, x, self.weight(), self.bias(), self.stride, self.padding)
    }

    /// The weights, `[cout, cin, k, k]`.
    pub fn weight(&self) -> Tensor<4> {
        self.weight.val()
    }

    /// The biases, `[cout]`; zeros for a convolution without.
    pub fn bias(&self) -> Tensor<1> {
        match &self.bias {
            Some(bias) => bias.val(),
            // A constant of the graph, hence the plain device.
            None => {
                let weight = self.weight.val();
                Tensor::zeros([weight.dims()[0]], &weight.device().without_autodiff())
            }
        }
    }
}

/// A fully connected layer: y = x Wᵀ + b with W stored `[out, in]`.
#[derive(Module, Debug)]
pub struct Dense {
    weight: Param<Tensor<2>>,
    bias: Option<Param<Tensor<1>>>,
}

impl Dense {
    /// Weights and biases uniform in ±1/√fan_in.
    pub fn new(scope: &Scope, cin: usize, cout: usize) -> Self {
        let init = Init::fan_in(cin);
        Self { weight: scope.param("weight", [cout, cin], init), bias: Some(scope.param("bias", [cout], init)) }
    }

    /// Weights by `init` and zero biases.
    pub fn with(scope: &Scope, cin: usize, cout: usize, init: Init) -> Self {
        let bias = Some(scope.param("bias", [cout], Init::Zeros));
        Self { bias, ..Self::without_bias(scope, cin, cout, init) }
    }

    /// Weights by `init` and no biases.
    pub(crate) fn without_bias(scope: &Scope, cin: usize, cout: usize, init: Init) -> Self {
        Self { weight: scope.param("weight", [cout, cin], init), bias: None }
    }

    /// For one row a sample, such as an embedding: a row's result does not depend on the others of its batch.
    ///
    /// # Shapes
    /// `[B, in]` to `[B, out]`.
    pub fn forward(&self, x: Tensor<2>) -> Tensor<2> {
        linear(x, self.weight.val(), self.bias.as_ref().map(Param::val))
    }

    /// For many rows at once, such as the tokens of a transformer: the engine's matrix product, which is faster there.
    ///
    /// # Shapes
    /// `[N, in]` to `[N, out]`.
    pub(crate) fn forward_tokens(&self, x: Tensor<2>) -> Tensor<2> {
        composed::linear(x, self.weight.val(), self.bias.as_ref().map(Param::val))
    }
}

/// √10. The kernels add 1e-5 to the variance, the autoencoder's normalisations 1e-6; a variance of √10·x is ten times that
/// of x, so that GN(√10·x) with 1e-5 is GN(x) with 1e-6.
const SMALL_EPSILON_GAIN: f32 = 3.162_277_7;

/// Group normalisation with a scale and a shift for each channel, which start as the identity.
#[derive(Module, Debug)]
pub struct GroupNorm2d {
    weight: Param<Tensor<1>>,
    bias: Param<Tensor<1>>,
    groups: usize,
    small_epsilon: bool,
}

impl GroupNorm2d {
    /// Over `groups` groups of channels, with 1e-5 added to the variance.
    pub fn new(scope: &Scope, channels: usize, groups: usize) -> Self {
        Self {
            weight: scope.param("weight", [channels], Init::Ones),
            bias: scope.param("bias", [channels], Init::Zeros),
            groups,
            small_epsilon: false,
        }
    }

    /// As [`GroupNorm2d::new`] with 1e-6 added to the variance.
    pub(crate) fn with_small_epsilon(scope: &Scope, channels: usize, groups: usize) -> Self {
        Self { small_epsilon: true, ..Self::new(scope, channels, groups) }
    }

    /// Normalises only.
    ///
    /// # Shapes
    /// `[B, C, H, W]` to the same.
    pub fn forward(&self, x: Tensor<4>) -> Tensor<4> {
        group_norm(self.scaled(x), self.weight.val(), self.bias.val(), self.groups)
    }

    /// SiLU of the normalised image, or of its modulation: SiLU(GN(x)·(1 + scale) + shift).
    ///
    /// # Shapes
    /// `[B, C, H, W]` to the same; `scale_shift` `[B, 2C]`.
    pub fn silu(&self, x: Tensor<4>, scale_shift: Option<Tensor<2>>) -> Tensor<4> {
        group_norm_silu(self.scaled(x), self.weight.val(), self.bias.val(), self.groups, scale_shift)
    }

    fn scaled(&self, x: Tensor<4>) -> Tensor<4> {
        if self.small_epsilon { x * SMALL_EPSILON_GAIN } else { x }
    }
}

/// The number of groups that the unconditional U-Net has for `channels` channels (§4.2).
pub fn groups(channels: usize) -> usize {
    (channels / 4).clamp(1, 32)
}

/// Layer normalisation of tokens, with 1e-5 added to the variance: group normalisation of images of one pixel and one group.
#[derive(Module, Debug)]
pub struct TokenNorm {
    weight: Param<Tensor<1>>,
    bias: Param<Tensor<1>>,
}

impl TokenNorm {
    /// Starts as the identity after normalisation.
    pub fn new(scope: &Scope, channels: usize) -> Self {
        Self {
            weight: scope.param("weight", [channels], Init::Ones),
            bias: scope.param("bias", [channels], Init::Zeros),
        }
    }

    /// # Shapes
    /// `[N, C]` to the same.
    pub fn forward(&self, x: Tensor<2>) -> Tensor<2> {
        let [n, c] = x.dims();
        group_norm(x.reshape([n, c, 1, 1]), self.weight.val(), self.bias.val(), 1).reshape([n, c])
    }
}
