//! The parts of encoder and decoder.
use burn::module::{Module, Param};
use burn::tensor::Tensor;
use burn::tensor::ops::PadMode;

use super::config::GROUPS;
use crate::nn::attention::self_attention;
use crate::nn::init::{Place, Start};
use crate::nn::layers::{Conv, conv2d, double, group_norm, group_norm_silu};

/// √10: the toolkit's normalisation adds 1e-5 to the variance, this network's 1e-6, and a variance of √10·x is ten
/// times that of x. So GN(√10·x) with 1e-5 is GN(x) with 1e-6.
const STRETCH: f32 = 3.162_277_7;

/// Group normalisation over 32 groups with 1e-6 added to the variance.
#[derive(Module, Debug)]
pub struct Norm32 {
    weight: Param<Tensor<1>>,
    bias: Param<Tensor<1>>,
}

impl Norm32 {
    /// Starts as the identity after normalisation.
    pub fn new(place: &Place, channels: usize) -> Self {
        Self {
            weight: place.param("weight", [channels], Start::Ones),
            bias: place.param("bias", [channels], Start::Zeros),
        }
    }

    fn forward(&self, x: Tensor<4>) -> Tensor<4> {
        group_norm(x * STRETCH, self.weight.val(), self.bias.val(), GROUPS)
    }

    /// Normalises and applies SiLU.
    ///
    /// # Shapes
    /// `[B, C, H, W]` to the same.
    pub fn silu(&self, x: Tensor<4>) -> Tensor<4> {
        group_norm_silu(x * STRETCH, self.weight.val(), self.bias.val(), GROUPS, None)
    }
}

/// GN, SiLU, convolution twice, plus the input (§5).
#[derive(Module, Debug)]
pub struct ResBlock {
    norm1: Norm32,
    conv1: Conv,
    norm2: Norm32,
    conv2: Conv,
    nin_shortcut: Option<Conv>,
}

impl ResBlock {
    /// From `cin` to `cout` channels.
    pub fn new(place: &Place, cin: usize, cout: usize) -> Self {
        Self {
            norm1: Norm32::new(&place.at("norm1"), cin),
            conv1: Conv::new(&place.at("conv1"), cin, cout, 3),
            norm2: Norm32::new(&place.at("norm2"), cout),
            conv2: Conv::new(&place.at("conv2"), cout, cout, 3),
            nin_shortcut: (cin != cout).then(|| Conv::new(&place.at("nin_shortcut"), cin, cout, 1)),
        }
    }

    /// # Shapes
    /// `[B, cin, H, W]` to `[B, cout, H, W]`.
    pub fn forward(&self, x: Tensor<4>) -> Tensor<4> {
        let h = self.conv1.forward(self.norm1.silu(x.clone()));
        let h = self.norm2.silu(h);
        let x = match &self.nin_shortcut {
            Some(shortcut) => shortcut.forward(x),
            None => x,
        };
        self.conv2.forward_onto(x, h)
    }
}

/// Attention of all positions to each other, one head.
#[derive(Module, Debug)]
pub struct AttnBlock {
    norm: Norm32,
    q: Conv,
    k: Conv,
    v: Conv,
    proj_out: Conv,
}

impl AttnBlock {
    fn new(place: &Place, channels: usize) -> Self {
        let conv = |name: &str| Conv::new(&place.at(name), channels, channels, 1);
        Self {
            norm: Norm32::new(&place.at("norm"), channels),
            q: conv("q"),
            k: conv("k"),
            v: conv("v"),
            proj_out: conv("proj_out"),
        }
    }

    fn forward(&self, x: Tensor<4>) -> Tensor<4> {
        let [b, c, h, w] = x.dims();
        let y = self.norm.forward(x.clone());
        let parts = [&self.q, &self.k, &self.v].map(|conv| conv.forward(y.clone()).reshape([b, c, 1, h * w]));
        let qkv = Tensor::cat(parts.to_vec(), 2).reshape([b, 3 * c, h, w]);
        self.proj_out.forward_onto(x, self_attention(qkv, 1))
    }
}

/// The middle of encoder and decoder.
#[derive(Module, Debug)]
pub struct Middle {
    block_1: ResBlock,
    attn_1: AttnBlock,
    block_2: ResBlock,
}

impl Middle {
    /// At `channels` channels.
    pub fn new(place: &Place, channels: usize) -> Self {
        Self {
            block_1: ResBlock::new(&place.at("block_1"), channels, channels),
            attn_1: AttnBlock::new(&place.at("attn_1"), channels),
            block_2: ResBlock::new(&place.at("block_2"), channels, channels),
        }
    }

    /// # Shapes
    /// `[B, C, H, W]` to the same.
    pub fn forward(&self, x: Tensor<4>) -> Tensor<4> {
        self.block_2.forward(self.attn_1.forward(self.block_1.forward(x)))
    }
}

/// Half the size by a convolution of stride 2 that looks one pixel to the right and below.
#[derive(Module, Debug)]
pub struct Down {
    conv: Strided,
}

/// A 3x3 convolution of stride 2 without padding.
#[derive(Module, Debug)]
pub struct Strided {
    weight: Param<Tensor<4>>,
    bias: Param<Tensor<1>>,
}

impl Down {
    /// At `channels` channels.
    pub fn new(place: &Place, channels: usize) -> Self {
        let (place, start) = (place.at("conv"), Start::Uniform(1.0 / ((9 * channels) as f64).sqrt()));
        let weight = place.param("weight", [channels, channels, 3, 3], start);
        Self { conv: Strided { weight, bias: place.param("bias", [channels], start) } }
    }

    /// # Shapes
    /// `[B, C, H, W]` to `[B, C, H/2, W/2]`.
    pub fn forward(&self, x: Tensor<4>) -> Tensor<4> {
        let x = x.pad((0, 1, 0, 1), PadMode::Constant(0.0));
        conv2d(x, self.conv.weight.val(), self.conv.bias.val(), 2, 0)
    }
}

/// Twice the size: every pixel a square, then a convolution.
#[derive(Module, Debug)]
pub struct Up {
    conv: Conv,
}

impl Up {
    /// At `channels` channels.
    pub fn new(place: &Place, channels: usize) -> Self {
        Self { conv: Conv::new(&place.at("conv"), channels, channels, 3) }
    }

    /// # Shapes
    /// `[B, C, H, W]` to `[B, C, 2H, 2W]`.
    pub fn forward(&self, x: Tensor<4>) -> Tensor<4> {
        self.conv.forward(double(x))
    }
}
