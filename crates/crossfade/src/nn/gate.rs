//! The split of the bottleneck: each decoder reads x + SpatialAtt(conv(x)).
use burn::module::Module;
use burn::tensor::{Tensor, activation};

use super::functional::{concat, self_attention};
use super::init::Scope;
use super::layers::Conv;

/// A convolution and a gate; a tuple, because the reference names them `0` and `1`.
pub type Decouple = (Conv, SpatialGate);

/// Multiplies all channels by one map that attends to itself (§4.2, "SpatialAtt").
#[derive(Module, Debug)]
pub struct SpatialGate {
    map: Conv,
    q_conv: Conv,
    k_conv: Conv,
}

/// The layers in front of one decoder.
pub fn decouple(scope: &Scope, channels: usize) -> Decouple {
    (Conv::new(&scope.at("0"), channels, channels, 3), SpatialGate::new(&scope.at("1"), channels))
}

/// x + SpatialAtt(conv(x)), what one decoder starts from.
///
/// # Shapes
/// `[B, C, H, W]` to the same.
pub fn split((conv, gate): &Decouple, x: Tensor<4>) -> Tensor<4> {
    x.clone() + gate.forward(conv.forward(x))
}

impl SpatialGate {
    /// A gate of `channels` channels.
    pub fn new(scope: &Scope, channels: usize) -> Self {
        let conv = |name, cin, cout| Conv::new(&scope.at(name), cin, cout, 1);
        Self { map: conv("map", channels, 1), q_conv: conv("q_conv", 1, 1), k_conv: conv("k_conv", 1, 1) }
    }

    /// softsign(a')·x with a = map(x), a'_i = Σ_j softmax_j(q_i k_j)·a_j.
    ///
    /// # Shapes
    /// `[B, C, H, W]` to the same.
    pub fn forward(&self, x: Tensor<4>) -> Tensor<4> {
        let a = self.map.forward(x.clone());
        let (q, k) = (self.q_conv.forward(a.clone()), self.k_conv.forward(a.clone()));
        // Attention of one head with one channel, whose scale 1/√d is 1.
        let mixed = self_attention(concat(concat(q, k), a), 1);
        activation::softsign(mixed) * x
    }
}
