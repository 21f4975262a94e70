//! Winograd's F(4x4, 3x3) and F(2x2, 5x5): both have tiles of 6x6 inputs and the points 0, ±1, ±2, ∞, so they share Bᵀ.
//!
//! y = Aᵀ[(G w Gᵀ) ⊙ (Bᵀ d B)]A (Lavin and Gray 2015, arXiv:1509.09308, section 4). Tiles that reach beyond the picture
//! read zeros there and do not write.
use super::product::{Panel, Product, lanes, panels};
use super::{Conv, Map, Slot};
use crate::lanes::{Kernel, Level, Simd};
use crate::pool::Workspace;

/// Rows and columns of a tile of the input.
const SIDE: usize = 6;
/// Products a tile.
const POINTS: usize = SIDE * SIDE;
/// Tiles multiplied together, at most: with the weights of a point they stay in the second-level cache.
const BLOCK: usize = 32;

/// Row i of G: the powers of point i over Π_j (p_i − p_j); for ∞ the highest power.
fn g<const R: usize>(i: usize) -> [f64; R] {
    const FINITE: [(f64, f64); 5] = [(0.0, 4.0), (1.0, -6.0), (-1.0, -6.0), (2.0, 24.0), (-2.0, 24.0)];
    std::array::from_fn(|k| match FINITE.get(i) {
        Some((p, norm)) => p.powi(k as i32) / norm,
        None => f64::from(k == R - 1),
    })
}

/// G w Gᵀ as [panel][point][ci][lanes of the panel].
pub(super) fn filters<const R: usize>(level: Level, weight: &[f32], ci: usize, co: usize) -> Workspace {
    let l = lanes(level);
    let g: [[f64; R]; SIDE] = std::array::from_fn(g);
    let mut packed = Workspace::take(POINTS * co * ci);
    for panel in panels(l, co) {
        let (width, first) = (panel.count * l, panel.start * l);
        let part = &mut packed[first * POINTS * ci..][..width * POINTS * ci];
        for (o, i) in (0..width).flat_map(|o| (0..ci).map(move |i| (o, i))) {
            let w = &weight[((first + o) * ci + i) * R * R..][..R * R];
            for (y, x) in (0..SIDE).flat_map(|y| (0..SIDE).map(move |x| (y, x))) {
                let row = |ky: usize| (0..R).map(|kx| f64::from(w[ky * R + kx]) * g[x][kx]).sum::<f64>();
                let value: f64 = (0..R).map(|ky| g[y][ky] * row(ky)).sum();
                part[((y * SIDE + x) * ci + i) * width + o] = value as f32;
            }
        }
    }
    packed.keep()
}

/// Bᵀ d.
#[inline(always)]
fn input<S: Simd>(s: S, d: [S::V; SIDE]) -> [S::V; SIDE] {
    let (c2, c4, m4, m5) = (s.splat(2.0), s.splat(4.0), s.splat(-4.0), s.splat(-5.0));
    let (even, odd) = (s.fma(m4, d[2], d[4]), s.fma(m4, d[1], d[3]));
    let (near, far) = (s.sub(d[4], d[2]), s.mul(c2, s.sub(d[3], d[1])));
    [
        s.fma(c4, d[0], s.fma(m5, d[2], d[4])),
        s.add(even, odd),
        s.sub(even, odd),
        s.add(near, far),
        s.sub(near, far),
        s.fma(c4, d[1], s.fma(m5, d[3], d[5])),
    ]
}

/// Aᵀ m for M = 4 or 2 outputs.
#[inline(always)]
fn output<S: Simd, const M: usize>(s: S, m: [S::V; SIDE]) -> [S::V; M] {
    let (near, near_odd) = (s.add(m[1], m[2]), s.sub(m[1], m[2]));
    let (far, far_odd) = (s.add(m[3], m[4]), s.sub(m[3], m[4]));
    let mut y = [s.splat(0.0); M];
    y[0] = s.add(m[0], s.add(near, far));
    y[1] = s.fma(s.splat(2.0), far_odd, near_odd);
    if M == 4 {
        y[2] = s.fma(s.splat(4.0), far, near);
        y[3] = s.fma(s.splat(8.0), far_odd, near_odd);
    }
    y[M - 1] = s.add(y[M - 1], m[5]);
    y
}

