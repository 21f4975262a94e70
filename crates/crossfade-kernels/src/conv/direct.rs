//! Convolution as a matrix product over the kernel's window.
//!
//! Pictures are laid out pixel by pixel with their padding, [row][column][channel]. There the window of an output pixel
//! is `kernel` runs of `kernel · ci` consecutive floats, so the product reads it in place. Chunks of the batch that fit a
//! cache are laid out first, then multiplied, each step shared by all threads.
use super::ConvShape;
use super::layout::{Gather, Scatter};
use crate::gemm::{Panel, PixelProduct, RowProduct, panels};
use crate::pool::{Shared, Workspace};
use crate::simd::Isa;
use rayon::prelude::*;

/// Floats of a laid-out chunk of the batch: a few MiB.
const CHUNK: usize = 1 << 20;

/// Output pixels a task computes at most, but at least one row.
const PIXELS: usize = 512;

/// Weights in panels of output channels: [panel][k][lanes of the panel], the runs of the window in order.
pub(crate) struct Filters {
    packed: Workspace,
}

impl Filters {
    /// k = (ky, kx, ci), columns co.
    pub(crate) fn forward(isa: Isa, weight: &[f32], s: &ConvShape) -> Self {
        let taps = s.taps();
        Self::pack(isa, taps * s.ci, s.co, |k, o| weight[(o * s.ci + k % s.ci) * taps + k / s.ci])
    }

    /// For the transposed convolution of stride 1: k = (ky, kx, co) with the kernel turned by 180°, columns ci.
    pub(crate) fn rotated(isa: Isa, weight: &[f32], s: &ConvShape) -> Self {
        let taps = s.taps();
        Self::pack(isa, taps * s.co, s.ci, |k, i| weight[((k % s.co) * s.ci + i) * taps + taps - 1 - k / s.co])
    }

    /// For scattering gradients: k = (ky, kx, co), columns ci.
    fn scattered(isa: Isa, weight: &[f32], s: &ConvShape) -> Self {
        let taps = s.taps();
        Self::pack(isa, taps * s.co, s.ci, |k, i| weight[((k % s.co) * s.ci + i) * taps + k / s.co])
    }

    fn pack(isa: Isa, k_len: usize, columns: usize, at: impl Fn(usize, usize) -> f32 + Sync) -> Self {
        let l = isa.lanes();
        let vectors = columns.div_ceil(l);
        let mut packed = Workspace::take(vectors * l * k_len);
        let mut rest = &mut packed[..];
        let mut parts = Vec::with_capacity(vectors);
        for panel in panels(vectors) {
            let (part, tail) = rest.split_at_mut(panel.count * l * k_len);
            parts.push((panel, part));
            rest = tail;
        }
        parts.into_par_iter().for_each(|(panel, part)| {
            let width = panel.count * l;
            for (k, row) in part.chunks_exact_mut(width).enumerate() {
                for (j, to) in row.iter_mut().enumerate() {
                    let column = panel.start * l + j;
                    *to = if column < columns { at(k, column) } else { 0.0 };
                }
            }
        });
        Self { packed }
    }

