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
        unsafe {
            // Four rows, 4 apart, side by side: the 4x4 transposes within 128 bits then finish the job.
            let quarter = |j: usize| {
                let row = |i: usize| {
                    let at = |k: usize| _mm_loadu_ps(src.add((i + 4 * k) * src_stride + j));
                    let low = _mm256_insertf128_ps::<1>(_mm256_castps128_ps256(at(0)), at(1));
                    let high = _mm256_insertf128_ps::<1>(_mm256_castps128_ps256(at(2)), at(3));
                    _mm512_insertf32x8::<1>(_mm512_castps256_ps512(low), high)
                };
                let (r0, r1, r2, r3) = (row(0), row(1), row(2), row(3));
                let (a, b) = (_mm512_unpacklo_ps(r0, r1), _mm512_unpackhi_ps(r0, r1));
                let (c, d) = (_mm512_unpacklo_ps(r2, r3), _mm512_unpackhi_ps(r2, r3));
                _mm512_storeu_ps(dst.add(j * dst_stride), _mm512_shuffle_ps::<0x44>(a, c));
                _mm512_storeu_ps(dst.add((j + 1) * dst_stride), _mm512_shuffle_ps::<0xee>(a, c));
                _mm512_storeu_ps(dst.add((j + 2) * dst_stride), _mm512_shuffle_ps::<0x44>(b, d));
                _mm512_storeu_ps(dst.add((j + 3) * dst_stride), _mm512_shuffle_ps::<0xee>(b, d));
            };
            quarter(0);
            quarter(4);
            quarter(8);
            quarter(12);
        }
    }
}
