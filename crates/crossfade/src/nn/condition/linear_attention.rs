//! Attention over all positions: at linear cost on every level, in full at the bottleneck (§4.6).
use burn::module::Param;
use burn::tensor::Tensor;

use crate::nn::functional::{channel_norm, conv2d, linear_attention, self_attention};
use crate::nn::init::{Init, Scope};
use crate::nn::layers::Conv;
use crate::nn::module_macros::named_module;

/// Channels of a head.
const HEAD: usize = 32;

/// x + linear attention of the normalised x.
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

/// x + full attention of the normalised x.
#[derive(Clone, Debug)]
pub struct FullAttention {
    to_qkv: Param<Tensor<4>>,
    to_out: Conv,
    gain: Param<Tensor<4>>,
}

named_module!(FullAttention { to_qkv: "fn.fn.to_qkv.weight", to_out: "fn.fn.to_out", gain: "fn.norm.g" });

fn qkv_weight(scope: &Scope, channels: usize, heads: usize) -> Param<Tensor<4>> {
    scope.param("fn.fn.to_qkv.weight", [3 * heads * HEAD, channels, 1, 1], Init::fan_in(channels))
}

/// A 1x1 convolution without bias.
fn project(x: Tensor<4>, weight: Tensor<4>) -> Tensor<4> {
    let bias = Tensor::zeros([weight.dims()[0]], &x.device().without_autodiff());
    conv2d(x, weight, bias, 1, 0)
}

impl LinearAttention {
    /// For `channels` channels, with `heads` heads.
    pub fn new(scope: &Scope, channels: usize, heads: usize) -> Self {
        Self {
            to_qkv: qkv_weight(scope, channels, heads),
            to_out: Conv::new(&scope.at("fn.fn.to_out.0"), heads * HEAD, channels, 1),
            out_gain: scope.param("fn.fn.to_out.1.g", [1, channels, 1, 1], Init::Ones),
            gain: scope.param("fn.norm.g", [1, channels, 1, 1], Init::Ones),
        }
    }

    /// x + LN(conv((k vᵀ)ᵀ q)): q softmax over its channels, k over positions, q scaled by 32^(−½), v by 1/(H·W).
    ///
    /// # Shapes
    /// `[B, C, H, W]` to the same.
    pub fn forward(&self, x: Tensor<4>) -> Tensor<4> {
        let qkv = project(channel_norm(x.clone(), self.gain.val()), self.to_qkv.val());
        let heads = qkv.dims()[1] / 3 / HEAD;
        let y = linear_attention(qkv, heads);
        x + channel_norm(self.to_out.forward(y), self.out_gain.val())
    }
}

impl FullAttention {
    /// For `channels` channels, with `heads` heads.
    pub fn new(scope: &Scope, channels: usize, heads: usize) -> Self {
        Self {
            to_qkv: qkv_weight(scope, channels, heads),
            to_out: Conv::new(&scope.at("fn.fn.to_out"), heads * HEAD, channels, 1),
            gain: scope.param("fn.norm.g", [1, channels, 1, 1], Init::Ones),
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
