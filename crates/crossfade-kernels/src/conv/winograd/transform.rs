//! The transforms of F(4x4, 3x3), each on one vector of channels of a tile.
//!
//! y = Aᵀ[(G w Gᵀ) ⊙ (Bᵀ d B)]A for a 6x6 tile d of the input and the 4x4 tile y of the output (Lavin and Gray 2015,
//! arXiv:1509.09308, section 4.3). The gradient by w is the transpose of that map:
//! dw = Gᵀ[Σ (A dy Aᵀ) ⊙ (Bᵀ d B)]G.
use crate::simd::{Kernel, Simd};

/// Products per tile.
pub(crate) const POINTS: usize = 36;

/// A matrix applied to a column of vectors. A trait and not a closure: closures cannot be marked `inline(always)`, and
/// what is not inlined is compiled without the instruction set.
trait Matrix<S: Simd, const I: usize, const O: usize> {
    /// # Safety
    /// The processor has the instruction set.
    unsafe fn apply(d: [S::V; I]) -> [S::V; O];
}

/// Applies `M` to the columns, then to the rows: M d Mᵀ.
#[inline(always)]
unsafe fn both<S: Simd, M: Matrix<S, I, O>, const I: usize, const O: usize>(d: [[S::V; I]; I]) -> [[S::V; O]; O] {
    // SAFETY: the caller runs on the instruction set. The zeros only stand in for values: all are overwritten.
    unsafe {
        let mut half = [[S::zero(); I]; O];
        for c in 0..I {
            let mut column = [S::zero(); I];
            for r in 0..I {
                column[r] = d[r][c];
            }
            let column = M::apply(column);
            for r in 0..O {
                half[r][c] = column[r];
            }
        }
        let mut out = [[S::zero(); O]; O];
        for r in 0..O {
            out[r] = M::apply(half[r]);
        }
        out
    }
}

/// The polynomials of tile and kernel are evaluated at 0, ±P, ±Q and infinity. Lavin and Gray take ±1 and ±2, with 2.3
/// times the rounding error: what counts is how far apart the powers of the points are (Barabasz et al. 2018,
/// arXiv:1803.10986). Both and all their powers below are exact in f32.
const P: f32 = 0.625;
const Q: f32 = 1.5;
/// Factors of G's rows, 1/Π(x − other finite points), at 0, ±P and ±Q.
const AT_0: f32 = 1.0 / (P * P * Q * Q);
const AT_P: f32 = 1.0 / (2.0 * P * P * (P * P - Q * Q));
const AT_Q: f32 = 1.0 / (2.0 * Q * Q * (Q * Q - P * P));

/// Bᵀd
struct Bt;

impl<S: Simd> Matrix<S, 6, 6> for Bt {
    #[inline(always)]
    unsafe fn apply(d: [S::V; 6]) -> [S::V; 6] {
        // SAFETY: arithmetic of the instruction set the caller runs on.
        unsafe {
            let (p, q, p2, q2) = (S::splat(P), S::splat(Q), S::splat(P * P), S::splat(Q * Q));
            let (product, sum) = (S::splat(P * P * Q * Q), S::splat(P * P + Q * Q));
            let (even, odd) = (S::fnma(q2, d[2], d[4]), S::fnma(q2, d[1], d[3]));
            let (even2, odd2) = (S::fnma(p2, d[2], d[4]), S::fnma(p2, d[1], d[3]));
            [
                S::fma(product, d[0], S::fnma(sum, d[2], d[4])),
                S::fma(p, odd, even),
                S::fnma(p, odd, even),
                S::fma(q, odd2, even2),
                S::fnma(q, odd2, even2),
                S::fma(product, d[1], S::fnma(sum, d[3], d[5])),
            ]
        }
    }
}

/// Aᵀm
struct At;

impl<S: Simd> Matrix<S, 6, 4> for At {
    #[inline(always)]
    unsafe fn apply(m: [S::V; 6]) -> [S::V; 4] {
        // SAFETY: arithmetic of the instruction set the caller runs on.
        unsafe {
            let [p, p2, p3] = [S::splat(P), S::splat(P * P), S::splat(P * P * P)];
            let [q, q2, q3] = [S::splat(Q), S::splat(Q * Q), S::splat(Q * Q * Q)];
            let (sum, difference) = (S::add(m[1], m[2]), S::sub(m[1], m[2]));
            let (sum2, difference2) = (S::add(m[3], m[4]), S::sub(m[3], m[4]));
            [
                S::add(m[0], S::add(sum, sum2)),
                S::fma(q, difference2, S::mul(p, difference)),
                S::fma(q2, sum2, S::mul(p2, sum)),
                S::fma(q3, difference2, S::fma(p3, difference, m[5])),
            ]
        }
    }
}

