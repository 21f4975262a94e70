//! Self-attention over the positions of an image.
use burn::tensor::{Tensor, activation};

use crate::engine::{is_fast, ops};

/// softmax(qᵀk/√d)·v for every head.
///
/// # Shapes
/// `q`, `k`, `v` and the result: `[B, heads, d, N]`, positions last as images have them.
pub fn attention(q: Tensor<4>, k: Tensor<4>, v: Tensor<4>) -> Tensor<4> {
    let scale = 1.0 / (q.dims()[2] as f64).sqrt();
    let weights = activation::softmax(q.swap_dims(2, 3).matmul(k * scale), 3);
    v.matmul(weights.swap_dims(2, 3))
}

/// Attention of an image to itself; the channels of `qkv` are ordered head, channel, {q, k, v} (§4.2).
///
/// # Shapes
/// `qkv` `[B, 3C, H, W]` to `[B, C, H, W]`.
pub fn self_attention(qkv: Tensor<4>, heads: usize) -> Tensor<4> {
    if is_fast(&qkv) {
        return ops::self_attention(qkv, heads);
    }
    composed_self_attention(qkv, heads)
}

/// [`self_attention`] in the engine's own operations.
///
/// # Shapes
/// As there.
pub fn composed_self_attention(qkv: Tensor<4>, heads: usize) -> Tensor<4> {
    let [b, c3, h, w] = qkv.dims();
    let (c, d) = (c3 / 3, c3 / 3 / heads);
    let qkv: Tensor<5> = qkv.reshape([b, heads, d, 3, h * w]);
    let part = |j| qkv.clone().narrow(3, j, 1).reshape([b, heads, d, h * w]);
    attention(part(0), part(1), part(2)).reshape([b, c, h, w])
}
