//! Convolution as a matrix product over the kernel's window.
//!
//! Pictures are laid out pixel by pixel with their padding, [row][column][channel]. There the window of an output pixel
//! is `kernel` runs of `kernel · ci` consecutive floats, so the product reads it in place. Chunks of the batch that fit a
//! cache are laid out first, then multiplied, each step shared by all threads.
mod gradient;

pub(crate) use gradient::backward_weight;

use super::ConvShape;
use super::layout::{Gather, Scatter};
use crate::gemm::{Onto, Panel, RowProduct, panels};
use crate::pool::{Shared, Workspace};
use crate::simd::Isa;
use crate::team::Share;
use rayon::prelude::*;

/// Floats of a laid-out chunk of the batch: a few MiB.
const CHUNK: usize = 1 << 20;

/// Output pixels a task computes at most, but at least one row.
const PIXELS: usize = 512;

/// Terms of a sum beyond which it is cut.
const CHAIN: usize = 128;

/// Weights in panels of output channels: [panel][k][lanes of the panel], the runs of the window in order.
pub(crate) struct Filters {
    packed: Workspace,
}

impl Filters {
    /// k = (ky, kx, ci), columns co.
    pub(crate) fn forward(isa: Isa, weight: &[f32], s: &ConvShape) -> Self {
        let taps = s.taps();
        if taps == 1 {
            return Self::transposed(isa, weight, s.ci, s.co);
        }
        Self::pack(isa, weight, taps * s.ci, s.co, s.ci * taps, |k| k % s.ci * taps + k / s.ci)
    }

    /// For the transposed convolution of stride 1: k = (ky, kx, co) with the kernel turned by 180°, columns ci.
    pub(crate) fn rotated(isa: Isa, weight: &[f32], s: &ConvShape) -> Self {
        let taps = s.taps();
        Self::pack(isa, weight, taps * s.co, s.ci, taps, |k| k % s.co * s.ci * taps + taps - 1 - k / s.co)
    }

    /// For scattering gradients: k = (ky, kx, co), columns ci.
    fn scattered(isa: Isa, weight: &[f32], s: &ConvShape) -> Self {
        let taps = s.taps();
        Self::pack(isa, weight, taps * s.co, s.ci, taps, |k| k % s.co * s.ci * taps + k / s.co)
    }

    /// Row k, column j is `weight[start(k) + j · stride]`.
    pub(super) fn pack(
        isa: Isa,
        weight: &[f32],
        k_len: usize,
        columns: usize,
        stride: usize,
        start: impl Fn(usize) -> usize + Sync,
    ) -> Self {
        Self::by_panel(isa, k_len, columns, |first, valid, width, part| {
            for (k, row) in part.chunks_exact_mut(width).enumerate() {
                let column = weight[start(k) + first * stride..].iter().step_by(stride);
                row[..valid].iter_mut().zip(column).for_each(|(to, &from)| *to = from);
                row[valid..].fill(0.0);
            }
        })
    }

    /// Row k, column j is `weight[j · k_len + k]`.
    fn transposed(isa: Isa, weight: &[f32], k_len: usize, columns: usize) -> Self {
        Self::by_panel(isa, k_len, columns, |first, valid, width, part| {
            let gather = Gather {
                src: weight[first * k_len..][..valid * k_len].as_ptr(),
                plane: k_len,
                channels: valid,
                fill: width,
                h: 1,
                w: k_len,
                y0: 0,
                x0: 0,
                rows: 1,
                cols: k_len,
                dst: part.as_mut_ptr(),
                ld: width,
            };
            // SAFETY: `weight` has `valid` rows of k_len from there on (sliced), `part` k_len rows of `width`.
            unsafe { isa.run(gather) };
        })
    }

