//! The gradient by the weights: 36 products of transformed tiles, summed over all tiles of the batch.
use super::transform::{FilterGradient, TileKind};
use super::{ConvShape, FEW, RUN, TileGrid, TileSource, padded_stride, strip_len};
use crate::layout::Scatter;
use crate::product::{Epilogue, Left, Panel, Product, Right, panels};
use crate::simd::{Isa, MAX_LANES};
use crate::team::Share;
use crate::winograd::POINTS;
use crate::workspace::{Shared, Workspace};
use rayon::prelude::*;

/// Output channels a task multiplies.
const BAND: usize = 64;

/// Tiles that are transformed before they are multiplied. With too many, the first leave the cache before they are used;
/// with too few, the sums, whose number is the product of the channels, pass through the cache too often (measured). The
/// number determines the order of the sum, so it may depend on the shape only, not on threads.
fn chunk_tiles(s: &ConvShape) -> usize {
    (s.ci * s.co / 400).clamp(32, 256).next_multiple_of(RUN)
}

/// dw = Gᵀ[Σ (A dy Aᵀ) ⊙ (Bᵀ x B)]G.
pub(crate) fn backward_weight(isa: Isa, x: &[f32], dy: &[f32], s: &ConvShape, dw: &mut [f32]) {
    let l = isa.lanes();
    let (oh, ow) = (s.out_h(), s.out_w());
    let tiles = TileGrid::new(oh, ow);
    let total = s.n * tiles.per_image();
    if total == 0 {
        return dw.fill(0.0);
    }
    let chunk = chunk_tiles(s).min(total);
    let (ldv, ldy, ldd) = (padded_stride(s.ci), padded_stride(s.co), s.ci.div_ceil(l) * l);
    let mut v = Workspace::take(POINTS * padded_stride(chunk * ldv));
    let mut y = Workspace::take(POINTS * padded_stride(chunk * ldy));
    let origin = -(s.padding as isize);
    let x = TileSource { kind: TileKind::Input, data: x, channels: s.ci, h: s.h, w: s.w, origin };
    let dy = TileSource { kind: TileKind::OutputGradient, data: dy, channels: s.co, h: oh, w: ow, origin: 0 };
    if total == chunk && total <= FEW {
        transform(isa, [(x, &mut v[..]), (dy, &mut y[..])], tiles, 0, total);
        return few_tiles(isa, &v, &y, total, s, dw);
    }
    let d_stride = padded_stride(s.co * ldd);
    let mut d = Workspace::take(POINTS * d_stride);
    let bands = s.co.div_ceil(BAND);
    let d_to = Shared::new(&mut d);
    for first in (0..total).step_by(chunk) {
        let count = chunk.min(total - first);
        transform(isa, [(x, &mut v[..]), (dy, &mut y[..])], tiles, first, count);
        (0..POINTS * bands).into_par_iter().share(|task| {
            let (point, o0) = (task / bands, task % bands * BAND);
            for panel in panels(isa, s.ci) {
                let product = Product {
                    rows: BAND.min(s.co - o0),
                    vectors: panel.count,
                    runs: 1,
                    depth: count,
                    a: Left::columns(y[point * padded_stride(count * ldy)..][o0..].as_ptr(), ldy),
                    b: Right::rows(v[point * padded_stride(count * ldv)..][panel.start * l..].as_ptr(), ldv),
                    // SAFETY: row o0 of a point of `d`, which has co rows of ldd.
                    c: unsafe { d_to.get().add(point * d_stride + o0 * ldd + panel.start * l) },
                    c_row: ldd,
                    epilogue: if first > 0 { Epilogue::Add } else { Epilogue::Store },
                };
                // SAFETY: every point has `count` tiles of ldv and ldy floats; tasks write different rows of `d`.
                unsafe { isa.run_raw(product) };
            }
        });
    }
    write(isa, &d, s, dw);
}

