//! Resampling by a factor of two: sums over 2x2 blocks and repetition of pixels. Each is the gradient of the other.
use crate::CHUNK;
use crate::team::Share;
use rayon::prelude::*;

/// Half the height and width: out = factor · (sum of the 2x2 block). A factor of ¼ is average pooling, a factor of 1 the
/// gradient of [`upsample_2x`].
///
/// # Shapes
/// `x` `[planes, h, w]` with even h and w, `out` `[planes, h/2, w/2]`.
pub fn downsample_2x(x: &[f32], planes: usize, [h, w]: [usize; 2], factor: f32, out: &mut [f32]) {
    assert!(h % 2 == 0 && w % 2 == 0, "an image of {h}x{w} cannot be halved: both sides must be even");
    assert!(x.len() == planes * h * w && 4 * out.len() == x.len());
    if out.is_empty() {
        return;
    }
    let rows = (CHUNK / w).max(1);
    out.par_chunks_mut(rows * w / 2).zip(x.par_chunks(rows * 2 * w)).share(|(out, x)| {
        for (out, two_rows) in out.chunks_exact_mut(w / 2).zip(x.chunks_exact(2 * w)) {
            let (above, below) = two_rows.split_at(w);
            let blocks = above.as_chunks::<2>().0.iter().zip(below.as_chunks::<2>().0);
            for (out, (a, b)) in out.iter_mut().zip(blocks) {
                *out = factor * ((a[0] + a[1]) + (b[0] + b[1]));
            }
        }
    });
}

/// Twice the height and width: every pixel times `factor` fills a 2x2 block. A factor of 1 is nearest-neighbour
/// upsampling, a factor of ¼ the gradient of average pooling.
///
/// # Shapes
/// `x` `[planes, h, w]`, `out` `[planes, 2h, 2w]`.
pub fn upsample_2x(x: &[f32], planes: usize, [h, w]: [usize; 2], factor: f32, out: &mut [f32]) {
    assert!(x.len() == planes * h * w && out.len() == 4 * x.len());
    if out.is_empty() {
        return;
    }
    let rows = (CHUNK / w).max(1);
    out.par_chunks_mut(rows * 4 * w).zip(x.par_chunks(rows * w)).share(|(out, x)| {
        for (two_rows, x) in out.chunks_exact_mut(4 * w).zip(x.chunks_exact(w)) {
            let (above, below) = two_rows.split_at_mut(2 * w);
            for (two, x) in above.as_chunks_mut::<2>().0.iter_mut().zip(x) {
                *two = [factor * x; 2];
            }
            below.copy_from_slice(above);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::numbers;

    #[test]
    fn blocks_are_averaged_and_pixels_repeated() {
        for (planes, h, w) in [(1, 2, 2), (3, 6, 10), (50, 32, 32), (2, 4, 40_000)] {
            let x = numbers(1, planes * h * w);
            let mut small = vec![9.0; x.len() / 4];
            downsample_2x(&x, planes, [h, w], 0.25, &mut small);
            for (i, got) in small.iter().enumerate() {
                let (plane, y, column) = (i / (h * w / 4), i / (w / 2) % (h / 2), i % (w / 2));
                let at = |dy, dx| x[plane * h * w + (2 * y + dy) * w + 2 * column + dx];
                assert_eq!(*got, 0.25 * ((at(0, 0) + at(0, 1)) + (at(1, 0) + at(1, 1))));
            }
            let mut back = vec![9.0; x.len()];
            upsample_2x(&small, planes, [h / 2, w / 2], 1.0, &mut back);
            let mut again = vec![9.0; small.len()];
            downsample_2x(&back, planes, [h, w], 0.25, &mut again);
            assert_eq!(small, again);
            assert!(back.iter().enumerate().all(|(i, v)| {
                let (plane, y, column) = (i / (h * w), i / w % h, i % w);
                *v == small[(plane * (h / 2) + y / 2) * (w / 2) + column / 2]
            }));
        }
    }
}
