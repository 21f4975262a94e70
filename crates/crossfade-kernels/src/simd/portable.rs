//! Eight floats for any processor: two registers of four.
use super::{Isa, Set, Simd};
use four::Four;

#[derive(Clone, Copy)]
pub(super) struct Portable;

type V = [Four; 2];

/// Implements operations of [`Simd`] on both registers.
macro_rules! on_both {
    ($($name:ident)+) => {$(
        #[inline(always)]
        fn $name(self, a: V, b: V) -> V {
            [four::$name(a[0], b[0]), four::$name(a[1], b[1])]
        }
    )+};
}

impl Simd for Portable {
    type V = V;
    const LANES: usize = 8;
    // 12 accumulators, 2 registers of B, one broadcast element of A and one product, in 16 registers.
    const ROWS: usize = 6;
    const PANEL: usize = 1;

    #[inline(always)]
    fn isa(self) -> Isa {
        Isa(Set::Portable)
    }

    #[inline(always)]
    fn splat(self, x: f32) -> V {
        [four::splat(x); 2]
    }

    #[inline(always)]
    unsafe fn load_at(self, from: *const f32) -> V {
        // SAFETY: 8 floats are readable by the trait's contract.
        unsafe { [four::load(from), four::load(from.add(4))] }
    }

    #[inline(always)]
    unsafe fn store_at(self, v: V, to: *mut f32) {
        // SAFETY: 8 floats are writable by the trait's contract.
        unsafe {
            four::store(to, v[0]);
            four::store(to.add(4), v[1]);
        }
    }

    #[inline(always)]
    fn load_part(self, x: &[f32]) -> V {
        let mut lanes = [0.0; 8];
        lanes[..x.len()].copy_from_slice(x);
        self.load(&lanes)
    }

    #[inline(always)]
    fn store_part(self, v: V, out: &mut [f32]) {
        let mut lanes = [0.0; 8];
        self.store(v, &mut lanes);
        out.copy_from_slice(&lanes[..out.len()]);
    }

    #[inline(always)]
    unsafe fn transpose(self, src: *const f32, src_stride: usize, dst: *mut f32, dst_stride: usize) {
        // In blocks of 4x4, which the compiler keeps in registers.
        for (i0, j0) in [(0, 0), (0, 4), (4, 0), (4, 4)] {
            for i in i0..i0 + 4 {
                for j in j0..j0 + 4 {
                    // SAFETY: both are blocks of 8 x 8 by the trait's contract.
                    unsafe { *dst.add(j * dst_stride + i) = *src.add(i * src_stride + j) };
                }
            }
        }
    }

    on_both! { add sub mul div max min }

    // Rounded twice, not `mul_add`: without an instruction for it that is a call of a library.
    #[inline(always)]
    fn fma(self, a: V, b: V, c: V) -> V {
        [four::add(four::mul(a[0], b[0]), c[0]), four::add(four::mul(a[1], b[1]), c[1])]
    }

    #[inline(always)]
    fn fnma(self, a: V, b: V, c: V) -> V {
        [four::sub(c[0], four::mul(a[0], b[0])), four::sub(c[1], four::mul(a[1], b[1]))]
    }

    #[inline(always)]
    fn round(self, a: V) -> V {
        // Adding 1.5·2^23 leaves no bits for a fraction; correct for |a| < 2^22.
        let shift = self.splat(12_582_912.0);
        self.sub(self.add(a, shift), shift)
    }

    #[inline(always)]
    fn scale2(self, a: V, n: V) -> V {
        self.mul(a, [four::power_of_two(n[0]), four::power_of_two(n[1])])
    }
}

/// Four floats in SSE2, which every x86_64 processor has. The plain arrays below would do as well, but the compiler then
/// chooses by itself what to vectorise, and makes products up to three times slower (measured).
#[cfg(target_arch = "x86_64")]
mod four {
    use std::arch::x86_64::*;

    pub(super) type Four = __m128;
    pub(super) use std::arch::x86_64::{_mm_loadu_ps as load, _mm_storeu_ps as store};

    macro_rules! by_intrinsics {
        ($($name:ident = $intrinsic:ident;)+) => {$(
            #[inline(always)]
            pub(super) fn $name(a: Four, b: Four) -> Four {
                // SAFETY: every processor of this target has SSE2.
                unsafe { $intrinsic(a, b) }
            }
        )+};
    }

    by_intrinsics! {
        add = _mm_add_ps;
        sub = _mm_sub_ps;
        mul = _mm_mul_ps;
        div = _mm_div_ps;
        max = _mm_max_ps;
        min = _mm_min_ps;
    }

    #[inline(always)]
    pub(super) fn splat(x: f32) -> Four {
        // SAFETY: every processor of this target has SSE2.
        unsafe { _mm_set1_ps(x) }
    }

    /// 2^n for integers n in −126..=127.
    #[inline(always)]
    pub(super) fn power_of_two(n: Four) -> Four {
        // SAFETY: every processor of this target has SSE2.
        unsafe {
            let exponent = _mm_add_epi32(_mm_cvttps_epi32(n), _mm_set1_epi32(127));
            _mm_castsi128_ps(_mm_slli_epi32::<23>(exponent))
        }
    }
}

/// Four floats in plain Rust.
#[cfg(not(target_arch = "x86_64"))]
mod four {
    pub(super) type Four = [f32; 4];

    #[inline(always)]
    pub(super) fn splat(x: f32) -> Four {
        [x; 4]
    }

    /// # Safety
    /// `from` is valid for reading four floats; it need not be aligned.
    #[inline(always)]
    pub(super) unsafe fn load(from: *const f32) -> Four {
        // SAFETY: the contract of this function.
        unsafe { from.cast::<Four>().read_unaligned() }
    }

    /// # Safety
    /// `to` is valid for writing four floats; it need not be aligned.
    #[inline(always)]
    pub(super) unsafe fn store(to: *mut f32, v: Four) {
        // SAFETY: the contract of this function.
        unsafe { to.cast::<Four>().write_unaligned(v) }
    }

    /// Implements functions lane by lane.
    macro_rules! lane_by_lane {
        ($($name:ident = |$a:ident, $b:ident| $value:expr;)+) => {$(
            #[inline(always)]
            pub(super) fn $name(a: Four, b: Four) -> Four {
                let lane = |$a: f32, $b: f32| $value;
                [lane(a[0], b[0]), lane(a[1], b[1]), lane(a[2], b[2]), lane(a[3], b[3])]
            }
        )+};
    }

    lane_by_lane! {
        add = |a, b| a + b;
        sub = |a, b| a - b;
        mul = |a, b| a * b;
        div = |a, b| a / b;
        max = |a, b| if a > b { a } else { b };
        min = |a, b| if a < b { a } else { b };
    }

    /// 2^n for integers n in −126..=127.
    #[inline(always)]
    pub(super) fn power_of_two(n: Four) -> Four {
        n.map(|n| f32::from_bits((127 + n as i32) as u32 * (1 << 23)))
    }
}
