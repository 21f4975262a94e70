//! Sixteen floats: AVX-512 (F and DQ).
use super::{Kernel, Simd};
use std::arch::x86_64::*;

#[derive(Clone, Copy)]
pub(super) struct Avx512;

/// # Safety
/// The processor has AVX-512 F and DQ.
#[target_feature(enable = "avx512f,avx512dq")]
pub(super) unsafe fn enter<K: Kernel>(kernel: K) {
    // SAFETY: the features are those of this function.
    unsafe { kernel.run::<Avx512>() }
}

// SAFETY of every block below: the features are there and the pointers valid by the trait's contract.
impl Simd for Avx512 {
    type V = __m512;
    const LANES: usize = 16;
    const ROWS: usize = 8;
    const PANEL: usize = 3;

    #[inline(always)]
    unsafe fn zero() -> __m512 {
        unsafe { _mm512_setzero_ps() }
    }

    #[inline(always)]
    unsafe fn splat(x: f32) -> __m512 {
        unsafe { _mm512_set1_ps(x) }
    }

    #[inline(always)]
    unsafe fn load(p: *const f32) -> __m512 {
        unsafe { _mm512_loadu_ps(p) }
    }

    #[inline(always)]
    unsafe fn store(p: *mut f32, v: __m512) {
        unsafe { _mm512_storeu_ps(p, v) }
    }

    #[inline(always)]
    unsafe fn add(a: __m512, b: __m512) -> __m512 {
        unsafe { _mm512_add_ps(a, b) }
    }

    #[inline(always)]
    unsafe fn sub(a: __m512, b: __m512) -> __m512 {
        unsafe { _mm512_sub_ps(a, b) }
    }

    #[inline(always)]
    unsafe fn mul(a: __m512, b: __m512) -> __m512 {
        unsafe { _mm512_mul_ps(a, b) }
    }

    #[inline(always)]
    unsafe fn fma(a: __m512, b: __m512, c: __m512) -> __m512 {
        unsafe { _mm512_fmadd_ps(a, b, c) }
    }

    #[inline(always)]
    unsafe fn fnma(a: __m512, b: __m512, c: __m512) -> __m512 {
        unsafe { _mm512_fnmadd_ps(a, b, c) }
    }

    #[inline(always)]
    unsafe fn transpose(src: *const f32, src_stride: usize, dst: *mut f32, dst_stride: usize) {
        for j in [0, 4, 8, 12] {
            unsafe {
                // Four rows, 4 apart, side by side: the 4x4 transposes within 128 bits then finish the job.
                let src = src.add(j);
                let (r0, r1) = (spread_rows(src, src_stride), spread_rows(src.add(src_stride), src_stride));
                let (r2, r3) = (
                    spread_rows(src.add(2 * src_stride), src_stride),
                    spread_rows(src.add(3 * src_stride), src_stride),
                );
                let (a, b) = (_mm512_unpacklo_ps(r0, r1), _mm512_unpackhi_ps(r0, r1));
                let (c, d) = (_mm512_unpacklo_ps(r2, r3), _mm512_unpackhi_ps(r2, r3));
                _mm512_storeu_ps(dst.add(j * dst_stride), _mm512_shuffle_ps::<0x44>(a, c));
                _mm512_storeu_ps(dst.add((j + 1) * dst_stride), _mm512_shuffle_ps::<0xee>(a, c));
                _mm512_storeu_ps(dst.add((j + 2) * dst_stride), _mm512_shuffle_ps::<0x44>(b, d));
                _mm512_storeu_ps(dst.add((j + 3) * dst_stride), _mm512_shuffle_ps::<0xee>(b, d));
            }
        }
    }
}

/// Four floats each of rows 0, 4, 8 and 12.
///
/// # Safety
/// As [`Simd`]; the rows are valid for reads.
#[inline(always)]
unsafe fn spread_rows(src: *const f32, stride: usize) -> __m512 {
    unsafe {
        let (r0, r4) = (_mm_loadu_ps(src), _mm_loadu_ps(src.add(4 * stride)));
        let (r8, r12) = (_mm_loadu_ps(src.add(8 * stride)), _mm_loadu_ps(src.add(12 * stride)));
        let low = _mm256_insertf128_ps::<1>(_mm256_castps128_ps256(r0), r4);
        let high = _mm256_insertf128_ps::<1>(_mm256_castps128_ps256(r8), r12);
        _mm512_insertf32x8::<1>(_mm512_castps256_ps512(low), high)
    }
}
