//! The learned filter in frequency space that DiffusionEdge puts before its decoders, for images of any size (§4.6).
use std::f64::consts::TAU;

use burn::module::{Module, Param};
use burn::tensor::Tensor;

use crate::engine::{Device, from_vec};
use crate::nn::init::{Init, Scope};

/// y = irfft2(rfft2(x)·w), one complex weight a channel and frequency.
#[derive(Module, Debug)]
pub struct FourierFilter {
    /// Real and imaginary parts, `[C, h, w/2 + 1, 2]`.
    complex_weight: Param<Tensor<4>>,
    /// The width that the weights are for: w/2 + 1 frequencies may belong to an even or an odd width.
    width: usize,
}

impl FourierFilter {
    /// A filter of `channels` images of size `[h, w]`.
    pub fn new(scope: &Scope, channels: usize, [h, w]: [usize; 2]) -> Self {
        let shape = [channels, h, w / 2 + 1, 2];
        Self { complex_weight: scope.param("complex_weight", shape, Init::Normal { mean: 0.0, std: 0.02 }), width: w }
    }

    /// # Shapes
    /// `[B, C, H, W]` to the same.
    pub fn forward(&self, x: Tensor<4>) -> Tensor<4> {
        let [b, c, h, w] = x.dims();
        let device = x.device().without_autodiff();
        let half = w / 2 + 1;
        let (re, im) = self.weights([h, w], &device);
        // Along the width, real to complex; then along the height, with the height last.
        let (cos_w, sin_w) = waves(w, half, &device);
        let rows: Tensor<2> = x.reshape([b * c * h, w]);
        let tall = |x: Tensor<2>| x.reshape([b * c, h, half]).swap_dims(1, 2).reshape([b * c * half, h]);
        let x_re = tall(rows.clone().matmul(cos_w.clone()));
        let x_im = tall(rows.matmul(sin_w.clone()).neg());
        let (cos_h, sin_h) = waves(h, h, &device);
        // e^(−iθ): (a + ib)(cos − i sin).
        let f_re = x_re.clone().matmul(cos_h.clone()) + x_im.clone().matmul(sin_h.clone());
        let f_im = x_im.matmul(cos_h.clone()) - x_re.matmul(sin_h.clone());
        let f_re: Tensor<4> = f_re.reshape([b, c, half, h]);
        let f_im: Tensor<4> = f_im.reshape([b, c, half, h]);
        let y_re = f_re.clone() * re.clone() - f_im.clone() * im.clone();
        let y_im = f_re * im + f_im * re;
        let flat = |y: Tensor<4>| -> Tensor<2> { y.reshape([b * c * half, h]) };
        let (y_re, y_im) = (flat(y_re), flat(y_im));
        // Back along the height, e^(+iθ), then complex to real: all but the first and the middle frequency count twice.
        let z_re = y_re.clone().matmul(cos_h.clone()) - y_im.clone().matmul(sin_h.clone());
        let z_im = y_im.matmul(cos_h) + y_re.matmul(sin_h);
        let wide =
            |z: Tensor<2>| -> Tensor<2> { z.reshape([b * c, half, h]).swap_dims(1, 2).reshape([b * c * h, half]) };
        let twice = (0..half).map(|k| if k == 0 || 2 * k == w { 1.0 } else { 2.0 }).collect();
        let twice: Tensor<2> = from_vec(twice, [half, 1], &device);
        let y = wide(z_re).matmul((cos_w * twice.clone().transpose()).transpose())
            - wide(z_im).matmul((sin_w * twice.transpose()).transpose());
        // Both transforms and their inverses scale by 1/√(H·W).
        (y / (h * w) as f64).reshape([b, c, h, w])
    }

    /// Real and imaginary parts for images of size `[h, w]`, by interpolation over frequencies in cycles a pixel.
    ///
    /// # Shapes
    /// To two of `[1, C, w/2 + 1, h]`: the height comes last, as the transform leaves it.
    fn weights(&self, [h, w]: [usize; 2], device: &Device) -> (Tensor<4>, Tensor<4>) {
        let weight = self.complex_weight.val();
        let [c, own_h, own_half, _] = weight.dims();
        let parts = weight.permute([3, 0, 2, 1]);
        let parts = if [own_h, self.width] == [h, w] {
            parts
        } else {
            let rows = frequencies(own_h, own_h, h, h, true, device);
            let columns = frequencies(self.width, own_half, w, w / 2 + 1, false, device);
            let x = parts.reshape([2 * c * own_half, own_h]).matmul(rows.transpose());
            let x: Tensor<3> = x.reshape([2 * c, own_half, h]).swap_dims(1, 2);
            let x = x.reshape([2 * c * h, own_half]).matmul(columns.transpose());
            x.reshape([2 * c, h, w / 2 + 1]).swap_dims(1, 2).reshape([2, c, w / 2 + 1, h])
        };
        (parts.clone().narrow(0, 0, 1), parts.narrow(0, 1, 1))
    }
}