/// With tiles of M x M outputs.
pub(super) struct Winograd<'a, const M: usize> {
    pub(super) conv: &'a Conv,
    pub(super) filters: &'a [f32],
    pub(super) x: &'a Map,
    pub(super) out: Slot<'a>,
}

/// Some tiles of one picture.
#[derive(Clone, Copy)]
struct Block {
    image: usize,
    first: usize,
    count: usize,
}

impl<const M: usize> Kernel for Winograd<'_, M> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(mut self, s: S) {
        let ci = self.conv.ci;
        let [oh, ow] = self.conv.window.output(self.x.h, self.x.w);
        let tiles = oh.div_ceil(M) * ow.div_ceil(M);
        let blocks = tiles.div_ceil(BLOCK);
        let mut v = Workspace::take(POINTS * BLOCK * ci);
        let mut m = Workspace::take(POINTS * BLOCK * 3 * S::LANES);
        let mut edge = Workspace::take(POINTS * ci);
        for (image, i) in (0..self.x.images).flat_map(|image| (0..blocks).map(move |i| (image, i))) {
            let (first, end) = (i * tiles / blocks, (i + 1) * tiles / blocks);
            let block = Block { image, first, count: end - first };
            for tile in 0..block.count {
                self.transform(s, block, tile, &mut edge, &mut v);
            }
            for panel in panels(S::LANES, self.conv.co) {
                self.multiply(s, block, panel, &v, &mut m);
                for tile in 0..block.count {
                    self.write(s, block, panel, tile, &m);
                }
            }
        }
    }
}

