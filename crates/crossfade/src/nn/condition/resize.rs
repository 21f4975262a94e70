//! Linear maps of rows and columns: bilinear resizing and mean pooling as products with small matrices.
//!
//! A matrix applies to images of any batch, is its own gradient, and costs little beside the convolutions around it.
use burn::tensor::{Device, Tensor};

use crate::engine::from_vec;

/// A matrix of `rows` x `columns`, most entries zero.
struct Map {
    rows: usize,
    columns: usize,
    entries: Vec<f32>,
}

impl Map {
    fn zeros(rows: usize, columns: usize) -> Self {
        Self { rows, columns, entries: vec![0.0; rows * columns] }
    }

    fn add(&mut self, row: usize, column: usize, value: f64) {
        self.entries[row * self.columns + column] += value as f32;
    }

    fn tensor(self, device: &Device) -> Tensor<2> {
        from_vec(self.entries, [self.rows, self.columns], device)
    }
}

/// Which positions of the input an output is interpolated from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Corners {
    /// The centres of the corner pixels coincide (`align_corners`).
    Aligned,
    /// The images' borders coincide.
    Apart,
}

fn bilinear(from: usize, to: usize, corners: Corners) -> Map {
    let mut map = Map::zeros(to, from);
    for i in 0..to {
        let place = match corners {
            Corners::Aligned if to == 1 => 0.0,
            Corners::Aligned => i as f64 * (from - 1) as f64 / (to - 1) as f64,
            Corners::Apart => ((i as f64 + 0.5) * from as f64 / to as f64 - 0.5).max(0.0),
        };
        let low = (place.floor() as usize).min(from - 1);
        let part = place - low as f64;
        map.add(i, low, 1.0 - part);
        map.add(i, (low + 1).min(from - 1), part);
    }
    map
}

/// Means of `window` neighbours; where the last window reaches beyond the end there are zeros.
fn means(from: usize, window: usize) -> Map {
    let mut map = Map::zeros(from.div_ceil(window), from);
    (0..from).for_each(|i| map.add(i / window, i, 1.0 / window as f64));
    map
}

/// R x Cᵀ for every channel of every image.
fn separable(x: Tensor<4>, rows: Map, columns: Map) -> Tensor<4> {
    let [b, c, h, w] = x.dims();
    let device = x.device().without_autodiff();
    let (to_h, to_w) = (rows.rows, columns.rows);
    let x = x.reshape([b * c * h, w]).matmul(columns.tensor(&device).transpose());
    // Rows meet a single matrix when they come last.
    let x = x.reshape([b * c, h, to_w]).swap_dims(1, 2).reshape([b * c * to_w, h]);
    let x = x.matmul(rows.tensor(&device).transpose());
    x.reshape([b * c, to_w, to_h]).swap_dims(1, 2).reshape([b, c, to_h, to_w])
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
pub fn mean_pool(x: Tensor<4>, window: [usize; 2]) -> Tensor<4> {
    let [_, _, h, w] = x.dims();
    if window == [1, 1] {
        return x;
    }
    separable(x, means(h, window[0]), means(w, window[1]))
}