/// The gradient from all tiles at once. Each task computes a band of output channels for a panel of input channels and
/// transforms the products back while they are in the cache.
fn few_tiles(isa: Isa, v: &[f32], y: &[f32], count: usize, s: &ConvShape, dw: &mut [f32]) {
    let (l, ldv, ldy) = (isa.lanes(), padded_stride(s.ci), padded_stride(s.co));
    // The products of all points stay in the second-level cache.
    let band = BAND / 2;
    let bands = s.co.div_ceil(band);
    let all: Vec<Panel> = panels(isa, s.ci).collect();
    let to = Shared::new(dw);
    (0..all.len() * bands).into_par_iter().share(|task| {
        let (panel, o0) = (all[task / bands], task % bands * band);
        let (rows, width) = (band.min(s.co - o0), panel.count * l);
        let d_stride = padded_stride(rows * width);
        let mut d = Workspace::take(POINTS * d_stride);
        for (point, d) in d.chunks_exact_mut(d_stride).enumerate() {
            let product = Product {
                rows,
                vectors: panel.count,
                runs: 1,
                depth: count,
                a: Left::columns(y[point * padded_stride(count * ldy)..][o0..].as_ptr(), ldy),
                b: Right::rows(v[point * padded_stride(count * ldv)..][panel.start * l..].as_ptr(), ldv),
                c: d.as_mut_ptr(),
                c_row: width,
                epilogue: Epilogue::Store,
            };
            // SAFETY: every point has `count` tiles of ldv and ldy floats; `d` holds `rows` rows of `width`.
            unsafe { isa.run_raw(product) };
        }
        for (row, vector) in (0..rows).flat_map(|row| (0..panel.count).map(move |vector| (row, vector))) {
            let i = (panel.start + vector) * l;
            // SAFETY: kernels (o0 + row, i ..) of `dw`, which has co · ci of them; tasks differ in rows or channels.
            unsafe {
                let dw = to.get().add(((o0 + row) * s.ci + i) * 9);
                write_kernels(isa, &d[row * width + vector * l..], d_stride, l.min(s.ci - i), dw);
            }
        }
    });
}

/// Transforms the tiles `first .. first + count` of both factors to [point][tile][channel].
fn transform(isa: Isa, factors: [(TileSource, &mut [f32]); 2], tiles: TileGrid, first: usize, count: usize) {
    let parts = count.div_ceil(RUN);
    let factors = factors.map(|(planes, to)| {
        assert!(to.len() >= POINTS * padded_stride(count * padded_stride(planes.channels)));
        (planes, Shared::new(to))
    });
    (0..2 * parts).into_par_iter().share(|task| {
        let (planes, to) = factors[task / parts];
        let (start, end) = (task % parts * RUN, (task % parts * RUN + RUN).min(count));
        let stride = padded_stride(planes.channels);
        let mut strip = Workspace::take(strip_len(isa));
        for run in tiles.runs(first + start, first + end) {
            // SAFETY: `to` holds `count` tiles of every point (asserted), of which each task writes its own.
            unsafe {
                planes.transform(isa, run, &mut strip, to.get().add(start * stride), padded_stride(count * stride))
            };
        }
    });
}

/// Transforms the sums back: dw[o][i][tap] from d[point][o][i].
fn write(isa: Isa, d: &[f32], s: &ConvShape, dw: &mut [f32]) {
    let (l, ldd) = (isa.lanes(), s.ci.div_ceil(isa.lanes()) * isa.lanes());
    dw.par_chunks_mut(s.ci * 9).enumerate().with_min_len(4).share(|(o, dw)| {
        for i in (0..s.ci).step_by(l) {
            let channels = l.min(s.ci - i);
            let to = dw[i * 9..][..channels * 9].as_mut_ptr();
            // SAFETY: `to` is the part of `dw` just cut.
            unsafe { write_kernels(isa, &d[o * ldd + i..], padded_stride(s.co * ldd), channels, to) };
        }
    });
}

/// Transforms one vector of sums, points `point_stride` apart, back to the kernels of `channels` channels.
///
/// # Safety
/// `dw` is valid for writes of 9 floats for each of the channels, and no other thread touches them.
unsafe fn write_kernels(isa: Isa, d: &[f32], point_stride: usize, channels: usize, dw: *mut f32) {
    let l = isa.lanes();
    assert!(d.len() >= (POINTS - 1) * point_stride + l && channels <= l);
    let mut taps = [0.0; 9 * MAX_LANES];
    let gradient = FilterGradient { src: d.as_ptr(), point_stride, taps: taps.as_mut_ptr() };
    let scatter =
        Scatter { src: taps.as_ptr(), ld: l, cols_ld: 9, rows: 1, cols: 9, channels, dst: dw, plane: 9, w: 9 };
    // SAFETY: `d` has a vector at every point (asserted), `taps` holds 9 vectors; `dw` by this function's contract.
    unsafe {
        isa.run_raw(gradient);
        isa.run_raw(scatter);
    }
}
