//! The transforms of Winograd's minimal filtering with 6x6 tiles of the input.
//!
//! y = Aᵀ[(G w Gᵀ) ⊙ (Bᵀ d B)]A for a 6x6 tile d of the input and a tile y of the output (Lavin and Gray 2015,
//! arXiv:1509.09308, section 4.3): F(4x4, 3x3) gives 4x4 outputs of a 3x3 kernel, F(2x2, 5x5) gives 2x2 outputs of a
//! 5x5 kernel, each from 36 products. The polynomials of tile and kernel are evaluated at 0, ±P, ±Q and infinity; the
//! gradient by w is the transpose of that map: dw = Gᵀ[Σ (A dy Aᵀ) ⊙ (Bᵀ d B)]G.
//!
//! Two convolutions use these: [`crate::conv`], on planes, with the points [`Accurate`], and [`crate::channels_last`]
//! with the points [`Textbook`]. They share the transform of the input, which does most of the arithmetic. They differ
//! in how they reach it: one gathers planes into vectors of channels and back, the other finds channels side by side.
use crate::simd::Simd;

/// Rows and columns of a tile of the input.
pub(crate) const SIDE: usize = 6;

/// Products for each tile.
pub(crate) const POINTS: usize = SIDE * SIDE;

/// Where the polynomials are evaluated, beside 0 and infinity: at ±P and ±Q.
pub(crate) trait Points {
    const P: f32;
    const Q: f32;
    /// The factors of G's rows, 1/Π(x − other finite points), at 0, ±P and ±Q.
    const AT_0: f32 = 1.0 / (Self::P * Self::P * Self::Q * Self::Q);
    const AT_P: f32 = 1.0 / (2.0 * Self::P * Self::P * (Self::P * Self::P - Self::Q * Self::Q));
    const AT_Q: f32 = 1.0 / (2.0 * Self::Q * Self::Q * (Self::Q * Self::Q - Self::P * Self::P));
}

/// Points with 1/2.3 of the rounding error of [`Textbook`], for training: what counts is how far apart the powers of the
/// points are (Barabasz et al. 2018, arXiv:1803.10986). Both and all their powers below are exact in f32.
pub(crate) struct Accurate;

impl Points for Accurate {
    const P: f32 = 0.625;
    const Q: f32 = 1.5;
}

/// The points of Lavin and Gray. Features of images that were computed with them, and distances of such features, stay
/// comparable to the last bit.
pub(crate) struct Textbook;

impl Points for Textbook {
    const P: f32 = 1.0;
    const Q: f32 = 2.0;
}

/// Reads N x N vectors: row r, column c from src[r · row + c · column].
///
/// # Safety
/// `src` is valid for reads of a vector at each of those offsets.
#[inline(always)]
pub(crate) unsafe fn read<S: Simd, const N: usize>(s: S, src: *const f32, [row, column]: [usize; 2]) -> [[S::V; N]; N] {
    let mut d = [[s.zero(); N]; N];
    for (r, line) in d.iter_mut().enumerate() {
        for (c, d) in line.iter_mut().enumerate() {
            // SAFETY: the contract of this function.
            *d = unsafe { s.load_at(src.add(r * row + c * column)) };
        }
    }
    d
}

/// Writes N x N vectors: row r, column c to dst[r · row + c · column].
///
/// # Safety
/// `dst` is valid for writes of a vector at each of those offsets.
#[inline(always)]
pub(crate) unsafe fn write<S: Simd, const N: usize>(s: S, v: [[S::V; N]; N], dst: *mut f32, [row, column]: [usize; 2]) {
    for (r, line) in v.iter().enumerate() {
        for (c, &v) in line.iter().enumerate() {
            // SAFETY: the contract of this function.
            unsafe { s.store_at(v, dst.add(r * row + c * column)) };
        }
    }
}

/// M d Mᵀ for the matrix M that `apply` multiplies a column with: first all columns, then all rows.
#[inline(always)]
pub(crate) fn both_sides<S: Simd, const I: usize, const O: usize>(
    s: S,
    d: [[S::V; I]; I],
    apply: impl Fn([S::V; I]) -> [S::V; O],
) -> [[S::V; O]; O] {
    // The zeros only stand in for values: all are overwritten.
    let mut half = [[s.zero(); I]; O];
    for c in 0..I {
        let mut column = [s.zero(); I];
        for r in 0..I {
            column[r] = d[r][c];
        }
        let column = apply(column);
        for r in 0..O {
            half[r][c] = column[r];
        }
    }
    let mut out = [[s.zero(); O]; O];
    for r in 0..O {
        out[r] = apply(half[r]);
    }
    out
}

