//! SSIM over five scales (Wang, Simoncelli and Bovik 2003).
use super::picture::Plane;
use super::ssim::{Window, similarity};

/// The exponents of the scales, finest first (table 1 of that paper).
pub const WEIGHTS: [f64; 5] = [0.0448, 0.2856, 0.3001, 0.2363, 0.1333];

/// The smallest side at which the window fits the coarsest scale.
pub const MIN_SIDE: usize = 161;

/// Π_{j<5} cs_j^{w_j} · ssim_5^{w_5}, averaged over the planes; negative means count as 0.
pub fn ms_ssim(output: &[Plane], target: &[Plane]) -> f64 {
    let sum: f64 = output.iter().zip(target).map(|(x, y)| of_plane(x.clone(), y.clone())).sum();
    sum / output.len() as f64
}

fn of_plane(mut x: Plane, mut y: Plane) -> f64 {
    let mut product = 1.0;
    for (scale, &weight) in WEIGHTS.iter().enumerate() {
        let found = similarity(&x, &y, Window::Gaussian);
        let last = scale + 1 == WEIGHTS.len();
        product *= libm::pow(if last { found.ssim } else { found.contrast }.max(0.0), weight);
        if !last {
            (x, y) = (halved(&x), halved(&y));
        }
    }
    product
}

/// Means of 2x2 pixels; the last row or column of an odd side counts twice.
fn halved(plane: &Plane) -> Plane {
    let (w, h) = (plane.width, plane.height);
    let (width, height) = (w.div_ceil(2), h.div_ceil(2));
    let mean = |i: usize| {
        let (y, x) = (2 * (i / width), 2 * (i % width));
        let (below, right) = ((y + 1).min(h - 1), (x + 1).min(w - 1));
        let at = |y: usize, x: usize| plane.values[y * w + x];
        0.25 * (at(y, x) + at(y, right) + at(below, x) + at(below, right))
    };
    Plane { width, height, values: (0..width * height).map(mean).collect() }
}
