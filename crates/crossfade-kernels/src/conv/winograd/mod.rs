//! Winograd's F(4x4, 3x3) on planes: tiles of 4x4 outputs from 36 products instead of 144 (see [`crate::winograd`]).
//!
//! Vectors run over channels. A block of tiles is transformed, multiplied point by point with the transformed weights,
//! panel of output channels by panel, and transformed back while it is in the cache. At the edges of an image whose
//! sizes are no multiples of 4, tiles reach beyond it; pixels there are read as zero and not written.
mod filters;
mod gradient;
mod transform;

use filters::Filters;
pub(crate) use filters::{Packed, Weights};
pub(crate) use gradient::backward_weight;

use super::ConvShape;
use crate::layout::{Gather, Scatter};
use crate::product::{Epilogue, Left, Panel, Product, Right, shared_panels};
use crate::simd::Isa;
use crate::team::Share;
use crate::winograd::POINTS;
use crate::workspace::{Shared, Workspace};
use rayon::prelude::*;
use transform::{Output, TileKind, Transform};

/// Tiles of a block: their transforms stay in the second-level cache.
const BLOCK: usize = 16;

/// In batches of up to this many tiles the weights are transformed panel by panel, just before they are used. With more
/// tiles it is faster to transform them once (measured).
const FEW: usize = 64;

/// Input channels whose weights are then transformed at a time: with the products of a panel they fit the second-level
/// cache.
const DEPTH: usize = 32;

/// Tiles of a row that are transformed together: their pixels stay in the first-level cache.
const RUN: usize = 16;

/// The tiles of a batch, numbered by image, row and column.
#[derive(Clone, Copy)]
struct TileGrid {
    rows: usize,
    cols: usize,
}

/// `count` neighbouring tiles of one row, from column `x` of row `y` of image `n`; the first is number `at` of its block.
#[derive(Clone, Copy)]
struct TileRun {
    n: usize,
    y: usize,
    x: usize,
    count: usize,
    at: usize,
}

impl TileGrid {
    fn new(h: usize, w: usize) -> Self {
        Self { rows: h.div_ceil(4), cols: w.div_ceil(4) }
    }

    fn per_image(self) -> usize {
        self.rows * self.cols
    }

    /// Cuts the tiles `first..end` into runs.
    fn runs(self, first: usize, end: usize) -> impl Iterator<Item = TileRun> {
        let mut next = first;
        std::iter::from_fn(move || {
            let (n, tile) = (next / self.per_image(), next % self.per_image());
            let (y, x) = (tile / self.cols, tile % self.cols);
            let count = RUN.min(self.cols - x).min(end - next);
            let run = TileRun { n, y, x, count, at: next - first };
            next += count;
            (count > 0).then_some(run)
        })
    }
}

/// Planes that are read in tiles; tile (0, 0) begins at row and column `origin`.
#[derive(Clone, Copy)]
struct TileSource<'a> {
    kind: TileKind,
    data: &'a [f32],
    channels: usize,
    h: usize,
    w: usize,
    origin: isize,
}

/// The distance of rows of `floats`: an odd number of cache lines, so that equal columns of many rows spread over the
/// sets of the cache. A power of two would map them all to the same set.
fn padded_stride(floats: usize) -> usize {
    (floats.div_ceil(16) | 1) * 16
}

