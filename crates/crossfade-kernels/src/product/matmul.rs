//! Products of matrices in slices, small enough for the caches.
use super::{Epilogue, Left, Product, Right};
use crate::simd::Simd;

/// A matrix in memory: element (i, j) is `data[i · row + j · step]`.
#[derive(Clone, Copy)]
pub(crate) struct Matrix<'a> {
    data: &'a [f32],
    row: usize,
    step: usize,
}

impl<'a> Matrix<'a> {
    /// Rows of consecutive numbers, `row` apart.
    pub(crate) fn new(data: &'a [f32], row: usize) -> Self {
        Self { data, row, step: 1 }
    }

    /// The transpose of such a matrix: element (i, j) is `data[j · row + i]`.
    pub(crate) fn transposed(data: &'a [f32], row: usize) -> Self {
        Self { data, row: 1, step: row }
    }
}

/// c = a·b, or c += a·b to `accumulate`; every sum runs over k in order.
///
/// # Shapes
/// `a` `[m, k]`; `b` `[k, n]` with rows of consecutive numbers; `c` `[m, n]` with rows `c_row` apart; n is a multiple of
/// the vector.
#[inline(always)]
pub(crate) fn matmul<S: Simd>(
    s: S,
    [m, k, n]: [usize; 3],
    a: Matrix,
    b: Matrix,
    c: &mut [f32],
    c_row: usize,
    accumulate: bool,
) {
    assert!(m > 0 && k > 0 && n > 0 && n.is_multiple_of(S::LANES) && b.step == 1 && (c_row >= n || m == 1));
    assert!((m - 1) * a.row + (k - 1) * a.step < a.data.len());
    assert!((k - 1) * b.row + n <= b.data.len() && (m - 1) * c_row + n <= c.len());
    let vectors = n / S::LANES;
    let mut start = 0;
    while start < vectors {
        // Not `panels`, whose divisions would take a few per cent of a product of 32 x 32.
        let left = vectors - start;
        let even = left <= S::PANEL || left >= 2 * S::PANEL;
        let count = if even { left.min(S::PANEL) } else { left.div_ceil(2) };
        let column = start * S::LANES;
        start += count;
        let product = Product {
            rows: m,
            vectors: count,
            runs: 1,
            depth: k,
            a: Left { ptr: a.data.as_ptr(), row: a.row, step: a.step, run: 0 },
            b: Right::rows(b.data[column..].as_ptr(), b.row),
            c: c[column..].as_mut_ptr(),
            c_row,
            epilogue: if accumulate { Epilogue::Add } else { Epilogue::Store },
        };
        // Inlined, not through `run_raw`: with matrices of 32 x 32 the call costs up to a tenth (measured).
        // SAFETY: the largest offsets that the product forms were asserted; `c` is borrowed mutably.
        unsafe { product.all(s) };
    }
}