    /// `fill(first column, columns, width, part)` writes the k_len rows of a panel.
    fn by_panel(isa: Isa, k_len: usize, columns: usize, fill: impl Fn(usize, usize, usize, &mut [f32]) + Sync) -> Self {
        let l = isa.lanes();
        let vectors = columns.div_ceil(l);
        let mut packed = Workspace::take(vectors * l * k_len);
        let mut rest = &mut packed[..];
        let mut parts = Vec::with_capacity(vectors);
        for panel in panels(isa, columns) {
            let (part, tail) = rest.split_at_mut(panel.count * l * k_len);
            parts.push((panel, part));
            rest = tail;
        }
        parts.into_par_iter().share(|(panel, part)| {
            let (width, first) = (panel.count * l, panel.start * l);
            fill(first, width.min(columns - first), width, part);
        });
        Self { packed }
    }

    /// The panel's weights, `k_len` rows.
    pub(super) fn panel(&self, panel: Panel, lanes: usize, k_len: usize) -> &[f32] {
        &self.packed[panel.start * lanes * k_len..][..panel.count * lanes * k_len]
    }

    /// The same in memory of their own, for keeping.
    pub(crate) fn keep(self) -> Self {
        Self { packed: self.packed.keep() }
    }
}

/// Pictures pixel by pixel: `rows` x `cols` of the padded picture, `ld` floats a pixel.
struct Pixels {
    rows: usize,
    cols: usize,
    ld: usize,
    data: Workspace,
}

/// What to lay out, and with which border.
#[derive(Clone, Copy)]
struct Source<'a> {
    planes: &'a [f32],
    channels: usize,
    h: usize,
    w: usize,
    border: usize,
}

impl Pixels {
    /// Room for `images` pictures.
    fn new(images: usize, rows: usize, cols: usize, ld: usize) -> Self {
        Self { rows, cols, ld, data: Workspace::take(images * rows * cols * ld) }
    }

    fn image(&self) -> usize {
        self.rows * self.cols * self.ld
    }

    /// Lays pictures `first .. first + count` out, zeros in the border and in channels up to `ld`.
    fn fill(&mut self, isa: Isa, src: Source, first: usize, count: usize) {
        let (rows, cols, ld) = (self.rows, self.cols, self.ld);
        let plane = src.h * src.w;
        assert!(src.planes.len() >= (first + count) * src.channels * plane && src.channels <= ld);
        let band = band(cols, rows, count, 1);
        self.data[..count * rows * cols * ld].par_chunks_mut(rows * cols * ld).enumerate().share(|(i, image)| {
            let planes = &src.planes[(first + i) * src.channels * plane..][..src.channels * plane];
            image.par_chunks_mut(band * cols * ld).enumerate().share(|(b, part)| {
                let gather = Gather {
                    src: planes.as_ptr(),
                    plane,
                    channels: src.channels,
                    fill: ld,
                    h: src.h,
                    w: src.w,
                    y0: (b * band) as isize - src.border as isize,
                    x0: -(src.border as isize),
                    rows: part.len() / (cols * ld),
                    cols,
                    dst: part.as_mut_ptr(),
                    ld,
                };
                // SAFETY: `planes` holds all channels; `part` holds rows x cols pixels of ld floats.
                unsafe { isa.run(gather) };
            });
        });
    }
}

/// Rows of a task: many, but so that every thread has some when each row of `count` pictures is computed in `parts`.
fn band(cols: usize, rows: usize, count: usize, parts: usize) -> usize {
    let shared = (rows * count * parts).div_ceil(2 * rayon::current_num_threads());
    (PIXELS / cols).min(shared).clamp(1, rows)
}

/// Pictures laid out at a time.
fn chunk_images(n: usize, image: usize) -> usize {
    (CHUNK / image).clamp(1, n.max(1))
}

