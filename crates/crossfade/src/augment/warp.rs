//! A geometric warp without aliasing (§2.6, "Exact alignment"): extend by reflection, upsample ×2 with the low-pass
//! filter of the sym6 wavelet, sample bilinearly, downsample ×2 with the same filter. The filter is orthonormal, so
//! that the identity warp returns its input. Geometry is f64, pixels are f32.

/// Low-pass filter of the sym6 wavelet.
#[rustfmt::skip]
const SYM6: [f64; 12] = [
    0.015404109327027373, 0.0034907120842174702, -0.11799011114819057, -0.048311742585633,
    0.4910559419267466, 0.787641141030194, 0.3379294217276218, -0.07263752278646252,
    -0.021060292512300564, 0.04472490177066578, 0.0017677118642428036, -0.007800708325034148,
];
/// Taps of one phase of the upsampling filter: every other tap is multiplied by an inserted zero.
const PHASE: usize = SYM6.len() / 2;
/// Number of source pixels on each side on which an upsampled pixel depends.
const REACH: usize = PHASE / 2;

/// The map x ↦ A·x + t, in pixels from the image centre.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Affine {
    a: [[f64; 2]; 2],
    t: [f64; 2],
}

impl Affine {
    pub(super) const IDENTITY: Self = Self { a: [[1.0, 0.0], [0.0, 1.0]], t: [0.0, 0.0] };

    /// self · Scale(x, y)
    pub(super) fn then_scale(self, x: f64, y: f64) -> Self {
        Self { a: self.a.map(|[p, q]| [p * x, q * y]), ..self }
    }

    /// self · Rot(θ), Rot(θ) = [[cos, −sin], [sin, cos]]
    pub(super) fn then_rotate(self, theta: f64) -> Self {
        let (sin, cos) = libm::sincos(theta);
        Self { a: self.a.map(|[p, q]| [p * cos + q * sin, q * cos - p * sin]), ..self }
    }

    /// self · Translate(x, y)
    pub(super) fn then_translate(self, x: f64, y: f64) -> Self {
        Self { t: self.apply(x, y), ..self }
    }

    fn apply(&self, x: f64, y: f64) -> [f64; 2] {
        [0, 1].map(|i| self.a[i][0] * x + self.a[i][1] * y + self.t[i])
    }
}

/// Number of pixels by which an image is extended on each side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Padding {
    left: usize,
    top: usize,
    right: usize,
    bottom: usize,
}

impl Padding {
    /// ceil(clamp(∓x + 6 − half size, 0, size − 1)), the largest over the four transformed corners.
    pub(super) fn for_warp(g: &Affine, h: usize, w: usize) -> Self {
        let (cx, cy) = ((w - 1) as f64 / 2.0, (h - 1) as f64 / 2.0);
        // The corners are (±cx, ±cy), so the largest of ±(A·corner) is |A|·(cx, cy).
        let side = |axis: usize, sign: f64, half: f64| {
            let [p, q] = g.a[axis];
            let reached = p.abs() * cx + q.abs() * cy + sign * g.t[axis];
            (reached + (2 * REACH) as f64 - half).clamp(0.0, 2.0 * half).ceil() as usize
        };
        Self { left: side(0, -1.0, cx), top: side(1, -1.0, cy), right: side(0, 1.0, cx), bottom: side(1, 1.0, cy) }
    }

    pub(super) fn max(self, other: Self) -> Self {
        Self {
            left: self.left.max(other.left),
            top: self.top.max(other.top),
            right: self.right.max(other.right),
            bottom: self.bottom.max(other.bottom),
        }
    }
}

/// Buffers of the warp, reused for every plane. Every value is written before it is read.
#[derive(Default)]
pub(super) struct Scratch {
    line: Vec<f32>,
    wide: Vec<f32>,
    fine: Vec<f32>,
    sampled: Vec<f32>,
    narrow: Vec<f32>,
}

impl Scratch {
    /// Warps one plane in place; `g` maps output pixels to input pixels.
    ///
    /// # Shapes
    /// `plane` [h, w] -> [h, w]; inside: [h, 2(w+pad)] -> [2(h+pad), 2(w+pad)] -> [2h+10, 2w+10] -> [2h+10, w].
    pub(super) fn warp(&mut self, plane: &mut [f32], h: usize, w: usize, g: &Affine, padding: Padding) {
        let fine_w = 2 * (w + padding.left + padding.right);
        let fine_h = 2 * (h + padding.top + padding.bottom);
        self.upsample_x(plane, w, padding, fine_w);
        self.upsample_y(h, padding, fine_h, fine_w);
        self.sample(h, w, g, padding, fine_h, fine_w);
        self.downsample(plane, h, w);
    }

