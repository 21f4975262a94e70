//! Attention over all positions at linear cost, and the full one at the bottom (§4.6).
use burn::module::Param;
use burn::tensor::{Tensor, activation};

use super::layers::{channel_norm, fan};
use crate::engine::{condition, is_fast};
use crate::nn::attention::self_attention;
use crate::nn::init::{Place, Start};
use crate::nn::layers::{Conv, conv2d};
use crate::nn::module_macros::named_module;

/// Channels of a head.
const HEAD: usize = 32;

/// Residual linear attention behind a normalisation.
#[derive(Clone, Debug)]
pub struct LinearAttention {
    to_qkv: Param<Tensor<4>>,
    to_out: Conv,
    out_gain: Param<Tensor<4>>,
    gain: Param<Tensor<4>>,
}

named_module!(LinearAttention {
    to_qkv: "fn.fn.to_qkv.weight",
    to_out: "fn.fn.to_out.0",
    out_gain: "fn.fn.to_out.1.g",
    gain: "fn.norm.g",
});

/// Residual attention behind a normalisation.
#[derive(Clone, Debug)]
pub struct FullAttention {
    to_qkv: Param<Tensor<4>>,
    to_out: Conv,
    gain: Param<Tensor<4>>,
}

named_module!(FullAttention { to_qkv: "fn.fn.to_qkv.weight", to_out: "fn.fn.to_out", gain: "fn.norm.g" });

fn qkv_weight(place: &Place, channels: usize, heads: usize) -> Param<Tensor<4>> {
    place.param("fn.fn.to_qkv.weight", [3 * heads * HEAD, channels, 1, 1], fan(channels))
}

/// A 1x1 convolution without bias.
fn project(x: Tensor<4>, weight: Tensor<4>) -> Tensor<4> {
    let bias = Tensor::zeros([weight.dims()[0]], &x.device().without_autodiff());
    conv2d(x, weight, bias, 1, 0)
}

impl LinearAttention {
    /// For `channels` channels, with `heads` heads.
    pub fn new(place: &Place, channels: usize, heads: usize) -> Self {
        Self {
            to_qkv: qkv_weight(place, channels, heads),
            to_out: Conv::new(&place.at("fn.fn.to_out.0"), heads * HEAD, channels, 1),
            out_gain: place.param("fn.fn.to_out.1.g", [1, channels, 1, 1], Start::Ones),
            gain: place.param("fn.norm.g", [1, channels, 1, 1], Start::Ones),
        }
    }

    /// x + LN(conv((k vᵀ)ᵀ q)): q softmax over its channels, k over positions, q scaled by 32^(−½), v by 1/(H·W).
    ///
    /// # Shapes
    /// `[B, C, H, W]` to the same.
    pub fn forward(&self, x: Tensor<4>) -> Tensor<4> {
        let qkv = project(channel_norm(x.clone(), self.gain.val()), self.to_qkv.val());
        let heads = qkv.dims()[1] / 3 / HEAD;
        let y = if is_fast(&qkv) { condition::linear_attention(qkv, heads) } else { composed_linear(qkv, heads) };
        x + channel_norm(self.to_out.forward(y), self.out_gain.val())
    }
}

/// The linear attention of an image to itself in the engine's own operations; channels are ordered {q, k, v}, head, channel.
///
/// # Shapes
/// `qkv` `[B, 3C, H, W]` to `[B, C, H, W]`.
pub fn composed_linear(qkv: Tensor<4>, heads: usize) -> Tensor<4> {
    let [b, c3, h, w] = qkv.dims();
    let d = c3 / 3 / heads;
    let all: Tensor<5> = qkv.reshape([b, 3, heads, d, h * w]);
    let [q, k, v] = std::array::from_fn(|i| all.clone().narrow(1, i, 1).reshape([b, heads, d, h * w]));
    let q: Tensor<4> = activation::softmax(q, 2) * (d as f64).powf(-0.5);
    let k: Tensor<4> = activation::softmax(k, 3);
    let context = (v / (h * w) as f64).matmul(k.swap_dims(2, 3));
    context.matmul(q).reshape([b, c3 / 3, h, w])
}

impl FullAttention {
    /// For `channels` channels, with `heads` heads.
    pub fn new(place: &Place, channels: usize, heads: usize) -> Self {
        Self {
            to_qkv: qkv_weight(place, channels, heads),
            to_out: Conv::new(&place.at("fn.fn.to_out"), heads * HEAD, channels, 1),
            gain: place.param("fn.norm.g", [1, channels, 1, 1], Start::Ones),
        }
    }

    /// x + conv(softmax(qᵀk/√32)·v).
    ///
    /// # Shapes
    /// `[B, C, H, W]` to the same.
    pub fn forward(&self, x: Tensor<4>) -> Tensor<4> {
        let weight = self.to_qkv.val();
        let [c3, channels, _, _] = weight.dims();
        let heads = c3 / 3 / HEAD;
        // From the order {q, k, v}, head, channel to head, channel, {q, k, v}: weights are less to move than images.
        let weight: Tensor<3> = weight.reshape([3, heads * HEAD, channels]).permute([1, 0, 2]);
        let qkv = project(channel_norm(x.clone(), self.gain.val()), weight.reshape([c3, channels, 1, 1]));
        self.to_out.forward_onto(x, self_attention(qkv, heads))
    }
}
