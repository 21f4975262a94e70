//! The levels of the conditional U-Net's encoder and decoders (§4.6).
use burn::tensor::Tensor;

use super::cond_unet::Tap;
use super::config::CondUNetConfig;
use super::linear_attention::LinearAttention;
use super::relation::{PoolingWindows, Relation};
use super::resblock::ResBlock;
use crate::nn::functional::{concat, upsample2x};
use crate::nn::init::Scope;
use crate::nn::layers::{Conv, ConvOptions};
use crate::nn::mode::Mode;
use crate::nn::module_macros::named_module;

/// A level of the encoder: two blocks, linear attention, and the convolution to the next level. A tuple, because the
/// reference numbers them.
pub type Down = (ResBlock, ResBlock, LinearAttention, Conv);

/// A level of a decoder, likewise.
pub type Up = (ResBlock, ResBlock, LinearAttention, UpConv);

/// A convolution, on all levels but the finest behind an upsampling by 2. The reference names the two differently.
#[derive(Clone, Debug)]
pub struct UpConv {
    upsampled: Option<Conv>,
    plain: Option<Conv>,
}

named_module!(UpConv { upsampled: "1", plain: "" });

impl UpConv {
    fn new(scope: &Scope, cin: usize, cout: usize, upsamples: bool) -> Self {
        Self {
            upsampled: upsamples.then(|| Conv::new(&scope.at("1"), cin, cout, 3)),
            plain: (!upsamples).then(|| Conv::new(scope, cin, cout, 3)),
        }
    }

    fn forward(&self, x: Tensor<4>) -> Tensor<4> {
        let x = self.upsampled.iter().fold(x, |x, conv| conv.forward(upsample2x(x)));
        self.plain.iter().fold(x, |x, conv| conv.forward(x))
    }
}

/// The levels of the encoder and the layers that fuse them with the condition.
pub(crate) fn downs(scope: &Scope, relations: &Scope, config: &CondUNetConfig) -> (Vec<Down>, Vec<Relation>) {
    let (dims, emb) = (config.dims(), 4 * config.width);
    let level = |i: usize| {
        let (at, name) = (scope.at(&i.to_string()), i.to_string());
        let (cin, cout) = (dims[i], dims[i + 1]);
        let next = at.at("3");
        let next = if i + 2 < dims.len() {
            Conv::with(&next, ConvOptions { stride: 2, padding: 1, ..ConvOptions::same(cin, cout, 4) })
        } else {
            Conv::new(&next, cin, cout, 3)
        };
        let block = |name| ResBlock::new(&at.at(name), cin, cin, Some(emb));
        let down = (block("0"), block("1"), LinearAttention::new(&at.at("2"), cin, config.heads), next);
        let windows = PoolingWindows { condition: config.condition_windows[i], features: config.feature_windows[i] };
        (down, Relation::new(&relations.at(&name), cin, cin, windows))
    };
    (0..dims.len() - 1).map(level).unzip()
}

/// The levels of one decoder, deepest first, and the layers that fuse them with the condition.
pub(crate) fn ups(scope: &Scope, relations: &Scope, config: &CondUNetConfig) -> (Vec<Up>, Vec<Relation>) {
    let (dims, emb) = (config.dims(), 4 * config.width);
    let levels = dims.len() - 1;
    let level = |j: usize| {
        let i = levels - 1 - j;
        let (at, name) = (scope.at(&j.to_string()), j.to_string());
        let (cin, cout) = (dims[i + 1], dims[i]);
        let block = |name| ResBlock::new(&at.at(name), cin + cout, cin, Some(emb));
        let up = (
            block("0"),
            block("1"),
            LinearAttention::new(&at.at("2"), cin, config.heads),
            UpConv::new(&at.at("3"), cin, cout, i > 0),
        );
        let windows = PoolingWindows { condition: config.condition_windows[i], features: config.feature_windows[i] };
        (up, Relation::new(&relations.at(&name), dims[i], cin, windows))
    };
    (0..levels).map(level).unzip()
}

/// Runs the encoder: its output, and the skip connections, two of every level.
///
/// # Shapes
/// `x` `[B, C, H, W]`; `condition` one feature map for each level; `emb` `[B, E]`.
pub(crate) fn encode_levels(
    downs: &[Down],
    relations: &[Relation],
    x: Tensor<4>,
    condition: &[Tensor<4>],
    emb: &Tensor<2>,
    mode: Mode,
    tap: Tap,
) -> (Tensor<4>, Vec<Tensor<4>>) {
    let mut skips = Vec::with_capacity(2 * downs.len());
    let levels = downs.iter().zip(relations).zip(condition).enumerate();
    let bottom = levels.fold(x, |x, (i, (((block1, block2, attention, next), relation), condition))| {
        let x = block1.forward(x, Some(emb));
        skips.push(x.clone());
        let x = relation.forward(condition.clone(), x, mode);
        if i == 0 {
            tap("relation0", &x);
        }
        let x = attention.forward(block2.forward(x, Some(emb)));
        skips.push(x.clone());
        next.forward(x)
    });
    (bottom, skips)
}

/// Runs one decoder, which reads the skip connections from the last to the first.
///
/// # Shapes
/// `x` `[B, C, H, W]` of the deepest level; `skips` and `condition` as of [`encode_levels`].
pub(crate) fn decode_levels(
    ups: &[Up],
    relations: &[Relation],
    x: Tensor<4>,
    skips: &[Tensor<4>],
    condition: &[Tensor<4>],
    emb: &Tensor<2>,
    mode: Mode,
) -> Tensor<4> {
    let mut skips = skips.iter().rev().cloned();
    let mut joined = |x: Tensor<4>| match skips.next() {
        Some(skip) => concat(x, skip),
        None => x,
    };
    let levels = ups.iter().zip(relations).zip(condition.iter().rev());
    levels.fold(x, |x, (((block1, block2, attention, up_conv), relation), condition)| {
        let x = block1.forward(joined(x), Some(emb));
        let x = relation.forward(condition.clone(), x, mode);
        let x = attention.forward(block2.forward(joined(x), Some(emb)));
        up_conv.forward(x)
    })
}
