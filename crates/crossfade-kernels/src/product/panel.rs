//! How the columns of a product are cut into panels.
use crate::simd::Isa;

/// `count` consecutive vectors of columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Panel {
    /// Number of the first vector.
    pub(crate) start: usize,
    /// Number of vectors, 1 to [`Isa::panel`].
    pub(crate) count: usize,
}

/// Cuts `columns` into as few panels as possible, of widths as equal as possible.
pub(crate) fn panels(isa: Isa, columns: usize) -> impl Iterator<Item = Panel> + Clone {
    shared_panels(isa, columns, 1)
}

/// As [`panels`], in a number that `threads` can share evenly where there are vectors enough.
pub(crate) fn shared_panels(isa: Isa, columns: usize, threads: usize) -> impl Iterator<Item = Panel> + Clone {
    let vectors = columns.div_ceil(isa.lanes());
    let n = vectors.div_ceil(isa.panel()).next_multiple_of(threads).min(vectors);
    (0..n).map(move |i| {
        let (start, end) = (i * vectors / n, (i + 1) * vectors / n);
        Panel { start, count: end - start }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panels_cover_all_columns_in_order() {
        for isa in Isa::available() {
            for (columns, threads) in (1..300).flat_map(|columns| [(columns, 1), (columns, 2), (columns, 5)]) {
                let mut next = 0;
                for panel in shared_panels(isa, columns, threads) {
                    assert!(panel.start == next && (1..=isa.panel()).contains(&panel.count));
                    next += panel.count;
                }
                assert_eq!(next, columns.div_ceil(isa.lanes()));
            }
            let counts: Vec<usize> = panels(isa, 4 * isa.lanes()).map(|p| p.count).collect();
            assert!(counts.iter().max() <= counts.iter().min().map(|least| least + 1).as_ref(), "{counts:?}");
        }
    }
}
