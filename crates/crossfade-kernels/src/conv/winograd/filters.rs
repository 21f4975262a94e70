//! The transform of the weights.
use super::padded_stride;
use super::transform::Filter;
use crate::conv::ConvShape;
use crate::layout::Gather;
use crate::product::{Panel, panels};
use crate::simd::Isa;
use crate::team::Share;
use crate::winograd::POINTS;
use crate::workspace::{Shared, Workspace};
use rayon::prelude::*;

/// Kernels that are read and transformed together.
const GROUP: usize = 16;

/// The weights of a convolution as a matrix of 3x3 kernels: `k_len` rows, over which the products sum, and `columns`.
#[derive(Clone, Copy)]
pub(crate) struct Weights<'a> {
    order: WeightOrder<'a>,
    ci: usize,
    k_len: usize,
    columns: usize,
}

/// The order of the weights in memory.
#[derive(Clone, Copy)]
enum WeightOrder<'a> {
    /// [co][ci][tap]
    Forward(&'a [f32]),
    /// [co][ci][tap], for the convolution of dy that gives dx: kernels turned by 180°, input and output exchanged.
    Backward(&'a [f32]),
    /// [vector of co][ci][tap][lanes], the order in which the transform reads them.
    Packed(&'a [f32]),
}

impl<'a> Weights<'a> {
    /// The weights of the forward convolution.
    pub(crate) fn forward(weight: &'a [f32], s: &ConvShape) -> Self {
        Self { order: WeightOrder::Forward(weight), ci: s.ci, k_len: s.ci, columns: s.co }
    }

    /// The weights of the convolution of dy that gives dx.
    pub(crate) fn backward(weight: &'a [f32], s: &ConvShape) -> Self {
        Self { order: WeightOrder::Backward(weight), ci: s.ci, k_len: s.co, columns: s.ci }
    }

    /// Copies the weights to the order of the transform, for a network that no longer changes.
    pub(crate) fn pack(self, isa: Isa) -> Packed {
        let (l, vector) = (isa.lanes(), 9 * self.k_len * isa.lanes());
        let mut taps = Workspace::take(self.columns.div_ceil(l) * vector);
        taps.par_chunks_exact_mut(vector).enumerate().share(|(v, taps)| {
            self.read(isa, v * l, 0, self.k_len, taps);
        });
        Packed(taps.detach())
    }

    /// Transforms the kernels k .. k + count of the vector of columns from `column`:
    /// dst[point · point_stride + kernel · k_stride + lane].
    ///
    /// # Safety
    /// `dst` is valid for writes there, and no other thread touches these elements.
    unsafe fn transform(self, isa: Isa, column: usize, k: usize, count: usize, dst: *mut f32, strides: [usize; 2]) {
        let (l, [point_stride, k_stride]) = (isa.lanes(), strides);
        let filter = |taps: &[f32], count: usize, rotate: bool, dst: *mut f32| {
            assert!(taps.len() >= count * 9 * l);
            // SAFETY: `taps` holds the kernels (asserted); `dst` by this function's contract.
            unsafe { isa.run_raw(Filter { taps: taps.as_ptr(), count, rotate, dst, point_stride, k_stride }) };
        };
        if let WeightOrder::Packed(packed) = self.order {
            return filter(&packed[(column / l * self.k_len + k) * 9 * l..], count, false, dst);
        }
        let mut taps = Workspace::take(GROUP * 9 * l);
        for first in (0..count).step_by(GROUP) {
            let count = GROUP.min(count - first);
            self.read(isa, column, k + first, count, &mut taps);
            // SAFETY: row `first` of what this function may write.
            let dst = unsafe { dst.add(first * k_stride) };
            filter(&taps, count, matches!(self.order, WeightOrder::Backward(_)), dst);
        }
    }

    /// Reads the kernels k .. k + count of the vector of columns from `column`, as [k][tap][lanes].
    fn read(self, isa: Isa, column: usize, k: usize, count: usize, taps: &mut [f32]) {
        let l = isa.lanes();
        let lanes = l.min(self.columns - column);
        match self.order {
            // Lanes are output channels, ci · 9 floats apart, each with its kernels in a row.
            WeightOrder::Forward(weight) => {
                read_taps(isa, &weight[(column * self.ci + k) * 9..], self.ci * 9, lanes, count * 9, taps);
            }
            WeightOrder::Backward(weight) => {
                for (o, taps) in taps[..count * 9 * l].chunks_exact_mut(9 * l).enumerate() {
                    read_taps(isa, &weight[((k + o) * self.ci + column) * 9..], 9, lanes, 9, taps);
                }
            }
            WeightOrder::Packed(packed) => {
                taps[..count * 9 * l]
                    .copy_from_slice(&packed[(column / l * self.k_len + k) * 9 * l..][..count * 9 * l]);
            }
        }
    }

    /// Writes u[point][kernel][lanes of the panel] for the kernels k .. k + count of a panel, points `padded_stride` apart.
    pub(super) fn transform_panel(self, isa: Isa, panel: Panel, k: usize, count: usize, u: &mut [f32]) {
        let (l, width) = (isa.lanes(), panel.count * isa.lanes());
        assert!(u.len() >= POINTS * padded_stride(count * width) && k + count <= self.k_len);
        for v in 0..panel.count {
            // SAFETY: `count` rows of `width` lie in each point of `u` (asserted), which is borrowed mutably.
            unsafe {
                let dst = u.as_mut_ptr().add(v * l);
                self.transform(isa, (panel.start + v) * l, k, count, dst, [padded_stride(count * width), width]);
            }
        }
    }

    pub(super) fn k_len(self) -> usize {
        self.k_len
    }
}

/// Weights in the order in which the transform reads them.
pub(crate) struct Packed(Workspace);

impl Packed {
    /// The weights for a convolution of shape `s`.
    pub(crate) fn weights(&self, s: &ConvShape) -> Weights<'_> {
        Weights { order: WeightOrder::Packed(&self.0), ci: s.ci, k_len: s.ci, columns: s.co }
    }
}

/// Transformed weights: [panel of output channels][point][input channel][lanes of the panel], points
/// `padded_stride` apart.
pub(crate) struct Filters {
    u: Workspace,
    k_len: usize,
    /// The panels, each with the offset of its weights in `u`.
    panels: Vec<(Panel, usize)>,
}

impl Filters {
    /// Transforms all weights.
    pub(crate) fn new(isa: Isa, weights: Weights) -> Self {
        let (l, k_len) = (isa.lanes(), weights.k_len);
        let mut len = 0;
        let panels: Vec<(Panel, usize)> = panels(isa, weights.columns)
            .map(|panel| {
                let start = len;
                len += POINTS * padded_stride(k_len * panel.count * l);
                (panel, start)
            })
            .collect();
        let mut u = Workspace::take(len);
        let to = Shared::new(&mut u);
        let groups = k_len.div_ceil(GROUP);
        let all: Vec<(Panel, usize, usize)> =
            panels.iter().flat_map(|&(panel, at)| (0..panel.count).map(move |v| (panel, at, v))).collect();
        (0..all.len() * groups).into_par_iter().with_min_len(4).share(|task| {
            let ((panel, at, v), k) = (all[task / groups], task % groups * GROUP);
            let (count, width) = (GROUP.min(k_len - k), panel.count * l);
            // SAFETY: the panel's part begins at `at` and has k_len rows of `width` in every point; tasks write
            // different vectors or different rows of it.
            unsafe {
                let dst = to.get().add(at + k * width + v * l);
                weights.transform(isa, (panel.start + v) * l, k, count, dst, [padded_stride(k_len * width), width]);
            }
        });
        Self { u, k_len, panels }
    }

    /// The panels and their weights.
    pub(super) fn panels(&self, lanes: usize) -> impl Iterator<Item = (Panel, &[f32])> {
        let len = move |panel: Panel| POINTS * padded_stride(self.k_len * panel.count * lanes);
        self.panels.iter().map(move |&(panel, at)| (panel, &self.u[at..][..len(panel)]))
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
    unsafe { isa.run_raw(gather) };
}
