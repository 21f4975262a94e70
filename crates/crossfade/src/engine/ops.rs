//! Fast operations on the CPU: the backend's extension traits and the functions on tensors that the layers call.
//!
//! The functions assume [`is_fast`](super::is_fast) of their inputs; the layers test it and have the engine's own
//! operations for everything else.
use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, Dispatch, ExtensionType, Flex, backend_extension};
use burn::tensor::Tensor;
use crossfade_kernels::attention::{self, AttentionShape};
use crossfade_kernels::conv::{self, ConvShape};
use crossfade_kernels::norm::{self, NormShape, NormTail};
use crossfade_kernels::{elementwise, resample};

use super::flex::{Dense, room, tensor};

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

/// Differentiable operations; the gradients are in `autodiff.rs`.
#[backend_extension(Flex, Autodiff)]
pub trait FusedOps: Backend {
    /// 2-D convolution.
    fn convolve(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        bias: FloatTensor<Self>,
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
    /// SiLU of every element.
    fn fused_silu(x: FloatTensor<Self>) -> FloatTensor<Self>;
    /// The mean of every 2x2 square.
    fn halve(x: FloatTensor<Self>) -> FloatTensor<Self>;
    /// Every pixel as a 2x2 square.
    fn double(x: FloatTensor<Self>) -> FloatTensor<Self>;
}

/// # Shapes
/// `x` `[B, cin, H, W]`, `weight` `[cout, cin, k, k]`, `bias` `[cout]` to `[B, cout, H', W']`.
pub fn conv2d(x: Tensor<4>, weight: Tensor<4>, bias: Tensor<1>, stride: usize, padding: usize) -> Tensor<4> {
    let (x, weight, bias) = (x.into_dispatch(), weight.into_dispatch(), bias.into_dispatch());
    Tensor::from_dispatch(Dispatch::convolve(x, weight, bias, stride, padding))
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
    let modulation = modulation.map_or(Maybe::None, |m| Maybe::Some(m.into_dispatch()));
    let (x, gamma, beta) = (x.into_dispatch(), gamma.into_dispatch(), beta.into_dispatch());
    Tensor::from_dispatch(Dispatch::norm(x, gamma, beta, modulation, groups, silu))
}

/// # Shapes
/// `qkv` `[B, 3C, H, W]` to `[B, C, H, W]`.
pub fn self_attention(qkv: Tensor<4>, heads: usize) -> Tensor<4> {
    Tensor::from_dispatch(Dispatch::self_attention(qkv.into_dispatch(), heads))
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
pub(super) fn conv_shape(
    x: &FloatTensor<Flex>,
    weight: &FloatTensor<Flex>,
    stride: usize,
    padding: usize,
) -> ConvShape {
    let [n, ci, h, w] = x.layout().shape().dims();
    let [co, cin, kernel, width] = weight.layout().shape().dims();
    assert!(cin == ci && kernel == width, "weights [{co}, {cin}, {kernel}, {width}] for {ci} channels");
    ConvShape { n, ci, co, h, w, kernel, stride, padding }
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
) -> (Vec<f32>, Vec<[f32; 2]>) {
    let shape = norm_shape(x, groups);
    let tail =
        NormTail { gamma: gamma.values(), beta: beta.values(), scale_shift: modulation.map(Dense::values), silu };
    let (mut out, mut stats) = (room(shape.len()), vec![[0.0; 2]; shape.n * groups]);
    norm::forward(x.values(), tail, NORM_EPSILON as f32, shape, &mut out, &mut stats);
    (out, stats)
}

/// The sizes of an attention whose input is `qkv`.
pub(super) fn attention_shape(qkv: &Dense, heads: usize) -> AttentionShape {
    let [n, c3, h, w] = qkv.dims();
    AttentionShape { n, heads, d: c3 / 3 / heads, positions: h * w }
}

/// The output and the logarithms of the softmax's denominators.
pub(super) fn attention_forward(qkv: &Dense, heads: usize) -> (Vec<f32>, Vec<f32>) {
    let shape = attention_shape(qkv, heads);
    let (mut out, mut log_sums) = (room(shape.out_len()), vec![0.0; shape.rows()]);
    attention::forward(qkv.values(), shape, &mut out, &mut log_sums);
    (out, log_sums)
}

/// [B, C, H/2, W/2] of sums times `factor`.
pub(super) fn halved(x: Dense, factor: f32) -> FloatTensor<Flex> {
    let [b, c, h, w] = x.dims();
    let mut out = room(b * c * (h / 2) * (w / 2));
    resample::halve(x.values(), b * c, [h, w], factor, &mut out);
    tensor(out, [b, c, h / 2, w / 2])
}

/// [B, C, 2H, 2W] of copies times `factor`.
pub(super) fn doubled(x: Dense, factor: f32) -> FloatTensor<Flex> {
    let [b, c, h, w] = x.dims();
    let mut out = room(b * c * 4 * h * w);
    resample::double(x.values(), b * c, [h, w], factor, &mut out);
    tensor(out, [b, c, 2 * h, 2 * w])
}

impl FusedOps for Flex {
    fn convolve(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        stride: usize,
        padding: usize,
    ) -> FloatTensor<Self> {
        let shape = conv_shape(&x, &weight, stride, padding);
        let [x, weight, bias] = [x, weight, bias].map(Dense::new);
        let mut out = room(shape.y_len());
        conv::forward(x.values(), weight.values(), Some(bias.values()), &shape, &mut out);
        tensor(out, [shape.n, shape.co, shape.out_h(), shape.out_w()])
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
        let modulation = match modulation {
            Maybe::Some(m) => Some(Dense::new(m)),
            Maybe::None => None,
        };
        let (out, _) = norm_forward(&x, &gamma, &beta, modulation.as_ref(), groups, silu);
        tensor(out, x.shape())
    }

    fn self_attention(qkv: FloatTensor<Self>, heads: usize) -> FloatTensor<Self> {
        let qkv = Dense::new(qkv);
        let [b, c3, h, w] = qkv.dims();
        tensor(attention_forward(&qkv, heads).0, [b, c3 / 3, h, w])
    }

    fn fused_silu(x: FloatTensor<Self>) -> FloatTensor<Self> {
        let x = Dense::new(x);
        let mut out = room(x.values().len());
        elementwise::silu(x.values(), &mut out);
        tensor(out, x.shape())
    }

    fn halve(x: FloatTensor<Self>) -> FloatTensor<Self> {
        halved(Dense::new(x), 0.25)
    }

    fn double(x: FloatTensor<Self>) -> FloatTensor<Self> {
        doubled(Dense::new(x), 1.0)
    }
}
