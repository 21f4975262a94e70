//! The Swin transformer as a condition encoder: torchvision's network, its four stages as outputs (§4.6).
use burn::module::Module;
use burn::tensor::Tensor;

use super::swin_block::{SwinBlock, to_grid, to_tokens};
use crate::nn::init::{Init, Scope};
use crate::nn::layers::{Conv, ConvOptions, Dense, TokenNorm};
use crate::nn::mode::Mode;
use crate::nn::module_macros::named_module;

/// Initial weights.
pub(crate) const INIT: Init = Init::Normal { mean: 0.0, std: 0.02 };

/// Sizes of a Swin transformer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SwinSize {
    /// Channels of the first stage; every further stage has twice as many.
    pub width: usize,
    /// Blocks of each stage.
    pub depths: [usize; 4],
    /// Heads of attention of each stage.
    pub heads: [usize; 4],
    /// Probability that the last block's branches are dropped in training; earlier ones less, in proportion.
    pub drop_path: f64,
}

/// Swin-T.
pub(crate) const TINY: SwinSize = SwinSize { width: 96, depths: [2, 2, 6, 2], heads: [3, 6, 12, 24], drop_path: 0.2 };
/// Swin-B, the reference's.
pub const BASE: SwinSize = SwinSize { width: 128, depths: [2, 2, 18, 2], heads: [4, 8, 16, 32], drop_path: 0.5 };

impl SwinSize {
    /// Channels of the stages.
    pub fn channels(&self) -> [usize; 4] {
        [1, 2, 4, 8].map(|m| m * self.width)
    }
}

/// The encoder. `norm` and `head`, torchvision's classifier, are not used; they are kept because state dicts have them.
#[derive(Clone, Debug)]
pub struct Swin {
    patches: Conv,
    patch_norm: TokenNorm,
    features: Features,
    norm: TokenNorm,
    head: Dense,
}

named_module!(Swin {
    patches: "first_coonv.0",
    patch_norm: "first_coonv.2",
    features: "features",
    norm: "norm",
    head: "head",
});

/// The four stages with a merging of patches between them, which torchvision numbers in sequence.
#[derive(Clone, Debug)]
struct Features {
    stage0: Vec<SwinBlock>,
    merge0: PatchMerging,
    stage1: Vec<SwinBlock>,
    merge1: PatchMerging,
    stage2: Vec<SwinBlock>,
    merge2: PatchMerging,
    stage3: Vec<SwinBlock>,
}

named_module!(Features { stage0: "0", merge0: "1", stage1: "2", merge1: "3", stage2: "4", merge2: "5", stage3: "6" });

impl Swin {
    /// An encoder of pictures of `channels` channels.
    pub fn new(scope: &Scope, channels: usize, size: &SwinSize) -> Self {
        let width = size.width;
        let features = scope.at("features");
        let last = (size.depths.iter().sum::<usize>() - 1) as f64;
        let stage = |s: usize| {
            let before: usize = size.depths[..s].iter().sum();
            let stage = features.at(&(2 * s).to_string());
            let block = |i: usize| {
                let drop = size.drop_path * (before + i) as f64 / last;
                SwinBlock::new(&stage.at(&i.to_string()), width << s, size.heads[s], i % 2 == 1, drop)
            };
            (0..size.depths[s]).map(block).collect()
        };
        let merge = |s: usize| PatchMerging::new(&features.at(&(2 * s + 1).to_string()), width << s);
        Self {
            patches: Conv::with(
                &scope.at("first_coonv.0"),
                ConvOptions { stride: 4, padding: 0, ..ConvOptions::same(channels, width, 4) },
            ),
            patch_norm: TokenNorm::new(&scope.at("first_coonv.2"), width),
            features: Features {
                stage0: stage(0),
                merge0: merge(0),
                stage1: stage(1),
                merge1: merge(1),
                stage2: stage(2),
                merge2: merge(2),
                stage3: stage(3),
            },
            norm: TokenNorm::new(&scope.at("norm"), 8 * width),
            head: Dense::with(&scope.at("head"), 8 * width, 1000, INIT),
        }
    }

    /// The outputs of the four stages, at strides 4, 8, 16 and 32.
    ///
    /// # Shapes
    /// `x` `[B, channels, H, W]`, H and W at least 4, to `[B, width·2^s, h_s, w_s]`; h_0 is H/4 rounded down, and each
    /// further one half of the one before, rounded up.
    pub fn forward(&self, x: Tensor<4>, mode: Mode) -> Vec<Tensor<4>> {
        let Features { stage0, merge0, stage1, merge1, stage2, merge2, stage3 } = &self.features;
        let x = self.patches.forward(x).permute([0, 2, 3, 1]);
        let size = x.dims();
        let mut x = to_grid(self.patch_norm.forward(to_tokens(x)), size);
        let mut outputs = Vec::with_capacity(4);
        let merges = [Some(merge0), Some(merge1), Some(merge2), None];
        for (stage, merge) in [stage0, stage1, stage2, stage3].into_iter().zip(merges) {
            x = stage.iter().fold(x, |x, block| block.forward(x, mode));
            outputs.push(x.clone().permute([0, 3, 1, 2]));
            if let Some(merge) = merge {
                x = merge.forward(x);
            }
        }
        outputs
    }
}

/// Four neighbours become one token of twice the channels.
#[derive(Module, Debug)]
struct PatchMerging {
    reduction: Dense,
    norm: TokenNorm,
}

impl PatchMerging {
    fn new(scope: &Scope, channels: usize) -> Self {
        Self {
            reduction: Dense::without_bias(&scope.at("reduction"), 4 * channels, 2 * channels, INIT),
            norm: TokenNorm::new(&scope.at("norm"), 4 * channels),
        }
    }

    /// # Shapes
    /// `[B, H, W, C]` to `[B, ⌈H/2⌉, ⌈W/2⌉, 2C]`.
    fn forward(&self, x: Tensor<4>) -> Tensor<4> {
        let [b, h, w, c] = x.dims();
        let (half_h, half_w) = (h.div_ceil(2), w.div_ceil(2));
        let x = super::swin_block::pad(x, [2 * half_h, 2 * half_w]);
        // torchvision concatenates the four neighbours column by column.
        let x: Tensor<6> = x.reshape([b, half_h, 2, half_w, 2, c]).permute([0, 1, 3, 4, 2, 5]);
        let x: Tensor<2> = x.reshape([b * half_h * half_w, 4 * c]);
        let x = self.reduction.forward_tokens(self.norm.forward(x));
        x.reshape([b, half_h, half_w, 2 * c])
    }
}
