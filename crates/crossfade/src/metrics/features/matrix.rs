//! Products of f64 matrices. Every row is computed by a single thread, so that the result does not depend on the
//! number of threads.
use faer::linalg::matmul::matmul;
use faer::{Accum, MatMut, MatRef, Par};
use rayon::prelude::*;

/// Number of rows that a thread computes at a time.
const ROWS: usize = 128;

/// c = a b, or c += a b if `accumulate`.
///
/// # Shapes
/// `a` [m, k], `b` [k, n], `c` [m, n] in row-major order.
pub(super) fn product(a: MatRef<f64>, b: MatRef<f64>, c: &mut [f64], accumulate: bool) {
    let n = b.ncols();
    assert!(a.ncols() == b.nrows() && c.len() == a.nrows() * n, "sizes of a product");
    let beta = if accumulate { Accum::Add } else { Accum::Replace };
    c.par_chunks_mut(ROWS * n.max(1)).enumerate().for_each(|(i, c)| {
        let rows = c.len() / n;
        let c = MatMut::from_row_major_slice_mut(c, rows, n);
        matmul(c, beta, a.subrows(i * ROWS, rows), b, 1.0, Par::Seq);
    });
}

/// The matrix with `columns` columns and the row-major `values`.
pub(super) fn matrix(values: &[f64], columns: usize) -> MatRef<'_, f64> {
    MatRef::from_row_major_slice(values, values.len() / columns, columns)
}
