//! Winograd's F(4x4, 3x3) and F(2x2, 5x5), see [`crate::winograd`]: both have tiles of 6x6 inputs and the same points, so
//! they share the transform of the input.
//!
//! Channels lie side by side, so tiles are read in place. Tiles that reach beyond the image read zeros there and do not
//! write.
use super::{Conv, Map, Slot};
use crate::product::{Epilogue, Left, Panel, Product, Right, panels};
use crate::simd::{Isa, Kernel, Simd};
use crate::winograd::{POINTS, SIDE, Textbook, both_sides, input, read, write};
use crate::workspace::Workspace;

/// Tiles multiplied together, at most: with the weights of a point they stay in the second-level cache.
const BLOCK: usize = 32;

/// Row i of G for kernels of R taps: the powers of point i over Π_j (p_i − p_j); for infinity only the highest power.
fn g<const R: usize>(i: usize) -> [f64; R] {
    const FINITE: [(f64, f64); 5] = [(0.0, 4.0), (1.0, -6.0), (-1.0, -6.0), (2.0, 24.0), (-2.0, 24.0)];
    std::array::from_fn(|k| match FINITE.get(i) {
        Some((p, norm)) => p.powi(k as i32) / norm,
        None => f64::from(k == R - 1),
    })
}

/// G w Gᵀ as [panel][point][ci][lanes of the panel]. Computed once for a network, so in f64 and without vectors.
pub(super) fn filters<const R: usize>(isa: Isa, weight: &[f32], ci: usize, co: usize) -> Workspace {
    let l = isa.lanes();
    let g: [[f64; R]; SIDE] = std::array::from_fn(g);
    let mut packed = Workspace::take(POINTS * co * ci);
    for panel in panels(isa, co) {
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
    packed.detach()
}

/// Aᵀ m for M = 4 or 2 outputs. The point at infinity is added last, where [`crate::winograd::output`] begins with it:
/// another order would change the bits of features that were stored before.
#[inline(always)]
fn output<S: Simd, const M: usize>(s: S, m: [S::V; SIDE]) -> [S::V; M] {
    let (sum, difference) = (s.add(m[1], m[2]), s.sub(m[1], m[2]));
    let (sum2, difference2) = (s.add(m[3], m[4]), s.sub(m[3], m[4]));
    let mut y = [s.zero(); M];
    y[0] = s.add(m[0], s.add(sum, sum2));
    y[1] = s.fma(s.splat(2.0), difference2, difference);
    if M == 4 {
        y[2] = s.fma(s.splat(4.0), sum2, sum);
        y[3] = s.fma(s.splat(8.0), difference2, difference);
    }
    y[M - 1] = s.add(y[M - 1], m[5]);
    y
}

/// The convolution in tiles of M x M outputs.
pub(super) struct Winograd<'a, const M: usize> {
    pub(super) conv: &'a Conv,
    pub(super) filters: &'a [f32],
    pub(super) x: &'a Map,
    pub(super) out: Slot<'a>,
}

/// Some tiles of one image.
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
        let mut m = Workspace::take(POINTS * BLOCK * S::PANEL * S::LANES);
        let mut edge = Workspace::take(POINTS * ci);
        for (image, i) in (0..self.x.images).flat_map(|image| (0..blocks).map(move |i| (image, i))) {
            let (first, end) = (i * tiles / blocks, (i + 1) * tiles / blocks);
            let block = Block { image, first, count: end - first };
            for tile in 0..block.count {
                self.transform(s, block, tile, &mut edge, &mut v);
            }
            for panel in panels(s.isa(), self.conv.co) {
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

    /// v[point][tile][ci] = Bᵀ d B
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
            // SAFETY: `src` holds 6 rows of 6 pixels of ci channels; the length of `v` was asserted; c + LANES ≤ ci.
            unsafe {
                let d = read(s, src.as_ptr().add(c), [row, ci]);
                let transformed = both_sides(
                    s,
                    d,
                    #[inline(always)]
                    |d| input::<S, Textbook>(s, d),
                );
                write(s, transformed, v.as_mut_ptr().add(tile * ci + c), [SIDE * point, point]);
            }
        }
    }

    /// Copies the 6x6 pixels from (y0, x0) on, with zeros outside the image.
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

    /// m[point][tile][lanes of the panel] = v[point] · u[point]
    #[inline(always)]
    fn multiply<S: Simd>(&self, s: S, block: Block, panel: Panel, v: &[f32], m: &mut [f32]) {
        let (ci, width) = (self.conv.ci, panel.count * S::LANES);
        let u = &self.filters[panel.start * S::LANES * POINTS * ci..][..POINTS * ci * width];
        assert!(v.len() >= POINTS * block.count * ci && m.len() >= POINTS * block.count * width);
        for point in 0..POINTS {
            // SAFETY: the lengths of all three were checked above; `m` is borrowed mutably.
            unsafe {
                let product = Product {
                    rows: block.count,
                    vectors: panel.count,
                    runs: 1,
                    depth: ci,
                    a: Left::rows(v.as_ptr().add(point * block.count * ci), ci),
                    b: Right::rows(u.as_ptr().add(point * ci * width), width),
                    c: m.as_mut_ptr().add(point * block.count * width),
                    c_row: width,
                    epilogue: Epilogue::Store,
                };
                s.isa().run_raw(product);
            }
        }
    }

    /// Writes relu(Aᵀ m A + bias) to the output.
    #[inline(always)]
    fn write<S: Simd>(&mut self, s: S, block: Block, panel: Panel, tile: usize, m: &[f32]) {
        let [oh, ow] = self.conv.window.output(self.x.h, self.x.w);
        let [y0, x0] = self.corner(block.first + tile);
        let (rows, columns, width) = (M.min(oh - y0), M.min(ow - x0), panel.count * S::LANES);
        let point = block.count * width;
        assert!(m.len() >= POINTS * point && tile < block.count);
        for vector in 0..panel.count {
            let channel = (panel.start + vector) * S::LANES;
            let bias = s.load(&self.conv.bias[channel..]);
            // SAFETY: the length of `m` was asserted.
            let products = unsafe { read(s, m.as_ptr().add(tile * width + vector * S::LANES), [SIDE * point, point]) };
            let y = both_sides(
                s,
                products,
                #[inline(always)]
                |m| output::<S, M>(s, m),
            );
            let Slot { map, image, channel: first } = &mut self.out;
            for (r, line) in y.into_iter().enumerate().take(rows) {
                let start = map.at(*image + block.image, (y0 + r) as isize, x0 as isize) + *first + channel;
                for (column, value) in line.into_iter().enumerate().take(columns) {
                    let value = s.max(s.zero(), s.add(value, bias));
                    s.store(value, &mut map.data[start + column * map.c..]);
                }
            }
        }
    }
}
