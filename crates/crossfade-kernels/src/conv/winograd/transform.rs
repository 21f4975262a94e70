//! The transforms of F(4x4, 3x3), each on one vector of channels.
use crate::simd::{RawKernel, Simd};
use crate::winograd::{Accurate, both_sides, filter, filter_gradient, input, output, output_gradient, read, write};

/// Which tiles [`Transform`] reads.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum TileKind {
    /// 6x6 tiles of the input, 4 pixels apart, as Bᵀ d B.
    Input,
    /// 4x4 tiles of the output's gradient, 4 pixels apart, as A dy Aᵀ.
    OutputGradient,
}

impl TileKind {
    /// Height and width of a tile.
    pub(crate) fn side(self) -> usize {
        match self {
            Self::Input => 6,
            Self::OutputGradient => 4,
        }
    }
}

/// Transforms a row of tiles, one vector of channels: dst[point · point_stride + tile · tile_stride ..] from the strip
/// [rows of a tile][cols][lanes].
///
/// # Safety (contract of whoever runs it)
/// `strip` holds the rows of a tile with `cols` ≥ 4 · tiles + side − 4 pixels each; `dst` is valid for writes of a vector
/// at each of those offsets, and does not overlap it.
pub(crate) struct Transform {
    pub(crate) kind: TileKind,
    pub(crate) strip: *const f32,
    pub(crate) cols: usize,
    pub(crate) tiles: usize,
    pub(crate) dst: *mut f32,
    pub(crate) point_stride: usize,
    pub(crate) tile_stride: usize,
}

impl Transform {
    /// # Safety
    /// The contract of the struct, for tiles of I x I.
    #[inline(always)]
    unsafe fn tiles<S: Simd, const I: usize>(&self, s: S, apply: impl Fn([S::V; I]) -> [S::V; 6] + Copy) {
        for tile in 0..self.tiles {
            // SAFETY: by the contract, for this tile.
            unsafe {
                let strip = self.strip.add(4 * tile * S::LANES);
                let d = read(s, strip, [self.cols * S::LANES, S::LANES]);
                let v = both_sides(s, d, apply);
                write(s, v, self.dst.add(tile * self.tile_stride), [6 * self.point_stride, self.point_stride]);
            }
        }
    }
}

impl RawKernel for Transform {
    #[inline(always)]
    unsafe fn run<S: Simd>(self, s: S) {
        // SAFETY: the contract of the struct.
        unsafe {
            match self.kind {
                TileKind::Input => self.tiles(
                    s,
                    #[inline(always)]
                    |d| input::<S, Accurate>(s, d),
                ),
                TileKind::OutputGradient => self.tiles(
                    s,
                    #[inline(always)]
                    |dy| output_gradient::<S, Accurate>(s, dy),
                ),
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

impl RawKernel for Output {
    #[inline(always)]
    unsafe fn run<S: Simd>(self, s: S) {
        for tile in 0..self.tiles {
            // SAFETY: by the contract, for this tile.
            unsafe {
                let bias = s.load_at(self.bias);
                let m = read(s, self.src.add(tile * self.tile_stride), [6 * self.point_stride, self.point_stride]);
                let mut y = both_sides(
                    s,
                    m,
                    #[inline(always)]
                    |m| output::<S, Accurate>(s, m),
                );
                for y in y.as_flattened_mut() {
                    *y = s.add(*y, bias);
                }
                write(s, y, self.strip.add(4 * tile * S::LANES), [4 * self.tiles * S::LANES, S::LANES]);
            }
        }
    }
}

/// G w Gᵀ of `count` kernels for one vector of channels: taps [k][9][lanes] to dst[point · point_stride + k · k_stride ..].
/// `rotate` turns the kernels by 180° before.
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

impl RawKernel for Filter {
    #[inline(always)]
    unsafe fn run<S: Simd>(self, s: S) {
        for k in 0..self.count {
            // SAFETY: by the contract, for this kernel.
            unsafe {
                let mut w = [[s.zero(); 3]; 3];
                for (i, w) in w.as_flattened_mut().iter_mut().enumerate() {
                    let tap = if self.rotate { 8 - i } else { i };
                    *w = s.load_at(self.taps.add((9 * k + tap) * S::LANES));
                }
                let u = both_sides(
                    s,
                    w,
                    #[inline(always)]
                    |w| filter::<S, Accurate>(s, w),
                );
                write(s, u, self.dst.add(k * self.k_stride), [6 * self.point_stride, self.point_stride]);
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

impl RawKernel for FilterGradient {
    #[inline(always)]
    unsafe fn run<S: Simd>(self, s: S) {
        // SAFETY: by the contract.
        unsafe {
            let d = read(s, self.src, [6 * self.point_stride, self.point_stride]);
            let w = both_sides(
                s,
                d,
                #[inline(always)]
                |d| filter_gradient::<S, Accurate>(s, d),
            );
            write(s, w, self.taps, [3 * S::LANES, S::LANES]);
        }
    }
}
