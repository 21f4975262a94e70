//! The fusion of feature maps with those of the condition by cross-attention (§4.6, "Relation").
use burn::tensor::{Tensor, activation};

use super::resblock::GROUPS;
use super::resize::{Corners, mean_pool, resize};
use crate::engine::{Device, from_vec};
use crate::nn::batch_norm::{BatchNorm2d, BatchNormOptions};
use crate::nn::dropout::dropout;
use crate::nn::functional::concat;
use crate::nn::init::{Init, Scope};
use crate::nn::layers::{Conv, ConvOptions, Dense, GroupNorm2d};
use crate::nn::mode::Mode;
use crate::nn::module_macros::named_module;

/// The constants of its batch normalisations (§4.6).
const NORM: BatchNormOptions = BatchNormOptions { epsilon: 1e-3, momentum: 0.03, weight: Init::Ones };
const HEADS: usize = 8;
const DROPOUT: f64 = 0.1;

/// Sides of the windows that are averaged before attention, whose cost grows with the square of the positions.
#[derive(Clone, Copy, Debug)]
pub struct PoolingWindows {
    /// Of the condition.
    pub condition: [usize; 2],
    /// Of the feature map.
    pub features: [usize; 2],
}

/// Cross-attention from the pooled condition (queries) to the pooled feature map (keys and values), added to the latter.
#[derive(Clone, Debug)]
pub struct Relation {
    condition_conv: Conv,
    condition_norm: BatchNorm2d,
    feature_conv: Conv,
    feature_norm: BatchNorm2d,
    q_lin: Dense,
    k_lin: Dense,
    v_lin: Dense,
    fc1: Conv,
    fc2: Conv,
    concat_conv: Conv,
    gn: GroupNorm2d,
    out_conv: Conv,
    windows: PoolingWindows,
    layer: u64,
}

named_module!(Relation {
    condition_conv: "input_conv1.0",
    condition_norm: "input_conv1.1",
    feature_conv: "input_conv2.0",
    feature_norm: "input_conv2.1",
    q_lin: "attentions.0.q_lin",
    k_lin: "attentions.0.k_lin",
    v_lin: "attentions.0.v_lin",
    fc1: "attentions.0.mlp.fc1",
    fc2: "attentions.0.mlp.fc2",
    concat_conv: "attentions.0.concat_conv",
    gn: "attentions.0.gn",
    out_conv: "attentions.0.out_conv",
} keep windows, layer);

impl Relation {
    /// For a condition of `condition` channels and a feature map of `d`.
    pub fn new(scope: &Scope, condition: usize, d: usize, windows: PoolingWindows) -> Self {
        let at = |name: &str| scope.at(name);
        // Xavier-normal: √(2/(in + out)).
        let dense = |name| Dense::with(&at(name), d, d, Init::Normal { mean: 0.0, std: (1.0 / d as f64).sqrt() });
        // Kaiming-normal weights, √(2/fan_in), and zero biases.
        let conv = |name, cin: usize, cout: usize| {
            let weight = Init::Normal { mean: 0.0, std: (2.0 / cin as f64).sqrt() };
            Conv::with(&at(name), ConvOptions { weight, bias: Some(Init::Zeros), ..ConvOptions::same(cin, cout, 1) })
        };
        Self {
            condition_conv: Conv::new(&at("input_conv1.0"), condition, d, 1),
            condition_norm: BatchNorm2d::new(&at("input_conv1.1"), d, NORM),
            feature_conv: Conv::new(&at("input_conv2.0"), d, d, 1),
            feature_norm: BatchNorm2d::new(&at("input_conv2.1"), d, NORM),
            q_lin: dense("attentions.0.q_lin"),
            k_lin: dense("attentions.0.k_lin"),
            v_lin: dense("attentions.0.v_lin"),
            fc1: conv("attentions.0.mlp.fc1", d, 2 * d),
            fc2: conv("attentions.0.mlp.fc2", 2 * d, d),
            concat_conv: conv("attentions.0.concat_conv", 2 * d, d),
            gn: GroupNorm2d::new(&at("attentions.0.gn"), d, GROUPS),
            out_conv: conv("attentions.0.out_conv", d, d),
            windows,
            layer: scope.hash(),
        }
    }