/// out = x ∗ filters + bias.
pub(crate) fn convolve(isa: Isa, x: &[f32], filters: &Filters, bias: Option<&[f32]>, s: &ConvShape, out: &mut [f32]) {
    let (l, k, oh, ow) = (isa.lanes(), s.kernel, s.out_h(), s.out_w());
    let (rows, cols) = ((oh - 1) * s.stride + k, (ow - 1) * s.stride + k);
    let chunk = chunk_images(s.n, rows * cols * s.ci);
    let mut pixels = Pixels::new(chunk, rows, cols, s.ci);
    let src = Source { planes: x, channels: s.ci, h: s.h, w: s.w, border: s.padding };
    let all: Vec<Panel> = panels(isa, s.co).collect();
    let to = Shared::new(out);
    for first in (0..s.n).step_by(chunk) {
        let count = chunk.min(s.n - first);
        let band = band(ow, oh, count, all.len());
        pixels.fill(isa, src, first, count);
        let tasks = count * oh.div_ceil(band) * all.len();
        (0..tasks).into_par_iter().share(|task| {
            // Tasks of one panel follow each other: its weights stay in the cache.
            let (panel, rest) = (all[task / (tasks / all.len())], task % (tasks / all.len()));
            let (image, y0) = (rest / oh.div_ceil(band), rest % oh.div_ceil(band) * band);
            let job = Band { isa, s, filters, bias, pixels: &pixels, panel, image, y0, count: band.min(oh - y0) };
            let plane = oh * ow;
            // SAFETY: tasks differ in picture, rows or panel of channels, so they write disjoint parts of `out`, which
            // has n · co planes (checked on entry).
            unsafe { job.run(to.get().add(((first + image) * s.co + panel.start * l) * plane + y0 * ow)) };
        });
    }
}

/// Some rows of one output picture, for one panel of channels.
struct Band<'a> {
    isa: Isa,
    s: &'a ConvShape,
    filters: &'a Filters,
    bias: Option<&'a [f32]>,
    pixels: &'a Pixels,
    panel: Panel,
    image: usize,
    y0: usize,
    count: usize,
}

impl Band<'_> {
    /// # Safety
    /// `out` is valid for writes of the band's rows in as many planes as the panel has channels, out_h · out_w apart.
    unsafe fn run(&self, out: *mut f32) {
        let (s, l) = (self.s, self.isa.lanes());
        let (oh, ow, width) = (s.out_h(), s.out_w(), self.panel.count * l);
        let channels = width.min(s.co - self.panel.start * l);
        let mut c = Workspace::take(self.count * ow * width);
        if let Some(bias) = self.bias {
            let bias = &bias[self.panel.start * l..][..channels];
            c.chunks_exact_mut(width).for_each(|pixel| pixel[..channels].copy_from_slice(bias));
        }
        let image = &self.pixels.data[self.image * self.pixels.image()..][..self.pixels.image()];
        let weights = self.filters.panel(self.panel, l, s.taps() * s.ci);
        // Without a window the rows of a picture are one long row.
        let (lines, line) = if s.kernel == 1 && s.stride == 1 { (1, self.count * ow) } else { (self.count, ow) };
        let (run, run_stride) = (s.kernel * s.ci, self.pixels.cols * s.ci);
        // Long sums are cut at the window's rows: their weights fit the cache, and rounding errors grow less.
        let runs = if run < CHAIN { s.kernel } else { 1 };
        for (ky, y) in (0..s.kernel).step_by(runs).flat_map(|ky| (0..lines).map(move |y| (ky, y))) {
            let product = RowProduct {
                rows: line,
                vectors: self.panel.count,
                a: image[((self.y0 + y) * s.stride + ky) * run_stride..].as_ptr(),
                lda: s.stride * s.ci,
                runs,
                run_stride,
                k_len: run,
                b: weights[ky * run * width..].as_ptr(),
                c: c[y * line * width..].as_mut_ptr(),
                ldc: width,
                onto: if ky > 0 || self.bias.is_some() { Onto::Sum } else { Onto::Nothing },
            };
            // SAFETY: the last window of the last line ends with the laid-out picture; `weights` holds kernel · run
            // rows; `c` holds `line` pixels from there on.
            unsafe { self.isa.run(product) };
        }
        let scatter = Scatter {
            src: c.as_ptr(),
            ld: width,
            cols_ld: ow,
            rows: self.count,
            cols: ow,
            channels,
            dst: out,
            plane: oh * ow,
            w: ow,
        };
        // SAFETY: `c` holds count · ow pixels; `out` by this function's contract.
        unsafe { self.isa.run(scatter) };
    }
}

