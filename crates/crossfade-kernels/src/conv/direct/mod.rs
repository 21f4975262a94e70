//! Convolution as a matrix product over the kernel's window.
//!
//! Images are first copied, with their padding, to channels-last order [row][column][channel]. There the window of an
//! output pixel is `kernel` runs of `kernel · ci` consecutive floats, so the product reads it in place. The batch is
//! copied and multiplied in chunks that fit a cache, and all threads share each step.
mod gradient;

pub(crate) use gradient::backward_weight;

use super::ConvShape;
use crate::layout::{Gather, Scatter};
use crate::product::{Epilogue, Left, PackedMatrix, Panel, Product, Right, panels};
use crate::simd::Isa;
use crate::team::Share;
use crate::workspace::{Shared, Workspace};
use rayon::prelude::*;

/// Floats in a channels-last chunk of the batch: a few MiB.
const CHUNK: usize = 1 << 20;

/// Most output pixels of a task, which has at least one row.
const PIXELS: usize = 512;

/// Sums over windows are cut where a row of the window has at least this many terms.
const CHAIN: usize = 128;

/// Weights for [`convolve`]: rows k = (ky, kx, ci), columns co.
pub(crate) fn filters(isa: Isa, weight: &[f32], s: &ConvShape) -> PackedMatrix {
    let taps = s.taps();
    if taps == 1 {
        return PackedMatrix::transposed(isa, [s.ci, s.co], weight);
    }
    PackedMatrix::new(isa, [taps * s.ci, s.co], weight, s.ci * taps, |k| k % s.ci * taps + k / s.ci)
}

/// Weights for the transposed convolution of stride 1: rows k = (ky, kx, co) of the kernel turned by 180°, columns ci.
pub(crate) fn rotated_filters(isa: Isa, weight: &[f32], s: &ConvShape) -> PackedMatrix {
    let taps = s.taps();
    PackedMatrix::new(isa, [taps * s.co, s.ci], weight, taps, |k| k % s.co * s.ci * taps + taps - 1 - k / s.co)
}

/// Images in channels-last order: `rows` x `cols` pixels of the padded image, each of `ld` floats.
struct Pixels {
    rows: usize,
    cols: usize,
    ld: usize,
    data: Workspace,
}

/// Planes to be copied to [`Pixels`], and the width of the border of zeros around them.
#[derive(Clone, Copy)]
struct Source<'a> {
    planes: &'a [f32],
    channels: usize,
    h: usize,
    w: usize,
    border: usize,
}

impl Pixels {
    /// Memory for `images` images.
    fn new(images: usize, rows: usize, cols: usize, ld: usize) -> Self {
        Self { rows, cols, ld, data: Workspace::take(images * rows * cols * ld) }
    }

    /// Floats in an image.
    fn image_len(&self) -> usize {
        self.rows * self.cols * self.ld
    }

    /// Copies the images `first .. first + count`, with zeros in the border and in channels up to `ld`.
    fn fill(&mut self, isa: Isa, src: Source, first: usize, count: usize) {
        let (rows, cols, ld) = (self.rows, self.cols, self.ld);
        let plane = src.h * src.w;
        assert!(src.planes.len() >= (first + count) * src.channels * plane && src.channels <= ld);
        let band = band_rows(cols, rows, count, 1);
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
                unsafe { isa.run_raw(gather) };
            });
        });
    }
}

/// Rows of a task: as many as [`PIXELS`] allow, but few enough that every thread has work when each row of `count` images
/// is computed in `parts`.
fn band_rows(cols: usize, rows: usize, count: usize, parts: usize) -> usize {
    let shared = (rows * count * parts).div_ceil(2 * rayon::current_num_threads());
    (PIXELS / cols).min(shared).clamp(1, rows)
}

/// Images that are copied at a time.
fn chunk_images(n: usize, image: usize) -> usize {
    (CHUNK / image).clamp(1, n.max(1))
}

/// out = x ∗ filters + bias.
pub(crate) fn convolve(
    isa: Isa,
    x: &[f32],
    filters: &PackedMatrix,
    bias: Option<&[f32]>,
    s: &ConvShape,
    out: &mut [f32],
) {
    let (l, k, oh, ow) = (isa.lanes(), s.kernel, s.out_h(), s.out_w());
    let (rows, cols) = ((oh - 1) * s.stride + k, (ow - 1) * s.stride + k);
    let chunk = chunk_images(s.n, rows * cols * s.ci);
    let mut pixels = Pixels::new(chunk, rows, cols, s.ci);
    let src = Source { planes: x, channels: s.ci, h: s.h, w: s.w, border: s.padding };
    let all: Vec<Panel> = panels(isa, s.co).collect();
    let to = Shared::new(out);
    for first in (0..s.n).step_by(chunk) {
        let count = chunk.min(s.n - first);
        let band = band_rows(ow, oh, count, all.len());
        pixels.fill(isa, src, first, count);
        let tasks = count * oh.div_ceil(band) * all.len();
        (0..tasks).into_par_iter().share(|task| {
            // Tasks of one panel follow each other: its weights stay in the cache.
            let (panel, rest) = (all[task / (tasks / all.len())], task % (tasks / all.len()));
            let (image, y0) = (rest / oh.div_ceil(band), rest % oh.div_ceil(band) * band);
            let job = Band { isa, s, filters, bias, pixels: &pixels, panel, image, y0, count: band.min(oh - y0) };
            let plane = oh * ow;
            // SAFETY: tasks differ in image, rows or panel of channels, so they write disjoint parts of `out`, which
            // has n · co planes (checked on entry).
            unsafe { job.run(to.get().add(((first + image) * s.co + panel.start * l) * plane + y0 * ow)) };
        });
    }
}

