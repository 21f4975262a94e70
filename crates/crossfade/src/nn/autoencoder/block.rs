//! The parts of encoder and decoder.
use burn::module::Module;
use burn::tensor::Tensor;
use burn::tensor::ops::PadMode;

use super::config::GROUPS;
use crate::nn::functional::{self_attention, upsample2x};
use crate::nn::init::Scope;
use crate::nn::layers::{Conv, ConvOptions, GroupNorm2d};

/// Group normalisation over [`GROUPS`] groups; this network's add 1e-6 to the variance.
pub(super) fn norm(scope: &Scope, channels: usize) -> GroupNorm2d {
    GroupNorm2d::with_small_epsilon(scope, channels, GROUPS)
}

/// GN, SiLU, convolution twice, plus the input (§5).
#[derive(Module, Debug)]
pub struct ResBlock {
    norm1: GroupNorm2d,
    conv1: Conv,
    norm2: GroupNorm2d,
    conv2: Conv,
    nin_shortcut: Option<Conv>,
}

impl ResBlock {
    /// From `cin` to `cout` channels.
    pub fn new(scope: &Scope, cin: usize, cout: usize) -> Self {
        Self {
            norm1: norm(&scope.at("norm1"), cin),
            conv1: Conv::new(&scope.at("conv1"), cin, cout, 3),
            norm2: norm(&scope.at("norm2"), cout),
            conv2: Conv::new(&scope.at("conv2"), cout, cout, 3),
            nin_shortcut: (cin != cout).then(|| Conv::new(&scope.at("nin_shortcut"), cin, cout, 1)),
        }
    }

    /// # Shapes
    /// `[B, cin, H, W]` to `[B, cout, H, W]`.
    pub fn forward(&self, x: Tensor<4>) -> Tensor<4> {
        let h = self.conv1.forward(self.norm1.silu(x.clone(), None));
        let h = self.norm2.silu(h, None);
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
    norm: GroupNorm2d,
    q: Conv,
    k: Conv,
    v: Conv,
    proj_out: Conv,
}

impl AttnBlock {
    fn new(scope: &Scope, channels: usize) -> Self {
        let conv = |name: &str| Conv::new(&scope.at(name), channels, channels, 1);
        Self {
            norm: norm(&scope.at("norm"), channels),
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
    pub fn new(scope: &Scope, channels: usize) -> Self {
        Self {
            block_1: ResBlock::new(&scope.at("block_1"), channels, channels),
            attn_1: AttnBlock::new(&scope.at("attn_1"), channels),
            block_2: ResBlock::new(&scope.at("block_2"), channels, channels),
        }
    }

    /// # Shapes
    /// `[B, C, H, W]` to the same.
    pub fn forward(&self, x: Tensor<4>) -> Tensor<4> {
        self.block_2.forward(self.attn_1.forward(self.block_1.forward(x)))
    }
}

/// Half the size by a convolution of stride 2.
#[derive(Module, Debug)]
pub struct Down {
    conv: Conv,
}

impl Down {
    /// At `channels` channels.
    pub fn new(scope: &Scope, channels: usize) -> Self {
        let options = ConvOptions { stride: 2, padding: 0, ..ConvOptions::same(channels, channels, 3) };
        Self { conv: Conv::with(&scope.at("conv"), options) }
    }

    /// # Shapes
    /// `[B, C, H, W]` to `[B, C, H/2, W/2]`.
    pub fn forward(&self, x: Tensor<4>) -> Tensor<4> {
        // Zeros to the right and below only, as in the reference: the convolution's own padding would be symmetric.
        self.conv.forward(x.pad((0, 1, 0, 1), PadMode::Constant(0.0)))
    }
}

/// Twice the size: every pixel a square, then a convolution.
#[derive(Module, Debug)]
pub struct Up {
    conv: Conv,
}

impl Up {
    /// At `channels` channels.
    pub fn new(scope: &Scope, channels: usize) -> Self {
        Self { conv: Conv::new(&scope.at("conv"), channels, channels, 3) }
    }

    /// # Shapes
    /// `[B, C, H, W]` to `[B, C, 2H, 2W]`.
    pub fn forward(&self, x: Tensor<4>) -> Tensor<4> {
        self.conv.forward(upsample2x(x))
    }
}
