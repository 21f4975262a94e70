//! A block of the Swin transformer: attention within windows of 7x7, shifted in every second block, and an MLP.
use burn::module::Param;
use burn::tensor::{Int, Tensor, TensorData, activation};

use super::swin::INIT;
use crate::engine::{Device, from_vec};
use crate::nn::dropout::dropout;
use crate::nn::init::Scope;
use crate::nn::layers::{Dense, TokenNorm};
use crate::nn::mode::Mode;
use crate::nn::module_macros::named_module;

/// Side of a window.
const WINDOW: usize = 7;
/// Tokens of a window.
const TOKENS: usize = WINDOW * WINDOW;
/// Added to the logits of pairs of tokens that were no neighbours before the shift, so that they do not attend.
const MASKED: f32 = -100.0;

/// x + attention(norm(x)), then x + mlp(norm(x)).
#[derive(Clone, Debug)]
pub struct SwinBlock {
    norm1: TokenNorm,
    bias_table: Param<Tensor<2>>,
    qkv: Dense,
    proj: Dense,
    norm2: TokenNorm,
    mlp0: Dense,
    mlp3: Dense,
    heads: usize,
    shifted: bool,
    drop_path_rate: f64,
    layer: u64,
}

named_module!(SwinBlock {
    norm1: "norm1",
    bias_table: "attn.relative_position_bias_table",
    qkv: "attn.qkv",
    proj: "attn.proj",
    norm2: "norm2",
    mlp0: "mlp.0",
    mlp3: "mlp.3",
} keep heads, shifted, drop_path_rate, layer);

impl SwinBlock {
    /// A block whose branches are dropped with probability `drop_path_rate` in training.
    pub fn new(scope: &Scope, channels: usize, heads: usize, shifted: bool, drop_path_rate: f64) -> Self {
        let dense = |name, cin, cout| Dense::with(&scope.at(name), cin, cout, INIT);
        let span = 2 * WINDOW - 1;
        Self {
            norm1: TokenNorm::new(&scope.at("norm1"), channels),
            bias_table: scope.param("attn.relative_position_bias_table", [span * span, heads], INIT),
            qkv: dense("attn.qkv", channels, 3 * channels),
            proj: dense("attn.proj", channels, channels),
            norm2: TokenNorm::new(&scope.at("norm2"), channels),
            mlp0: dense("mlp.0", channels, 4 * channels),
            mlp3: dense("mlp.3", 4 * channels, channels),
            heads,
            shifted,
            drop_path_rate,
            layer: scope.hash(),
        }
    }

    /// # Shapes
    /// `[B, H, W, C]` to the same.
    pub fn forward(&self, x: Tensor<4>, mode: Mode) -> Tensor<4> {
        let size = x.dims();
        let y = self.attention(to_grid(self.norm1.forward(to_tokens(x.clone())), size));
        let x = x + self.drop_path(y, mode, 0);
        let y = self.mlp0.forward_tokens(self.norm2.forward(to_tokens(x.clone())));
        let y = to_grid(self.mlp3.forward_tokens(activation::gelu(y)), size);
        x + self.drop_path(y, mode, 1)
    }

    /// Stochastic depth: in training the whole branch of a sample is zero, or divided by the probability of being kept.
    fn drop_path(&self, x: Tensor<4>, mode: Mode, part: u64) -> Tensor<4> {
        match mode.dropout() {
            Some(key) if self.drop_path_rate > 0.0 => {
                let ones = Tensor::ones([x.dims()[0], 1, 1, 1], &x.device().without_autodiff());
                x * dropout(ones, self.drop_path_rate, self.layer.wrapping_add(part), key)
            }
            _ => x,
        }
    }

    /// # Shapes
    /// `[B, H, W, C]` to the same.
    fn attention(&self, x: Tensor<4>) -> Tensor<4> {
        let [b, h, w, c] = x.dims();
        let device = x.device().without_autodiff();
        let [ph, pw] = [h, w].map(|side| side.next_multiple_of(WINDOW));
        // A single window along an axis has nothing to shift to.
        let shift = [ph, pw].map(|side| if self.shifted && side > WINDOW { WINDOW / 2 } else { 0 });
        let x = roll(roll(pad(x, [ph, pw]), 1, shift[0]), 2, shift[1]);
        let (nh, nw) = (ph / WINDOW, pw / WINDOW);
        let x: Tensor<6> = x.reshape([b, nh, WINDOW, nw, WINDOW, c]).permute([0, 1, 3, 2, 4, 5]);
        let (windows, d) = (b * nh * nw, c / self.heads);
        let qkv = self.qkv.forward_tokens(x.reshape([windows * TOKENS, c]));
        let qkv: Tensor<5> = qkv.reshape([windows, TOKENS, 3, self.heads, d]).permute([2, 0, 3, 1, 4]);
        let part = |i| qkv.clone().narrow(0, i, 1).reshape([windows, self.heads, TOKENS, d]);
        let q = part(0) * (d as f64).powf(-0.5);
        let logits = q.matmul(part(1).swap_dims(2, 3)) + self.bias(&device);
        let logits = if shift == [0, 0] {
            logits
        } else {
            let mask = mask([ph, pw], shift, &device);
            let logits: Tensor<5> = logits.reshape([b, nh * nw, self.heads, TOKENS, TOKENS]) + mask;
            logits.reshape([windows, self.heads, TOKENS, TOKENS])
        };
        let y = activation::softmax(logits, 3).matmul(part(2)).swap_dims(1, 2);
        let y = self.proj.forward_tokens(y.reshape([windows * TOKENS, c]));
        let y: Tensor<6> = y.reshape([b, nh, nw, WINDOW, WINDOW, c]).permute([0, 1, 3, 2, 4, 5]);
        let y: Tensor<4> = y.reshape([b, ph, pw, c]);
        let y = roll(roll(y, 1, (ph - shift[0]) % ph), 2, (pw - shift[1]) % pw);
        y.narrow(1, 0, h).narrow(2, 0, w)
    }

