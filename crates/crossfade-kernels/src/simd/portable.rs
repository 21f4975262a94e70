//! Eight floats in plain Rust, which the compiler turns into the vectors that every processor of its target has.
use super::{Isa, Set, Simd};

#[derive(Clone, Copy)]
pub(super) struct Portable;

type V = [f32; 8];

#[inline(always)]
fn zip(a: V, b: V, f: impl Fn(f32, f32) -> f32) -> V {
    std::array::from_fn(
        #[inline(always)]
        |i| f(a[i], b[i]),
    )
}

impl Simd for Portable {
    type V = V;
    const LANES: usize = 8;
    // A vector is two registers of SSE or NEON: 12 accumulators, 2 for B and one element of A, in 16 registers.
    const ROWS: usize = 6;
    const PANEL: usize = 1;

    #[inline(always)]
    fn isa(self) -> Isa {
        Isa(Set::Portable)
    }

    #[inline(always)]
    fn splat(self, x: f32) -> V {
        [x; 8]
    }

    #[inline(always)]
    unsafe fn load_at(self, from: *const f32) -> V {
        // SAFETY: 8 floats are readable by the trait's contract; no alignment is assumed.
        unsafe { from.cast::<V>().read_unaligned() }
    }

    #[inline(always)]
    unsafe fn store_at(self, v: V, to: *mut f32) {
        // SAFETY: 8 floats are writable by the trait's contract; no alignment is assumed.
        unsafe { to.cast::<V>().write_unaligned(v) }
    }

    #[inline(always)]
    fn load_part(self, x: &[f32]) -> V {
        let mut v = [0.0; 8];
        v[..x.len()].copy_from_slice(x);
        v
    }

    #[inline(always)]
    fn store_part(self, v: V, out: &mut [f32]) {
        out.copy_from_slice(&v[..out.len()]);
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

    #[inline(always)]
    fn add(self, a: V, b: V) -> V {
        zip(a, b, |a, b| a + b)
    }

    #[inline(always)]
    fn sub(self, a: V, b: V) -> V {
        zip(a, b, |a, b| a - b)
    }

    #[inline(always)]
    fn mul(self, a: V, b: V) -> V {
        zip(a, b, |a, b| a * b)
    }

    #[inline(always)]
    fn div(self, a: V, b: V) -> V {
        zip(a, b, |a, b| a / b)
    }

    // Rounded twice, not `mul_add`: without an instruction for it that is a call of a library.
    #[inline(always)]
    fn fma(self, a: V, b: V, c: V) -> V {
        zip(zip(a, b, |a, b| a * b), c, |ab, c| ab + c)
    }

    #[inline(always)]
    fn fnma(self, a: V, b: V, c: V) -> V {
        zip(zip(a, b, |a, b| a * b), c, |ab, c| c - ab)
    }

    #[inline(always)]
    fn max(self, a: V, b: V) -> V {
        zip(a, b, |a, b| if a > b { a } else { b })
    }

    #[inline(always)]
    fn min(self, a: V, b: V) -> V {
        zip(a, b, |a, b| if a < b { a } else { b })
    }

    #[inline(always)]
    fn round(self, a: V) -> V {
        // Adding 1.5·2^23 leaves no bits for a fraction; correct for |a| < 2^22.
        const SHIFT: f32 = 12_582_912.0;
        a.map(
            #[inline(always)]
            |a| (a + SHIFT) - SHIFT,
        )
    }

    #[inline(always)]
    fn scale2(self, a: V, n: V) -> V {
        zip(a, n, |a, n| a * f32::from_bits((127 + n as i32) as u32 * (1 << 23)))
    }
}
