//! The two products that all convolutions come down to, computed in a tile of registers.
//!
//! Vectors run over the columns of B and C, which are cut into *panels* of a few vectors; elements of A are
//! broadcast. Every element of C is one chain of multiply-adds in the order of k, added to the old C when complete,
//! whatever rows or columns are computed beside it: this is what makes results independent of the batch.
use crate::simd::{Isa, Kernel, Simd};
use std::time::Instant;

/// `count` consecutive vectors of columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Panel {
    /// First vector.
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

/// What a product's sums are added to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Onto {
    /// Nothing: C is overwritten.
    Nothing,
    /// The old C, once they are complete.
    Sum,
    /// The old C, with which the chain of multiply-adds begins: cutting k so does not change a bit.
    Chain,
}

/// A product that is made in tiles of some rows and the vectors of a panel.
trait Tiles: Sized {
    fn rows(&self) -> usize;
    fn vectors(&self) -> usize;

    /// Rows r0 .. r0 + MR of C.
    ///
    /// # Safety
    /// That of the product, and r0 + MR ≤ `rows`.
    unsafe fn tile<S: Simd, const MR: usize, const NV: usize>(&self, r0: usize);

    /// The whole product.
    ///
    /// # Safety
    /// That of the product.
    #[inline(always)]
    unsafe fn all<S: Simd>(&self) {
        // SAFETY: the caller's.
        unsafe {
            match self.vectors() {
                1 => self.panel::<S, 1>(),
                2 => self.panel::<S, 2>(),
                3 if S::PANEL == 3 => self.panel::<S, 3>(),
                n => unreachable!("a panel of {n} vectors"),
            }
        }
    }

    /// All rows of a panel of NV vectors.
    ///
    /// # Safety
    /// That of the product.
    #[inline(always)]
    unsafe fn panel<S: Simd, const NV: usize>(&self) {
        let (rows, mut r) = (self.rows(), 0);
        // SAFETY: rows r.. of a tile are below `rows`.
        unsafe {
            while rows - r >= S::ROWS {
                if S::ROWS == 8 {
                    self.tile::<S, 8, NV>(r);
                } else {
                    self.tile::<S, 6, NV>(r);
                }
                r += S::ROWS;
            }
            if rows - r >= 4 {
                self.tile::<S, 4, NV>(r);
                r += 4;
            }
            if rows - r >= 2 {
                self.tile::<S, 2, NV>(r);
                r += 2;
            }
            if rows - r >= 1 {
                self.tile::<S, 1, NV>(r);
            }
        }
    }
}

/// C[r][j] (+)= Σ_run Σ_k A[r · lda + run · run_stride + k] · B[(run · k_len + k) · width + j].
///
/// # Safety (contract of whoever runs it)
/// `a` is valid for reads at all those offsets, `b` for `runs · k_len · width` floats, `c` for reads and writes of
/// `width` floats at each `r · ldc`, where `width` is `vectors` times the lanes; rows of C do not overlap each other,
/// A or B.
pub(crate) struct RowProduct {
    pub(crate) rows: usize,
    pub(crate) vectors: usize,
    pub(crate) a: *const f32,
    pub(crate) lda: usize,
    pub(crate) runs: usize,
    pub(crate) run_stride: usize,
    pub(crate) k_len: usize,
    pub(crate) b: *const f32,
    pub(crate) c: *mut f32,
    pub(crate) ldc: usize,
    pub(crate) onto: Onto,
}

impl Kernel for RowProduct {
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        // SAFETY: the contract of the struct.
        unsafe { self.all::<S>() }
    }
}

impl Tiles for RowProduct {
    fn rows(&self) -> usize {
        self.rows
    }
    fn vectors(&self) -> usize {
        self.vectors
    }

    #[inline(always)]
    unsafe fn tile<S: Simd, const MR: usize, const NV: usize>(&self, r0: usize) {
        // SAFETY: the contract of the struct, for rows r0 .. r0 + MR.
        unsafe {
            let mut acc = [[S::zero(); NV]; MR];
            if self.onto == Onto::Chain {
                for (r, acc) in acc.iter_mut().enumerate() {
                    for (j, acc) in acc.iter_mut().enumerate() {
                        *acc = S::load(self.c.add((r0 + r) * self.ldc + j * S::LANES));
                    }
                }
            }
            let mut b = self.b;
            for run in 0..self.runs {
                let a = self.a.add(r0 * self.lda + run * self.run_stride);
                for k in 0..self.k_len {
                    let mut row = [S::zero(); NV];
                    for (j, row) in row.iter_mut().enumerate() {
                        *row = S::load(b.add(j * S::LANES));
                    }
                    for (r, acc) in acc.iter_mut().enumerate() {
                        let x = S::splat(*a.add(r * self.lda + k));
                        for (acc, &row) in acc.iter_mut().zip(&row) {
                            *acc = S::fma(x, row, *acc);
                        }
                    }
                    b = b.add(NV * S::LANES);
                }
            }
            for (r, acc) in acc.iter().enumerate() {
                for (j, &acc) in acc.iter().enumerate() {
                    let c = self.c.add((r0 + r) * self.ldc + j * S::LANES);
                    S::store(c, if self.onto == Onto::Sum { S::add(S::load(c), acc) } else { acc });
                }
            }
        }
    }
}

