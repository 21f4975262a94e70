//! The weights, transformed.
use super::transform::{Filter, POINTS};
use crate::conv::ConvShape;
use crate::conv::layout::Gather;
use crate::gemm::{Panel, shared_panels};
use crate::pool::{Shared, Workspace};
use crate::simd::Isa;
use rayon::prelude::*;

/// Kernels transformed together.
const KERNELS: usize = 16;

/// Weights as they are, read as `k_len` x `columns` kernels.
#[derive(Clone, Copy)]
pub(crate) struct Kernels<'a> {
    weight: &'a [f32],
    ci: usize,
    k_len: usize,
    columns: usize,
    /// For the convolution of dy that gives dx: kernels turned by 180°, input and output exchanged.
    rotate: bool,
}

impl<'a> Kernels<'a> {
    /// For the convolution with `weight`.
    pub(crate) fn forward(weight: &'a [f32], s: &ConvShape) -> Self {
        Self { weight, ci: s.ci, k_len: s.ci, columns: s.co, rotate: false }
    }

    /// For the convolution of dy that gives dx.
    pub(crate) fn backward(weight: &'a [f32], s: &ConvShape) -> Self {
        Self { weight, ci: s.ci, k_len: s.co, columns: s.ci, rotate: true }
    }

    /// Transforms the kernels k .. k + count of vector `v` of a panel: dst[point · point_stride + kernel · width + lane],
    /// `width` being the panel's.
    ///
    /// # Safety
    /// `dst` is valid for writes there, and no other thread touches these elements.
    unsafe fn transform(self, isa: Isa, column: usize, k: usize, count: usize, dst: *mut f32, strides: [usize; 2]) {
        let l = isa.lanes();
        let mut taps = Workspace::take(KERNELS * 9 * l);
        let lanes = l.min(self.columns - column);
        for first in (0..count).step_by(KERNELS) {
            let count = KERNELS.min(count - first);
            self.read(isa, column, lanes, k + first, count, &mut taps);
            let [point_stride, k_stride] = strides;
            let (taps, rotate) = (taps.as_ptr(), self.rotate);
            // SAFETY: `taps` holds the kernels; `dst` by this function's contract.
            unsafe {
                let dst = dst.add(first * k_stride);
                isa.run(Filter { taps, count, rotate, dst, point_stride, k_stride });
            }
        }
    }

    /// The kernels k .. k + count of `lanes` columns as [k][tap][lanes].
    fn read(self, isa: Isa, column: usize, lanes: usize, k: usize, count: usize, taps: &mut [f32]) {
        let l = isa.lanes();
        if self.rotate {
            for (o, taps) in taps[..count * 9 * l].chunks_exact_mut(9 * l).enumerate() {
                read_taps(isa, &self.weight[((k + o) * self.ci + column) * 9..], 9, lanes, 9, taps);
            }
        } else {
            // Lanes are output channels, ci · 9 floats apart, each with its kernels in a row.
            read_taps(isa, &self.weight[(column * self.ci + k) * 9..], self.ci * 9, lanes, count * 9, taps);
        }
    }

    /// u[point][kernel][lanes of the panel] for the kernels k .. k + count of a panel.
    pub(super) fn transform_panel(self, isa: Isa, panel: Panel, k: usize, count: usize, u: &mut [f32]) {
        let (l, width) = (isa.lanes(), panel.count * isa.lanes());
        assert!(u.len() >= POINTS * count * width && k + count <= self.k_len);
        for v in 0..panel.count {
            // SAFETY: POINTS · count rows of `width` lie in `u` (asserted), which is borrowed mutably.
            unsafe {
                let dst = u.as_mut_ptr().add(v * l);
                self.transform(isa, (panel.start + v) * l, k, count, dst, [count * width, width]);
            }
        }
    }

    pub(super) fn k_len(self) -> usize {
        self.k_len
    }
}

/// Transformed weights: [panel of output channels][point][input channel][lanes of the panel].
pub(crate) struct Filters {
    u: Workspace,
    k_len: usize,
    pub(super) panels: Vec<Panel>,
}

impl Filters {
    /// Transforms all kernels, in panels that `threads` can share.
    pub(crate) fn new(isa: Isa, kernels: Kernels, threads: usize) -> Self {
        let (l, k_len) = (isa.lanes(), kernels.k_len);
        let vectors = kernels.columns.div_ceil(l);
        let mut u = Workspace::take(POINTS * vectors * l * k_len);
        let to = Shared::new(&mut u);
        let groups = k_len.div_ceil(KERNELS);
        let panels: Vec<Panel> = shared_panels(isa, kernels.columns, threads).collect();
        let all: Vec<(Panel, usize)> =
            panels.iter().flat_map(|&panel| (0..panel.count).map(move |v| (panel, v))).collect();
        (0..vectors * groups).into_par_iter().with_min_len(4).for_each(|task| {
            let ((panel, v), k) = (all[task / groups], task % groups * KERNELS);
            let (count, width) = (KERNELS.min(k_len - k), panel.count * l);
            // SAFETY: the panel's part begins at panel.start · l · POINTS · k_len and has POINTS · k_len rows of
            // `width`; tasks write different vectors or different rows of it.
            unsafe {
                let dst = to.get().add(panel.start * l * POINTS * k_len + k * width + v * l);
                kernels.transform(isa, (panel.start + v) * l, k, count, dst, [k_len * width, width]);
            }
        });
        Self { u, k_len, panels }
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