    /// # Shapes
    /// `condition` `[B, C, h, w]`, `x` `[B, d, H, W]` to `[B, d, H, W]`.
    pub fn forward(&self, condition: Tensor<4>, x: Tensor<4>, mode: Mode) -> Tensor<4> {
        let [_, _, h, w] = x.dims();
        let condition = self.condition_norm.forward_after(&self.condition_conv, condition, mode);
        let x = self.feature_norm.forward_after(&self.feature_conv, x, mode);
        let both = concat(resize(condition.clone(), [h, w], Corners::Aligned), x.clone());
        let shortcut = self.gn.forward(self.concat_conv.forward_onto(x.clone(), both));
        let queries = mean_pool(condition, self.windows.condition);
        let keys = mean_pool(x, self.windows.features);
        let a = queries.clone() + self.attend(queries, keys);
        let a = a.clone() + self.mlp(a, mode);
        self.out_conv.forward_onto(shortcut, resize(a, [h, w], Corners::Aligned))
    }

    /// softmax(q kᵀ)·v for every head, without the usual 1/√d; positions are added to the inputs of q, k and v.
    ///
    /// # Shapes
    /// `[B, d, h, w]` and `[B, d, H, W]` to `[B, d, h, w]`.
    fn attend(&self, queries: Tensor<4>, keys: Tensor<4>) -> Tensor<4> {
        let [b, d, h, w] = queries.dims();
        let queries = with_positions(queries);
        let keys = with_positions(keys);
        let heads = |rows: Tensor<2>| -> Tensor<4> {
            let n = rows.dims()[0] / b;
            rows.reshape([b, n, HEADS, d / HEADS]).swap_dims(1, 2)
        };
        let q = heads(self.q_lin.forward_tokens(queries));
        let k = heads(self.k_lin.forward_tokens(keys.clone()));
        let v = heads(self.v_lin.forward_tokens(keys));
        let y = activation::softmax(q.matmul(k.swap_dims(2, 3)), 3).matmul(v);
        y.permute([0, 1, 3, 2]).reshape([b, d, h, w])
    }

    fn mlp(&self, x: Tensor<4>, mode: Mode) -> Tensor<4> {
        let dropped = |x, part: u64| match mode.dropout() {
            Some(key) => dropout(x, DROPOUT, self.layer.wrapping_add(part), key),
            None => x,
        };
        let x = dropped(activation::relu(self.fc1.forward(x)), 0);
        dropped(self.fc2.forward(x), 1)
    }
}

/// Pixels as tokens, each with the encoding of its position added.
///
/// # Shapes
/// `[B, d, H, W]` to `[B·H·W, d]`.
fn with_positions(x: Tensor<4>) -> Tensor<2> {
    let [b, d, h, w] = x.dims();
    let positions = positions(d, [h, w], &x.device().without_autodiff());
    (x + positions).permute([0, 2, 3, 1]).reshape([b * h * w, d])
}

/// DETR's sine encoding: half of the channels for y, then x; positions from 1, sin and cos by turns.
///
/// # Shapes
/// To `[1, d, h, w]`.
fn positions(d: usize, [h, w]: [usize; 2], device: &Device) -> Tensor<4> {
    let half = d / 2;
    let wave = |channel: usize, position: usize| {
        let angle = position as f64 / 10_000f64.powf((channel / 2 * 2) as f64 / half as f64);
        if channel.is_multiple_of(2) { angle.sin() } else { angle.cos() }
    };
    let mut values = Vec::with_capacity(d * h * w);
    for c in 0..d {
        for i in 0..h * w {
            let position = if c < half { i / w } else { i % w };
            values.push(wave(c % half, position + 1) as f32);
        }
    }
    from_vec(values, [1, d, h, w], device)
}
