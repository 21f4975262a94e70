//! A small U-Net as an encoder of the condition, for runs without pretrained weights.
use burn::module::Module;
use burn::tensor::Tensor;

use super::resblock::ResBlock;
use crate::nn::functional::{concat, upsample2x};
use crate::nn::init::Scope;
use crate::nn::layers::{Conv, ConvOptions};

/// The encoder. Stage s has `width·2^min(s, 2)` channels at a stride of `stride·2^s`.
#[derive(Module, Debug)]
pub struct UnetEncoder {
    stem: Conv,
    downs: Vec<(ResBlock, Option<Conv>)>,
    ups: Vec<(Conv, ResBlock)>,
    unit: usize,
}

/// Channels of each of `levels` stages.
pub fn channels(width: usize, levels: usize) -> Vec<usize> {
    (0..levels).map(|s| width << s.min(2)).collect()
}

impl UnetEncoder {
    /// An encoder of channels_in of `channels_in` channels with `levels` stages, the first at 1/`stride` of their size.
    pub fn new(scope: &Scope, channels_in: usize, width: usize, levels: usize, stride: usize) -> Self {
        let c = channels(width, levels);
        let (downs, ups) = (scope.at("downs"), scope.at("ups"));
        let down = |s: usize| {
            let at = downs.at(&s.to_string());
            let next = c.get(s + 1).map(|&next| {
                Conv::with(&at.at("1"), ConvOptions { stride: 2, padding: 1, ..ConvOptions::same(c[s], next, 4) })
            });
            (ResBlock::new(&at.at("0"), c[s], c[s], None), next)
        };
        let up = |s: usize| {
            let at = ups.at(&s.to_string());
            (Conv::new(&at.at("0"), c[s + 1], c[s], 3), ResBlock::new(&at.at("1"), 2 * c[s], c[s], None))
        };
        Self {
            stem: Conv::with(
                &scope.at("stem"),
                ConvOptions { stride, padding: 1, ..ConvOptions::same(channels_in, width, stride + 2) },
            ),
            downs: (0..levels).map(down).collect(),
            ups: (0..levels - 1).map(up).collect(),
            unit: stride << (levels - 1),
        }
    }

    /// The outputs of all stages, finest first.
    ///
    /// # Shapes
    /// `x` `[B, channels, H, W]` to `[B, c_s, H'/stride/2^s, W'/stride/2^s]`, H' and W' rounded up to whole coarsest pixels.
    pub fn forward(&self, x: Tensor<4>) -> Vec<Tensor<4>> {
        let [_, _, h, w] = x.dims();
        let size = [h, w].map(|side| side.next_multiple_of(self.unit));
        let x = super::swin_block::pad(x.permute([0, 2, 3, 1]), size).permute([0, 3, 1, 2]);
        let mut x = self.stem.forward(x);
        let mut skips = Vec::with_capacity(self.downs.len());
        for (block, down) in &self.downs {
            let y = block.forward(x, None);
            skips.push(y.clone());
            x = match down {
                Some(down) => down.forward(y),
                None => y,
            };
        }
        let mut outputs = vec![x];
        for ((conv, block), skip) in self.ups.iter().zip(skips).rev() {
            let below = outputs[outputs.len() - 1].clone();
            outputs.push(block.forward(concat(conv.forward(upsample2x(below)), skip), None));
        }
        outputs.reverse();
        outputs
    }
}
