//! Linear maps of rows and columns: bilinear resizing and mean pooling.
use burn::tensor::{Device, Tensor};
use crossfade_kernels::planes::LineMap;

use crate::engine::condition::{SeparableMap, separable_map};
use crate::engine::{from_vec, has_kernels};

/// Which positions of the input an output is interpolated from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Corners {
    /// The centres of the corner pixels coincide (`align_corners=True`).
    Aligned,
    /// The images' borders coincide, so that centres lie half a pixel inside (`align_corners=False`).
    HalfPixel,
}

fn bilinear(from: usize, to: usize, corners: Corners) -> LineMap {
    let sources = |i: usize| {
        let position = match corners {
            Corners::Aligned if to == 1 => 0.0,
            Corners::Aligned => i as f64 * (from - 1) as f64 / (to - 1) as f64,
            Corners::HalfPixel => ((i as f64 + 0.5) * from as f64 / to as f64 - 0.5).max(0.0),
        };
        let low = (position.floor() as usize).min(from - 1);
        let part = position - low as f64;
        vec![(low, (1.0 - part) as f32), ((low + 1).min(from - 1), part as f32)]
    };
    LineMap::new(from, (0..to).map(sources))
}

/// Means of `window` neighbours; where the last window reaches beyond the end there are zeros.
fn means(from: usize, window: usize) -> LineMap {
    let windows = (0..from).step_by(window).map(|first| first..(first + window).min(from));
    LineMap::new(from, windows.map(|places| places.map(|i| (i, (1.0 / window as f64) as f32)).collect()))
}

/// R x Cᵀ for every channel of every image, with R of `rows` and C of `columns`.
fn separable(x: Tensor<4>, rows: LineMap, columns: LineMap) -> Tensor<4> {
    if has_kernels(&x) {
        return separable_map(x, SeparableMap::new(rows, columns));
    }
    composed_separable(x, &rows, &columns)
}

/// [`separable`] as products with matrices, most of whose entries are zero.
fn composed_separable(x: Tensor<4>, rows: &LineMap, columns: &LineMap) -> Tensor<4> {
    let [b, c, h, w] = x.dims();
    let device = x.device().without_autodiff();
    let (to_h, to_w) = (rows.to(), columns.to());
    let x = x.reshape([b * c * h, w]).matmul(matrix(columns, &device).transpose());
    // The axis to be mapped comes last, so that all of it is one product with one matrix.
    let x = x.reshape([b * c, h, to_w]).swap_dims(1, 2).reshape([b * c * to_w, h]);
    let x = x.matmul(matrix(rows, &device).transpose());
    x.reshape([b * c, to_w, to_h]).swap_dims(1, 2).reshape([b, c, to_h, to_w])
}

fn matrix(map: &LineMap, device: &Device) -> Tensor<2> {
    from_vec(map.dense(), [map.to(), map.from()], device)
}

/// Bilinear interpolation to another size.
///
/// # Shapes
/// `[B, C, H, W]` to `[B, C, size[0], size[1]]`.
pub fn resize(x: Tensor<4>, size: [usize; 2], corners: Corners) -> Tensor<4> {
    let [_, _, h, w] = x.dims();
    if [h, w] == size {
        return x;
    }
    separable(x, bilinear(h, size[0], corners), bilinear(w, size[1], corners))
}

/// The mean of every window, with zeros to the right and below where windows do not fit.
///
/// # Shapes
/// `[B, C, H, W]` to `[B, C, ⌈H/window[0]⌉, ⌈W/window[1]⌉]`.
pub(crate) fn mean_pool(x: Tensor<4>, window: [usize; 2]) -> Tensor<4> {
    let [_, _, h, w] = x.dims();
    if window == [1, 1] {
        return x;
    }
    separable(x, means(h, window[0]), means(w, window[1]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Device, to_host};

    fn row(values: &[f32]) -> Tensor<4> {
        from_vec(values.to_vec(), [1, 1, 1, values.len()], &Device::flex())
    }

    /// PyTorch's `interpolate` of the same rows.
    #[test]
    fn lines_are_interpolated_as_in_pytorch() {
        let cases: [(&[f32], usize, Corners, &[f32]); 5] = [
            (&[0.0, 1.0, 2.0], 5, Corners::Aligned, &[0.0, 0.5, 1.0, 1.5, 2.0]),
            (&[0.0, 1.0], 4, Corners::HalfPixel, &[0.0, 0.25, 0.75, 1.0]),
            (&[0.0, 1.0, 2.0, 3.0], 2, Corners::HalfPixel, &[0.5, 2.5]),
            (&[0.0, 1.0, 2.0, 3.0], 1, Corners::Aligned, &[0.0]),
            (&[7.0], 3, Corners::Aligned, &[7.0, 7.0, 7.0]),
        ];
        for (from, to, corners, want) in cases {
            assert_eq!(to_host(resize(row(from), [1, to], corners)), want, "{from:?} to {to}, {corners:?}");
            let column = row(from).swap_dims(2, 3);
            assert_eq!(to_host(resize(column, [to, 1], corners)), want);
        }
    }

    #[test]
    fn products_with_matrices_give_the_same() {
        let device = Device::flex().autodiff();
        let x = || from_vec((0..2 * 3 * 35).map(|v| (v as f32).sin()).collect(), [2, 3, 5, 7], &device).require_grad();
        for (rows, columns) in
            [(bilinear(5, 9, Corners::Aligned), bilinear(7, 3, Corners::HalfPixel)), (means(5, 2), means(7, 4))]
        {
            let run = |f: &dyn Fn(Tensor<4>) -> Tensor<4>| {
                let x = x();
                let y = f(x.clone());
                let grads = y.clone().powi_scalar(2).sum().backward();
                [to_host(y), x.grad(&grads).map(to_host).unwrap_or_default()].concat()
            };
            let fast = run(&|x| separable(x, rows.clone(), columns.clone()));
            let slow = run(&|x| composed_separable(x, &rows, &columns));
            assert!(fast.len() == slow.len() && fast.iter().zip(&slow).all(|(a, b)| (a - b).abs() < 1e-5));
        }
    }

    #[test]
    fn windows_beyond_the_border_see_zeros() {
        let x = from_vec((1..=15).map(|v| v as f32).collect(), [1, 1, 3, 5], &Device::flex());
        let want = [(1 + 2 + 6 + 7) as f32, (3 + 4 + 8 + 9) as f32, 15.0, 23.0, 27.0, 15.0].map(|v| v / 4.0);
        assert_eq!(to_host(mean_pool(x, [2, 2])), want);
    }
}
