//! The residual block of the unconditional U-Net: norm, SiLU and convolution twice, modulated by the embedding of the
//! noise level, with optional self-attention.
use burn::module::Module;
use burn::tensor::Tensor;

use super::config::{BlockPlan, Resample};
use super::dropout::{DropoutKey, dropout};
use super::functional::{avg_pool2x2, self_attention, upsample2x};
use super::init::Scope;
use super::layers::{Conv, Dense, GroupNorm2d, groups};

/// `UNetBlock` of §4.2.
#[derive(Module, Debug)]
pub struct Block {
    norm0: GroupNorm2d,
    conv0: Conv,
    affine: Dense,
    norm1: GroupNorm2d,
    conv1: Conv,
    skip: Option<Conv>,
    norm2: Option<GroupNorm2d>,
    qkv: Option<Conv>,
    proj: Option<Conv>,
    heads: usize,
    channels_in: usize,
    #[module(skip)]
    resample: Resample,
    #[module(skip)]
    dropout: f64,
    #[module(skip)]
    layer: u64,
}

impl Block {
    /// The block of a plan, for an embedding of size `emb`.
    pub fn new(scope: &Scope, plan: &BlockPlan, emb: usize, dropout: f64) -> Self {
        let (cin, cout, heads) = (plan.cin, plan.cout, plan.heads());
        let attends = |make: fn(&Scope, usize) -> Conv, name| (heads > 0).then(|| make(&scope.at(name), cout));
        Self {
            norm0: GroupNorm2d::new(&scope.at("norm0"), cin, groups(cin)),
            conv0: Conv::new(&scope.at("conv0"), cin, cout, 3),
            affine: Dense::new(&scope.at("affine"), emb, 2 * cout),
            norm1: GroupNorm2d::new(&scope.at("norm1"), cout, groups(cout)),
            conv1: Conv::zero(&scope.at("conv1"), cout, cout, 3),
            skip: (cin != cout).then(|| Conv::new(&scope.at("skip"), cin, cout, 1)),
            norm2: (heads > 0).then(|| GroupNorm2d::new(&scope.at("norm2"), cout, groups(cout))),
            qkv: attends(|scope, c| Conv::new(scope, c, 3 * c, 1), "qkv"),
            proj: attends(|scope, c| Conv::zero(scope, c, c, 1), "proj"),
            heads,
            channels_in: cin,
            resample: plan.resample,
            dropout,
            layer: scope.hash(),
        }
    }

    /// The number of channels that the block expects.
    pub(crate) fn channels_in(&self) -> usize {
        self.channels_in
    }

    /// # Shapes
    /// `x` `[B, cin, H, W]`, `emb` `[B, E]` to `[B, cout, H', W']`, where H' is H, H/2 or 2H.
    pub fn forward(&self, x: Tensor<4>, emb: &Tensor<2>, key: Option<&DropoutKey>) -> Tensor<4> {
        let h = self.conv0.forward(self.resized(self.norm0.silu(x.clone(), None)));
        let h = self.norm1.silu(h, Some(self.affine.forward(emb.clone())));
        let h = match key {
            Some(key) => dropout(h, self.dropout, self.layer, key),
            None => h,
        };
        let x = self.resized(x);
        let x = match &self.skip {
            Some(skip) => skip.forward(x),
            None => x,
        };
        let y = self.conv1.forward_onto(x, h);
        match (&self.norm2, &self.qkv, &self.proj) {
            (Some(norm2), Some(qkv), Some(proj)) => {
                let a = self_attention(qkv.forward(norm2.forward(y.clone())), self.heads);
                proj.forward_onto(y, a)
            }
            _ => y,
        }
    }

    fn resized(&self, x: Tensor<4>) -> Tensor<4> {
        match self.resample {
            Resample::Keep => x,
            Resample::Down => avg_pool2x2(x),
            Resample::Up => upsample2x(x),
        }
    }
}
