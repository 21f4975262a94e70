//! Winograd's F(4x4, 3x3): tiles of 4x4 outputs from 36 products instead of 144.
//!
//! Vectors run over channels. A block of tiles is transformed, multiplied point by point with the transformed weights,
//! panel of output channels by panel, and transformed back while it is in the cache. At the edges of a picture whose
//! sizes are no multiples of 4, tiles reach beyond it; what lies there is read as zero and not written.
mod gradient;
mod transform;

pub(crate) use gradient::backward_weight;

use super::ConvShape;
use super::layout::{Gather, Scatter};
use crate::gemm::{Panel, RowProduct, panels};
use crate::pool::{Shared, Workspace};
use crate::simd::Isa;
use rayon::prelude::*;
use transform::{Filter, Output, POINTS, Side, Transform};

/// Tiles of a block: their transforms stay in the second-level cache.
const BLOCK: usize = 48;

/// Tiles of a row that are transformed together: their pixels stay in the first-level cache.
const RUN: usize = 16;

/// Kernels transformed together.
const KERNELS: usize = 16;

/// Transformed weights: [panel of output channels][point][input channel][lanes of the panel].
pub(crate) struct Filters {
    u: Workspace,
    k_len: usize,
}

impl Filters {
    /// For the convolution with `weight`.
    pub(crate) fn forward(isa: Isa, weight: &[f32], s: &ConvShape) -> Self {
        // Lanes are output channels, ci · 9 floats apart, each with its kernels in a row.
        let gather = |o0: usize, lanes: usize, i0: usize, count: usize, taps: &mut [f32]| {
            let planes = &weight[(o0 * s.ci + i0) * 9..];
            let w = count * 9;
            read_taps(isa, planes, s.ci * 9, lanes, w, taps);
        };
        Self::transform(isa, s.ci, s.co, false, gather)
    }

    /// For the convolution of dy that gives dx: kernels turned by 180°, input and output exchanged.
    pub(crate) fn backward(isa: Isa, weight: &[f32], s: &ConvShape) -> Self {
        let l = isa.lanes();
        let gather = |i0: usize, lanes: usize, o0: usize, count: usize, taps: &mut [f32]| {
            for (o, taps) in taps[..count * 9 * l].chunks_exact_mut(9 * l).enumerate() {
                read_taps(isa, &weight[((o0 + o) * s.ci + i0) * 9..], 9, lanes, 9, taps);
            }
        };
        Self::transform(isa, s.co, s.ci, true, gather)
    }

    /// `gather(column, lanes, k, count, taps)` lays out the kernels k .. k + count of `lanes` columns as
    /// [k][tap][lanes].
    fn transform(
        isa: Isa,
        k_len: usize,
        columns: usize,
        rotate: bool,
        gather: impl Fn(usize, usize, usize, usize, &mut [f32]) + Sync,
    ) -> Self {
        let l = isa.lanes();
        let vectors = columns.div_ceil(l);
        let mut u = Workspace::take(POINTS * vectors * l * k_len);
        let to = Shared::new(&mut u);
        let groups = k_len.div_ceil(KERNELS);
        let all: Vec<(Panel, usize)> =
            panels(vectors).flat_map(|panel| (0..panel.count).map(move |v| (panel, v))).collect();
        (0..vectors * groups).into_par_iter().with_min_len(4).for_each(|task| {
            let ((panel, v), k) = (all[task / groups], task % groups * KERNELS);
            let count = KERNELS.min(k_len - k);
            let column = (panel.start + v) * l;
            let mut taps = Workspace::take(KERNELS * 9 * l);
            gather(column, l.min(columns - column), k, count, &mut taps);
            let width = panel.count * l;
            // SAFETY: the panel's part begins at panel.start · l · POINTS · k_len and has POINTS · k_len rows of
            // `width`; tasks write different vectors or different rows of it.
            unsafe {
                let dst = to.get().add(panel.start * l * POINTS * k_len + k * width + v * l);
                let (point_stride, k_stride) = (k_len * width, width);
                isa.run(Filter { taps: taps.as_ptr(), count, rotate, dst, point_stride, k_stride });
            }
        });
        Self { u, k_len }
    }

    fn panel(&self, panel: Panel, lanes: usize) -> &[f32] {
        let column = POINTS * self.k_len;
        &self.u[panel.start * lanes * column..][..panel.count * lanes * column]
    }
}

