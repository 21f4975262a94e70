//! Peak signal-to-noise ratio.
use super::picture::Plane;

/// 10·log10(255²/MSE) over all values of all planes; infinite for equal pictures.
pub fn psnr(output: &[Plane], target: &[Plane]) -> f64 {
    let count: usize = output.iter().map(|p| p.values.len()).sum();
    let pairs = output.iter().zip(target).flat_map(|(a, b)| a.values.iter().zip(&b.values));
    let squares: f64 = pairs.map(|(a, b)| (a - b) * (a - b)).sum();
    10.0 * libm::log10(255.0 * 255.0 * count as f64 / squares)
}
