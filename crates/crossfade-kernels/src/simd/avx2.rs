//! Eight floats: AVX2 with fused multiply-add.
use super::{Isa, Kernel, Set, Simd, by_intrinsics};
use std::arch::x86_64::*;

/// Proof that the processor has AVX2 and FMA.
#[derive(Clone, Copy)]
pub(super) struct Avx2(());

/// Runs `kernel` with these instructions.
///
/// # Safety
/// The processor has AVX2 and FMA.
#[target_feature(enable = "avx2,fma")]
pub(super) unsafe fn run<K: Kernel>(kernel: K) -> K::Output {
    kernel.run(Avx2(()))
}

impl Simd for Avx2 {
    type V = __m256;
    const LANES: usize = 8;
    // 12 accumulators, 2 vectors of B and one broadcast element of A, in 16 registers.
    const ROWS: usize = 6;
    const PANEL: usize = 2;

    by_intrinsics! {
        add(a, b) = _mm256_add_ps;
        sub(a, b) = _mm256_sub_ps;
        mul(a, b) = _mm256_mul_ps;
        div(a, b) = _mm256_div_ps;
        fma(a, b, c) = _mm256_fmadd_ps;
        fnma(a, b, c) = _mm256_fnmadd_ps;
        max(a, b) = _mm256_max_ps;
        min(a, b) = _mm256_min_ps;
    }

    #[inline(always)]
    fn isa(self) -> Isa {
        Isa(Set::Avx2)
    }

    #[inline(always)]
    fn splat(self, x: f32) -> __m256 {
        // SAFETY: the instructions exist because the token does.
        unsafe { _mm256_set1_ps(x) }
    }

    #[inline(always)]
    unsafe fn load_at(self, from: *const f32) -> __m256 {
        // SAFETY: the instructions exist because the token does; the pointer is valid by the contract of the trait.
        unsafe { _mm256_loadu_ps(from) }
    }

    #[inline(always)]
    unsafe fn store_at(self, v: __m256, to: *mut f32) {
        // SAFETY: the instructions exist because the token does; the pointer is valid by the contract of the trait.
        unsafe { _mm256_storeu_ps(to, v) }
    }

    #[inline(always)]
    fn load_part(self, x: &[f32]) -> __m256 {
        // SAFETY: the instructions exist because the token does; only lanes inside the slice are touched.
        unsafe { _mm256_maskload_ps(x.as_ptr(), mask(x.len())) }
    }

    #[inline(always)]
    fn store_part(self, v: __m256, out: &mut [f32]) {
        // SAFETY: the instructions exist because the token does; only lanes inside the slice are touched.
        unsafe { _mm256_maskstore_ps(out.as_mut_ptr(), mask(out.len()), v) }
    }

    #[inline(always)]
    fn round(self, a: __m256) -> __m256 {
        // SAFETY: the instructions exist because the token does.
        unsafe { _mm256_round_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(a) }
    }

    #[inline(always)]
    fn scale2(self, a: __m256, n: __m256) -> __m256 {
        // SAFETY: the instructions exist because the token does.
        unsafe {
            let exponent = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
            _mm256_mul_ps(a, _mm256_castsi256_ps(_mm256_slli_epi32::<23>(exponent)))
        }
    }

    #[inline(always)]
    unsafe fn transpose(self, src: *const f32, src_stride: usize, dst: *mut f32, dst_stride: usize) {
        for j in [0, 4] {
            // SAFETY: the instructions exist because the token does; the blocks are valid by the contract of the trait.
            unsafe {
                // Rows i and i + 4 side by side, so that 4x4 transposes within 128 bits are all it takes.
                let src = src.add(j);
                let (r0, r1) = (two_rows(src, src_stride), two_rows(src.add(src_stride), src_stride));
                let r2 = two_rows(src.add(2 * src_stride), src_stride);
                let r3 = two_rows(src.add(3 * src_stride), src_stride);
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

/// All bits set in the lanes below `len`, which is less than 8.
#[inline(always)]
fn mask(len: usize) -> __m256i {
    assert!(len < Avx2::LANES);
    // SAFETY: only the methods of a token call this, so the processor has the instructions.
    unsafe { _mm256_cmpgt_epi32(_mm256_set1_epi32(len as i32), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7)) }
}

/// Four floats each of rows 0 and 4.
///
/// # Safety
/// The processor has the instructions, and the rows are valid for reads.
#[inline(always)]
unsafe fn two_rows(src: *const f32, stride: usize) -> __m256 {
    // SAFETY: the contract of this function.
    unsafe {
        let low = _mm256_castps128_ps256(_mm_loadu_ps(src));
        _mm256_insertf128_ps::<1>(low, _mm_loadu_ps(src.add(4 * stride)))
    }
}
