//! The matrix product that convolutions, attention and dense layers come down to, computed in a tile of registers.
//!
//! Vectors run over the columns of B and C, which are cut into *panels* of a few vectors; elements of A are broadcast.
//! Every element of C is one chain of multiply-adds in the order of k, whatever rows or columns are computed beside it.
//! That makes results independent of the batch, of the threads and of the size of the tile.
mod matmul;
mod packed;
mod panel;

pub(crate) use matmul::{Matrix, matmul};
pub(crate) use packed::PackedMatrix;
pub(crate) use panel::{Panel, panels, shared_panels};

use crate::simd::{RawKernel, Simd};

/// What becomes of the sums once they are in registers.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Epilogue {
    /// They overwrite C.
    Store,
    /// They are added to the old C.
    Add,
    /// The chain of multiply-adds begins with the old C instead of zero, and C is overwritten. A product that is cut
    /// along k in this way has the same bits as the whole.
    Continue,
    /// max(0, sum + bias), with one vector of biases for each vector of the panel.
    BiasRelu(*const f32),
}

/// The factor whose elements are broadcast: A[run][r][k] = ptr[run · `run` + r · `row` + k · `step`].
#[derive(Clone, Copy)]
pub(crate) struct Left {
    pub(crate) ptr: *const f32,
    pub(crate) row: usize,
    pub(crate) step: usize,
    pub(crate) run: usize,
}

impl Left {
    /// Rows of consecutive elements, `row` apart.
    pub(crate) fn rows(ptr: *const f32, row: usize) -> Self {
        Self { ptr, row, step: 1, run: 0 }
    }

    /// The transpose of that: steps along k are `step` apart, rows lie side by side.
    pub(crate) fn columns(ptr: *const f32, step: usize) -> Self {
        Self { ptr, row: 1, step, run: 0 }
    }
}

/// The factor that is read in vectors: B[run][k][j] = ptr[run · `run` + k · `step` + j].
#[derive(Clone, Copy)]
pub(crate) struct Right {
    pub(crate) ptr: *const f32,
    pub(crate) step: usize,
    pub(crate) run: usize,
}

impl Right {
    /// Steps along k that are `step` apart, in one run.
    pub(crate) fn rows(ptr: *const f32, step: usize) -> Self {
        Self { ptr, step, run: 0 }
    }
}

/// C[r][j] = epilogue(Σ_run Σ_k A[run][r][k] · B[run][k][j]), with C[r][j] = c[r · `c_row` + j].
///
/// The sum over k comes in `runs` of `depth` terms, for windows of an image whose rows are apart in memory.
///
/// # Safety (contract of whoever runs it)
/// A is valid for reads at all r < `rows`, k < `depth` and runs; B for `vectors` vectors at each k and run; C for reads
/// and writes of as many in each row; a bias for reads of as many. Rows of C overlap neither each other nor A or B, and
/// no other thread touches them. `vectors` is at most [`Simd::PANEL`].
#[derive(Clone, Copy)]
pub(crate) struct Product {
    pub(crate) rows: usize,
    pub(crate) vectors: usize,
    pub(crate) runs: usize,
    pub(crate) depth: usize,
    pub(crate) a: Left,
    pub(crate) b: Right,
    pub(crate) c: *mut f32,
    pub(crate) c_row: usize,
    pub(crate) epilogue: Epilogue,
}

impl RawKernel for Product {
    #[inline(always)]
    unsafe fn run<S: Simd>(self, s: S) {
        // SAFETY: the contract of the struct.
        unsafe {
            if self.a.row == 1 {
                // With a constant the elements of A have constant offsets, which saves a few per cent.
                let a = Left { row: 1, ..self.a };
                Self { a, ..self }.all(s)
            } else {
                self.all(s)
            }
        }
    }
}

impl Product {
    /// As [`RawKernel::run`], without a version of its own for neighbouring rows of A. For callers that inline the product
    /// and know the distance of the rows.
    ///
    /// # Safety
    /// The contract of the struct.
    #[inline(always)]
    pub(super) unsafe fn all<S: Simd>(&self, s: S) {
        // SAFETY: the contract of this function.
        unsafe {
            match self.vectors {
                1 => self.panel::<S, 1>(s),
                2 if S::PANEL >= 2 => self.panel::<S, 2>(s),
                3 if S::PANEL >= 3 => self.panel::<S, 3>(s),
                n => unreachable!("a panel of {n} vectors"),
            }
        }
    }

    /// All rows of a panel of NV vectors, in tiles of sizes as equal as possible: 9 rows are faster as 5 + 4 than as
    /// 8 + 1, because a tile of one row waits for the latency of its few chains.
    ///
    /// # Safety
    /// The contract of the struct, for `vectors` = NV.
    #[inline(always)]
    unsafe fn panel<S: Simd, const NV: usize>(&self, s: S) {
        let tiles = self.rows.div_ceil(S::ROWS);
        // The division is left out where it is not needed: small products notice it.
        let (size, larger) = match tiles {
            0 | 1 => (self.rows, 0),
            _ if self.rows == tiles * S::ROWS => (S::ROWS, 0),
            _ => (self.rows / tiles, self.rows % tiles),
        };
        let (mut a, mut c) = (self.a.ptr, self.c);
        for tile in 0..tiles {
            let rows = size + usize::from(tile < larger);
            // SAFETY: the tiles' rows add up to `rows`; each has at most ROWS of them.
            unsafe {
                match rows {
                    1 => self.tile::<S, 1, NV>(s, a, c),
                    2 => self.tile::<S, 2, NV>(s, a, c),
                    3 => self.tile::<S, 3, NV>(s, a, c),
                    4 => self.tile::<S, 4, NV>(s, a, c),
                    5 if S::ROWS >= 5 => self.tile::<S, 5, NV>(s, a, c),
                    6 if S::ROWS >= 6 => self.tile::<S, 6, NV>(s, a, c),
                    7 if S::ROWS >= 7 => self.tile::<S, 7, NV>(s, a, c),
                    8 if S::ROWS >= 8 => self.tile::<S, 8, NV>(s, a, c),
                    n => unreachable!("a tile of {n} rows"),
                }
            }
            a = a.wrapping_add(rows * self.a.row);
            c = c.wrapping_add(rows * self.c_row);
        }
    }