    /// `plane` [h, w] -> `wide` [h, fine_w]. Rows that the reflection adds equal the rows they mirror, so they are
    /// not computed here; `upsample_y` reads the mirrored row instead.
    fn upsample_x(&mut self, plane: &[f32], w: usize, padding: Padding, fine_w: usize) {
        let (even, odd) = phases();
        self.line.clear();
        self.line.resize(fine_w / 2 + 2 * REACH, 0.0);
        self.wide.resize(plane.len() / w * fine_w, 0.0);
        for (row, out) in plane.chunks_exact(w).zip(self.wide.chunks_exact_mut(fine_w)) {
            for (i, x) in self.line[REACH..][..fine_w / 2].iter_mut().enumerate() {
                *x = row[reflect(i, padding.left, w)];
            }
            for (pair, near) in out.chunks_exact_mut(2).zip(self.line.windows(PHASE + 1)) {
                pair[0] = dot(&even, &near[..PHASE]);
                pair[1] = dot(&odd, &near[1..]);
            }
        }
    }

    /// `wide` [h, fine_w] -> `fine` [fine_h, fine_w].
    fn upsample_y(&mut self, h: usize, padding: Padding, fine_h: usize, fine_w: usize) {
        let (even, odd) = phases();
        self.fine.clear();
        self.fine.resize(fine_h * fine_w, 0.0);
        for (y, out) in self.fine.chunks_exact_mut(fine_w).enumerate() {
            let (taps, first) = if y % 2 == 0 { (&even, y / 2) } else { (&odd, y / 2 + 1) };
            for (tap, padded) in taps.iter().zip(first..) {
                // Rows before the first and after the last are zero.
                if (REACH..REACH + fine_h / 2).contains(&padded) {
                    let row = &self.wide[reflect(padded - REACH, padding.top, h) * fine_w..][..fine_w];
                    out.iter_mut().zip(row).for_each(|(o, x)| *o += tap * x);
                }
            }
        }
    }

    /// `fine` -> `sampled` [2h+10, 2w+10], bilinear with zeros outside. Of the 2(h+6) × 2(w+6) samples of the reference
    /// the first and last of each row and column never enter the result; they are left out.
    fn sample(&mut self, h: usize, w: usize, g: &Affine, padding: Padding, fine_h: usize, fine_w: usize) {
        let sampled_w = 2 * w + SYM6.len() - 2;
        self.sampled.resize((2 * h + SYM6.len() - 2) * sampled_w, 0.0);
        // Position of sample i, in output pixels from the centre.
        let position = |i: usize, size: usize| (i as f64 + 2.0 - (size + 2 * REACH) as f64) / 2.0;
        // Offsets from input pixels, counted from the image's centre, to indices of the fine grid.
        let origin_x = (padding.left as f64 - padding.right as f64) / 2.0 + fine_w as f64 / 4.0 - 0.5;
        let origin_y = (padding.top as f64 - padding.bottom as f64) / 2.0 + fine_h as f64 / 4.0 - 0.5;
        let fine = Grid { values: &self.fine, h: fine_h, w: fine_w };
        for (row, out) in self.sampled.chunks_exact_mut(sampled_w).enumerate() {
            let y = position(row, h);
            for (column, value) in out.iter_mut().enumerate() {
                let [u, v] = g.apply(position(column, w), y);
                *value = fine.bilinear(2.0 * (u + origin_x), 2.0 * (v + origin_y));
            }
        }
    }

    /// `sampled` -> `plane` [h, w].
    fn downsample(&mut self, plane: &mut [f32], h: usize, w: usize) {
        let taps = SYM6.map(|x| x as f32);
        let sampled_w = 2 * w + SYM6.len() - 2;
        self.narrow.resize((2 * h + SYM6.len() - 2) * w, 0.0);
        for (row, out) in self.sampled.chunks_exact(sampled_w).zip(self.narrow.chunks_exact_mut(w)) {
            for (i, value) in out.iter_mut().enumerate() {
                *value = dot(&taps, &row[2 * i..][..SYM6.len()]);
            }
        }
        plane.fill(0.0);
        for (y, out) in plane.chunks_exact_mut(w).enumerate() {
            for (tap, row) in taps.iter().zip(self.narrow[2 * y * w..].chunks_exact(w)) {
                out.iter_mut().zip(row).for_each(|(o, x)| *o += tap * x);
            }
        }
    }
}

