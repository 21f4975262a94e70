//! CPU kernels as operations of the tensor engine: the backend's extension trait, and the functions that layers call.
//!
//! The functions require [`has_kernels`](super::has_kernels) of their inputs. The layers check it and fall back to
//! the engine's own operations.
use burn::backend::flex::FlexTensor;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, Dispatch, ExtensionType, Flex, backend_extension};
use burn::tensor::Tensor;
use crossfade_kernels::attention::{self, AttentionShape};
use crossfade_kernels::conv::{self, ConvShape};
use crossfade_kernels::linear::{self, LinearShape};
use crossfade_kernels::norm::{self, NormShape, NormTail};
use crossfade_kernels::{concat, dropout, elementwise, resample};

use super::flex::{Contiguous, OutputBuffer};
use super::prepared::prepared;

/// Added to the variance in every group normalisation.
pub(crate) const NORM_EPSILON: f64 = 1e-5;

/// A tensor that may be absent. The engine's extension operations take no `Option`.
#[derive(ExtensionType)]
pub enum OptionalTensor<B: Backend> {
    /// The tensor.
    Some(FloatTensor<B>),
    /// No tensor.
    None,
}

impl OptionalTensor<Flex> {
    fn dense(self) -> Option<Contiguous> {
        match self {
            Self::Some(tensor) => Some(Contiguous::new(tensor)),
            Self::None => None,
        }
    }
}

fn optional<const D: usize>(tensor: Option<Tensor<D>>) -> OptionalTensor<Dispatch> {
    tensor.map_or(OptionalTensor::None, |tensor| OptionalTensor::Some(tensor.into_dispatch()))
}

/// The mask of a dropout: where the counter of each sample starts, and how many of 2^16 elements are dropped.
#[derive(Clone, Debug)]
pub struct DropoutMask {
    pub starts: Vec<u64>,
    pub threshold: u16,
}

/// Differentiable operations; the gradients are in `autodiff.rs`.
#[backend_extension(Flex, Autodiff)]
pub trait FusedOps: Backend {
    /// 2-D convolution, added to `base` if there is one.
    fn convolve(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        #[extension_type] base: OptionalTensor<Self>,
        stride: usize,
        padding: usize,
    ) -> FloatTensor<Self>;
    /// Group normalisation, then the modulation if there is one, then SiLU if asked for.
    fn norm(
        x: FloatTensor<Self>,
        gamma: FloatTensor<Self>,
        beta: FloatTensor<Self>,
        #[extension_type] modulation: OptionalTensor<Self>,
        groups: usize,
        silu: bool,
    ) -> FloatTensor<Self>;
    /// Self-attention over the positions of an image.
    fn self_attention(qkv: FloatTensor<Self>, heads: usize) -> FloatTensor<Self>;
    /// A dense layer.
    fn linear(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        #[extension_type] bias: OptionalTensor<Self>,
    ) -> FloatTensor<Self>;
    /// Channels of `a`, then those of `b`.
    fn concat(a: FloatTensor<Self>, b: FloatTensor<Self>) -> FloatTensor<Self>;
    /// Dropout: elements that the mask selects become zero, the others are divided by the probability of being kept.
    fn dropout_masked(x: FloatTensor<Self>, mask: DropoutMask) -> FloatTensor<Self>;
    /// SiLU of every element.
    fn fused_silu(x: FloatTensor<Self>) -> FloatTensor<Self>;
    /// Average pooling of 2x2 pixels.
    fn avg_pool2x2(x: FloatTensor<Self>) -> FloatTensor<Self>;
    /// Nearest-neighbour upsampling by 2.
    fn upsample2x(x: FloatTensor<Self>) -> FloatTensor<Self>;
}

/// # Shapes
/// `x` `[B, cin, H, W]`, `weight` `[cout, cin, k, k]`, `bias` `[cout]` to `[B, cout, H', W']`, the shape of `base`.
pub fn conv2d(
    x: Tensor<4>,
    weight: Tensor<4>,
    bias: Tensor<1>,
    base: Option<Tensor<4>>,
    stride: usize,
    padding: usize,
) -> Tensor<4> {
    let (x, weight, bias) = (x.into_dispatch(), weight.into_dispatch(), bias.into_dispatch());
    Tensor::from_dispatch(Dispatch::convolve(x, weight, bias, optional(base), stride, padding))
}

/// # Shapes
/// `x` `[B, C, H, W]` to the same, `gamma` and `beta` `[C]`, `modulation` `[B, 2C]`.
pub fn norm(
    x: Tensor<4>,
    gamma: Tensor<1>,
    beta: Tensor<1>,
    groups: usize,
    modulation: Option<Tensor<2>>,
    silu: bool,
) -> Tensor<4> {
    let (x, gamma, beta) = (x.into_dispatch(), gamma.into_dispatch(), beta.into_dispatch());
    Tensor::from_dispatch(Dispatch::norm(x, gamma, beta, optional(modulation), groups, silu))
}

/// # Shapes
/// `qkv` `[B, 3C, H, W]` to `[B, C, H, W]`.
pub fn self_attention(qkv: Tensor<4>, heads: usize) -> Tensor<4> {
    Tensor::from_dispatch(Dispatch::self_attention(qkv.into_dispatch(), heads))
}