    /// MR rows, whose elements of A begin at `a` and of C at `c`.
    ///
    /// # Safety
    /// The contract of the struct, for these rows and `vectors` = NV.
    #[inline(always)]
    unsafe fn tile<S: Simd, const MR: usize, const NV: usize>(&self, s: S, a: *const f32, c: *mut f32) {
        // SAFETY: the contract of this function. Pointers that leave their arrays after the last step are not read.
        unsafe {
            let mut acc = [[s.zero(); NV]; MR];
            if let Epilogue::Continue = self.epilogue {
                for (r, acc) in acc.iter_mut().enumerate() {
                    for (j, acc) in acc.iter_mut().enumerate() {
                        *acc = s.load_at(c.add(r * self.c_row + j * S::LANES));
                    }
                }
            }
            for run in 0..self.runs {
                let mut a = a.add(run * self.a.run);
                let mut b = self.b.ptr.add(run * self.b.run);
                for _ in 0..self.depth {
                    let mut row = [s.zero(); NV];
                    for (j, row) in row.iter_mut().enumerate() {
                        *row = s.load_at(b.add(j * S::LANES));
                    }
                    for (r, acc) in acc.iter_mut().enumerate() {
                        let x = s.splat(*a.add(r * self.a.row));
                        for (acc, &row) in acc.iter_mut().zip(&row) {
                            *acc = s.fma(x, row, *acc);
                        }
                    }
                    a = a.wrapping_add(self.a.step);
                    b = b.wrapping_add(self.b.step);
                }
            }
            for (r, acc) in acc.iter().enumerate() {
                for (j, &sum) in acc.iter().enumerate() {
                    let c = c.add(r * self.c_row + j * S::LANES);
                    let value = match self.epilogue {
                        Epilogue::Store | Epilogue::Continue => sum,
                        Epilogue::Add => s.add(s.load_at(c), sum),
                        Epilogue::BiasRelu(bias) => s.max(s.zero(), s.add(sum, s.load_at(bias.add(j * S::LANES)))),
                    };
                    s.store_at(value, c);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::Isa;
    use crate::testing::numbers;

    /// The product by its definition, with the same roundings as the tile: one chain for each element.
    fn expected(isa: Isa, rows: usize, depth: usize, columns: usize, epilogue: Epilogue, bias: &[f32]) -> Vec<f32> {
        let (a, b, old) = (numbers(1, rows * depth), numbers(2, depth * columns), numbers(3, rows * columns));
        let fused = isa.name() != "portable";
        let step = |x: f32, y: f32, sum: f32| if fused { x.mul_add(y, sum) } else { x * y + sum };
        (0..rows * columns)
            .map(|at| {
                let (r, j) = (at / columns, at % columns);
                let first = if matches!(epilogue, Epilogue::Continue) { old[at] } else { 0.0 };
                let sum = (0..depth).fold(first, |sum, k| step(a[r * depth + k], b[k * columns + j], sum));
                match epilogue {
                    Epilogue::Store | Epilogue::Continue => sum,
                    Epilogue::Add => old[at] + sum,
                    Epilogue::BiasRelu(_) => (sum + bias[j]).max(0.0),
                }
            })
            .collect()
    }

    #[test]
    fn every_tile_and_epilogue_has_the_bits_of_the_definition() {
        for isa in Isa::available() {
            for (rows, vectors) in (1..20).flat_map(|rows| (1..=isa.panel()).map(move |vectors| (rows, vectors))) {
                let (depth, columns) = (5, vectors * isa.lanes());
                let (a, b, bias) = (numbers(1, rows * depth), numbers(2, depth * columns), numbers(4, columns));
                let epilogues = [Epilogue::Store, Epilogue::Add, Epilogue::Continue, Epilogue::BiasRelu(bias.as_ptr())];
                for epilogue in epilogues {
                    let mut c = numbers(3, rows * columns);
                    let product = Product {
                        rows,
                        vectors,
                        runs: 1,
                        depth,
                        a: Left::rows(a.as_ptr(), depth),
                        b: Right::rows(b.as_ptr(), columns),
                        c: c.as_mut_ptr(),
                        c_row: columns,
                        epilogue,
                    };
                    // SAFETY: the arrays have the sizes of the product.
                    unsafe { isa.run_raw(product) };
                    let exact = expected(isa, rows, depth, columns, epilogue, &bias);
                    assert_eq!(c, exact, "{isa:?}, {rows} rows of {vectors} vectors, {epilogue:?}");
                }
            }
        }
    }
}