/// C[i][j] (+)= Σ_run Σ_p A[run · a_run + p · lda + i] · B[run · b_run + p · ldb + j]: sums over pixels or tiles.
///
/// # Safety (contract of whoever runs it)
/// `a` is valid for reads at all those offsets for i < `rows`, `b` for `vectors` vectors at each of its own, `c` for
/// reads and writes of `vectors` vectors at each `i · ldc`; rows of C do not overlap each other, A or B.
pub(crate) struct PixelProduct {
    pub(crate) rows: usize,
    pub(crate) vectors: usize,
    pub(crate) a: *const f32,
    pub(crate) lda: usize,
    pub(crate) a_run: usize,
    pub(crate) b: *const f32,
    pub(crate) ldb: usize,
    pub(crate) b_run: usize,
    pub(crate) runs: usize,
    pub(crate) len: usize,
    pub(crate) c: *mut f32,
    pub(crate) ldc: usize,
    pub(crate) accumulate: bool,
}

impl Kernel for PixelProduct {
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        // SAFETY: the contract of the struct.
        unsafe { self.all::<S>() }
    }
}

impl Tiles for PixelProduct {
    fn rows(&self) -> usize {
        self.rows
    }
    fn vectors(&self) -> usize {
        self.vectors
    }

    #[inline(always)]
    unsafe fn tile<S: Simd, const MR: usize, const NV: usize>(&self, i0: usize) {
        // SAFETY: the contract of the struct, for rows i0 .. i0 + MR.
        unsafe {
            let mut acc = [[S::zero(); NV]; MR];
            for run in 0..self.runs {
                let mut a = self.a.add(run * self.a_run + i0);
                let mut b = self.b.add(run * self.b_run);
                for _ in 0..self.len {
                    let mut row = [S::zero(); NV];
                    for (j, row) in row.iter_mut().enumerate() {
                        *row = S::load(b.add(j * S::LANES));
                    }
                    for (i, acc) in acc.iter_mut().enumerate() {
                        let x = S::splat(*a.add(i));
                        for (acc, &row) in acc.iter_mut().zip(&row) {
                            *acc = S::fma(x, row, *acc);
                        }
                    }
                    a = a.wrapping_add(self.lda);
                    b = b.wrapping_add(self.ldb);
                }
            }
            for (i, acc) in acc.iter().enumerate() {
                for (j, &acc) in acc.iter().enumerate() {
                    let c = self.c.add((i0 + i) * self.ldc + j * S::LANES);
                    S::store(c, if self.accumulate { S::add(S::load(c), acc) } else { acc });
                }
            }
        }
    }
}

/// Multiply-adds in registers only, to find how many a processor can do.
struct Peak {
    repeats: usize,
}

impl Kernel for Peak {
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        // SAFETY: arithmetic in registers, and a store to an array of LANES floats.
        unsafe {
            let x = S::splat(std::hint::black_box(0.5));
            let mut acc = [S::splat(1.0); PEAK_CHAINS];
            for _ in 0..self.repeats {
                for acc in &mut acc {
                    *acc = S::fma(*acc, x, x);
                }
            }
            let mut out = [0.0f32; 16];
            let mut sum = x;
            for acc in acc {
                sum = S::add(sum, acc);
            }
            S::store(out.as_mut_ptr(), sum);
            std::hint::black_box(out);
        }
    }
}

/// Independent chains of multiply-adds: enough to hide their latency.
const PEAK_CHAINS: usize = 12;

/// Floating-point operations a second that the threads of the current pool reach at most, the best of some trials.
pub fn fma_peak(isa: Isa) -> f64 {
    let repeats = 1_000_000;
    let threads = rayon::current_num_threads();
    let flops = (2 * threads * repeats * PEAK_CHAINS * isa.lanes()) as f64;
    let trial = || {
        let start = Instant::now();
        // SAFETY: `Peak` asks for nothing.
        rayon::broadcast(|_| unsafe { isa.run(Peak { repeats }) });
        flops / start.elapsed().as_secs_f64()
    };
    (0..20).map(|_| trial()).fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panels_cover_all_columns_in_order() {
        for isa in Isa::available() {
            for columns in 1..300 {
                let mut next = 0;
                for panel in panels(isa, columns) {
                    assert!(panel.start == next && (1..=isa.panel()).contains(&panel.count));
                    next += panel.count;
                }
                assert_eq!(next, columns.div_ceil(isa.lanes()));
            }
            let counts = |vectors: usize| panels(isa, vectors * isa.lanes()).map(|p| p.count).collect::<Vec<_>>();
            assert_eq!(counts(4), [2, 2]);
        }
    }
}