impl<const M: usize> Winograd<'_, M> {
    /// The first output pixel of a tile.
    fn corner(&self, tile: usize) -> [usize; 2] {
        let columns = self.conv.window.output(self.x.h, self.x.w)[1].div_ceil(M);
        [tile / columns * M, tile % columns * M]
    }

    /// v[point][tile][ci] = Bᵀ d B.
    #[inline(always)]
    fn transform<S: Simd>(&self, s: S, block: Block, tile: usize, edge: &mut [f32], v: &mut [f32]) {
        let (x, ci, padding) = (self.x, self.conv.ci, self.conv.window.padding);
        let corner = self.corner(block.first + tile);
        let [y0, x0] = std::array::from_fn(|i| corner[i] as isize - padding[i] as isize);
        let inside = |start: isize, size: usize, border: usize| start + SIDE as isize <= (size + border) as isize;
        let (src, row) = if inside(y0, x.h, x.border[0]) && inside(x0, x.w, x.border[1]) {
            let start = x.at(block.image, y0, x0);
            (&x.data[start..start + (SIDE - 1) * x.row() + SIDE * ci], x.row())
        } else {
            self.copy_edge(block.image, y0, x0, edge);
            (&edge[..POINTS * ci], SIDE * ci)
        };
        let point = block.count * ci;
        assert!(v.len() >= POINTS * point && ci.is_multiple_of(S::LANES) && tile < block.count);
        for c in (0..ci).step_by(S::LANES) {
            let mut half = [[s.splat(0.0); SIDE]; SIDE];
            for column in 0..SIDE {
                // SAFETY: `src` holds 6 rows of 6 pixels of ci channels; c + LANES ≤ ci.
                let d = std::array::from_fn(
                    #[inline(always)]
                    |r| unsafe { s.load_at(src.as_ptr().add(r * row + column * ci + c)) },
                );
                let t = input(s, d);
                for (row, t) in half.iter_mut().zip(t) {
                    row[column] = t;
                }
            }
            for (r, half) in half.into_iter().enumerate() {
                for (column, value) in input(s, half).into_iter().enumerate() {
                    // SAFETY: the length of `v` was asserted.
                    unsafe { s.store_at(value, v.as_mut_ptr().add((r * SIDE + column) * point + tile * ci + c)) };
                }
            }
        }
    }

    /// The 6x6 pixels from (y0, x0) on, zero outside the picture.
    fn copy_edge(&self, image: usize, y0: isize, x0: isize, edge: &mut [f32]) {
        let (x, ci) = (self.x, self.conv.ci);
        for (i, pixel) in edge[..POINTS * ci].chunks_exact_mut(ci).enumerate() {
            let (row, column) = (y0 + (i / SIDE) as isize, x0 + (i % SIDE) as isize);
            if (0..x.h as isize).contains(&row) && (0..x.w as isize).contains(&column) {
                let start = x.at(image, row, column);
                pixel.copy_from_slice(&x.data[start..start + ci]);
            } else {
                pixel.fill(0.0);
            }
        }
    }

    /// m[point][tile][lanes of the panel] = v[point] · u[point].
    #[inline(always)]
    fn multiply<S: Simd>(&self, s: S, block: Block, panel: Panel, v: &[f32], m: &mut [f32]) {
        let (ci, width) = (self.conv.ci, panel.count * S::LANES);
        let u = &self.filters[panel.start * S::LANES * POINTS * ci..][..POINTS * ci * width];
        assert!(v.len() >= POINTS * block.count * ci && m.len() >= POINTS * block.count * width);
        for point in 0..POINTS {
            // SAFETY: the lengths of all three were checked above.
            unsafe {
                let product = Product {
                    a: v.as_ptr().add(point * block.count * ci),
                    lda: ci,
                    runs: 1,
                    run_stride: 0,
                    k_len: ci,
                    b: u.as_ptr().add(point * ci * width),
                    c: m.as_mut_ptr().add(point * block.count * width),
                    ldc: width,
                    bias: None,
                };
                product.run(s, block.count, panel.count);
            }
        }
    }

    /// relu(Aᵀ m A + bias) to the output.
    #[inline(always)]
    fn write<S: Simd>(&mut self, s: S, block: Block, panel: Panel, tile: usize, m: &[f32]) {
        let [oh, ow] = self.conv.window.output(self.x.h, self.x.w);
        let [y0, x0] = self.corner(block.first + tile);
        let (rows, columns, width) = (M.min(oh - y0), M.min(ow - x0), panel.count * S::LANES);
        assert!(m.len() >= POINTS * block.count * width);
        for vector in 0..panel.count {
            let channel = (panel.start + vector) * S::LANES;
            let bias = s.load(&self.conv.bias[channel..]);
            let mut half = [[s.splat(0.0); SIDE]; M];
            for column in 0..SIDE {
                // SAFETY: the length of `m` was asserted.
                let p = std::array::from_fn(
                    #[inline(always)]
                    |r| unsafe {
                        let at = ((r * SIDE + column) * block.count + tile) * width + vector * S::LANES;
                        s.load_at(m.as_ptr().add(at))
                    },
                );
                let t: [S::V; M] = output(s, p);
                for (row, t) in half.iter_mut().zip(t) {
                    row[column] = t;
                }
            }
            let Slot { map, image, channel: place } = &mut self.out;
            for (r, half) in half.into_iter().enumerate().take(rows) {
                let start = map.at(*image + block.image, (y0 + r) as isize, x0 as isize) + *place + channel;
                let line = output::<S, M>(s, half);
                for (column, value) in line.into_iter().enumerate().take(columns) {
                    let value = s.max(s.splat(0.0), s.add(value, bias));
                    s.store(value, &mut map.data[start + column * map.c..]);
                }
            }
        }
    }
}
