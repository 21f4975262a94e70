//! The residual block with weight-standardised convolutions (§4.6).
use burn::tensor::Tensor;

use crate::nn::functional::group_norm;
use crate::nn::init::Scope;
use crate::nn::layers::{Conv, Dense, GroupNorm2d};
use crate::nn::module_macros::named_module;

/// Groups of every group normalisation but the stem's.
pub(crate) const GROUPS: usize = 8;

/// The 3x3 convolution `conv` with its weights normalised for every output: (w − mean)/√(var + 1e-5).
///
/// # Shapes
/// `[B, cin, H, W]` to `[B, cout, H, W]`.
fn weight_standardized(conv: &Conv, x: Tensor<4>) -> Tensor<4> {
    let weight = conv.weight();
    let [cout, cin, _, _] = weight.dims();
    let device = weight.device().without_autodiff();
    let (ones, zeros) = (Tensor::ones([cout], &device), Tensor::zeros([cout], &device));
    // Group normalisation of one image, whose groups are the outputs.
    let weight = group_norm(weight.reshape([1, cout, 9 * cin, 1]), ones, zeros, cout);
    conv.forward_with(x, weight.reshape([cout, cin, 3, 3]), conv.bias())
}

/// The residual block, modulated by the embedding of the time if there is one.
#[derive(Clone, Debug)]
pub struct ResBlock {
    mlp: Option<Dense>,
    conv1: Conv,
    norm1: GroupNorm2d,
    conv2: Conv,
    norm2: GroupNorm2d,
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
    pub fn new(scope: &Scope, cin: usize, cout: usize, emb: Option<usize>) -> Self {
        let at = |name| scope.at(name);
        Self {
            mlp: emb.map(|emb| Dense::new(&at("mlp.1"), emb, 2 * cout)),
            conv1: Conv::new(&at("block1.proj"), cin, cout, 3),
            norm1: GroupNorm2d::new(&at("block1.norm"), cout, GROUPS),
            conv2: Conv::new(&at("block2.proj"), cout, cout, 3),
            norm2: GroupNorm2d::new(&at("block2.norm"), cout, GROUPS),
            res_conv: (cin != cout).then(|| Conv::new(&at("res_conv"), cin, cout, 1)),
        }
    }

    /// # Shapes
    /// `x` `[B, cin, H, W]`, `emb` `[B, E]` (after its SiLU) to `[B, cout, H, W]`.
    pub fn forward(&self, x: Tensor<4>, emb: Option<&Tensor<2>>) -> Tensor<4> {
        let modulation = self.mlp.as_ref().zip(emb).map(|(mlp, emb)| mlp.forward(emb.clone()));
        let h = self.norm1.silu(weight_standardized(&self.conv1, x.clone()), modulation);
        let h = self.norm2.silu(weight_standardized(&self.conv2, h), None);
        match &self.res_conv {
            Some(conv) => conv.forward_onto(h, x),
            None => h + x,
        }
    }
}