/// dx for any stride: every output pixel's gradient is multiplied back to the pixels of its window.
pub(crate) fn backward_input(isa: Isa, dy: &[f32], weight: &[f32], s: &ConvShape, dx: &mut [f32]) {
    let (l, oh, ow) = (isa.lanes(), s.out_h(), s.out_w());
    let filters = Filters::scattered(isa, weight, s);
    let chunk = chunk_images(s.n, oh * ow * s.co);
    let mut pixels = Pixels::new(chunk, oh, ow, s.co);
    let src = Source { planes: dy, channels: s.co, h: oh, w: ow, border: 0 };
    let all: Vec<Panel> = panels(isa, s.ci).collect();
    let to = Shared::new(dx);
    for first in (0..s.n).step_by(chunk) {
        let count = chunk.min(s.n - first);
        pixels.fill(isa, src, first, count);
        (0..count * all.len()).into_par_iter().share(|task| {
            let (panel, image) = (all[task / count], task % count);
            let gradient = &pixels.data[image * pixels.image()..][..pixels.image()];
            let weights = filters.panel(panel, l, s.taps() * s.co);
            // SAFETY: tasks differ in picture or panel of channels, so they write disjoint planes of `dx`, which has
            // n · ci of them (checked on entry).
            unsafe {
                let dx = to.get().add(((first + image) * s.ci + panel.start * l) * s.h * s.w);
                scatter_image(isa, gradient, weights, panel, s, dx);
            }
        });
    }
}

/// One picture and panel of [`backward_input`]. Sums in order of the taps.
///
/// # Safety
/// `dx` is valid for writes of as many planes as the panel has channels.
unsafe fn scatter_image(isa: Isa, dy: &[f32], weights: &[f32], panel: Panel, s: &ConvShape, dx: *mut f32) {
    let (l, k, oh, ow) = (isa.lanes(), s.kernel, s.out_h(), s.out_w());
    let width = panel.count * l;
    // The padded picture, with any last rows and columns that no window reaches.
    let rows = ((oh - 1) * s.stride + k).max(s.h + s.padding);
    let cols = ((ow - 1) * s.stride + k).max(s.w + s.padding);
    let mut sums = Workspace::take(rows * cols * width);
    sums.fill(0.0);
    for (tap, weights) in weights.chunks_exact(s.co * width).enumerate() {
        for (y, dy) in dy.chunks_exact(ow * s.co).enumerate() {
            let product = RowProduct {
                rows: ow,
                vectors: panel.count,
                a: dy.as_ptr(),
                lda: s.co,
                runs: 1,
                run_stride: 0,
                k_len: s.co,
                b: weights.as_ptr(),
                c: sums[((y * s.stride + tap / k) * cols + tap % k) * width..].as_mut_ptr(),
                ldc: s.stride * width,
                onto: Onto::Sum,
            };
            // SAFETY: `dy` is a row of ow pixels, `weights` has co rows, and pixel ow − 1 of this tap is inside `sums`.
            unsafe { isa.run(product) };
        }
    }
    let scatter = Scatter {
        src: sums[(s.padding * cols + s.padding) * width..].as_ptr(),
        ld: width,
        cols_ld: cols,
        rows: s.h,
        cols: s.w,
        channels: width.min(s.ci - panel.start * l),
        dst: dx,
        plane: s.h * s.w,
        w: s.w,
    };
    // SAFETY: `sums` holds the padded picture; `dx` by this function's contract.
    unsafe { isa.run(scatter) };
}
