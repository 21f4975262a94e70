//! The gradient of the direct convolution by the weights.
use super::{ConvShape, Pixels, Source, chunk_images};
use crate::product::{Epilogue, Left, Panel, Product, Right, panels};
use crate::simd::Isa;
use crate::team::Share;
use crate::workspace::{Shared, Workspace};
use rayon::prelude::*;

/// dw: for each tap the products of x under the tap with dy, summed over the pixels of an image, then over images.
pub(crate) fn backward_weight(isa: Isa, x: &[f32], dy: &[f32], s: &ConvShape, dw: &mut [f32]) {
    let (taps, ci) = (s.taps(), s.ci);
    // Vectors run over the channels of the second factor, so the factor with more channels should be the second. At
    // stride 1 the two can change places, which turns the kernel by 180°.
    if s.stride == 1 && s.co < ci {
        let t = s.transposed();
        let sums = correlate(isa, dy, x, &t, t.padding);
        unpack(isa, &sums, taps * s.co, ci, dw, taps, |k| k % s.co * ci * taps + taps - 1 - k / s.co);
    } else {
        let sums = correlate(isa, x, dy, s, s.padding);
        unpack(isa, &sums, taps * ci, s.co, dw, ci * taps, |k| k % ci * taps + k / ci);
    }
}

/// dw[start(k) + column · stride] = sums[k][column], read from panels of columns; these offsets are all different.
fn unpack(
    isa: Isa,
    sums: &[f32],
    k_len: usize,
    columns: usize,
    dw: &mut [f32],
    stride: usize,
    start: impl Fn(usize) -> usize + Sync,
) {
    let l = isa.lanes();
    let to = Shared::new(dw);
    let len = dw.len();
    let panels: Vec<Panel> = panels(isa, columns).collect();
    panels.into_par_iter().share(|panel| {
        let (width, first) = (panel.count * l, panel.start * l);
        let valid = width.min(columns - first);
        let part = &sums[first * k_len..][..width * k_len];
        for (k, row) in part.chunks_exact(width).enumerate() {
            let at = start(k) + first * stride;
            assert!(at + (valid - 1) * stride < len);
            for (j, &sum) in row[..valid].iter().enumerate() {
                // SAFETY: below `len` (asserted); every (k, column) has its own offset, and tasks differ in columns.
                unsafe { *to.get().add(at + j * stride) = sum };
            }
        }
    });
}

/// Σ over images and pixels p of x[p · stride + tap][i] · y[p][j], as [panel of j][(ky, kx, i)][lanes of the panel];
/// `s` has the shape of x and of the kernel, y the shape of its output.
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
    let all: Vec<Panel> = panels(isa, s.co).collect();
    let mut sums = Workspace::take(vectors * l * k * line);
    if s.n == 0 {
        sums.fill(0.0);
    }
    let to = Shared::new(&mut sums);
    for first in (0..s.n).step_by(chunk) {
        let count = chunk.min(s.n - first);
        a.fill(isa, from_x, first, count);
        b.fill(isa, from_y, first, count);
        (0..all.len() * k * bands).into_par_iter().share(|task| {
            let (panel, ky, i0) = (all[task / (k * bands)], task / bands % k, task % bands * band);
            let width = panel.count * l;
            for image in 0..count {
                let a_at = image * a.image_len() + ky * cols * s.ci + i0;
                let (merged, whole) = (k == 1 && s.stride == 1, oh * ow);
                let (a_run, b_run) = (s.stride * cols * s.ci, ow * vectors * l);
                let y = b.data[image * b.image_len() + panel.start * l..].as_ptr();
                let product = Product {
                    rows: band.min(line - i0),
                    vectors: panel.count,
                    runs: if merged { 1 } else { oh },
                    depth: if merged { whole } else { ow },
                    a: Left { ptr: a.data[a_at..].as_ptr(), row: 1, step: s.stride * s.ci, run: a_run },
                    b: Right { ptr: y, step: vectors * l, run: b_run },
                    // SAFETY: the panel's part of `sums` has k · line rows of `width`, of which these are rows
                    // ky · line + i0 onwards.
                    c: unsafe { to.get().add(panel.start * l * k * line + (ky * line + i0) * width) },
                    c_row: width,
                    epilogue: if first + image > 0 { Epilogue::Add } else { Epilogue::Store },
                };
                // SAFETY: the windows lie in the channels-last images; tasks differ in panel, ky or i0, so their rows of
                // `sums` are disjoint.
                unsafe { isa.run_raw(product) };
            }
        });
    }
    sums
}
