//! Sixteen floats: AVX-512 F and DQ.
use super::{Isa, Kernel, Set, Simd, by_intrinsics};
use std::arch::x86_64::*;

/// Proof that the processor has AVX-512 F and DQ.
#[derive(Clone, Copy)]
pub(super) struct Avx512(());

/// Runs `kernel` with these instructions.
///
/// # Safety
/// The processor has AVX-512 F and DQ.
#[target_feature(enable = "avx512f,avx512dq")]
pub(super) unsafe fn run<K: Kernel>(kernel: K) -> K::Output {
    kernel.run(Avx512(()))
}

impl Simd for Avx512 {
    type V = __m512;
    const LANES: usize = 16;
    // 24 accumulators, 3 vectors of B and one broadcast element of A, in 32 registers.
    const ROWS: usize = 8;
    const PANEL: usize = 3;

    by_intrinsics! {
        add(a, b) = _mm512_add_ps;
        sub(a, b) = _mm512_sub_ps;
        mul(a, b) = _mm512_mul_ps;
        div(a, b) = _mm512_div_ps;
        fma(a, b, c) = _mm512_fmadd_ps;
        fnma(a, b, c) = _mm512_fnmadd_ps;
        max(a, b) = _mm512_max_ps;
        min(a, b) = _mm512_min_ps;
        scale2(a, n) = _mm512_scalef_ps;
    }

    #[inline(always)]
    fn isa(self) -> Isa {
        Isa(Set::Avx512)
    }

    #[inline(always)]
    fn splat(self, x: f32) -> __m512 {
        // SAFETY: the instructions exist because the token does.
        unsafe { _mm512_set1_ps(x) }
    }

    #[inline(always)]
    unsafe fn load_at(self, from: *const f32) -> __m512 {
        // SAFETY: the instructions exist because the token does; the pointer is valid by the contract of the trait.
        unsafe { _mm512_loadu_ps(from) }
    }

    #[inline(always)]
    unsafe fn store_at(self, v: __m512, to: *mut f32) {
        // SAFETY: the instructions exist because the token does; the pointer is valid by the contract of the trait.
        unsafe { _mm512_storeu_ps(to, v) }
    }

    #[inline(always)]
    fn load_part(self, x: &[f32]) -> __m512 {
        assert!(x.len() < Self::LANES);
        // SAFETY: the instructions exist because the token does; only lanes inside the slice are touched.
        unsafe { _mm512_maskz_loadu_ps((1u16 << x.len()) - 1, x.as_ptr()) }
    }

    #[inline(always)]
    fn store_part(self, v: __m512, out: &mut [f32]) {
        assert!(out.len() < Self::LANES);
        // SAFETY: the instructions exist because the token does; only lanes inside the slice are touched.
        unsafe { _mm512_mask_storeu_ps(out.as_mut_ptr(), (1u16 << out.len()) - 1, v) }
    }

    #[inline(always)]
    fn round(self, a: __m512) -> __m512 {
        // SAFETY: the instructions exist because the token does.
        unsafe { _mm512_roundscale_ps::<0>(a) }
    }

    #[inline(always)]
    unsafe fn transpose(self, src: *const f32, src_stride: usize, dst: *mut f32, dst_stride: usize) {
        for j in [0, 4, 8, 12] {
            // SAFETY: the instructions exist because the token does; the blocks are valid by the contract of the trait.
            unsafe {
                // Rows i, i + 4, i + 8 and i + 12 side by side, so that 4x4 transposes within 128 bits are all it takes.
                let src = src.add(j);
                let (r0, r1) = (four_rows(src, src_stride), four_rows(src.add(src_stride), src_stride));
                let r2 = four_rows(src.add(2 * src_stride), src_stride);
                let r3 = four_rows(src.add(3 * src_stride), src_stride);
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
/// The processor has the instructions, and the rows are valid for reads.
#[inline(always)]
unsafe fn four_rows(src: *const f32, stride: usize) -> __m512 {
    // SAFETY: the contract of this function.
    unsafe {
        let (r0, r4) = (_mm_loadu_ps(src), _mm_loadu_ps(src.add(4 * stride)));
        let (r8, r12) = (_mm_loadu_ps(src.add(8 * stride)), _mm_loadu_ps(src.add(12 * stride)));
        let low = _mm256_insertf128_ps::<1>(_mm256_castps128_ps256(r0), r4);
        let high = _mm256_insertf128_ps::<1>(_mm256_castps128_ps256(r8), r12);
        _mm512_insertf32x8::<1>(_mm512_castps256_ps512(low), high)
    }
}
