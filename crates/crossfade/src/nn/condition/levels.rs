//! The levels of the conditional U-Net: down with the condition, and up again for each decoder (§4.6).
use burn::tensor::Tensor;

use super::cond_unet::Tap;
use super::config::CondUNetConfig;
use super::linear_attention::LinearAttention;
use super::relation::Relation;
use super::resblock::ResBlock;
use crate::nn::functional::{concat, upsample2x};
use crate::nn::init::Scope;
use crate::nn::layers::{Conv, ConvOptions};
use crate::nn::mode::Mode;
use crate::nn::module_macros::named_module;

/// Two blocks, linear attention, and the way to the next level. A tuple, because the reference numbers them.
pub type Down = (ResBlock, ResBlock, LinearAttention, Conv);

/// The same on the way up.
pub type Up = (ResBlock, ResBlock, LinearAttention, Enlarge);

/// A convolution, behind a doubling of the image on all levels but the finest.
#[derive(Clone, Debug)]
pub struct Enlarge {
    doubled: Option<Conv>,
    plain: Option<Conv>,
}

named_module!(Enlarge { doubled: "1", plain: "" });

impl Enlarge {
    fn new(scope: &Scope, cin: usize, cout: usize, doubles: bool) -> Self {
        Self {
            doubled: doubles.then(|| Conv::new(&scope.at("1"), cin, cout, 3)),
            plain: (!doubles).then(|| Conv::new(scope, cin, cout, 3)),
        }
    }

    fn forward(&self, x: Tensor<4>) -> Tensor<4> {
        let x = self.doubled.iter().fold(x, |x, conv| conv.forward(upsample2x(x)));
        self.plain.iter().fold(x, |x, conv| conv.forward(x))
    }
}

/// The levels on the way down and their relations to the condition.
pub fn downs(scope: &Scope, relations: &Scope, config: &CondUNetConfig) -> (Vec<Down>, Vec<Relation>) {
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
        let windows = [config.condition_windows[i], config.feature_windows[i]];
        (down, Relation::new(&relations.at(&name), cin, cin, windows))
    };
    (0..dims.len() - 1).map(level).unzip()
}

/// The levels of one decoder, deepest first, and their relations to the condition.
pub fn ups(scope: &Scope, relations: &Scope, config: &CondUNetConfig) -> (Vec<Up>, Vec<Relation>) {
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
            Enlarge::new(&at.at("3"), cin, cout, i > 0),
        );
        let windows = [config.condition_windows[i], config.feature_windows[i]];
        (up, Relation::new(&relations.at(&name), dims[i], cin, windows))
    };
    (0..levels).map(level).unzip()
}

/// Down to the bottom; two results of every level are kept for the decoders.
pub fn descend(
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

/// Up from the bottom by one decoder, reading the kept results from the last.
pub fn rise(
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
    levels.fold(x, |x, (((block1, block2, attention, enlarge), relation), condition)| {
        let x = block1.forward(joined(x), Some(emb));
        let x = relation.forward(condition.clone(), x, mode);
        let x = attention.forward(block2.forward(joined(x), Some(emb)));
        enlarge.forward(x)
    })
}