    /// The relative position bias: one number for every head and pair of tokens, by their distance.
    ///
    /// # Shapes
    /// To `[1, heads, 49, 49]`.
    fn bias(&self, device: &Device) -> Tensor<4> {
        let span = 2 * WINDOW - 1;
        let pair = |i: usize| {
            let (a, b) = (i / TOKENS, i % TOKENS);
            let dy = a / WINDOW + WINDOW - 1 - b / WINDOW;
            let dx = a % WINDOW + WINDOW - 1 - b % WINDOW;
            (dy * span + dx) as i64
        };
        let index: Vec<i64> = (0..TOKENS * TOKENS).map(pair).collect();
        let index: Tensor<1, Int> = Tensor::from_data(TensorData::new(index, [TOKENS * TOKENS]), device);
        let bias = self.bias_table.val().select(0, index);
        bias.transpose().reshape([1, self.heads, TOKENS, TOKENS])
    }
}

/// All tokens as rows.
///
/// # Shapes
/// `[B, H, W, C]` to `[B·H·W, C]`.
pub(crate) fn to_tokens(x: Tensor<4>) -> Tensor<2> {
    let [b, h, w, c] = x.dims();
    x.reshape([b * h * w, c])
}

/// The opposite of [`to_tokens`], with perhaps another number of channels.
///
/// # Shapes
/// `[B·H·W, C]` to `[B, H, W, C]`.
pub(crate) fn to_grid(x: Tensor<2>, [b, h, w, _]: [usize; 4]) -> Tensor<4> {
    let c = x.dims()[1];
    x.reshape([b, h, w, c])
}

/// Zeros to the right and below.
///
/// # Shapes
/// `[B, H, W, C]` to `[B, size[0], size[1], C]`.
pub(crate) fn pad(x: Tensor<4>, size: [usize; 2]) -> Tensor<4> {
    let device = x.device().without_autodiff();
    size.into_iter().zip([1, 2]).fold(x, |x, (side, axis)| {
        let mut shape = x.dims();
        if shape[axis] == side {
            return x;
        }
        shape[axis] = side - shape[axis];
        Tensor::cat(vec![x, Tensor::zeros(shape, &device)], axis)
    })
}

/// Cyclic shift along an axis, as `torch.roll` by −`shift`.
fn roll(x: Tensor<4>, axis: usize, shift: usize) -> Tensor<4> {
    let side = x.dims()[axis];
    if shift == 0 {
        return x;
    }
    Tensor::cat(vec![x.clone().narrow(axis, shift, side - shift), x.narrow(axis, 0, shift)], axis)
}

/// The mask of a shifted grid: 0 for pairs of tokens that are neighbours in the image, [`MASKED`] for others.
///
/// # Shapes
/// To `[1, windows, 1, 49, 49]`.
fn mask(size: [usize; 2], shift: [usize; 2], device: &Device) -> Tensor<5> {
    let region = |axis: usize, i: usize| match (shift[axis], size[axis]) {
        (0, _) => 0,
        (_, side) if i < side - WINDOW => 0,
        (shift, side) if i < side - shift => 1,
        _ => 2,
    };
    let [nh, nw] = size.map(|side| side / WINDOW);
    let mut values = Vec::with_capacity(nh * nw * TOKENS * TOKENS);
    for window in 0..nh * nw {
        let of = |token: usize| {
            let (y, x) = (window / nw * WINDOW + token / WINDOW, window % nw * WINDOW + token % WINDOW);
            (region(0, y), region(1, x))
        };
        let regions: Vec<_> = (0..TOKENS).map(of).collect();
        values.extend(regions.iter().flat_map(|a| regions.iter().map(move |b| if a == b { 0.0 } else { MASKED })));
    }
    from_vec(values, [1, nh * nw, 1, TOKENS, TOKENS], device)
}
