//! Attention over all positions at linear cost, and the full one at the bottom (§4.6).
use burn::module::Param;
use burn::tensor::{Tensor, activation};

use super::layers::{channel_norm, fan};
use super::names::named_module;
use crate::nn::attention::attention;
use crate::nn::init::{Place, Start};
use crate::nn::layers::{Conv, conv2d};

const HEADS: usize = 4;
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

fn qkv_weight(place: &Place, channels: usize) -> Param<Tensor<4>> {
    place.param("fn.fn.to_qkv.weight", [3 * HEADS * HEAD, channels, 1, 1], fan(channels))
}

/// q, k and v: channels are ordered {q, k, v}, head, channel.
///
/// # Shapes
/// `x` `[B, C, H, W]` to three of `[B, heads, d, H·W]`.
fn qkv(x: Tensor<4>, weight: Tensor<4>) -> [Tensor<4>; 3] {
    let [b, _, h, w] = x.dims();
    let bias = Tensor::zeros([3 * HEADS * HEAD], &x.device().without_autodiff());
    let all: Tensor<5> = conv2d(x, weight, bias, 1, 0).reshape([b, 3, HEADS, HEAD, h * w]);
    std::array::from_fn(|i| all.clone().narrow(1, i, 1).reshape([b, HEADS, HEAD, h * w]))
}

impl LinearAttention {
    /// For `channels` channels.
    pub fn new(place: &Place, channels: usize) -> Self {
        Self {
            to_qkv: qkv_weight(place, channels),
            to_out: Conv::new(&place.at("fn.fn.to_out.0"), HEADS * HEAD, channels, 1),
            out_gain: place.param("fn.fn.to_out.1.g", [1, channels, 1, 1], Start::Ones),
            gain: place.param("fn.norm.g", [1, channels, 1, 1], Start::Ones),
        }
    }

    /// x + LN(conv((k vᵀ)ᵀ q)): q softmax over its channels, k over positions, q scaled by 32^(−½), v by 1/(H·W).
    ///
    /// # Shapes
    /// `[B, C, H, W]` to the same.
    pub fn forward(&self, x: Tensor<4>) -> Tensor<4> {
        let [b, _, h, w] = x.dims();
        let [q, k, v] = qkv(channel_norm(x.clone(), self.gain.val()), self.to_qkv.val());
        let q = activation::softmax(q, 2) * (HEAD as f64).powf(-0.5);
        let k = activation::softmax(k, 3);
        let context = (v / (h * w) as f64).matmul(k.swap_dims(2, 3));
        let y = context.matmul(q).reshape([b, HEADS * HEAD, h, w]);
        x + channel_norm(self.to_out.forward(y), self.out_gain.val())
    }
}

impl FullAttention {
    /// For `channels` channels.
    pub fn new(place: &Place, channels: usize) -> Self {
        Self {
            to_qkv: qkv_weight(place, channels),
            to_out: Conv::new(&place.at("fn.fn.to_out"), HEADS * HEAD, channels, 1),
            gain: place.param("fn.norm.g", [1, channels, 1, 1], Start::Ones),
        }
    }

    /// x + conv(softmax(qᵀk/√32)·v).
    ///
    /// # Shapes
    /// `[B, C, H, W]` to the same.
    pub fn forward(&self, x: Tensor<4>) -> Tensor<4> {
        let [b, _, h, w] = x.dims();
        let [q, k, v] = qkv(channel_norm(x.clone(), self.gain.val()), self.to_qkv.val());
        let y = attention(q, k, v).reshape([b, HEADS * HEAD, h, w]);
        self.to_out.forward_onto(x, y)
    }
}
