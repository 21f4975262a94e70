//! The product of pixels and packed weights, in a tile of registers.
use crate::lanes::{Level, MAX_LANES, Simd};

/// Vectors of output channels computed together, at most.
const PANEL: usize = 3;

/// `count` vectors of output channels from vector `start` on.
#[derive(Clone, Copy)]
pub(super) struct Panel {
    pub(super) start: usize,
    pub(super) count: usize,
}

/// Cuts `channels` into as few panels as possible, of widths as equal as possible.
pub(super) fn panels(lanes: usize, channels: usize) -> impl Iterator<Item = Panel> {
    let vectors = channels / lanes;
    let n = vectors.div_ceil(PANEL);
    (0..n).map(move |i| {
        let (start, end) = (i * vectors / n, (i + 1) * vectors / n);
        Panel { start, count: end - start }
    })
}

/// Floats in a vector of `level`.
pub(super) fn lanes(level: Level) -> usize {
    match level {
        Level::Avx512 => MAX_LANES,
        _ => 8,
    }
}

/// C[r][j] = f(Σ_run Σ_k A[r · lda + run · run_stride + k] · B[(run · k_len + k) · width + j]), where f adds the bias and
/// cuts at zero if there is one. Each element is one chain of multiply-adds in the order of k.
#[derive(Clone, Copy)]
pub(super) struct Product {
    pub(super) a: *const f32,
    pub(super) lda: usize,
    pub(super) runs: usize,
    pub(super) run_stride: usize,
    pub(super) k_len: usize,
    pub(super) b: *const f32,
    pub(super) c: *mut f32,
    pub(super) ldc: usize,
    pub(super) bias: Option<*const f32>,
}

impl Product {
    /// Computes `rows` rows of `vectors` vectors.
    ///
    /// # Safety
    /// `a` is valid for reads at all those offsets, `b` for `runs · k_len` rows of `vectors` vectors, `bias` for as many,
    /// `c` for writes of as many at each `r · ldc`; rows of C do not overlap each other, A or B.
    #[inline(always)]
    pub(super) unsafe fn run<S: Simd>(self, s: S, rows: usize, vectors: usize) {
        // SAFETY: this function's contract.
        unsafe {
            match vectors {
                1 => self.panel::<S, 1>(s, rows),
                2 => self.panel::<S, 2>(s, rows),
                3 => self.panel::<S, 3>(s, rows),
                n => unreachable!("a panel of {n} vectors"),
            }
        }
    }

    #[inline(always)]
    unsafe fn panel<S: Simd, const NV: usize>(self, s: S, rows: usize) {
        // With the operands the tile fills the registers: 32 of AVX-512, 16 otherwise.
        let most = if S::LANES == MAX_LANES { 8 } else { 4 };
        let tiles = rows.div_ceil(most);
        for tile in 0..tiles {
            let (r, end) = (tile * rows / tiles, (tile + 1) * rows / tiles);
            let mut part = self;
            // SAFETY: rows r..end are below `rows`; a tile has at most `most` of them.
            unsafe {
                part.a = self.a.add(r * self.lda);
                part.c = self.c.add(r * self.ldc);
                match end - r {
                    1 => part.tile::<S, 1, NV>(s),
                    2 => part.tile::<S, 2, NV>(s),
                    3 => part.tile::<S, 3, NV>(s),
                    4 => part.tile::<S, 4, NV>(s),
                    5 if S::LANES == MAX_LANES => part.tile::<S, 5, NV>(s),
                    6 if S::LANES == MAX_LANES => part.tile::<S, 6, NV>(s),
                    7 if S::LANES == MAX_LANES => part.tile::<S, 7, NV>(s),
                    8 if S::LANES == MAX_LANES => part.tile::<S, 8, NV>(s),
                    n => unreachable!("a tile of {n} rows"),
                }
            }
        }
    }

    #[inline(always)]
    unsafe fn tile<S: Simd, const MR: usize, const NV: usize>(self, s: S) {
        // SAFETY: the contract of `run`, for MR rows.
        unsafe {
            let mut acc = [[s.splat(0.0); NV]; MR];
            let mut b = self.b;
            for run in 0..self.runs {
                let a = self.a.add(run * self.run_stride);
                for k in 0..self.k_len {
                    let mut row = [s.splat(0.0); NV];
                    for (j, row) in row.iter_mut().enumerate() {
                        *row = s.load_at(b.add(j * S::LANES));
                    }
                    for (r, acc) in acc.iter_mut().enumerate() {
                        let x = s.splat(*a.add(r * self.lda + k));
                        for (acc, &row) in acc.iter_mut().zip(&row) {
                            *acc = s.fma(x, row, *acc);
                        }
                    }
                    b = b.add(NV * S::LANES);
                }
            }
            for (r, acc) in acc.iter().enumerate() {
                for (j, &acc) in acc.iter().enumerate() {
                    let value = match self.bias {
                        Some(bias) => s.max(s.splat(0.0), s.add(acc, s.load_at(bias.add(j * S::LANES)))),
                        None => acc,
                    };
                    s.store_at(value, self.c.add(r * self.ldc + j * S::LANES));
                }
            }
        }
    }
}