/// Some rows of one output image, for one panel of channels.
struct Band<'a> {
    isa: Isa,
    s: &'a ConvShape,
    filters: &'a PackedMatrix,
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
        let image = &self.pixels.data[self.image * self.pixels.image_len()..][..self.pixels.image_len()];
        let weights = self.filters.panel(self.panel);
        // For a 1x1 kernel the rows of an image are one long row.
        let (lines, line) = if s.kernel == 1 && s.stride == 1 { (1, self.count * ow) } else { (self.count, ow) };
        let (run, run_stride) = (s.kernel * s.ci, self.pixels.cols * s.ci);
        // Long sums are cut at the rows of the window: their weights then fit the cache, and rounding errors stay smaller.
        let runs = if run < CHAIN { s.kernel } else { 1 };
        for (ky, y) in (0..s.kernel).step_by(runs).flat_map(|ky| (0..lines).map(move |y| (ky, y))) {
            let window = image[((self.y0 + y) * s.stride + ky) * run_stride..].as_ptr();
            let product = Product {
                rows: line,
                vectors: self.panel.count,
                runs,
                depth: run,
                a: Left { ptr: window, row: s.stride * s.ci, step: 1, run: run_stride },
                b: Right { ptr: weights[ky * run * width..].as_ptr(), step: width, run: run * width },
                c: c[y * line * width..].as_mut_ptr(),
                c_row: width,
                epilogue: if ky > 0 || self.bias.is_some() { Epilogue::Add } else { Epilogue::Store },
            };
            // SAFETY: the last window of the last line ends with the channels-last image; `weights` holds kernel · run
            // rows; `c` holds `line` pixels from there on.
            unsafe { self.isa.run_raw(product) };
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
        unsafe { self.isa.run_raw(scatter) };
    }
}

/// dx for any stride: the gradient of every output pixel is multiplied with the weights and added to the pixels of its
/// window.
pub(crate) fn backward_input(isa: Isa, dy: &[f32], weight: &[f32], s: &ConvShape, dx: &mut [f32]) {
    let (l, oh, ow) = (isa.lanes(), s.out_h(), s.out_w());
    let taps = s.taps();
    // Rows k = (ky, kx, co), columns ci.
    let filters = PackedMatrix::new(isa, [taps * s.co, s.ci], weight, taps, |k| k % s.co * s.ci * taps + k / s.co);
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
            let gradient = &pixels.data[image * pixels.image_len()..][..pixels.image_len()];
            let weights = filters.panel(panel);
            // SAFETY: tasks differ in image or panel of channels, so they write disjoint planes of `dx`, which has
            // n · ci of them (checked on entry).
            unsafe {
                let dx = to.get().add(((first + image) * s.ci + panel.start * l) * s.h * s.w);
                scatter_image(isa, gradient, weights, panel, s, dx);
            }
        });
    }
}

/// One image and panel of [`backward_input`]; sums run in the order of the taps.
///
/// # Safety
/// `dx` is valid for writes of as many planes as the panel has channels.
unsafe fn scatter_image(isa: Isa, dy: &[f32], weights: &[f32], panel: Panel, s: &ConvShape, dx: *mut f32) {
    let (l, k, oh, ow) = (isa.lanes(), s.kernel, s.out_h(), s.out_w());
    let width = panel.count * l;
    // The size of the padded image, with the last rows and columns even if no window reaches them.
    let rows = ((oh - 1) * s.stride + k).max(s.h + s.padding);
    let cols = ((ow - 1) * s.stride + k).max(s.w + s.padding);
    let mut sums = Workspace::take(rows * cols * width);
    sums.fill(0.0);
    for (tap, weights) in weights.chunks_exact(s.co * width).enumerate() {
        for (y, dy) in dy.chunks_exact(ow * s.co).enumerate() {
            let product = Product {
                rows: ow,
                vectors: panel.count,
                runs: 1,
                depth: s.co,
                a: Left::rows(dy.as_ptr(), s.co),
                b: Right::rows(weights.as_ptr(), width),
                c: sums[((y * s.stride + tap / k) * cols + tap % k) * width..].as_mut_ptr(),
                c_row: s.stride * width,
                epilogue: Epilogue::Add,
            };
            // SAFETY: `dy` is a row of ow pixels, `weights` has co rows, and pixel ow − 1 of this tap is inside `sums`.
            unsafe { isa.run_raw(product) };
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
    // SAFETY: `sums` holds the padded image; `dx` by this function's contract.
    unsafe { isa.run_raw(scatter) };
}