/// A dy
struct A;

impl<S: Simd> Matrix<S, 4, 6> for A {
    #[inline(always)]
    unsafe fn apply(y: [S::V; 4]) -> [S::V; 6] {
        // SAFETY: arithmetic of the instruction set the caller runs on.
        unsafe {
            let (p, p2, q, q2) = (S::splat(P), S::splat(P * P), S::splat(Q), S::splat(Q * Q));
            let (even, odd) = (S::fma(p2, y[2], y[0]), S::fma(p2, y[3], y[1]));
            let (even2, odd2) = (S::fma(q2, y[2], y[0]), S::fma(q2, y[3], y[1]));
            [y[0], S::fma(p, odd, even), S::fnma(p, odd, even), S::fma(q, odd2, even2), S::fnma(q, odd2, even2), y[3]]
        }
    }
}

/// G w
struct G;

impl<S: Simd> Matrix<S, 3, 6> for G {
    #[inline(always)]
    unsafe fn apply(w: [S::V; 3]) -> [S::V; 6] {
        // SAFETY: arithmetic of the instruction set the caller runs on.
        unsafe {
            let outer = S::mul(S::fma(w[2], S::splat(P * P), w[0]), S::splat(AT_P));
            let middle = S::mul(w[1], S::splat(AT_P * P));
            let outer2 = S::mul(S::fma(w[2], S::splat(Q * Q), w[0]), S::splat(AT_Q));
            let middle2 = S::mul(w[1], S::splat(AT_Q * Q));
            [
                S::mul(w[0], S::splat(AT_0)),
                S::add(outer, middle),
                S::sub(outer, middle),
                S::add(outer2, middle2),
                S::sub(outer2, middle2),
                w[2],
            ]
        }
    }
}

/// Gᵀd
struct Gt;

impl<S: Simd> Matrix<S, 6, 3> for Gt {
    #[inline(always)]
    unsafe fn apply(d: [S::V; 6]) -> [S::V; 3] {
        // SAFETY: arithmetic of the instruction set the caller runs on.
        unsafe {
            let (p, q) = (S::splat(AT_P), S::splat(AT_Q));
            let (sum, difference) = (S::mul(p, S::add(d[1], d[2])), S::mul(p, S::sub(d[1], d[2])));
            let (sum2, difference2) = (S::mul(q, S::add(d[3], d[4])), S::mul(q, S::sub(d[3], d[4])));
            [
                S::fma(d[0], S::splat(AT_0), S::add(sum, sum2)),
                S::fma(difference2, S::splat(Q), S::mul(difference, S::splat(P))),
                S::fma(sum2, S::splat(Q * Q), S::fma(sum, S::splat(P * P), d[5])),
            ]
        }
    }
}

/// Which transform [`Transform`] applies.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    /// Bᵀ d B of 6x6 windows, 4 pixels apart.
    Input,
    /// A dy Aᵀ of 4x4 windows, 4 pixels apart.
    Gradient,
}

impl Side {
    /// Height and width of a tile's window.
    pub(crate) fn window(self) -> usize {
        match self {
            Self::Input => 6,
            Self::Gradient => 4,
        }
    }
}

/// Transforms a row of tiles, one vector of channels: dst[point · point_stride + tile · tile_stride ..] from the strip
/// [window rows][cols][lanes].
///
/// # Safety (contract of whoever runs it)
/// `strip` holds window rows of `cols` ≥ 4 · tiles + window − 4 pixels; `dst` is valid for writes of a vector at each of
/// those offsets, and does not overlap it.
pub(crate) struct Transform {
    pub(crate) side: Side,
    pub(crate) strip: *const f32,
    pub(crate) cols: usize,
    pub(crate) tiles: usize,
    pub(crate) dst: *mut f32,
    pub(crate) point_stride: usize,
    pub(crate) tile_stride: usize,
}

impl Transform {
    #[inline(always)]
    unsafe fn tiles<S: Simd, M: Matrix<S, I, 6>, const I: usize>(&self) {
        for tile in 0..self.tiles {
            // SAFETY: by the contract, for this tile.
            unsafe {
                let at = |r: usize, c: usize| self.strip.add((r * self.cols + 4 * tile + c) * S::LANES);
                let mut d = [[S::zero(); I]; I];
                for (r, row) in d.iter_mut().enumerate() {
                    for (c, d) in row.iter_mut().enumerate() {
                        *d = S::load(at(r, c));
                    }
                }
                for (r, row) in both::<S, M, I, 6>(d).iter().enumerate() {
                    for (c, &v) in row.iter().enumerate() {
                        S::store(self.dst.add((6 * r + c) * self.point_stride + tile * self.tile_stride), v);
                    }
                }
            }
        }
    }
}

