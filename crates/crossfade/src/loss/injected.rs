//! The older release's "distillation" of decoded images (§2.4), for parity only.
use crate::engine::Tensor;

/// A term whose value is 1. What is handed out as the gradient of every element of `estimate` is one and the same number,
/// mean((1 − t)²)·mean|decoded − image|/2 over the number of elements. It is the gradient of nothing.
///
/// # Shapes
/// `estimate` `[B, C, H, W]` is x̂_0, `decoded` and `image` `[B, 3, f·H, f·W]` in \[−1, 1\], `t` one time a sample.
pub fn injected_gradient(estimate: Tensor<4>, decoded: Tensor<4>, image: Tensor<4>, t: &[f64]) -> Tensor<1> {
    let count = estimate.dims().iter().product::<usize>() as f64;
    let weight = t.iter().map(|t| (1.0 - t).powi(2)).sum::<f64>() / t.len() as f64;
    let distance = f64::from((decoded.inner() - image).abs().mean().into_scalar::<f32>()) / 2.0;
    let moved = estimate.clone() - estimate.detach();
    moved.sum() * (weight * distance / count) + 1.0
}
