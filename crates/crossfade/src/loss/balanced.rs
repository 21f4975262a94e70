//! Cross-entropy of edge maps, in which the few edges weigh as much as all that is none.
use crate::engine::{Tensor, from_vec, to_host};

/// Labels up to this, but not zero, are too uncertain to count.
const UNCERTAIN: f32 = 0.3;
/// Weight of what is no edge beside that of edges.
const NEGATIVE: f32 = 1.1;

/// −w·(y ln p + (1 − y) ln(1 − p)), its mean over every sample (§6, item 6).
///
/// Of n₁ labels that are 1 and n₀ that are 0 in the whole batch, edges weigh n₀/(n₀ + n₁) and others 1.1·n₁/(n₀ + n₁);
/// labels in (0, 0.3] weigh nothing, all others their own value.
///
/// # Shapes
/// `prediction` in \[0, 1\] and `label` `[B, C, H, W]` to `[B, 1]`.
pub fn balanced_cross_entropy(prediction: Tensor<4>, label: Tensor<4>) -> Tensor<2> {
    let shape = label.dims();
    let device = prediction.device().without_autodiff();
    let y = to_host(label);
    let count = |value: f32| y.iter().filter(|&&y| y == value).count() as f32;
    let (edges, others) = (count(1.0), count(0.0));
    let all = (edges + others).max(1.0);
    let weight = |y: &f32| match *y {
        1.0 => others / all,
        0.0 => NEGATIVE * edges / all,
        y if y > 0.0 && y <= UNCERTAIN => 0.0,
        y => y,
    };
    let weights: Tensor<4> = from_vec(y.iter().map(weight).collect(), shape, &device);
    let y: Tensor<4> = from_vec(y, shape, &device);
    // Logarithms end at −100, as in PyTorch.
    let log = |p: Tensor<4>| p.log().clamp_min(-100.0);
    let likelihood = y.clone() * log(prediction.clone()) + (y.neg() + 1.0) * log(prediction.neg() + 1.0);
    (weights * likelihood.neg()).flatten::<2>(1, 3).mean_dim(1)
}
