//! Four floats in plain Rust, which compilers turn into the vectors that every processor has.
use super::Simd;

#[derive(Clone, Copy)]
pub(super) struct Portable;

#[inline(always)]
fn map(a: [f32; 4], b: [f32; 4], f: impl Fn(f32, f32) -> f32) -> [f32; 4] {
    [f(a[0], b[0]), f(a[1], b[1]), f(a[2], b[2]), f(a[3], b[3])]
}

impl Simd for Portable {
    type V = [f32; 4];
    const LANES: usize = 4;
    const ROWS: usize = 6;
    const PANEL: usize = 2;

    #[inline(always)]
    unsafe fn zero() -> [f32; 4] {
        [0.0; 4]
    }

    #[inline(always)]
    unsafe fn splat(x: f32) -> [f32; 4] {
        [x; 4]
    }

    #[inline(always)]
    unsafe fn load(p: *const f32) -> [f32; 4] {
        // SAFETY: valid for LANES floats by the trait's contract.
        unsafe { p.cast::<[f32; 4]>().read_unaligned() }
    }

    #[inline(always)]
    unsafe fn store(p: *mut f32, v: [f32; 4]) {
        // SAFETY: valid for LANES floats by the trait's contract.
        unsafe { p.cast::<[f32; 4]>().write_unaligned(v) }
    }

    #[inline(always)]
    unsafe fn add(a: [f32; 4], b: [f32; 4]) -> [f32; 4] {
        map(a, b, |a, b| a + b)
    }

    #[inline(always)]
    unsafe fn sub(a: [f32; 4], b: [f32; 4]) -> [f32; 4] {
        map(a, b, |a, b| a - b)
    }

    #[inline(always)]
    unsafe fn mul(a: [f32; 4], b: [f32; 4]) -> [f32; 4] {
        map(a, b, |a, b| a * b)
    }

    // Rounded twice: a fused operation without hardware for it is a library call.
    #[inline(always)]
    unsafe fn fma(a: [f32; 4], b: [f32; 4], c: [f32; 4]) -> [f32; 4] {
        map(map(a, b, |a, b| a * b), c, |p, c| p + c)
    }

    #[inline(always)]
    unsafe fn fnma(a: [f32; 4], b: [f32; 4], c: [f32; 4]) -> [f32; 4] {
        map(map(a, b, |a, b| a * b), c, |p, c| c - p)
    }

    #[inline(always)]
    unsafe fn transpose(src: *const f32, src_stride: usize, dst: *mut f32, dst_stride: usize) {
        for i in 0..4 {
            for j in 0..4 {
                // SAFETY: both are LANES x LANES blocks by the trait's contract.
                unsafe { *dst.add(j * dst_stride + i) = *src.add(i * src_stride + j) };
            }
        }
    }
}
