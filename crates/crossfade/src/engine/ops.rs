//! Fast operations on the CPU: the backend's extension trait and the functions on tensors that the layers call.
//!
//! The functions assume [`is_fast`](super::is_fast) of their inputs; the layers test it and have the engine's own
//! operations for everything else.
use burn::backend::flex::FlexTensor;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, Dispatch, ExtensionType, Flex, backend_extension};
use burn::tensor::Tensor;
use crossfade_kernels::attention::{self, AttentionShape};
use crossfade_kernels::conv::{self, ConvShape};
use crossfade_kernels::linear::{self, LinearShape};
use crossfade_kernels::norm::{self, NormShape, NormTail};
use crossfade_kernels::{concat, dropout, elementwise, resample};

use super::flex::{Dense, Room};
use super::prepared::prepared;

/// Added to the variance in every group normalisation.
pub const NORM_EPSILON: f64 = 1e-5;

/// A tensor that may be absent; extension operations take no `Option`.
#[derive(ExtensionType)]
pub enum Maybe<B: Backend> {
    /// It is there.
    Some(FloatTensor<B>),
    /// It is not.
    None,
}

impl Maybe<Flex> {
    fn dense(self) -> Option<Dense> {
        match self {
            Self::Some(tensor) => Some(Dense::new(tensor)),
            Self::None => None,
        }
    }
}

fn maybe<const D: usize>(tensor: Option<Tensor<D>>) -> Maybe<Dispatch> {
    tensor.map_or(Maybe::None, |tensor| Maybe::Some(tensor.into_dispatch()))
}

/// The mask of a dropout: where each sample's counter starts, and how many of 2^16 elements go.
#[derive(Clone, Debug)]
pub struct DropMask {
    pub starts: Vec<u64>,
    pub threshold: u16,
}

/// Differentiable operations; the gradients are in `autodiff.rs`.
#[backend_extension(Flex, Autodiff)]
pub trait FusedOps: Backend {
    /// 2-D convolution, onto `base` if given.
    fn convolve(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        #[extension_type] base: Maybe<Self>,
        stride: usize,
        padding: usize,
    ) -> FloatTensor<Self>;
    /// Group normalisation, modulation if given, SiLU if asked for.
    fn norm(
        x: FloatTensor<Self>,
        gamma: FloatTensor<Self>,
        beta: FloatTensor<Self>,
        #[extension_type] modulation: Maybe<Self>,
        groups: usize,
        silu: bool,
    ) -> FloatTensor<Self>;
    /// Self-attention over the positions of an image.
    fn self_attention(qkv: FloatTensor<Self>, heads: usize) -> FloatTensor<Self>;
    /// A dense layer.
    fn linear(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        #[extension_type] bias: Maybe<Self>,
    ) -> FloatTensor<Self>;
    /// Channels of `a`, then those of `b`.
    fn concat(a: FloatTensor<Self>, b: FloatTensor<Self>) -> FloatTensor<Self>;
    /// Some elements become zero, the others grow.
    fn drop_some(x: FloatTensor<Self>, mask: DropMask) -> FloatTensor<Self>;
    /// SiLU of every element.
    fn fused_silu(x: FloatTensor<Self>) -> FloatTensor<Self>;
    /// The mean of every 2x2 square.
    fn halve(x: FloatTensor<Self>) -> FloatTensor<Self>;
    /// Every pixel as a 2x2 square.
    fn double(x: FloatTensor<Self>) -> FloatTensor<Self>;
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
    Tensor::from_dispatch(Dispatch::convolve(x, weight, bias, maybe(base), stride, padding))
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
    Tensor::from_dispatch(Dispatch::norm(x, gamma, beta, maybe(modulation), groups, silu))
}

/// # Shapes
/// `qkv` `[B, 3C, H, W]` to `[B, C, H, W]`.
pub fn self_attention(qkv: Tensor<4>, heads: usize) -> Tensor<4> {
    Tensor::from_dispatch(Dispatch::self_attention(qkv.into_dispatch(), heads))
}

/// [`linear`] computes layers of a multiple of this many inputs.
pub const LINEAR_WIDTH: usize = linear::WIDTH;