/// cos and sin of 2π·n·k/size.
///
/// # Shapes
/// `[size, count]` each.
fn waves(size: usize, count: usize, device: &Device) -> (Tensor<2>, Tensor<2>) {
    let angle = |i: usize| TAU * ((i / count) * (i % count) % size) as f64 / size as f64;
    let table =
        |f: fn(f64) -> f64| from_vec((0..size * count).map(|i| f(angle(i)) as f32).collect(), [size, count], device);
    (table(f64::cos), table(f64::sin))
}

/// Linear interpolation from the first `known` frequencies k/own to the first `wanted` frequencies k/size; a whole axis is
/// periodic, half of one ends at its last.
///
/// # Shapes
/// `[wanted, known]`.
fn frequencies(own: usize, known: usize, size: usize, wanted: usize, periodic: bool, device: &Device) -> Tensor<2> {
    let mut entries = vec![0.0f32; wanted * known];
    for k in 0..wanted {
        let position = k as f64 * own as f64 / size as f64;
        let (low, part) = (position.floor() as usize, position.fract() as f32);
        let at = |i: usize| if periodic { i % known } else { i.min(known - 1) };
        entries[k * known + at(low)] += 1.0 - part;
        entries[k * known + at(low + 1)] += part;
    }
    from_vec(entries, [wanted, known], device)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::to_host;

    fn constant(size: [usize; 2], re: f32, im: f32) -> FourierFilter {
        let mut filter = FourierFilter::new(&Scope::root(0, &Device::flex()), 2, size);
        let shape = filter.complex_weight.lazy_shape().dims::<4>();
        let count = shape.iter().product::<usize>() / 2;
        let values = (0..count).flat_map(|_| [re, im]).collect();
        filter.complex_weight = Param::from_tensor(from_vec(values, shape, &Device::flex()));
        filter
    }

    #[test]
    fn a_flat_filter_scales_images_of_every_size() {
        for size in [[1, 1], [2, 3], [5, 4], [7, 7], [10, 10], [12, 9]] {
            let [h, w] = size;
            let values: Vec<f32> = (0..2 * h * w).map(|i| (i as f32 * 0.7).sin()).collect();
            let x = from_vec(values.clone(), [1, 2, h, w], &Device::flex());
            let y = to_host(constant([10, 10], 0.5, 0.0).forward(x));
            for (a, b) in y.iter().zip(&values) {
                assert!((a - 0.5 * b).abs() < 1e-6, "{size:?}: {a} {b}");
            }
        }
    }

    /// A filter drawn for one size has the same response to the same wave at another.
    #[test]
    fn a_resampled_filter_answers_a_wave_alike() {
        let filter = FourierFilter::new(&Scope::root(3, &Device::flex()), 1, [10, 10]);
        let response = |size: usize, cycles: usize| {
            let wave = |i: usize| (TAU * (cycles * (i % size)) as f64 / size as f64).cos() as f32;
            let x = from_vec((0..size * size).map(wave).collect(), [1, 1, size, size], &Device::flex());
            to_host(filter.forward(x))[..4].to_vec()
        };
        // 0.2 cycles a pixel in both.
        for (a, b) in response(10, 2).iter().zip(response(20, 4)) {
            assert!((a - b).abs() < 1e-6, "{a} {b}");
        }
    }

    /// The definition, in f64: y = Re F⁻¹(w·F x) with the mirrored half of the frequencies conjugate.
    fn definition(x: &[f32], weight: &[f32], [h, w]: [usize; 2]) -> Vec<f64> {
        let half = w / 2 + 1;
        let wave = |u: usize, v: usize, i: usize| {
            let angle = TAU * ((u * (i / w)) as f64 / h as f64 + (v * (i % w)) as f64 / w as f64);
            (angle.cos(), angle.sin())
        };
        let mut y = vec![0.0; h * w];
        for u in 0..h {
            for v in 0..half {
                let (mut re, mut im) = (0.0, 0.0);
                for (i, &x) in x.iter().enumerate() {
                    let (cos, sin) = wave(u, v, i);
                    re += f64::from(x) * cos;
                    im -= f64::from(x) * sin;
                }
                let at = 2 * (u * half + v);
                let (a, b) = (f64::from(weight[at]), f64::from(weight[at + 1]));
                let (re, im) = (re * a - im * b, re * b + im * a);
                let twice = if v == 0 || 2 * v == w { 1.0 } else { 2.0 };
                for (i, y) in y.iter_mut().enumerate() {
                    let (cos, sin) = wave(u, v, i);
                    *y += twice * (re * cos - im * sin) / (h * w) as f64;
                }
            }
        }
        y
    }

    #[test]
    fn the_filter_is_its_definition() {
        for size in [[2, 2], [3, 5], [4, 6], [6, 4], [5, 3], [10, 10]] {
            let [h, w] = size;
            let filter = FourierFilter::new(&Scope::root(1, &Device::flex()), 1, size);
            let x: Vec<f32> = (0..h * w).map(|i| (i as f32 * 1.3).cos()).collect();
            let got = to_host(filter.forward(from_vec(x.clone(), [1, 1, h, w], &Device::flex())));
            let want = definition(&x, &to_host(filter.complex_weight.val()), size);
            for (a, b) in got.iter().zip(want) {
                assert!((f64::from(*a) - b).abs() < 1e-6, "{size:?}: {a} {b}");
            }
        }
    }
}
