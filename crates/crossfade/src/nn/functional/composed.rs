//! The operations of [`functional`](super) in the engine's own: for every device but the CPU, and as the measure of the
//! CPU's kernels.
use burn::tensor::ops::{AvgPoolOptions, ConvOptions, InterpolateMode, InterpolateOptions};
use burn::tensor::{DType, FloatDType, Tensor, activation, module};

use crate::engine::ops::NORM_EPSILON;

/// As [`super::conv2d`].
pub fn conv2d(x: Tensor<4>, weight: Tensor<4>, bias: Tensor<1>, stride: usize, padding: usize) -> Tensor<4> {
    let options = ConvOptions::new([stride, stride], [padding, padding], [1, 1], 1);
    if x.dtype() == weight.dtype() {
        return module::conv2d(x, weight, Some(bias), options);
    }
    let (own, cout) = (x.dtype(), weight.dims()[0]);
    let x = x.cast(float(weight.dtype()));
    module::conv2d(x, weight, None, options).cast(float(own)) + bias.reshape([1, cout, 1, 1])
}

fn float(dtype: DType) -> FloatDType {
    dtype.into()
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
    let own = x.dtype();
    let same = own == weight.dtype();
    let x = if same { x } else { x.cast(float(weight.dtype())) };
    let y = x.matmul(weight.transpose());
    let y = if same { y } else { y.cast(float(own)) };
    match bias {
        Some(bias) => y + bias.unsqueeze(),
        None => y,
    }
}

/// As [`super::avg_pool2x2`].
pub fn avg_pool2x2(x: Tensor<4>) -> Tensor<4> {
    module::avg_pool2d(x, AvgPoolOptions::new([2, 2]))
}

/// As [`super::upsample2x`].
pub fn upsample2x(x: Tensor<4>) -> Tensor<4> {
    let [_, _, h, w] = x.dims();
    module::interpolate(x, InterpolateOptions::new(InterpolateMode::Nearest).with_output_size([2 * h, 2 * w]))
}

/// As [`super::channel_norm`].
pub(crate) fn channel_norm(x: Tensor<4>, gain: Tensor<4>) -> Tensor<4> {
    let centred = x.clone() - x.mean_dim(1);
    let variance = centred.clone().square().mean_dim(1);
    centred / (variance + NORM_EPSILON).sqrt() * gain
}

/// As [`super::linear_attention`]: q softmax over its channels, k over positions, q scaled by d^(−½), v by 1/(H·W).
pub(crate) fn linear_attention(qkv: Tensor<4>, heads: usize) -> Tensor<4> {
    let [b, c3, h, w] = qkv.dims();
    let d = c3 / 3 / heads;
    let all: Tensor<5> = qkv.reshape([b, 3, heads, d, h * w]);
    let [q, k, v] = std::array::from_fn(|i| all.clone().narrow(1, i, 1).reshape([b, heads, d, h * w]));
    let q: Tensor<4> = activation::softmax(q, 2) * (d as f64).powf(-0.5);
    let k: Tensor<4> = activation::softmax(k, 3);
    let context = (v / (h * w) as f64).matmul(k.swap_dims(2, 3));
    context.matmul(q).reshape([b, c3 / 3, h, w])
}

/// As [`super::self_attention`].
pub fn self_attention(qkv: Tensor<4>, heads: usize) -> Tensor<4> {
    let [b, c3, h, w] = qkv.dims();
    let (c, d) = (c3 / 3, c3 / 3 / heads);
    let qkv: Tensor<5> = qkv.reshape([b, heads, d, 3, h * w]);
    let part = |j| qkv.clone().narrow(3, j, 1).reshape([b, heads, d, h * w]);
    attention(part(0), part(1), part(2)).reshape([b, c, h, w])
}

/// softmax(qᵀk/√d)·v for every head.
///
/// # Shapes
/// `q`, `k`, `v` and the result: `[B, heads, d, N]`, positions last as images have them.
fn attention(q: Tensor<4>, k: Tensor<4>, v: Tensor<4>) -> Tensor<4> {
    let scale = 1.0 / (q.dims()[2] as f64).sqrt();
    let weights = activation::softmax(q.swap_dims(2, 3).matmul(k * scale), 3);
    v.matmul(weights.swap_dims(2, 3))
}

/// Batch normalisation by the batch's own mean and (biased) variance, which are returned as `[C]` each.
///
/// # Shapes
/// `x` `[B, C, H, W]` to the same, `gamma` and `beta` `[C]`.
pub(crate) fn batch_norm(x: Tensor<4>, gamma: Tensor<1>, beta: Tensor<1>, epsilon: f64) -> (Tensor<4>, [Tensor<1>; 2]) {
    let c = x.dims()[1];
    let column = |v: Tensor<1>| v.reshape([1, c, 1, 1]);
    let mean = channel_mean(x.clone());
    let x = x - mean.clone();
    let variance = channel_mean(x.clone().square());
    let gain = column(gamma) / (variance.clone() + epsilon).sqrt();
    (x * gain + column(beta), [mean, variance].map(|v| v.reshape([c])))
}

/// # Shapes
/// `[B, C, H, W]` to `[1, C, 1, 1]`.
fn channel_mean(x: Tensor<4>) -> Tensor<4> {
    let [b, c, h, w] = x.dims();
    x.reshape([b, c, h * w]).mean_dim(2).mean_dim(0).reshape([1, c, 1, 1])
}