/// # Shapes
/// `x` `[B, in]`, `weight` `[out, in]`, `bias` `[out]` to `[B, out]`.
pub fn linear(x: Tensor<2>, weight: Tensor<2>, bias: Option<Tensor<1>>) -> Tensor<2> {
    Tensor::from_dispatch(Dispatch::linear(x.into_dispatch(), weight.into_dispatch(), maybe(bias)))
}

/// # Shapes
/// `[B, C, H, W]` and `[B, D, H, W]` to `[B, C + D, H, W]`.
pub fn concat(a: Tensor<4>, b: Tensor<4>) -> Tensor<4> {
    Tensor::from_dispatch(Dispatch::concat(a.into_dispatch(), b.into_dispatch()))
}

/// # Shapes
/// `[B, C, H, W]` to the same.
pub fn drop_some(x: Tensor<4>, mask: DropMask) -> Tensor<4> {
    Tensor::from_dispatch(Dispatch::drop_some(x.into_dispatch(), mask))
}

/// # Shapes
/// Any to the same.
pub fn silu<const D: usize>(x: Tensor<D>) -> Tensor<D> {
    Tensor::from_dispatch(Dispatch::fused_silu(x.into_dispatch()))
}

/// # Shapes
/// `[B, C, H, W]` to `[B, C, H/2, W/2]`.
pub fn halve(x: Tensor<4>) -> Tensor<4> {
    Tensor::from_dispatch(Dispatch::halve(x.into_dispatch()))
}

/// # Shapes
/// `[B, C, H, W]` to `[B, C, 2H, 2W]`.
pub fn double(x: Tensor<4>) -> Tensor<4> {
    Tensor::from_dispatch(Dispatch::double(x.into_dispatch()))
}

/// The sizes of a convolution.
pub(super) fn conv_shape(x: &FlexTensor, weight: &FlexTensor, stride: usize, padding: usize) -> ConvShape {
    let [n, ci, h, w] = x.layout().shape().dims();
    let [co, cin, kernel, width] = weight.layout().shape().dims();
    assert!(cin == ci && kernel == width, "weights [{co}, {cin}, {kernel}, {width}] for {ci} channels");
    ConvShape { n, ci, co, h, w, kernel, stride, padding }
}

/// The convolution of x with weight and bias, onto `base`; `constant` weights are prepared once.
pub(super) fn conv_forward(
    inputs: [FlexTensor; 3],
    base: Maybe<Flex>,
    shape: &ConvShape,
    constant: bool,
) -> FlexTensor {
    let [x, weight, bias] = inputs.map(Dense::new);
    let mut out = Room::new(shape.y_len());
    match if constant { prepared(&weight, shape) } else { None } {
        Some(ready) => ready.forward(x.values(), Some(bias.values()), shape.n, out.values()),
        None => conv::forward(x.values(), weight.values(), Some(bias.values()), shape, out.values()),
    }
    if let Some(base) = base.dense() {
        elementwise::add_to(out.values(), base.values());
    }
    out.tensor([shape.n, shape.co, shape.out_h(), shape.out_w()])
}

/// The sizes of a normalised tensor.
pub(super) fn norm_shape(x: &Dense, groups: usize) -> NormShape {
    let [n, c, h, w] = x.dims();
    NormShape { n, c, hw: h * w, groups }
}

/// The output and the statistics that its gradient needs.
pub(super) fn norm_forward(
    x: &Dense,
    gamma: &Dense,
    beta: &Dense,
    modulation: Option<&Dense>,
    groups: usize,
    silu: bool,
) -> (FlexTensor, Vec<[f32; 2]>) {
    let shape = norm_shape(x, groups);
    let tail =
        NormTail { gamma: gamma.values(), beta: beta.values(), scale_shift: modulation.map(Dense::values), silu };
    let (mut out, mut stats) = (Room::new(shape.len()), vec![[0.0; 2]; shape.n * groups]);
    norm::forward(x.values(), tail, NORM_EPSILON as f32, shape, out.values(), &mut stats);
    (out.tensor(x.shape()), stats)
}

/// The sizes of an attention whose input is `qkv`.
pub(super) fn attention_shape(qkv: &Dense, heads: usize) -> AttentionShape {
    let [n, c3, h, w] = qkv.dims();
    AttentionShape { n, heads, d: c3 / 3 / heads, positions: h * w }
}