impl Kernel for Transform {
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        // SAFETY: the contract of the struct.
        unsafe {
            match self.side {
                Side::Input => self.tiles::<S, Bt, 6>(),
                Side::Gradient => self.tiles::<S, A, 4>(),
            }
        }
    }
}

/// AᵀmA + bias of a row of tiles, one vector of channels, into the strip [4][4 · tiles][lanes].
///
/// # Safety (contract of whoever runs it)
/// `src` is valid for reads of a vector at each point · point_stride + tile · tile_stride, `bias` for one vector, and
/// `strip` for writes of 16 · tiles vectors, not overlapping them.
pub(crate) struct Output {
    pub(crate) src: *const f32,
    pub(crate) point_stride: usize,
    pub(crate) tile_stride: usize,
    pub(crate) tiles: usize,
    pub(crate) bias: *const f32,
    pub(crate) strip: *mut f32,
}

impl Kernel for Output {
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        for tile in 0..self.tiles {
            // SAFETY: by the contract, for this tile.
            unsafe {
                let bias = S::load(self.bias);
                let src = self.src.add(tile * self.tile_stride);
                let mut m = [[S::zero(); 6]; 6];
                for (r, row) in m.iter_mut().enumerate() {
                    for (c, m) in row.iter_mut().enumerate() {
                        *m = S::load(src.add((6 * r + c) * self.point_stride));
                    }
                }
                for (r, row) in both::<S, At, 6, 4>(m).iter().enumerate() {
                    for (c, &v) in row.iter().enumerate() {
                        let at = self.strip.add((r * 4 * self.tiles + 4 * tile + c) * S::LANES);
                        S::store(at, S::add(v, bias));
                    }
                }
            }
        }
    }
}

/// G w Gᵀ of `count` kernels for one vector of channels: taps [k][9][lanes] to dst[point · point_stride + k · k_stride ..].
///
/// # Safety (contract of whoever runs it)
/// `taps` holds count · 9 vectors; `dst` is valid for writes of a vector at each of those offsets, not overlapping them.
pub(crate) struct Filter {
    pub(crate) taps: *const f32,
    pub(crate) count: usize,
    pub(crate) rotate: bool,
    pub(crate) dst: *mut f32,
    pub(crate) point_stride: usize,
    pub(crate) k_stride: usize,
}

impl Kernel for Filter {
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        for k in 0..self.count {
            // SAFETY: by the contract, for this kernel.
            unsafe {
                let mut w = [[S::zero(); 3]; 3];
                for (r, row) in w.iter_mut().enumerate() {
                    for (c, w) in row.iter_mut().enumerate() {
                        let tap = if self.rotate { 8 - (3 * r + c) } else { 3 * r + c };
                        *w = S::load(self.taps.add((9 * k + tap) * S::LANES));
                    }
                }
                for (r, row) in both::<S, G, 3, 6>(w).iter().enumerate() {
                    for (c, &v) in row.iter().enumerate() {
                        S::store(self.dst.add((6 * r + c) * self.point_stride + k * self.k_stride), v);
                    }
                }
            }
        }
    }
}

/// Gᵀ d G of one vector of kernels: src[point · point_stride ..] to taps [9][lanes].
///
/// # Safety (contract of whoever runs it)
/// `src` is valid for reads of a vector at each of those offsets, `taps` for writes of 9 vectors, not overlapping them.
pub(crate) struct FilterGradient {
    pub(crate) src: *const f32,
    pub(crate) point_stride: usize,
    pub(crate) taps: *mut f32,
}

impl Kernel for FilterGradient {
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        // SAFETY: by the contract.
        unsafe {
            let mut d = [[S::zero(); 6]; 6];
            for (r, row) in d.iter_mut().enumerate() {
                for (c, d) in row.iter_mut().enumerate() {
                    *d = S::load(self.src.add((6 * r + c) * self.point_stride));
                }
            }
            for (r, row) in both::<S, Gt, 6, 3>(d).iter().enumerate() {
                for (c, &v) in row.iter().enumerate() {
                    S::store(self.taps.add((3 * r + c) * S::LANES), v);
                }
            }
        }
    }
}
