//! Matrix products small enough for the caches, with one factor in any order of memory.
use crate::lanes::Simd;

/// The right factor has a multiple of this many columns.
pub const TILE: usize = 32;

/// A matrix whose element (r, k) is `data[r·row + k·step]`.
#[derive(Clone, Copy)]
pub struct Matrix<'a> {
    pub data: &'a [f32],
    pub row: usize,
    pub step: usize,
}

/// c = a·b, or c ← c + a·b to `accumulate`; every sum runs over k in order.
///
/// # Shapes
/// `a` `[m, k]`; `b` `[k, columns]` with rows `b_row` apart; `c` `[m, columns]` with `[c_row, columns]` given.
#[inline(always)]
#[allow(clippy::too_many_arguments)]
pub fn product<S: Simd>(
    s: S,
    [m, k]: [usize; 2],
    a: Matrix,
    b: &[f32],
    b_row: usize,
    c: &mut [f32],
    [c_row, columns]: [usize; 2],
    accumulate: bool,
) {
    assert!(m > 0 && k > 0 && columns > 0 && columns % TILE == 0);
    assert!((m - 1) * a.row + (k - 1) * a.step < a.data.len());
    assert!((k - 1) * b_row + columns <= b.len() && (m - 1) * c_row + columns <= c.len());
    // SAFETY: the largest offsets that any block below can form are those just asserted.
    unsafe {
        let block = Block { k, a: a.data.as_ptr(), row: a.row, step: a.step, b: b.as_ptr(), b_row, c_row, accumulate };
        // Eight rows of two wide or one narrow vector keep the accumulators in registers.
        if S::LANES == 16 {
            rows::<S, 2>(s, &block, m, columns, c.as_mut_ptr());
        } else {
            rows::<S, 1>(s, &block, m, columns, c.as_mut_ptr());
        }
    }
}

struct Block {
    k: usize,
    a: *const f32,
    row: usize,
    step: usize,
    b: *const f32,
    b_row: usize,
    c_row: usize,
    accumulate: bool,
}

/// # Safety
/// As for [`tile`], for all of `m` rows and `columns` columns.
#[inline(always)]
unsafe fn rows<S: Simd, const W: usize>(s: S, block: &Block, m: usize, columns: usize, c: *mut f32) {
    for column in (0..columns).step_by(W * S::LANES) {
        let mut r = 0;
        // SAFETY: r + 8, or r + 1, is at most m; the columns are whole vectors.
        unsafe {
            while r + 8 <= m {
                tile::<S, 8, W>(s, block, r, column, c);
                r += 8;
            }
            while r < m {
                tile::<S, 1, W>(s, block, r, column, c);
                r += 1;
            }
        }
    }
}

/// R rows and W vectors of columns of the result.
///
/// # Safety
/// Rows `r..r + R` and columns `column..column + W·LANES` lie in all three matrices.
#[inline(always)]
unsafe fn tile<S: Simd, const R: usize, const W: usize>(s: S, block: &Block, r: usize, column: usize, c: *mut f32) {
    let mut acc = [[s.splat(0.0); W]; R];
    // SAFETY: the caller's promise covers every offset.
    unsafe {
        let mut a = block.a.add(r * block.row);
        let mut b = block.b.add(column);
        for i in 0..block.k {
            let mut right = [s.splat(0.0); W];
            for (w, right) in right.iter_mut().enumerate() {
                *right = s.load_at(b.add(w * S::LANES));
            }
            for (row, acc) in acc.iter_mut().enumerate() {
                let left = s.splat(*a.add(row * block.row));
                for (acc, right) in acc.iter_mut().zip(right) {
                    *acc = s.fma(left, right, *acc);
                }
            }
            if i + 1 < block.k {
                a = a.add(block.step);
                b = b.add(block.b_row);
            }
        }
        for (row, acc) in acc.iter().enumerate() {
            for (w, acc) in acc.iter().enumerate() {
                let to = c.add((r + row) * block.c_row + column + w * S::LANES);
                let sum = if block.accumulate { s.add(s.load_at(to), *acc) } else { *acc };
                s.store_at(sum, to);
            }
        }
    }
}