/// Bᵀ d
#[inline(always)]
pub(crate) fn input<S: Simd, X: Points>(s: S, d: [S::V; 6]) -> [S::V; 6] {
    let (p, q, p2, q2) = (s.splat(X::P), s.splat(X::Q), s.splat(X::P * X::P), s.splat(X::Q * X::Q));
    let (product, sum) = (s.splat(X::P * X::P * X::Q * X::Q), s.splat(X::P * X::P + X::Q * X::Q));
    let (even, odd) = (s.fnma(q2, d[2], d[4]), s.fnma(q2, d[1], d[3]));
    let (even2, odd2) = (s.fnma(p2, d[2], d[4]), s.fnma(p2, d[1], d[3]));
    [
        s.fma(product, d[0], s.fnma(sum, d[2], d[4])),
        s.fma(p, odd, even),
        s.fnma(p, odd, even),
        s.fma(q, odd2, even2),
        s.fnma(q, odd2, even2),
        s.fma(product, d[1], s.fnma(sum, d[3], d[5])),
    ]
}

/// Aᵀ m for four outputs.
#[inline(always)]
pub(crate) fn output<S: Simd, X: Points>(s: S, m: [S::V; 6]) -> [S::V; 4] {
    let [p, p2, p3] = [X::P, X::P * X::P, X::P * X::P * X::P].map(|x| s.splat(x));
    let [q, q2, q3] = [X::Q, X::Q * X::Q, X::Q * X::Q * X::Q].map(|x| s.splat(x));
    let (sum, difference) = (s.add(m[1], m[2]), s.sub(m[1], m[2]));
    let (sum2, difference2) = (s.add(m[3], m[4]), s.sub(m[3], m[4]));
    [
        s.add(m[0], s.add(sum, sum2)),
        s.fma(q, difference2, s.mul(p, difference)),
        s.fma(q2, sum2, s.mul(p2, sum)),
        s.fma(q3, difference2, s.fma(p3, difference, m[5])),
    ]
}

/// A dy for four outputs: the transpose of [`output`].
#[inline(always)]
pub(crate) fn output_gradient<S: Simd, X: Points>(s: S, y: [S::V; 4]) -> [S::V; 6] {
    let (p, q, p2, q2) = (s.splat(X::P), s.splat(X::Q), s.splat(X::P * X::P), s.splat(X::Q * X::Q));
    let (even, odd) = (s.fma(p2, y[2], y[0]), s.fma(p2, y[3], y[1]));
    let (even2, odd2) = (s.fma(q2, y[2], y[0]), s.fma(q2, y[3], y[1]));
    [y[0], s.fma(p, odd, even), s.fnma(p, odd, even), s.fma(q, odd2, even2), s.fnma(q, odd2, even2), y[3]]
}

/// G w for three taps.
#[inline(always)]
pub(crate) fn filter<S: Simd, X: Points>(s: S, w: [S::V; 3]) -> [S::V; 6] {
    let outer = s.mul(s.fma(w[2], s.splat(X::P * X::P), w[0]), s.splat(X::AT_P));
    let middle = s.mul(w[1], s.splat(X::AT_P * X::P));
    let outer2 = s.mul(s.fma(w[2], s.splat(X::Q * X::Q), w[0]), s.splat(X::AT_Q));
    let middle2 = s.mul(w[1], s.splat(X::AT_Q * X::Q));
    [
        s.mul(w[0], s.splat(X::AT_0)),
        s.add(outer, middle),
        s.sub(outer, middle),
        s.add(outer2, middle2),
        s.sub(outer2, middle2),
        w[2],
    ]
}

/// Gᵀ d for three taps: the transpose of [`filter`].
#[inline(always)]
pub(crate) fn filter_gradient<S: Simd, X: Points>(s: S, d: [S::V; 6]) -> [S::V; 3] {
    let (p, q) = (s.splat(X::AT_P), s.splat(X::AT_Q));
    let (sum, difference) = (s.mul(p, s.add(d[1], d[2])), s.mul(p, s.sub(d[1], d[2])));
    let (sum2, difference2) = (s.mul(q, s.add(d[3], d[4])), s.mul(q, s.sub(d[3], d[4])));
    [
        s.fma(d[0], s.splat(X::AT_0), s.add(sum, sum2)),
        s.fma(difference2, s.splat(X::Q), s.mul(difference, s.splat(X::P))),
        s.fma(sum2, s.splat(X::Q * X::Q), s.fma(sum, s.splat(X::P * X::P), d[5])),
    ]
}
