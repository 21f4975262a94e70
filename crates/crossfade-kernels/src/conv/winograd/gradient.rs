//! The gradient by the weights: 36 products of transformed tiles, summed over the tiles of the batch.
use super::transform::{FilterGradient, POINTS, Side};
use super::{ConvShape, Planes, RUN, Tiles, strip_len, tile_stride};
use crate::conv::layout::Scatter;
use crate::gemm::{PixelProduct, panels};
use crate::pool::{Shared, Workspace};
use crate::simd::Isa;
use rayon::prelude::*;

/// Output channels a task multiplies.
const BAND: usize = 64;

/// Tiles transformed before they are multiplied. Many tiles leave the cache before they are used, few make the sums,
/// which grow with the product of the channels, pass through it too often (measured). The number fixes the order of the
/// sum, so it depends on sizes alone.
fn chunk_tiles(s: &ConvShape) -> usize {
    (s.ci * s.co / 400).clamp(32, 256).next_multiple_of(RUN)
}

/// dw = Gᵀ[Σ (A dy Aᵀ) ⊙ (Bᵀ x B)]G.
pub(crate) fn backward_weight(isa: Isa, x: &[f32], dy: &[f32], s: &ConvShape, dw: &mut [f32]) {
    let l = isa.lanes();
    let (oh, ow) = (s.out_h(), s.out_w());
    let tiles = Tiles::new(oh, ow);
    let total = s.n * tiles.per_picture();
    let chunk = chunk_tiles(s).min(total);
    let (ldv, ldy, ldd) = (tile_stride(s.ci), tile_stride(s.co), s.ci.div_ceil(l) * l);
    let mut v = Workspace::take(POINTS * chunk * ldv);
    let mut y = Workspace::take(POINTS * chunk * ldy);
    let mut d = Workspace::take(POINTS * s.co * ldd);
    if total == 0 {
        d.fill(0.0);
    }
    let origin = -(s.padding as isize);
    let x = Planes { side: Side::Input, data: x, channels: s.ci, h: s.h, w: s.w, origin };
    let dy = Planes { side: Side::Gradient, data: dy, channels: s.co, h: oh, w: ow, origin: 0 };
    let bands = s.co.div_ceil(BAND);
    let d_to = Shared::new(&mut d);
    for first in (0..total).step_by(chunk.max(1)) {
        let count = chunk.min(total - first);
        transform(isa, [(x, &mut v[..]), (dy, &mut y[..])], tiles, first, count);
        (0..POINTS * bands).into_par_iter().for_each(|task| {
            let (point, o0) = (task / bands, task % bands * BAND);
            for panel in panels(isa, s.ci) {
                let product = PixelProduct {
                    rows: BAND.min(s.co - o0),
                    vectors: panel.count,
                    a: y[point * count * ldy..][o0..].as_ptr(),
                    lda: ldy,
                    a_run: 0,
                    b: v[point * count * ldv..][panel.start * l..].as_ptr(),
                    ldb: ldv,
                    b_run: 0,
                    runs: 1,
                    len: count,
                    // SAFETY: row o0 of a point of `d`, which has co rows of ldd.
                    c: unsafe { d_to.get().add((point * s.co + o0) * ldd + panel.start * l) },
                    ldc: ldd,
                    accumulate: first > 0,
                };
                // SAFETY: every point has `count` tiles of ldv and ldy floats; tasks write different rows of `d`.
                unsafe { isa.run(product) };
            }
        });
    }
    write(isa, &d, s, dw);
}

/// Transforms tiles `first .. first + count` of both factors, [point][tile][channel].
fn transform(isa: Isa, factors: [(Planes, &mut [f32]); 2], tiles: Tiles, first: usize, count: usize) {
    let parts = count.div_ceil(RUN);
    let factors = factors.map(|(planes, to)| {
        assert!(to.len() >= POINTS * count * tile_stride(planes.channels));
        (planes, Shared::new(to))
    });
    (0..2 * parts).into_par_iter().for_each(|task| {
        let (planes, to) = factors[task / parts];
        let (start, end) = (task % parts * RUN, (task % parts * RUN + RUN).min(count));
        let stride = tile_stride(planes.channels);
        let mut strip = Workspace::take(strip_len(isa));
        for run in tiles.runs(first + start, first + end) {
            // SAFETY: `to` holds `count` tiles of every point (asserted), of which each task writes its own.
            unsafe { planes.transform(isa, run, &mut strip, to.get().add(start * stride), count * stride) };
        }
    });
}

/// Transforms the sums back: dw[o][i][tap] from d[point][o][i].
fn write(isa: Isa, d: &[f32], s: &ConvShape, dw: &mut [f32]) {
    let (l, ldd) = (isa.lanes(), s.ci.div_ceil(isa.lanes()) * isa.lanes());
    dw.par_chunks_mut(s.ci * 9).enumerate().with_min_len(4).for_each(|(o, dw)| {
        let mut taps = Workspace::take(9 * l);
        for i in (0..s.ci).step_by(l) {
            let gradient =
                FilterGradient { src: d[o * ldd + i..].as_ptr(), point_stride: s.co * ldd, taps: taps.as_mut_ptr() };
            let channels = l.min(s.ci - i);
            let scatter = Scatter {
                src: taps.as_ptr(),
                ld: l,
                cols_ld: 9,
                rows: 1,
                cols: 9,
                channels,
                dst: dw[i * 9..][..channels * 9].as_mut_ptr(),
                plane: 9,
                w: 9,
            };
            // SAFETY: `d` has POINTS points of co rows of ldd; `taps` holds 9 vectors; `dw` the channels' kernels.
            unsafe {
                isa.run(gradient);
                isa.run(scatter);
            }
        }
    });
}
