//! The weights, transformed.
use super::transform::{Filter, POINTS};
use crate::conv::ConvShape;
use crate::conv::layout::Gather;
use crate::gemm::{Panel, panels};
use crate::pool::{Shared, Workspace};
use crate::simd::Isa;
use rayon::prelude::*;

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
            panels(isa, columns).flat_map(|panel| (0..panel.count).map(move |v| (panel, v))).collect();
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

    /// The same in memory of their own, for keeping.
    pub(crate) fn keep(self) -> Self {
        Self { u: self.u.keep(), ..self }
    }

    /// The weights of a panel: POINTS · k_len rows.
    pub(super) fn panel(&self, panel: Panel, lanes: usize) -> &[f32] {
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