/// [`linear`] supports layers whose number of inputs is a multiple of this.
pub(crate) const LINEAR_WIDTH: usize = linear::WIDTH;

/// # Shapes
/// `x` `[B, in]`, `weight` `[out, in]`, `bias` `[out]` to `[B, out]`.
pub fn linear(x: Tensor<2>, weight: Tensor<2>, bias: Option<Tensor<1>>) -> Tensor<2> {
    Tensor::from_dispatch(Dispatch::linear(x.into_dispatch(), weight.into_dispatch(), optional(bias)))
}

/// # Shapes
/// `[B, C, H, W]` and `[B, D, H, W]` to `[B, C + D, H, W]`.
pub fn concat(a: Tensor<4>, b: Tensor<4>) -> Tensor<4> {
    Tensor::from_dispatch(Dispatch::concat(a.into_dispatch(), b.into_dispatch()))
}

/// # Shapes
/// `[B, C, H, W]` to the same.
pub(crate) fn dropout_masked(x: Tensor<4>, mask: DropoutMask) -> Tensor<4> {
    Tensor::from_dispatch(Dispatch::dropout_masked(x.into_dispatch(), mask))
}

/// # Shapes
/// Any to the same.
pub fn silu<const D: usize>(x: Tensor<D>) -> Tensor<D> {
    Tensor::from_dispatch(Dispatch::fused_silu(x.into_dispatch()))
}

/// # Shapes
/// `[B, C, H, W]` to `[B, C, H/2, W/2]`.
pub fn avg_pool2x2(x: Tensor<4>) -> Tensor<4> {
    Tensor::from_dispatch(Dispatch::avg_pool2x2(x.into_dispatch()))
}

/// # Shapes
/// `[B, C, H, W]` to `[B, C, 2H, 2W]`.
pub fn upsample2x(x: Tensor<4>) -> Tensor<4> {
    Tensor::from_dispatch(Dispatch::upsample2x(x.into_dispatch()))
}

/// The sizes of a convolution.
pub(super) fn conv_shape(x: &FlexTensor, weight: &FlexTensor, stride: usize, padding: usize) -> ConvShape {
    let [n, ci, h, w] = x.layout().shape().dims();
    let [co, cin, kernel, width] = weight.layout().shape().dims();
    assert!(cin == ci && kernel == width, "weights [{co}, {cin}, {kernel}, {width}] for {ci} channels");
    ConvShape { n, ci, co, h, w, kernel, stride, padding }
}

/// The convolution of x with weight and bias, added to `base`. Weights that are `constant` (no gradient is recorded)
/// are brought into the kernel's layout once and cached.
pub(super) fn conv_forward(
    inputs: [FlexTensor; 3],
    base: OptionalTensor<Flex>,
    shape: &ConvShape,
    constant: bool,
) -> FlexTensor {
    let [x, weight, bias] = inputs.map(Contiguous::new);
    let mut out = OutputBuffer::new(shape.y_len());
    // During training the weights change at every step, and a prepared copy would be used only once.
    match if constant { prepared(&weight, shape) } else { None } {
        Some(ready) => ready.forward(x.values(), Some(bias.values()), shape.n, out.values()),
        None => conv::forward(x.values(), weight.values(), Some(bias.values()), shape, out.values()),
    }
    if let Some(base) = base.dense() {
        elementwise::add_to(out.values(), base.values());
    }
    out.into_tensor([shape.n, shape.co, shape.out_h(), shape.out_w()])
}

/// The sizes of a normalised tensor.
pub(super) fn norm_shape(x: &Contiguous, groups: usize) -> NormShape {
    let [n, c, h, w] = x.dims();
    NormShape { n, c, hw: h * w, groups }
}

/// The output, and mean and 1/√(variance + ε) of every group, which its gradient needs.
pub(super) fn norm_forward(
    x: &Contiguous,
    gamma: &Contiguous,
    beta: &Contiguous,
    modulation: Option<&Contiguous>,
    groups: usize,
    silu: bool,
) -> (FlexTensor, Vec<[f32; 2]>) {
    let shape = norm_shape(x, groups);
    let tail =
        NormTail { gamma: gamma.values(), beta: beta.values(), scale_shift: modulation.map(Contiguous::values), silu };
    let (mut out, mut stats) = (OutputBuffer::new(shape.len()), vec![[0.0; 2]; shape.n * groups]);
    // Normalisation, modulation and SiLU in one pass: they are limited by memory bandwidth and not by arithmetic.
    norm::forward(x.values(), tail, NORM_EPSILON as f32, shape, out.values(), &mut stats);
    (out.into_tensor(x.shape()), stats)
}

/// The sizes of an attention whose input is `qkv`.
pub(super) fn attention_shape(qkv: &Contiguous, heads: usize) -> AttentionShape {
    let [n, c3, h, w] = qkv.dims();
    AttentionShape { n, heads, d: c3 / 3 / heads, positions: h * w }
}

