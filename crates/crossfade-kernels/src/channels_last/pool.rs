//! Pooling layers.
use super::{Map, Slot, Window};
use crate::simd::{Isa, Kernel, Simd};

/// The largest value of each window; pixels outside the image are ignored.
///
/// # Shapes
/// The output has the channels of `x`, a multiple of 16.
pub fn max_pool(x: &Map, window: Window, out: Slot) {
    pool::<false>(x, window, out);
}

/// The mean of each window; pixels outside the image are not counted.
///
/// # Shapes
/// Those of [`max_pool`].
pub fn average_pool(x: &Map, window: Window, out: Slot) {
    pool::<true>(x, window, out);
}

/// The mean over all pixels of an image.
///
/// # Shapes
/// `out` [channels of `x`].
pub fn mean(x: &Map, image: usize, out: &mut [f32]) {
    assert_eq!(out.len(), x.c, "the mean needs one float for each channel");
    let mut sums = vec![0.0f64; x.c];
    for pixel in (0..x.h).flat_map(|y| x.line(image, y).chunks_exact(x.c)) {
        sums.iter_mut().zip(pixel).for_each(|(sum, &v)| *sum += f64::from(v));
    }
    let count = (x.h * x.w) as f64;
    out.iter_mut().zip(sums).for_each(|(out, sum)| *out = (sum / count) as f32);
}

fn pool<const AVERAGE: bool>(x: &Map, window: Window, out: Slot) {
    let [oh, ow] = window.output(x.h, x.w);
    out.check(x.images, [oh, ow, x.c]);
    assert!(x.c.is_multiple_of(super::GROUP) && (0..2).all(|i| window.padding[i] < window.kernel[i]));
    Isa::detect().run(Pool::<AVERAGE> { x, window, out });
}

struct Pool<'a, const AVERAGE: bool> {
    x: &'a Map,
    window: Window,
    out: Slot<'a>,
}

impl<const AVERAGE: bool> Kernel for Pool<'_, AVERAGE> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self { x, window, out: Slot { map, image: first, channel } } = self;
        let [oh, ow] = window.output(x.h, x.w);
        for (image, oy) in (0..x.images).flat_map(|image| (0..oh).map(move |y| (image, y))) {
            let (top, bottom) = inside(oy, x.h, window, 0);
            for ox in 0..ow {
                let (left, right) = inside(ox, x.w, window, 1);
                let inverse_count = s.splat(1.0 / ((bottom - top) * (right - left)) as f32);
                let to = map.at(first + image, oy as isize, ox as isize) + channel;
                for c in (0..x.c).step_by(S::LANES) {
                    let mut value = s.splat(if AVERAGE { 0.0 } else { f32::NEG_INFINITY });
                    for y in top..bottom {
                        let line = x.line(image, y);
                        for column in left..right {
                            let v = s.load(&line[column * x.c + c..]);
                            value = if AVERAGE { s.add(value, v) } else { s.max(v, value) };
                        }
                    }
                    let value = if AVERAGE { s.mul(value, inverse_count) } else { value };
                    s.store(value, &mut map.data[to + c..]);
                }
            }
        }
    }
}

/// The rows (or columns) of window `o` that lie inside the image.
fn inside(o: usize, size: usize, window: Window, side: usize) -> (usize, usize) {
    let start = o * window.stride;
    let end = (start + window.kernel[side]).saturating_sub(window.padding[side]).min(size);
    (start.saturating_sub(window.padding[side]), end)
}

#[cfg(test)]
mod tests {
    use super::super::tests::filled;
    use super::*;

    #[test]
    fn windows_at_the_edge_ignore_pixels_outside() {
        for (stride, padding) in [(2, 0), (1, 1)] {
            let window = Window { kernel: [3, 3], stride, padding: [padding; 2] };
            let x = filled(2, [7, 9, 32], [1, 2]);
            let [oh, ow] = window.output(7, 9);
            let (mut largest, mut means) = (Map::new(2, [oh, ow, 48], [0, 0]), Map::new(2, [oh, ow, 32], [1, 1]));
            max_pool(&x, window, largest.from(0, 16));
            average_pool(&x, window, means.from(0, 0));
            for (image, y, c, ch) in
                (0..2).flat_map(|i| (0..oh).flat_map(move |y| (0..ow).flat_map(move |c| [(i, y, c, 0), (i, y, c, 31)])))
            {
                let at = |o: usize, k: usize, size: usize| (o * stride + k).checked_sub(padding).filter(|&i| i < size);
                let values: Vec<f32> =
                    (0..9).filter_map(|k| Some(x.line(image, at(y, k / 3, 7)?)[at(c, k % 3, 9)? * 32 + ch])).collect();
                let max = values.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                let mean = values.iter().sum::<f32>() / values.len() as f32;
                assert_eq!(largest.line(image, y)[c * 48 + 16 + ch], max);
                assert!((means.line(image, y)[c * 32 + ch] - mean).abs() < 1e-6);
            }
        }
    }

    #[test]
    fn the_mean_is_over_all_pixels() {
        let x = filled(2, [4, 5, 16], [1, 1]);
        let mut out = vec![0.0; 16];
        mean(&x, 1, &mut out);
        let exact: f32 = (0..4).map(|y| x.line(1, y).chunks_exact(16).map(|p| p[3]).sum::<f32>()).sum::<f32>() / 20.0;
        assert!((out[3] - exact).abs() < 1e-6);
    }
}
