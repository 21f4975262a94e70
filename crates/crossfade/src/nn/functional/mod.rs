//! The operations of the networks as functions, as in `torch.nn.functional`; nothing else in the toolkit convolves or
//! normalises.
//!
//! On the CPU each is a kernel with a gradient of its own (`engine`); on every other device it is composed of the engine's
//! operations, which are also what the kernels are tested against.
pub mod composed;

use burn::tensor::{Tensor, activation};

use crate::engine::{condition, has_kernels, ops};

/// 2-D convolution, computed in the precision of `weight`; the result has that of `x`.
///
/// # Shapes
/// `x` `[B, cin, H, W]`, `weight` `[cout, cin, k, k]`, `bias` `[cout]`.
pub fn conv2d(x: Tensor<4>, weight: Tensor<4>, bias: Tensor<1>, stride: usize, padding: usize) -> Tensor<4> {
    if has_kernels(&x) && has_kernels(&weight) {
        return ops::conv2d(x, weight, bias, None, stride, padding);
    }
    composed::conv2d(x, weight, bias, stride, padding)
}

/// `base` plus [`conv2d`]. The sum needs no memory of its own, and the backward pass keeps nothing for it.
///
/// # Shapes
/// As there; `base` has the shape of the result.
pub(crate) fn conv2d_onto(
    base: Tensor<4>,
    x: Tensor<4>,
    weight: Tensor<4>,
    bias: Tensor<1>,
    stride: usize,
    padding: usize,
) -> Tensor<4> {
    if has_kernels(&x) && has_kernels(&weight) {
        return ops::conv2d(x, weight, bias, Some(base), stride, padding);
    }
    base + composed::conv2d(x, weight, bias, stride, padding)
}

