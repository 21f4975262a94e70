//! The residual block with weight-standardised convolutions (§4.6).
use burn::module::{Module, Param};
use burn::tensor::Tensor;

use super::layers::{GroupNormed, fan};
use crate::nn::init::Place;
use crate::nn::layers::{Conv, Dense, conv2d, group_norm};
use crate::nn::module_macros::named_module;

/// Groups of every group normalisation but the stem's.
pub const GROUPS: usize = 8;

/// A 3x3 convolution whose weights are normalised for every output: (w − mean)/√(var + 1e-5).
#[derive(Module, Debug)]
pub struct StandardConv {
    weight: Param<Tensor<4>>,
    bias: Param<Tensor<1>>,
}

impl StandardConv {
    /// Weights and biases uniform in ±1/√fan_in.
    pub fn new(place: &Place, cin: usize, cout: usize) -> Self {
        let start = fan(9 * cin);
        Self { weight: place.param("weight", [cout, cin, 3, 3], start), bias: place.param("bias", [cout], start) }
    }

    /// # Shapes
    /// `[B, cin, H, W]` to `[B, cout, H, W]`.
    pub fn forward(&self, x: Tensor<4>) -> Tensor<4> {
        let weight = self.weight.val();
        let [cout, cin, _, _] = weight.dims();
        let device = weight.device().without_autodiff();
        let (ones, zeros) = (Tensor::ones([cout], &device), Tensor::zeros([cout], &device));
        // Every output is a group of its own.
        let weight = group_norm(weight.reshape([1, cout, 9 * cin, 1]), ones, zeros, cout);
        conv2d(x, weight.reshape([cout, cin, 3, 3]), self.bias.val(), 1, 1)
    }
}

/// `ResnetBlock` of the reference; without embedding where there is none.
#[derive(Clone, Debug)]
pub struct ResBlock {
    mlp: Option<Dense>,
    conv1: StandardConv,
    norm1: GroupNormed,
    conv2: StandardConv,
    norm2: GroupNormed,
    res_conv: Option<Conv>,
}

named_module!(ResBlock {
    mlp: "mlp.1",
    conv1: "block1.proj",
    norm1: "block1.norm",
    conv2: "block2.proj",
    norm2: "block2.norm",
    res_conv: "res_conv",
});

impl ResBlock {
    /// A block for an embedding of size `emb`, if any.
    pub fn new(place: &Place, cin: usize, cout: usize, emb: Option<usize>) -> Self {
        let at = |name| place.at(name);
        Self {
            mlp: emb.map(|emb| Dense::new(&at("mlp.1"), emb, 2 * cout)),
            conv1: StandardConv::new(&at("block1.proj"), cin, cout),
            norm1: GroupNormed::new(&at("block1.norm"), cout, GROUPS),
            conv2: StandardConv::new(&at("block2.proj"), cout, cout),
            norm2: GroupNormed::new(&at("block2.norm"), cout, GROUPS),
            res_conv: (cin != cout).then(|| Conv::new(&at("res_conv"), cin, cout, 1)),
        }
    }

    /// # Shapes
    /// `x` `[B, cin, H, W]`, `emb` `[B, E]` (after its SiLU) to `[B, cout, H, W]`.
    pub fn forward(&self, x: Tensor<4>, emb: Option<&Tensor<2>>) -> Tensor<4> {
        let modulation = self.mlp.as_ref().zip(emb).map(|(mlp, emb)| mlp.forward(emb.clone()));
        let h = self.norm1.silu(self.conv1.forward(x.clone()), modulation);
        let h = self.norm2.silu(self.conv2.forward(h), None);
        match &self.res_conv {
            Some(conv) => conv.forward_onto(h, x),
            None => h + x,
        }
    }
}