/// The output and log Σ exp of every row, from which the backward pass recomputes the softmax instead of storing it.
pub(super) fn attention_forward(qkv: &Contiguous, heads: usize) -> (FlexTensor, Vec<f32>) {
    let shape = attention_shape(qkv, heads);
    let [b, c3, h, w] = qkv.dims();
    let (mut out, mut log_sums) = (OutputBuffer::new(shape.out_len()), vec![0.0; shape.rows()]);
    attention::forward(qkv.values(), shape, out.values(), &mut log_sums);
    (out.into_tensor([b, c3 / 3, h, w]), log_sums)
}

/// The sizes of a dense layer.
pub(super) fn linear_shape(x: &Contiguous, weight: &Contiguous) -> LinearShape {
    let ([n, cin], [cout, _]) = (x.dims(), weight.dims());
    LinearShape { n, cin, cout }
}

/// x with dropout applied. The mask is a function of its counters and is recomputed in the same pass over memory, so
/// that it is never stored: the gradient applies it again.
pub(super) fn apply_dropout(x: Contiguous, mask: &DropoutMask) -> FlexTensor {
    let mut out = OutputBuffer::new(x.values().len());
    dropout::dropout(x.values(), &mask.starts, mask.threshold, out.values());
    out.into_tensor(x.shape())
}

/// Sums of 2x2 pixels times `factor`: average pooling for ¼, the gradient of upsampling for 1.
///
/// # Shapes
/// `[B, C, H, W]` to `[B, C, H/2, W/2]`.
pub(super) fn sum_pool2x2(x: Contiguous, factor: f32) -> FlexTensor {
    let [b, c, h, w] = x.dims();
    let mut out = OutputBuffer::new(b * c * (h / 2) * (w / 2));
    resample::downsample_2x(x.values(), b * c, [h, w], factor, out.values());
    out.into_tensor([b, c, h / 2, w / 2])
}

/// Every pixel times `factor` as 2x2 pixels: upsampling for 1, the gradient of average pooling for ¼.
///
/// # Shapes
/// `[B, C, H, W]` to `[B, C, 2H, 2W]`.
pub(super) fn repeat2x2(x: Contiguous, factor: f32) -> FlexTensor {
    let [b, c, h, w] = x.dims();
    let mut out = OutputBuffer::new(b * c * 4 * h * w);
    resample::upsample_2x(x.values(), b * c, [h, w], factor, out.values());
    out.into_tensor([b, c, 2 * h, 2 * w])
}

impl FusedOps for Flex {
    fn convolve(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        base: OptionalTensor<Self>,
        stride: usize,
        padding: usize,
    ) -> FloatTensor<Self> {
        let shape = conv_shape(&x, &weight, stride, padding);
        conv_forward([x, weight, bias], base, &shape, true)
    }

    fn norm(
        x: FloatTensor<Self>,
        gamma: FloatTensor<Self>,
        beta: FloatTensor<Self>,
        modulation: OptionalTensor<Self>,
        groups: usize,
        silu: bool,
    ) -> FloatTensor<Self> {
        let [x, gamma, beta] = [x, gamma, beta].map(Contiguous::new);
        norm_forward(&x, &gamma, &beta, modulation.dense().as_ref(), groups, silu).0
    }

    fn self_attention(qkv: FloatTensor<Self>, heads: usize) -> FloatTensor<Self> {
        attention_forward(&Contiguous::new(qkv), heads).0
    }

    fn linear(x: FloatTensor<Self>, weight: FloatTensor<Self>, bias: OptionalTensor<Self>) -> FloatTensor<Self> {
        let [x, weight] = [x, weight].map(Contiguous::new);
        let shape = linear_shape(&x, &weight);
        let mut out = OutputBuffer::new(shape.n * shape.cout);
        let bias = bias.dense();
        linear::forward(x.values(), weight.values(), bias.as_ref().map(Contiguous::values), shape, out.values());
        out.into_tensor([shape.n, shape.cout])
    }

    fn concat(a: FloatTensor<Self>, b: FloatTensor<Self>) -> FloatTensor<Self> {
        let [a, b] = [a, b].map(Contiguous::new);
        let ([n, c, h, w], [_, d, _, _]) = (a.dims(), b.dims());
        let mut out = OutputBuffer::new(n * (c + d) * h * w);
        concat::concat(a.values(), b.values(), [c * h * w, d * h * w], out.values());
        out.into_tensor([n, c + d, h, w])
    }

    fn dropout_masked(x: FloatTensor<Self>, mask: DropoutMask) -> FloatTensor<Self> {
        apply_dropout(Contiguous::new(x), &mask)
    }

    fn fused_silu(x: FloatTensor<Self>) -> FloatTensor<Self> {
        let x = Contiguous::new(x);
        let mut out = OutputBuffer::new(x.values().len());
        elementwise::silu(x.values(), out.values());
        out.into_tensor(x.shape())
    }

    fn avg_pool2x2(x: FloatTensor<Self>) -> FloatTensor<Self> {
        sum_pool2x2(Contiguous::new(x), 0.25)
    }

    fn upsample2x(x: FloatTensor<Self>) -> FloatTensor<Self> {
        repeat2x2(Contiguous::new(x), 1.0)
    }
}