/// y = (x − mean)/√(var + 1e-5)·γ + β, mean and (biased) variance over each sample's groups of channels.
///
/// # Shapes
/// `x` `[B, C, H, W]`, `gamma` and `beta` `[C]`.
pub fn group_norm(x: Tensor<4>, gamma: Tensor<1>, beta: Tensor<1>, groups: usize) -> Tensor<4> {
    if has_kernels(&x) {
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
    if has_kernels(&x) {
        return ops::norm(x, gamma, beta, groups, scale_shift, true);
    }
    composed::group_norm_silu(x, gamma, beta, groups, scale_shift)
}

/// y = x Wᵀ + b, computed in the precision of `weight`; the result has that of `x`.
///
/// # Shapes
/// `x` `[B, in]`, `weight` `[out, in]`, `bias` `[out]` to `[B, out]`.
pub fn linear(x: Tensor<2>, weight: Tensor<2>, bias: Option<Tensor<1>>) -> Tensor<2> {
    if has_kernels(&x) && has_kernels(&weight) {
        return ops::linear(padded(x), padded(weight), bias);
    }
    composed::linear(x, weight, bias)
}

/// Pads rows with zeros to the width that the kernel computes with. The engine's own product is no way out for odd widths:
/// it would sum a sample in an order that depends on its batch.
///
/// # Shapes
/// `[n, in]` to `[n, in']`, in' a multiple of [`ops::LINEAR_WIDTH`].
fn padded(x: Tensor<2>) -> Tensor<2> {
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
    if has_kernels(&a) { ops::concat(a, b) } else { Tensor::cat(vec![a, b], 1) }
}

/// SiLU(x) = x/(1 + e^(−x)).
pub fn silu<const D: usize>(x: Tensor<D>) -> Tensor<D> {
    if has_kernels(&x) { ops::silu(x) } else { activation::silu(x) }
}

/// Average pooling of 2x2 pixels.
///
/// # Shapes
/// `[B, C, H, W]` to `[B, C, H/2, W/2]`.
pub fn avg_pool2x2(x: Tensor<4>) -> Tensor<4> {
    if has_kernels(&x) { ops::avg_pool2x2(x) } else { composed::avg_pool2x2(x) }
}

/// Nearest-neighbour upsampling: every pixel becomes a 2x2 square.
///
/// # Shapes
/// `[B, C, H, W]` to `[B, C, 2H, 2W]`.
pub fn upsample2x(x: Tensor<4>) -> Tensor<4> {
    if has_kernels(&x) { ops::upsample2x(x) } else { composed::upsample2x(x) }
}

/// Space to depth, PyTorch's `pixel_unshuffle`: every square of `patch` x `patch` pixels becomes one pixel. The values of
/// a channel stay together, ordered by row and column.
///
/// # Shapes
/// `[B, C, H, W]` to `[B, C·patch², H/patch, W/patch]`.
pub fn pixel_unshuffle(x: Tensor<4>, patch: usize) -> Tensor<4> {
    let [b, c, h, w] = x.dims();
    if patch == 1 {
        return x;
    }
    let (rows, columns) = (h / patch, w / patch);
    let squares: Tensor<6> = x.reshape([b, c, rows, patch, columns, patch]);
    squares.permute([0, 1, 3, 5, 2, 4]).reshape([b, c * patch * patch, rows, columns])
}

/// Depth to space, PyTorch's `pixel_shuffle`: the inverse of [`pixel_unshuffle`].
///
/// # Shapes
/// `[B, C·patch², H, W]` to `[B, C, patch·H, patch·W]`.
pub fn pixel_shuffle(x: Tensor<4>, patch: usize) -> Tensor<4> {
    let [b, c, h, w] = x.dims();
    if patch == 1 {
        return x;
    }
    let c = c / (patch * patch);
    let squares: Tensor<6> = x.reshape([b, c, patch, patch, h, w]);
    squares.permute([0, 1, 4, 2, 5, 3]).reshape([b, c, h * patch, w * patch])
}

/// (x − mean)/√(var + 1e-5)·g over the channels of every pixel (§4.6, "LayerNorm").
///
/// # Shapes
/// `x` `[B, C, H, W]` to the same, `gain` `[1, C, 1, 1]`.
pub(crate) fn channel_norm(x: Tensor<4>, gain: Tensor<4>) -> Tensor<4> {
    if has_kernels(&x) { condition::channel_norm(x, gain) } else { composed::channel_norm(x, gain) }
}

/// Attention at linear cost; channels are ordered {q, k, v}, head, channel (§4.6).
///
/// # Shapes
/// `qkv` `[B, 3C, H, W]` to `[B, C, H, W]`.
pub(crate) fn linear_attention(qkv: Tensor<4>, heads: usize) -> Tensor<4> {
    if has_kernels(&qkv) { condition::linear_attention(qkv, heads) } else { composed::linear_attention(qkv, heads) }
}

/// Self-attention of an image; channels are ordered head, channel, {q, k, v} (§4.2).
///
/// # Shapes
/// `qkv` `[B, 3C, H, W]` to `[B, C, H, W]`.
pub fn self_attention(qkv: Tensor<4>, heads: usize) -> Tensor<4> {
    if has_kernels(&qkv) { ops::self_attention(qkv, heads) } else { composed::self_attention(qkv, heads) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{from_vec, to_host};
    use burn::tensor::Device;

    /// Checked against the definition, value by value, and against its inverse.
    #[test]
    fn pixel_unshuffle_stacks_squares_of_pixels_and_pixel_shuffle_undoes_it() {
        let (device, [b, c, h, w]) = (Device::flex(), [2, 3, 8, 16]);
        let values: Vec<f32> = (0..b * c * h * w).map(|i| i as f32).collect();
        let x = from_vec(values.clone(), [b, c, h, w], &device);
        for p in [1, 2, 4] {
            let stacked = pixel_unshuffle(x.clone(), p);
            let [_, channels, rows, columns] = stacked.dims();
            assert_eq!([channels, rows, columns], [c * p * p, h / p, w / p]);
            for (at, value) in to_host(stacked.clone()).into_iter().enumerate() {
                let (k, y, x) = (at / (rows * columns), at / columns % rows, at % columns);
                let (plane, row, column) = (k / (p * p), y * p + k / p % p, x * p + k % p);
                assert_eq!(value, values[(plane * h + row) * w + column]);
            }
            assert_eq!(to_host(pixel_shuffle(stacked, p)), values);
        }
    }
}