/// The output and the logarithms of the softmax's denominators.
pub(super) fn attention_forward(qkv: &Dense, heads: usize) -> (FlexTensor, Vec<f32>) {
    let shape = attention_shape(qkv, heads);
    let [b, c3, h, w] = qkv.dims();
    let (mut out, mut log_sums) = (Room::new(shape.out_len()), vec![0.0; shape.rows()]);
    attention::forward(qkv.values(), shape, out.values(), &mut log_sums);
    (out.tensor([b, c3 / 3, h, w]), log_sums)
}

/// The sizes of a dense layer.
pub(super) fn linear_shape(x: &Dense, weight: &Dense) -> LinearShape {
    let ([n, cin], [cout, _]) = (x.dims(), weight.dims());
    LinearShape { n, cin, cout }
}

/// x times a mask that is made on the way.
pub(super) fn dropped(x: Dense, mask: &DropMask) -> FlexTensor {
    let mut out = Room::new(x.values().len());
    dropout::dropout(x.values(), &mask.starts, mask.threshold, out.values());
    out.tensor(x.shape())
}

/// [B, C, H/2, W/2] of sums times `factor`.
pub(super) fn halved(x: Dense, factor: f32) -> FlexTensor {
    let [b, c, h, w] = x.dims();
    let mut out = Room::new(b * c * (h / 2) * (w / 2));
    resample::downsample_2x(x.values(), b * c, [h, w], factor, out.values());
    out.tensor([b, c, h / 2, w / 2])
}

/// [B, C, 2H, 2W] of copies times `factor`.
pub(super) fn doubled(x: Dense, factor: f32) -> FlexTensor {
    let [b, c, h, w] = x.dims();
    let mut out = Room::new(b * c * 4 * h * w);
    resample::upsample_2x(x.values(), b * c, [h, w], factor, out.values());
    out.tensor([b, c, 2 * h, 2 * w])
}

impl FusedOps for Flex {
    fn convolve(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        base: Maybe<Self>,
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
        modulation: Maybe<Self>,
        groups: usize,
        silu: bool,
    ) -> FloatTensor<Self> {
        let [x, gamma, beta] = [x, gamma, beta].map(Dense::new);
        norm_forward(&x, &gamma, &beta, modulation.dense().as_ref(), groups, silu).0
    }

    fn self_attention(qkv: FloatTensor<Self>, heads: usize) -> FloatTensor<Self> {
        attention_forward(&Dense::new(qkv), heads).0
    }

    fn linear(x: FloatTensor<Self>, weight: FloatTensor<Self>, bias: Maybe<Self>) -> FloatTensor<Self> {
        let [x, weight] = [x, weight].map(Dense::new);
        let shape = linear_shape(&x, &weight);
        let mut out = Room::new(shape.n * shape.cout);
        let bias = bias.dense();
        linear::forward(x.values(), weight.values(), bias.as_ref().map(Dense::values), shape, out.values());
        out.tensor([shape.n, shape.cout])
    }

    fn concat(a: FloatTensor<Self>, b: FloatTensor<Self>) -> FloatTensor<Self> {
        let [a, b] = [a, b].map(Dense::new);
        let ([n, c, h, w], [_, d, _, _]) = (a.dims(), b.dims());
        let mut out = Room::new(n * (c + d) * h * w);
        concat::concat(a.values(), b.values(), [c * h * w, d * h * w], out.values());
        out.tensor([n, c + d, h, w])
    }

    fn drop_some(x: FloatTensor<Self>, mask: DropMask) -> FloatTensor<Self> {
        dropped(Dense::new(x), &mask)
    }

    fn fused_silu(x: FloatTensor<Self>) -> FloatTensor<Self> {
        let x = Dense::new(x);
        let mut out = Room::new(x.values().len());
        elementwise::silu(x.values(), out.values());
        out.tensor(x.shape())
    }

    fn halve(x: FloatTensor<Self>) -> FloatTensor<Self> {
        halved(Dense::new(x), 0.25)
    }

    fn double(x: FloatTensor<Self>) -> FloatTensor<Self> {
        doubled(Dense::new(x), 1.0)
    }
}