/// taps[j · L + lane] = planes[lane · plane + j] for j < count, and 0 for missing lanes.
fn read_taps(isa: Isa, planes: &[f32], plane: usize, lanes: usize, count: usize, taps: &mut [f32]) {
    let l = isa.lanes();
    assert!(planes.len() >= (lanes - 1) * plane + count && taps.len() >= count * l && lanes <= l);
    let gather = Gather {
        src: planes.as_ptr(),
        plane,
        channels: lanes,
        fill: l,
        h: 1,
        w: count,
        y0: 0,
        x0: 0,
        rows: 1,
        cols: count,
        dst: taps.as_mut_ptr(),
        ld: l,
    };
    // SAFETY: lengths asserted above.
    unsafe { isa.run(gather) };
}

/// The tiles of a batch, in order of picture, row and column.
#[derive(Clone, Copy)]
struct Tiles {
    rows: usize,
    cols: usize,
}

/// Tiles of one row: `count` from column `x` of row `y` of picture `n`; the first is number `at` of its block.
#[derive(Clone, Copy)]
struct Run {
    n: usize,
    y: usize,
    x: usize,
    count: usize,
    at: usize,
}

impl Tiles {
    fn new(h: usize, w: usize) -> Self {
        Self { rows: h.div_ceil(4), cols: w.div_ceil(4) }
    }

    fn per_picture(self) -> usize {
        self.rows * self.cols
    }

    /// Tiles `first..end` in runs.
    fn runs(self, first: usize, end: usize) -> impl Iterator<Item = Run> {
        let mut next = first;
        std::iter::from_fn(move || {
            let (n, tile) = (next / self.per_picture(), next % self.per_picture());
            let (y, x) = (tile / self.cols, tile % self.cols);
            let count = RUN.min(self.cols - x).min(end - next);
            let run = Run { n, y, x, count, at: next - first };
            next += count;
            (count > 0).then_some(run)
        })
    }
}

/// Planes to be transformed, and where the window of tile (0, 0) begins.
#[derive(Clone, Copy)]
struct Planes<'a> {
    side: Side,
    data: &'a [f32],
    channels: usize,
    h: usize,
    w: usize,
    origin: isize,
}

/// Floats between tiles of a transformed block: an odd number of cache lines, so that rows spread over the cache.
fn tile_stride(channels: usize) -> usize {
    (channels.div_ceil(16) | 1) * 16
}

impl Planes<'_> {
    /// Transforms the tiles of `run`, all channels: v[point · point_stride + tile · tile_stride + channel], with zeros
    /// up to whole vectors.
    ///
    /// # Safety
    /// `v` is valid for writes there, and no other thread touches these tiles of it.
    unsafe fn transform(&self, isa: Isa, run: Run, strip: &mut [f32], v: *mut f32, point_stride: usize) {
        let (l, window, plane) = (isa.lanes(), self.side.window(), self.h * self.w);
        let cols = 4 * run.count + window - 4;
        assert!(strip.len() >= window * cols * l && self.data.len() >= (run.n + 1) * self.channels * plane);
        let stride = tile_stride(self.channels);
        for channel in (0..self.channels).step_by(l) {
            let gather = Gather {
                src: self.data[(run.n * self.channels + channel) * plane..].as_ptr(),
                plane,
                channels: l.min(self.channels - channel),
                fill: l,
                h: self.h,
                w: self.w,
                y0: 4 * run.y as isize + self.origin,
                x0: 4 * run.x as isize + self.origin,
                rows: window,
                cols,
                dst: strip.as_mut_ptr(),
                ld: l,
            };
            // SAFETY: the planes and the strip are long enough (asserted); `v` by this function's contract.
            unsafe {
                isa.run(gather);
                isa.run(Transform {
                    side: self.side,
                    strip: strip.as_ptr(),
                    cols,
                    tiles: run.count,
                    dst: v.add(run.at * stride + channel),
                    point_stride,
                    tile_stride: stride,
                });
            }
        }
    }
}

/// Floats of the strip that [`Planes::transform`] and [`Block::write`] need.
fn strip_len(isa: Isa) -> usize {
    6 * (4 * RUN + 2) * isa.lanes()
}

