//! The right factor of a product, packed in the order in which it is read.
use super::{Panel, panels};
use crate::layout::Gather;
use crate::simd::Isa;
use crate::team::Share;
use crate::workspace::Workspace;
use rayon::prelude::*;

/// A matrix of `depth` rows in panels of columns: [panel][row][lanes of the panel], with zeros where the last vector has
/// more lanes than there are columns.
pub(crate) struct PackedMatrix {
    data: Workspace,
    depth: usize,
    lanes: usize,
}

impl PackedMatrix {
    /// Row k, column j is `source[start(k) + j · stride]`.
    pub(crate) fn new(
        isa: Isa,
        [depth, columns]: [usize; 2],
        source: &[f32],
        stride: usize,
        start: impl Fn(usize) -> usize + Sync,
    ) -> Self {
        Self::by_panel(isa, [depth, columns], |first, valid, width, part| {
            for (k, row) in part.chunks_exact_mut(width).enumerate() {
                let column = source[start(k) + first * stride..].iter().step_by(stride);
                row[..valid].iter_mut().zip(column).for_each(|(to, &from)| *to = from);
                row[valid..].fill(0.0);
            }
        })
    }

    /// Row k, column j is `source[j · depth + k]`.
    pub(crate) fn transposed(isa: Isa, [depth, columns]: [usize; 2], source: &[f32]) -> Self {
        Self::by_panel(isa, [depth, columns], |first, valid, width, part| {
            let gather = Gather {
                src: source[first * depth..][..valid * depth].as_ptr(),
                plane: depth,
                channels: valid,
                fill: width,
                h: 1,
                w: depth,
                y0: 0,
                x0: 0,
                rows: 1,
                cols: depth,
                dst: part.as_mut_ptr(),
                ld: width,
            };
            // SAFETY: `source` has `valid` rows of `depth` from there on (sliced), `part` `depth` rows of `width`.
            unsafe { isa.run_raw(gather) };
        })
    }

    /// `fill(first column, columns, width, part)` writes the rows of a panel.
    fn by_panel(isa: Isa, [depth, columns]: [usize; 2], fill: impl Fn(usize, usize, usize, &mut [f32]) + Sync) -> Self {
        let lanes = isa.lanes();
        let vectors = columns.div_ceil(lanes);
        let mut data = Workspace::take(vectors * lanes * depth);
        let mut rest = &mut data[..];
        let mut parts = Vec::with_capacity(vectors);
        for panel in panels(isa, columns) {
            let (part, tail) = rest.split_at_mut(panel.count * lanes * depth);
            parts.push((panel, part));
            rest = tail;
        }
        parts.into_par_iter().share(|(panel, part)| {
            let (width, first) = (panel.count * lanes, panel.start * lanes);
            fill(first, width.min(columns - first), width, part);
        });
        Self { data, depth, lanes }
    }

    /// The rows of a panel.
    pub(crate) fn panel(&self, panel: Panel) -> &[f32] {
        let row = self.lanes * self.depth;
        &self.data[panel.start * row..][..panel.count * row]
    }

    /// The same in memory of its own, for keeping.
    pub(crate) fn detach(self) -> Self {
        Self { data: self.data.detach(), ..self }
    }
}