impl TileSource<'_> {
    /// Transforms the tiles of `run`, all channels: v[point · point_stride + tile · tile_stride + channel], with zeros
    /// up to whole vectors.
    ///
    /// # Safety
    /// `v` is valid for writes there, and no other thread touches these tiles of it.
    unsafe fn transform(&self, isa: Isa, run: TileRun, strip: &mut [f32], v: *mut f32, point_stride: usize) {
        for channel in (0..self.channels).step_by(isa.lanes()) {
            // SAFETY: this function's contract.
            unsafe { self.transform_vector(isa, run, channel, strip, v, point_stride) };
        }
    }

    /// [`Self::transform`] for one vector of channels.
    ///
    /// # Safety
    /// The same as for `transform`, for these channels.
    unsafe fn transform_vector(
        &self,
        isa: Isa,
        run: TileRun,
        channel: usize,
        strip: &mut [f32],
        v: *mut f32,
        point_stride: usize,
    ) {
        let (l, window, plane) = (isa.lanes(), self.kind.side(), self.h * self.w);
        let cols = 4 * run.count + window - 4;
        assert!(strip.len() >= window * cols * l && self.data.len() >= (run.n + 1) * self.channels * plane);
        let stride = padded_stride(self.channels);
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
            isa.run_raw(gather);
            isa.run_raw(Transform {
                kind: self.kind,
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

/// Floats in the strip of pixels that [`TileSource::transform`] and [`Block::write`] need.
fn strip_len(isa: Isa) -> usize {
    6 * (4 * RUN + 2) * isa.lanes()
}

/// out = x ∗ weights + bias.
pub(crate) fn convolve(isa: Isa, x: &[f32], weights: Weights, bias: Option<&[f32]>, s: &ConvShape, out: &mut [f32]) {
    let l = isa.lanes();
    let tiles = TileGrid::new(s.out_h(), s.out_w());
    let total = s.n * tiles.per_image();
    if total == 0 {
        return;
    }
    let blocks = total.div_ceil(BLOCK);
    let mut padded_bias = Workspace::take(s.co.div_ceil(l) * l);
    padded_bias.fill(0.0);
    if let Some(bias) = bias {
        padded_bias[..s.co].copy_from_slice(bias);
    }
    let origin = -(s.padding as isize);
    let x = TileSource { kind: TileKind::Input, data: x, channels: s.ci, h: s.h, w: s.w, origin };
    let task = Task { isa, tiles, x, bias: &padded_bias, s };
    let out = Shared::new(out);
    if total <= FEW || blocks < 2 * rayon::current_num_threads() {
        // SAFETY: `out` has n · co planes (checked on entry) and is borrowed mutably.
        return unsafe { task.few_tiles(weights, total, out) };
    }
    let filters = Filters::new(isa, weights);
    let bounds = |block: usize| block * total / blocks;
    (0..blocks).into_par_iter().share(|block| {
        // SAFETY: as above; tasks write different tiles.
        unsafe { task.block(&filters, bounds(block), bounds(block + 1), out.get()) };
    });
}

/// The parts of a convolution that all its blocks share.
struct Task<'a> {
    isa: Isa,
    tiles: TileGrid,
    x: TileSource<'a>,
    bias: &'a [f32],
    s: &'a ConvShape,
}

impl Task<'_> {
    /// Computes the tiles `first..end` from input to output.
    ///
    /// # Safety
    /// `out` is valid for writes of all planes of the output, and no other thread touches the tiles `first..end` there.
    unsafe fn block(&self, filters: &Filters, first: usize, end: usize, out: *mut f32) {
        let point_stride = padded_stride((end - first) * padded_stride(self.s.ci));
        let mut v = Workspace::take(POINTS * point_stride);
        let mut strip = Workspace::take(strip_len(self.isa));
        for run in self.tiles.runs(first, end) {
            // SAFETY: `v` holds these tiles of every point, and belongs to this task.
            unsafe { self.x.transform(self.isa, run, &mut strip, v.as_mut_ptr(), point_stride) };
        }
        for (panel, u) in filters.panels(self.isa.lanes()) {
            let block = Block { isa: self.isa, panel, count: end - first, lda: padded_stride(self.s.ci), point_stride };
            let mut m = Workspace::take(block.products_len());
            block.multiply(&v, u, self.s.ci, &mut m, Epilogue::Store);
            for run in self.tiles.runs(first, end) {
                // SAFETY: this function's contract.
                unsafe { block.write(&m, self.bias, run, &mut strip, out, self.s) };
            }
        }
    }

    /// Computes all tiles at once; threads share the output channels. Every weight is used for few tiles only, so it is
    /// transformed just before and stays in the cache: transformed weights take four times the memory, and reading them
    /// back would take four times as long.
    ///
    /// # Safety
    /// `out` is valid for writes of all planes of the output, and no other thread touches it.
    unsafe fn few_tiles(&self, weights: Weights, total: usize, out: Shared) {
        let (isa, l) = (self.isa, self.isa.lanes());
        let point_stride = padded_stride(total * padded_stride(self.s.ci));
        let mut v = Workspace::take(POINTS * point_stride);
        let to = Shared::new(&mut v);
        (0..self.s.ci.div_ceil(l)).into_par_iter().share(|vector| {
            let mut strip = Workspace::take(strip_len(isa));
            for run in self.tiles.runs(0, total) {
                // SAFETY: `v` holds all tiles of every point; tasks write different channels.
                unsafe { self.x.transform_vector(isa, run, vector * l, &mut strip, to.get(), point_stride) };
            }
        });
        let panels: Vec<Panel> = shared_panels(isa, self.s.co, rayon::current_num_threads()).collect();
        panels.into_par_iter().with_max_len(1).share(|panel| {
            let block = Block { isa, panel, count: total, lda: padded_stride(self.s.ci), point_stride };
            let mut m = Workspace::take(block.products_len());
            let mut u = Workspace::take(POINTS * padded_stride(DEPTH * block.width()));
            for k in (0..weights.k_len()).step_by(DEPTH) {
                let depth = DEPTH.min(weights.k_len() - k);
                weights.transform_panel(isa, panel, k, depth, &mut u);
                block.multiply(&v[k..], &u, depth, &mut m, if k == 0 { Epilogue::Store } else { Epilogue::Continue });
            }
            let mut strip = Workspace::take(strip_len(isa));
            for run in self.tiles.runs(0, total) {
                // SAFETY: tasks write different channels of `out`.
                unsafe { block.write(&m, self.bias, run, &mut strip, out.get(), self.s) };
            }
        });
    }
}

/// A block of transformed tiles, `lda` apart, its points `point_stride` apart, and a panel of output channels.
struct Block {
    isa: Isa,
    panel: Panel,
    count: usize,
    lda: usize,
    point_stride: usize,
}

impl Block {
    fn width(&self) -> usize {
        self.panel.count * self.isa.lanes()
    }

    /// Floats of the products of all points.
    fn products_len(&self) -> usize {
        POINTS * padded_stride(self.count * self.width())
    }

    /// m[point][tile][lanes of the panel] (+)= v[point][tile][..depth] · u[point][..depth].
    fn multiply(&self, v: &[f32], u: &[f32], depth: usize, m: &mut [f32], epilogue: Epilogue) {
        let (lda, width) = (self.lda, self.width());
        let (u_stride, m_stride) = (padded_stride(depth * width), padded_stride(self.count * width));
        for point in 0..POINTS {
            let product = Product {
                rows: self.count,
                vectors: self.panel.count,
                runs: 1,
                depth,
                a: Left::rows(v[point * self.point_stride..][..(self.count - 1) * lda + depth].as_ptr(), lda),
                b: Right::rows(u[point * u_stride..][..depth * width].as_ptr(), width),
                c: m[point * m_stride..][..self.count * width].as_mut_ptr(),
                c_row: width,
                epilogue,
            };
            // SAFETY: the slices have the lengths the product needs; `m` is borrowed mutably.
            unsafe { self.isa.run_raw(product) };
        }
    }

    /// Transforms the products of `run` back and writes them to the output's planes.
    ///
    /// # Safety
    /// `out` is valid for writes of all planes of the output, and no other thread touches the tiles of this block in
    /// the channels of this panel.
    unsafe fn write(&self, m: &[f32], bias: &[f32], run: TileRun, strip: &mut [f32], out: *mut f32, s: &ConvShape) {
        let (l, width, oh, ow) = (self.isa.lanes(), self.width(), s.out_h(), s.out_w());
        assert!(m.len() >= self.products_len() && strip.len() >= 16 * run.count * l);
        for vector in 0..self.panel.count {
            let channel = (self.panel.start + vector) * l;
            let output = Output {
                src: m[run.at * width + vector * l..].as_ptr(),
                point_stride: padded_stride(self.count * width),
                tile_stride: width,
                tiles: run.count,
                bias: bias[channel..][..l].as_ptr(),
                strip: strip.as_mut_ptr(),
            };
            let (y, x) = (4 * run.y, 4 * run.x);
            // SAFETY: lengths asserted above; rows and columns are cut to the image, `out` by this function's contract.
            unsafe {
                self.isa.run_raw(output);
                self.isa.run_raw(Scatter {
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