    /// The panel's weights, `k_len` rows.
    fn panel(&self, panel: Panel, lanes: usize, k_len: usize) -> &[f32] {
        &self.packed[panel.start * lanes * k_len..][..panel.count * lanes * k_len]
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
        // A task takes some rows of one picture.
        let band = (PIXELS / cols).clamp(1, rows);
        self.data[..count * rows * cols * ld].par_chunks_mut(rows * cols * ld).enumerate().for_each(|(i, image)| {
            let planes = &src.planes[(first + i) * src.channels * plane..][..src.channels * plane];
            image.par_chunks_mut(band * cols * ld).enumerate().for_each(|(b, part)| {
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
    let band = (PIXELS / ow).clamp(1, oh);
    let all: Vec<Panel> = panels(s.co.div_ceil(l)).collect();
    let to = Shared::new(out);
    for first in (0..s.n).step_by(chunk) {
        let count = chunk.min(s.n - first);
        pixels.fill(isa, src, first, count);
        let tasks = count * oh.div_ceil(band) * all.len();
        (0..tasks).into_par_iter().for_each(|task| {
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
        let run_stride = self.pixels.cols * s.ci;
        for y in 0..lines {
            let product = RowProduct {
                rows: line,
                vectors: self.panel.count,
                a: image[(self.y0 + y) * s.stride * run_stride..].as_ptr(),
                lda: s.stride * s.ci,
                runs: s.kernel,
                run_stride,
                k_len: s.kernel * s.ci,
                b: weights.as_ptr(),
                c: c[y * line * width..].as_mut_ptr(),
                ldc: width,
                accumulate: self.bias.is_some(),
            };
            // SAFETY: the last window of the last line ends with the laid-out picture; `weights` holds taps · ci rows;
            // `c` holds `line` pixels from there on.
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
    let all: Vec<Panel> = panels(s.ci.div_ceil(l)).collect();
    let to = Shared::new(dx);
    for first in (0..s.n).step_by(chunk) {
        let count = chunk.min(s.n - first);
        pixels.fill(isa, src, first, count);
        (0..count * all.len()).into_par_iter().for_each(|task| {
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
                accumulate: true,
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

/// dw: for each tap the products of x under the tap with dy, summed over the pixels of a picture, then over pictures.
pub(crate) fn backward_weight(isa: Isa, x: &[f32], dy: &[f32], s: &ConvShape, dw: &mut [f32]) {
    let (k, taps, ci) = (s.kernel, s.taps(), s.ci);
    // Vectors run over the channels of the second factor. At stride 1 the two can change places, which turns the kernel.
    if s.stride == 1 && s.co < ci {
        let t = s.transposed();
        let sums = correlate(isa, dy, x, &t, t.padding);
        unpack(isa, &sums, taps * s.co, ci, dw, |i, o_tap| {
            let (tap, o) = (o_tap / s.co, o_tap % s.co);
            (o * ci + i) * taps + taps - 1 - tap
        });
    } else {
        let sums = correlate(isa, x, dy, s, s.padding);
        unpack(isa, &sums, k * k * ci, s.co, dw, |o, i_tap| (o * ci + i_tap % ci) * taps + i_tap / ci);
    }
}

/// dw[index(column, k)] = sums[k][column], from panels of columns.
fn unpack(
    isa: Isa,
    sums: &[f32],
    k_len: usize,
    columns: usize,
    dw: &mut [f32],
    index: impl Fn(usize, usize) -> usize + Sync,
) {
    let l = isa.lanes();
    for panel in panels(columns.div_ceil(l)) {
        let width = panel.count * l;
        let part = &sums[panel.start * l * k_len..][..width * k_len];
        for column in panel.start * l..columns.min((panel.start + panel.count) * l) {
            for (k, row) in part.chunks_exact(width).enumerate() {
                dw[index(column, k)] = row[column - panel.start * l];
            }
        }
    }
}

/// Σ over pictures and pixels p of x[p · stride + tap][i] · y[p][j], as [panel of j][(ky, kx, i)][lanes of the panel];
/// the sizes of x, and the kernel, are those of `s`, of y its output's.
fn correlate(isa: Isa, x: &[f32], y: &[f32], s: &ConvShape, border: usize) -> Workspace {
    let (l, k, oh, ow) = (isa.lanes(), s.kernel, s.out_h(), s.out_w());
    let (rows, cols) = ((oh - 1) * s.stride + k, (ow - 1) * s.stride + k);
    let vectors = s.co.div_ceil(l);
    let chunk = chunk_images(s.n, rows * cols * s.ci + oh * ow * vectors * l);
    let mut a = Pixels::new(chunk, rows, cols, s.ci);
    let mut b = Pixels::new(chunk, oh, ow, vectors * l);
    let from_x = Source { planes: x, channels: s.ci, h: s.h, w: s.w, border };
    let from_y = Source { planes: y, channels: s.co, h: oh, w: ow, border: 0 };
    // A task sums a band of the (kx, i) of one ky, for one panel.
    let (line, band) = (k * s.ci, 64);
    let bands = line.div_ceil(band);
    let all: Vec<Panel> = panels(vectors).collect();
    let mut sums = Workspace::take(vectors * l * k * line);
    if s.n == 0 {
        sums.fill(0.0);
    }
    let to = Shared::new(&mut sums);
    for first in (0..s.n).step_by(chunk) {
        let count = chunk.min(s.n - first);
        a.fill(isa, from_x, first, count);
        b.fill(isa, from_y, first, count);
        (0..all.len() * k * bands).into_par_iter().for_each(|task| {
            let (panel, ky, i0) = (all[task / (k * bands)], task / bands % k, task % bands * band);
            let width = panel.count * l;
            for image in 0..count {
                let a_at = image * a.image() + ky * cols * s.ci + i0;
                let (merged, whole) = (k == 1 && s.stride == 1, oh * ow);
                let product = PixelProduct {
                    rows: band.min(line - i0),
                    vectors: panel.count,
                    a: a.data[a_at..].as_ptr(),
                    lda: s.stride * s.ci,
                    a_run: s.stride * cols * s.ci,
                    b: b.data[image * b.image() + panel.start * l..].as_ptr(),
                    ldb: vectors * l,
                    b_run: ow * vectors * l,
                    runs: if merged { 1 } else { oh },
                    len: if merged { whole } else { ow },
                    // SAFETY: the panel's part of `sums` has k · line rows of `width`, of which these are rows
                    // ky · line + i0 onwards.
                    c: unsafe { to.get().add(panel.start * l * k * line + (ky * line + i0) * width) },
                    ldc: width,
                    accumulate: first + image > 0,
                };
                // SAFETY: the windows lie in the laid-out pictures; tasks differ in panel, ky or i0, so their rows of
                // `sums` are disjoint.
                unsafe { isa.run(product) };
            }
        });
    }
    sums
}
