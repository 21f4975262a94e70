//! Eight floats: AVX2 with fused multiply-add.
use super::{Kernel, Simd};
use std::arch::x86_64::*;

#[derive(Clone, Copy)]
pub(super) struct Avx2;

/// # Safety
/// The processor has AVX2 and FMA.
#[target_feature(enable = "avx2,fma")]
pub(super) unsafe fn enter<K: Kernel>(kernel: K) {
    // SAFETY: the features are those of this function.
    unsafe { kernel.run::<Avx2>() }
}

// SAFETY of every block below: the features are there and the pointers valid by the trait's contract.
impl Simd for Avx2 {
    type V = __m256;
    const LANES: usize = 8;
    const ROWS: usize = 6;
    const PANEL: usize = 2;

    #[inline(always)]
    unsafe fn zero() -> __m256 {
        unsafe { _mm256_setzero_ps() }
    }

    #[inline(always)]
    unsafe fn splat(x: f32) -> __m256 {
        unsafe { _mm256_set1_ps(x) }
    }

    #[inline(always)]
    unsafe fn load(p: *const f32) -> __m256 {
        unsafe { _mm256_loadu_ps(p) }
    }

    #[inline(always)]
    unsafe fn store(p: *mut f32, v: __m256) {
        unsafe { _mm256_storeu_ps(p, v) }
    }

    #[inline(always)]
    unsafe fn add(a: __m256, b: __m256) -> __m256 {
        unsafe { _mm256_add_ps(a, b) }
    }

    #[inline(always)]
    unsafe fn sub(a: __m256, b: __m256) -> __m256 {
        unsafe { _mm256_sub_ps(a, b) }
    }

    #[inline(always)]
    unsafe fn mul(a: __m256, b: __m256) -> __m256 {
        unsafe { _mm256_mul_ps(a, b) }
    }

    #[inline(always)]
    unsafe fn fma(a: __m256, b: __m256, c: __m256) -> __m256 {
        unsafe { _mm256_fmadd_ps(a, b, c) }
    }

    #[inline(always)]
    unsafe fn fnma(a: __m256, b: __m256, c: __m256) -> __m256 {
        unsafe { _mm256_fnmadd_ps(a, b, c) }
    }

    #[inline(always)]
    unsafe fn transpose(src: *const f32, src_stride: usize, dst: *mut f32, dst_stride: usize) {
        for j in [0, 4] {
            unsafe {
                // Rows i and i + 4 side by side, so that the 4x4 transposes within 128 bits finish the job.
                let src = src.add(j);
                let (r0, r1) = (spread_rows(src, src_stride), spread_rows(src.add(src_stride), src_stride));
                let (r2, r3) = (
                    spread_rows(src.add(2 * src_stride), src_stride),
                    spread_rows(src.add(3 * src_stride), src_stride),
                );
                let (a, b) = (_mm256_unpacklo_ps(r0, r1), _mm256_unpackhi_ps(r0, r1));
                let (c, d) = (_mm256_unpacklo_ps(r2, r3), _mm256_unpackhi_ps(r2, r3));
                _mm256_storeu_ps(dst.add(j * dst_stride), _mm256_shuffle_ps::<0x44>(a, c));
                _mm256_storeu_ps(dst.add((j + 1) * dst_stride), _mm256_shuffle_ps::<0xee>(a, c));
                _mm256_storeu_ps(dst.add((j + 2) * dst_stride), _mm256_shuffle_ps::<0x44>(b, d));
                _mm256_storeu_ps(dst.add((j + 3) * dst_stride), _mm256_shuffle_ps::<0xee>(b, d));
            }
        }
    }
}

/// Four floats each of rows 0 and 4.
///
/// # Safety
/// As [`Simd`]; the rows are valid for reads.
#[inline(always)]
unsafe fn spread_rows(src: *const f32, stride: usize) -> __m256 {
    unsafe {
        let low = _mm256_castps128_ps256(_mm_loadu_ps(src));
        _mm256_insertf128_ps::<1>(low, _mm_loadu_ps(src.add(4 * stride)))
    }
}
