//! The layers between the bottleneck and the decoders.
use burn::module::Module;
use burn::tensor::{Tensor, activation};

use super::functional::{concat, self_attention};
use super::init::Scope;
use super::layers::Conv;
use super::module_macros::named_module;

/// Multiplies all channels by one map, which is computed by self-attention over positions (§4.2, "SpatialAtt").
#[derive(Module, Debug)]
pub struct SpatialGate {
    map: Conv,
    q_conv: Conv,
    k_conv: Conv,
}

/// The layers that give one decoder features of its own: x + SpatialAtt(conv(x)) (§4.2, "decouple").
#[derive(Clone, Debug)]
pub struct Decouple {
    conv: Conv,
    gate: SpatialGate,
}

named_module!(Decouple { conv: "0", gate: "1" });

impl Decouple {
    /// For a bottleneck of `channels` channels.
    pub fn new(scope: &Scope, channels: usize) -> Self {
        Self {
            conv: Conv::new(&scope.at("0"), channels, channels, 3),
            gate: SpatialGate::new(&scope.at("1"), channels),
        }
    }

    /// # Shapes
    /// `[B, C, H, W]` to the same.
    pub fn forward(&self, x: Tensor<4>) -> Tensor<4> {
        x.clone() + self.gate.forward(self.conv.forward(x))
    }
}

impl SpatialGate {
    /// For images of `channels` channels.
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
