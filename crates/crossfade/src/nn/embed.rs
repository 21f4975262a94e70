//! The sinusoidal embedding of the noise level.
use burn::tensor::Tensor;

use crate::engine::vector;

/// [cos(c·f), sin(c·f)] with f_i = 10000^(−i/(M/2)), i < M/2 (§4.2).
///
/// # Shapes
/// `c_noise` `[B]` to `[B, width]`.
pub(crate) fn sinusoids(c_noise: Tensor<1>, width: usize) -> Tensor<2> {
    let half = width / 2;
    let frequencies: Vec<f64> = (0..half).map(|i| 10_000f64.powf(-(i as f64) / half as f64)).collect();
    let frequencies = vector(&frequencies, &c_noise.device()).reshape([1, half]);
    let b = c_noise.dims()[0];
    let angle = c_noise.reshape([b, 1]) * frequencies;
    Tensor::cat(vec![angle.clone().cos(), angle.sin()], 1)
}