/// The reversed filter's taps for even and for odd upsampled pixels. Pixel 2q starts at source pixel q − 3, pixel
/// 2q + 1 at q − 2.
fn phases() -> ([f32; PHASE], [f32; PHASE]) {
    let reversed = |offset: usize| std::array::from_fn(|k| SYM6[SYM6.len() - 1 - offset - 2 * k] as f32);
    (reversed(0), reversed(1))
}

fn dot(taps: &[f32], values: &[f32]) -> f32 {
    taps.iter().zip(values).map(|(a, b)| a * b).sum()
}

/// The source index of padded index `i`: mirrored at the border without repeating it. The padding is smaller than the
/// size.
fn reflect(i: usize, padding: usize, size: usize) -> usize {
    let mirrored = i.abs_diff(padding);
    if mirrored < size { mirrored } else { 2 * (size - 1) - mirrored }
}

struct Grid<'a> {
    values: &'a [f32],
    h: usize,
    w: usize,
}

impl Grid<'_> {
    fn at(&self, x: i64, y: i64) -> f32 {
        let inside = (0..self.w as i64).contains(&x) && (0..self.h as i64).contains(&y);
        if inside { self.values[y as usize * self.w + x as usize] } else { 0.0 }
    }

    fn bilinear(&self, x: f64, y: f64) -> f32 {
        // The position is split in f64; only its fraction, which is below 1, is rounded to f32.
        let (x0, y0) = (x.floor(), y.floor());
        let (fx, fy) = ((x - x0) as f32, (y - y0) as f32);
        let (x0, y0) = (x0 as i64, y0 as i64);
        let top = self.at(x0, y0) * (1.0 - fx) + self.at(x0 + 1, y0) * fx;
        let bottom = self.at(x0, y0 + 1) * (1.0 - fx) + self.at(x0 + 1, y0 + 1) * fx;
        top * (1.0 - fy) + bottom * fy
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_filter_is_orthonormal() {
        for shift in 0..PHASE {
            let product: f64 = SYM6.iter().zip(&SYM6[2 * shift..]).map(|(a, b)| a * b).sum();
            let expected = if shift == 0 { 1.0 } else { 0.0 };
            assert!((product - expected).abs() < 1e-10, "shift {shift}: {product}");
        }
    }

    #[test]
    fn reflection_does_not_repeat_the_border() {
        let padded: Vec<usize> = (0..10).map(|i| reflect(i, 3, 4)).collect();
        assert_eq!(padded, [3, 2, 1, 0, 1, 2, 3, 2, 1, 0]);
    }

    #[test]
    fn the_identity_and_whole_pixel_shifts_return_the_image() {
        let (h, w) = (9, 12);
        let image: Vec<f32> = (0..h * w).map(|i| ((i * 37) % 101) as f32 / 50.0 - 1.0).collect();
        for shift in [0usize, 3] {
            let g = Affine::IDENTITY.then_translate(shift as f64, 0.0);
            let mut moved = image.clone();
            Scratch::default().warp(&mut moved, h, w, &g, Padding::for_warp(&g, h, w));
            for (i, value) in moved.iter().enumerate() {
                let source = i / w * w + reflect(i % w + shift, 0, w);
                assert!((value - image[source]).abs() < 2e-6, "pixel {i}: {value} is not {}", image[source]);
            }
        }
    }

    #[test]
    fn a_quarter_turn_moves_pixels() {
        let n = 16;
        // Smooth, because the filter is only nearly symmetric and a turned grid meets it sideways.
        let wave = |i: usize| (0.2 * (i % n) as f32).sin() + 0.5 * (0.3 * (i / n) as f32).cos();
        let image: Vec<f32> = (0..n * n).map(wave).collect();
        let g = Affine::IDENTITY.then_rotate(std::f64::consts::FRAC_PI_2);
        let mut turned = image.clone();
        Scratch::default().warp(&mut turned, n, n, &g, Padding::for_warp(&g, n, n));
        // Output (x, y) shows input (−y, x) about the centre.
        for (y, x) in (0..n).flat_map(|y| (0..n).map(move |x| (y, x))) {
            let expected = image[x * n + n - 1 - y];
            assert!((turned[y * n + x] - expected).abs() < 0.1, "({x}, {y}): {} {expected}", turned[y * n + x]);
        }
    }
}