/// out = x ∗ filters + bias.
pub(crate) fn convolve(isa: Isa, x: &[f32], filters: &Filters, bias: Option<&[f32]>, s: &ConvShape, out: &mut [f32]) {
    let l = isa.lanes();
    let (oh, ow) = (s.out_h(), s.out_w());
    let tiles = Tiles::new(oh, ow);
    let total = s.n * tiles.per_picture();
    let blocks = total.div_ceil(BLOCK);
    let mut padded_bias = Workspace::take(s.co.div_ceil(l) * l);
    padded_bias.fill(0.0);
    if let Some(bias) = bias {
        padded_bias[..s.co].copy_from_slice(bias);
    }
    let origin = -(s.padding as isize);
    let x = Planes { side: Side::Input, data: x, channels: s.ci, h: s.h, w: s.w, origin };
    let to = Shared::new(out);
    (0..blocks).into_par_iter().for_each(|block| {
        let (first, end) = (block * total / blocks, (block + 1) * total / blocks);
        let count = end - first;
        let point_stride = count * tile_stride(s.ci);
        let mut v = Workspace::take(POINTS * point_stride);
        let mut strip = Workspace::take(strip_len(isa));
        for run in tiles.runs(first, end) {
            // SAFETY: `v` holds `count` tiles of every point, and belongs to this task.
            unsafe { x.transform(isa, run, &mut strip, v.as_mut_ptr(), point_stride) };
        }
        let mut m = Workspace::take(POINTS * count * crate::gemm::PANEL * l);
        for panel in panels(s.co.div_ceil(l)) {
            let block = Block { isa, panel, count, k_len: s.ci };
            block.multiply(&v, filters.panel(panel, l), &mut m);
            for run in tiles.runs(first, end) {
                // SAFETY: tasks write different tiles of `out`, which has n · co planes of oh · ow (checked on entry).
                unsafe { block.write(&m, &padded_bias, run, &mut strip, to.get(), s) };
            }
        }
    });
}

/// A block of transformed tiles and a panel of output channels.
struct Block {
    isa: Isa,
    panel: Panel,
    count: usize,
    k_len: usize,
}

impl Block {
    fn width(&self) -> usize {
        self.panel.count * self.isa.lanes()
    }

    /// m[point][tile][lanes of the panel] = v[point][tile] · u[point].
    fn multiply(&self, v: &[f32], u: &[f32], m: &mut [f32]) {
        let (lda, width) = (tile_stride(self.k_len), self.width());
        for point in 0..POINTS {
            let product = RowProduct {
                rows: self.count,
                vectors: self.panel.count,
                a: v[point * self.count * lda..][..self.count * lda].as_ptr(),
                lda,
                runs: 1,
                run_stride: 0,
                k_len: self.k_len,
                b: u[point * self.k_len * width..][..self.k_len * width].as_ptr(),
                c: m[point * self.count * width..][..self.count * width].as_mut_ptr(),
                ldc: width,
                accumulate: false,
            };
            // SAFETY: the slices have the lengths the product needs; `m` is borrowed mutably.
            unsafe { self.isa.run(product) };
        }
    }

    /// Transforms the products of `run` back and writes them to the output's planes.
    ///
    /// # Safety
    /// `out` is valid for writes of all planes of the output, and no other thread touches the tiles of this block in
    /// the channels of this panel.
    unsafe fn write(&self, m: &[f32], bias: &[f32], run: Run, strip: &mut [f32], out: *mut f32, s: &ConvShape) {
        let (l, width, oh, ow) = (self.isa.lanes(), self.width(), s.out_h(), s.out_w());
        assert!(m.len() >= POINTS * self.count * width && strip.len() >= 16 * run.count * l);
        for vector in 0..self.panel.count {
            let channel = (self.panel.start + vector) * l;
            let output = Output {
                src: m[run.at * width + vector * l..].as_ptr(),
                point_stride: self.count * width,
                tile_stride: width,
                tiles: run.count,
                bias: bias[channel..][..l].as_ptr(),
                strip: strip.as_mut_ptr(),
            };
            let (y, x) = (4 * run.y, 4 * run.x);
            // SAFETY: lengths asserted above; rows and columns are cut to the picture, `out` by this function's contract.
            unsafe {
                self.isa.run(output);
                self.isa.run(Scatter {
                    src: strip.as_ptr(),
                    ld: l,
                    cols_ld: 4 * run.count,
                    rows: 4.min(oh - y),
                    cols: (4 * run.count).min(ow - x),
                    channels: l.min(s.co - channel),
                    dst: out.add(((run.n * s.co + channel) * oh + y) * ow + x),
                    plane: oh * ow,
                    w: ow,
                });
            }
        }
    }
}
