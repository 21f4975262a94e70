//! Vectors of f32 behind one trait: a kernel is written once and compiled for AVX-512, AVX2 with FMA, and any machine.
//!
//! A kernel is a [`Kernel`] whose `run` is `#[inline(always)]`; [`Level::run`] calls it inside a function that carries
//! the target features, and hands it the token through which it computes. Closures given to the helpers below are marked
//! `#[inline(always)]` too: a call left standing would pass vectors through memory.

/// Lanes of the widest vector.
pub const MAX_LANES: usize = 16;

/// A set of instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// AVX-512F and DQ: 16 lanes.
    Avx512,
    /// AVX2 and FMA: 8 lanes.
    Avx2,
    /// Whatever the compiler makes of arrays of 8.
    Portable,
}

impl Level {
    /// The widest that this processor has.
    pub fn best() -> Self {
        [Self::Avx512, Self::Avx2].into_iter().find(|level| level.present()).unwrap_or(Self::Portable)
    }

    /// All that this processor has.
    #[cfg(test)]
    pub fn all() -> impl Iterator<Item = Self> {
        [Self::Avx512, Self::Avx2, Self::Portable].into_iter().filter(|level| level.present())
    }

    fn present(self) -> bool {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512dq"),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma"),
            #[cfg(not(target_arch = "x86_64"))]
            Self::Avx512 | Self::Avx2 => false,
            Self::Portable => true,
        }
    }

    /// Runs `kernel` with these instructions, or the portable ones where the processor lacks them.
    pub fn run<K: Kernel>(self, kernel: K) -> K::Output {
        match self {
            // SAFETY (both): the features were found on this processor.
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 if self.present() => unsafe { x86::run_avx512(kernel) },
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 if self.present() => unsafe { x86::run_avx2(kernel) },
            _ => kernel.run(Portable),
        }
    }
}

/// A piece of work for one thread, written over the trait [`Simd`].
pub trait Kernel {
    /// What it returns.
    type Output;
    /// Does the work. Implementations are `#[inline(always)]`.
    fn run<S: Simd>(self, s: S) -> Self::Output;
}

/// The vector operations. Values of implementing types exist only where the processor has the instructions.
pub trait Simd: Copy {
    /// Numbers in a vector.
    const LANES: usize;
    /// A vector.
    type V: Copy;
    /// All lanes `x`.
    fn splat(self, x: f32) -> Self::V;
    /// Lanes from memory.
    ///
    /// # Safety
    /// `from` is valid for reading `LANES` numbers.
    unsafe fn load_at(self, from: *const f32) -> Self::V;
    /// Lanes to memory.
    ///
    /// # Safety
    /// `to` is valid for writing `LANES` numbers.
    unsafe fn store_at(self, v: Self::V, to: *mut f32);
    /// The first `x.len()` < `LANES` lanes from memory, zeros above.
    fn load_part(self, x: &[f32]) -> Self::V;
    /// The first `out.len()` < `LANES` lanes to memory.
    fn store_part(self, v: Self::V, out: &mut [f32]);
    /// a + b.
    fn add(self, a: Self::V, b: Self::V) -> Self::V;
    /// a − b.
    fn sub(self, a: Self::V, b: Self::V) -> Self::V;
    /// a·b.
    fn mul(self, a: Self::V, b: Self::V) -> Self::V;
    /// a/b.
    fn div(self, a: Self::V, b: Self::V) -> Self::V;
    /// a·b + c, with one rounding where the processor can.
    fn fma(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// The larger; `b` if one of them is NaN.
    fn max(self, a: Self::V, b: Self::V) -> Self::V;
    /// The smaller; `b` if one of them is NaN.
    fn min(self, a: Self::V, b: Self::V) -> Self::V;
    /// The nearest whole number.
    fn round(self, a: Self::V) -> Self::V;
    /// a·2^n for whole n in −126..=127.
    fn scale2(self, a: Self::V, n: Self::V) -> Self::V;

    /// `LANES` numbers from the start of `x`.
    #[inline(always)]
    fn load(self, x: &[f32]) -> Self::V {
        assert!(x.len() >= Self::LANES);
        // SAFETY: just asserted.
        unsafe { self.load_at(x.as_ptr()) }
    }

    /// `LANES` numbers to the start of `out`.
    #[inline(always)]
    fn store(self, v: Self::V, out: &mut [f32]) {
        assert!(out.len() >= Self::LANES);
        // SAFETY: just asserted.
        unsafe { self.store_at(v, out.as_mut_ptr()) }
    }

    /// The sum of all lanes, in pairs.
    #[inline(always)]
    fn sum(self, v: Self::V) -> f32 {
        let mut lanes = [0.0; MAX_LANES];
        self.store(v, &mut lanes);
        let mut width = Self::LANES;
        while width > 1 {
            width /= 2;
            for i in 0..width {
                lanes[i] += lanes[i + width];
            }
        }
        lanes[0]
    }

    /// e^x to about one unit in the last place for −87.3 ≤ x ≤ 88; the value at the nearer end outside, NaN for NaN.
    #[inline(always)]
    fn exp(self, x: Self::V) -> Self::V {
        let c = |x| self.splat(x);
        let x = self.min(c(88.0), self.max(c(-87.3), x));
        // x = n ln 2 + r, |r| ≤ ½ ln 2, with ln 2 in two parts of which the first times n is exact.
        let n = self.round(self.mul(x, c(std::f32::consts::LOG2_E)));
        let r = self.fma(n, c(-0.693_359_4), x);
        let r = self.fma(n, c(2.121_944_4e-4), r);
        // Cephes expf: e^r = 1 + r + r² p(r).
        let mut p = c(1.987_569_1e-4);
        for k in [1.398_2e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5] {
            p = self.fma(p, r, c(k));
        }
        let y = self.add(self.fma(self.mul(r, r), p, r), c(1.0));
        self.scale2(y, n)
    }

    /// σ(x) = 1/(1 + e^(−x)).
    #[inline(always)]
    fn sigmoid(self, x: Self::V) -> Self::V {
        self.sigmoids(x).0
    }

    /// σ(x) and 1 − σ(x), both without cancellation.
    #[inline(always)]
    fn sigmoids(self, x: Self::V) -> (Self::V, Self::V) {
        let one = self.splat(1.0);
        let e = self.exp(self.sub(self.splat(0.0), x));
        let g = self.div(one, self.add(one, e));
        (g, self.mul(e, g))
    }

    /// σ(x)(1 + x(1 − σ(x))), the slope of SiLU.
    #[inline(always)]
    fn silu_slope(self, x: Self::V) -> Self::V {
        let (g, rest) = self.sigmoids(x);
        self.fma(self.mul(x, g), rest, g)
    }
}

/// out_i = f(x_i).
#[inline(always)]
pub fn map<S: Simd>(s: S, x: &[f32], out: &mut [f32], f: impl Fn(S::V) -> S::V) {
    let (mut xs, mut outs) = (x.chunks_exact(S::LANES), out.chunks_exact_mut(S::LANES));
    for (x, out) in xs.by_ref().zip(outs.by_ref()) {
        s.store(f(s.load(x)), out);
    }
    if !xs.remainder().is_empty() {
        s.store_part(f(s.load_part(xs.remainder())), outs.into_remainder());
    }
}

/// out_i = f(x_i, y_i).
#[inline(always)]
pub fn map2<S: Simd>(s: S, x: &[f32], y: &[f32], out: &mut [f32], f: impl Fn(S::V, S::V) -> S::V) {
    let (mut xs, mut ys) = (x.chunks_exact(S::LANES), y.chunks_exact(S::LANES));
    let mut outs = out.chunks_exact_mut(S::LANES);
    for ((x, y), out) in xs.by_ref().zip(ys.by_ref()).zip(outs.by_ref()) {
        s.store(f(s.load(x), s.load(y)), out);
    }
    if !xs.remainder().is_empty() {
        let v = f(s.load_part(xs.remainder()), s.load_part(ys.remainder()));
        s.store_part(v, outs.into_remainder());
    }
}

/// out_i = f(out_i, x_i).
#[inline(always)]
pub fn update<S: Simd>(s: S, out: &mut [f32], x: &[f32], f: impl Fn(S::V, S::V) -> S::V) {
    let (mut xs, mut outs) = (x.chunks_exact(S::LANES), out.chunks_exact_mut(S::LANES));
    for (x, out) in xs.by_ref().zip(outs.by_ref()) {
        s.store(f(s.load(out), s.load(x)), out);
    }
    if !xs.remainder().is_empty() {
        let out = outs.into_remainder();
        s.store_part(f(s.load_part(out), s.load_part(xs.remainder())), out);
    }
}

/// Arrays of 8, for any machine.
#[derive(Clone, Copy)]
pub struct Portable;

#[inline(always)]
fn zip(a: [f32; 8], b: [f32; 8], f: impl Fn(f32, f32) -> f32) -> [f32; 8] {
    std::array::from_fn(
        #[inline(always)]
        |i| f(a[i], b[i]),
    )
}

impl Simd for Portable {
    const LANES: usize = 8;
    type V = [f32; 8];
    #[inline(always)]
    fn splat(self, x: f32) -> Self::V {
        [x; 8]
    }
    #[inline(always)]
    unsafe fn load_at(self, from: *const f32) -> Self::V {
        // SAFETY: 8 numbers are readable, by contract; no alignment is assumed.
        unsafe { from.cast::<Self::V>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn store_at(self, v: Self::V, to: *mut f32) {
        // SAFETY: 8 numbers are writable, by contract; no alignment is assumed.
        unsafe { to.cast::<Self::V>().write_unaligned(v) }
    }
    #[inline(always)]
    fn load_part(self, x: &[f32]) -> Self::V {
        let mut v = [0.0; 8];
        v[..x.len()].copy_from_slice(x);
        v
    }
    #[inline(always)]
    fn store_part(self, v: Self::V, out: &mut [f32]) {
        out.copy_from_slice(&v[..out.len()]);
    }
    #[inline(always)]
    fn add(self, a: Self::V, b: Self::V) -> Self::V {
        zip(a, b, |a, b| a + b)
    }
    #[inline(always)]
    fn sub(self, a: Self::V, b: Self::V) -> Self::V {
        zip(a, b, |a, b| a - b)
    }
    #[inline(always)]
    fn mul(self, a: Self::V, b: Self::V) -> Self::V {
        zip(a, b, |a, b| a * b)
    }
    #[inline(always)]
    fn div(self, a: Self::V, b: Self::V) -> Self::V {
        zip(a, b, |a, b| a / b)
    }
    #[inline(always)]
    fn fma(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V {
        // Not mul_add: without the instruction that is a call of a library.
        zip(zip(a, b, |a, b| a * b), c, |ab, c| ab + c)
    }
    #[inline(always)]
    fn max(self, a: Self::V, b: Self::V) -> Self::V {
        zip(a, b, |a, b| if a > b { a } else { b })
    }
    #[inline(always)]
    fn min(self, a: Self::V, b: Self::V) -> Self::V {
        zip(a, b, |a, b| if a < b { a } else { b })
    }
    #[inline(always)]
    fn round(self, a: Self::V) -> Self::V {
        // Adding 1.5·2^23 leaves no bits for a fraction; right for |a| < 2^22.
        const SHIFT: f32 = 12_582_912.0;
        zip(a, a, |a, _| (a + SHIFT) - SHIFT)
    }
    #[inline(always)]
    fn scale2(self, a: Self::V, n: Self::V) -> Self::V {
        zip(a, n, |a, n| a * f32::from_bits((127 + n as i32) as u32 * (1 << 23)))
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{Kernel, Simd};
    use std::arch::x86_64::*;

    /// Proof that AVX-512F and DQ are there.
    #[derive(Clone, Copy)]
    pub struct Avx512(());
    /// Proof that AVX2 and FMA are there.
    #[derive(Clone, Copy)]
    pub struct Avx2(());

    /// # Safety
    /// The processor has AVX-512F and DQ.
    #[target_feature(enable = "avx512f,avx512dq,avx2,fma")]
    pub unsafe fn run_avx512<K: Kernel>(kernel: K) -> K::Output {
        kernel.run(Avx512(()))
    }

    /// # Safety
    /// The processor has AVX2 and FMA.
    #[target_feature(enable = "avx2,fma")]
    pub unsafe fn run_avx2<K: Kernel>(kernel: K) -> K::Output {
        kernel.run(Avx2(()))
    }

    // SAFETY of every block below: the instructions exist because the token does; pointers are valid by the contracts of
    // `load_at` and `store_at`, and masked accesses touch only the lanes inside the slice.
    impl Simd for Avx512 {
        const LANES: usize = 16;
        type V = __m512;
        #[inline(always)]
        fn splat(self, x: f32) -> __m512 {
            unsafe { _mm512_set1_ps(x) }
        }
        #[inline(always)]
        unsafe fn load_at(self, from: *const f32) -> __m512 {
            unsafe { _mm512_loadu_ps(from) }
        }
        #[inline(always)]
        unsafe fn store_at(self, v: __m512, to: *mut f32) {
            unsafe { _mm512_storeu_ps(to, v) }
        }
        #[inline(always)]
        fn load_part(self, x: &[f32]) -> __m512 {
            assert!(x.len() < 16);
            unsafe { _mm512_maskz_loadu_ps((1u16 << x.len()) - 1, x.as_ptr()) }
        }
        #[inline(always)]
        fn store_part(self, v: __m512, out: &mut [f32]) {
            assert!(out.len() < 16);
            unsafe { _mm512_mask_storeu_ps(out.as_mut_ptr(), (1u16 << out.len()) - 1, v) }
        }
        #[inline(always)]
        fn add(self, a: __m512, b: __m512) -> __m512 {
            unsafe { _mm512_add_ps(a, b) }
        }
        #[inline(always)]
        fn sub(self, a: __m512, b: __m512) -> __m512 {
            unsafe { _mm512_sub_ps(a, b) }
        }
        #[inline(always)]
        fn mul(self, a: __m512, b: __m512) -> __m512 {
            unsafe { _mm512_mul_ps(a, b) }
        }
        #[inline(always)]
        fn div(self, a: __m512, b: __m512) -> __m512 {
            unsafe { _mm512_div_ps(a, b) }
        }
        #[inline(always)]
        fn fma(self, a: __m512, b: __m512, c: __m512) -> __m512 {
            unsafe { _mm512_fmadd_ps(a, b, c) }
        }
        #[inline(always)]
        fn max(self, a: __m512, b: __m512) -> __m512 {
            unsafe { _mm512_max_ps(a, b) }
        }
        #[inline(always)]
        fn min(self, a: __m512, b: __m512) -> __m512 {
            unsafe { _mm512_min_ps(a, b) }
        }
        #[inline(always)]
        fn round(self, a: __m512) -> __m512 {
            unsafe { _mm512_roundscale_ps::<0>(a) }
        }
        #[inline(always)]
        fn scale2(self, a: __m512, n: __m512) -> __m512 {
            unsafe { _mm512_scalef_ps(a, n) }
        }
    }

    /// Ones in the lanes below `len`.
    #[inline(always)]
    fn mask(len: usize) -> __m256i {
        assert!(len < 8);
        unsafe { _mm256_cmpgt_epi32(_mm256_set1_epi32(len as i32), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7)) }
    }

    impl Simd for Avx2 {
        const LANES: usize = 8;
        type V = __m256;
        #[inline(always)]
        fn splat(self, x: f32) -> __m256 {
            unsafe { _mm256_set1_ps(x) }
        }
        #[inline(always)]
        unsafe fn load_at(self, from: *const f32) -> __m256 {
            unsafe { _mm256_loadu_ps(from) }
        }
        #[inline(always)]
        unsafe fn store_at(self, v: __m256, to: *mut f32) {
            unsafe { _mm256_storeu_ps(to, v) }
        }
        #[inline(always)]
        fn load_part(self, x: &[f32]) -> __m256 {
            unsafe { _mm256_maskload_ps(x.as_ptr(), mask(x.len())) }
        }
        #[inline(always)]
        fn store_part(self, v: __m256, out: &mut [f32]) {
            unsafe { _mm256_maskstore_ps(out.as_mut_ptr(), mask(out.len()), v) }
        }
        #[inline(always)]
        fn add(self, a: __m256, b: __m256) -> __m256 {
            unsafe { _mm256_add_ps(a, b) }
        }
        #[inline(always)]
        fn sub(self, a: __m256, b: __m256) -> __m256 {
            unsafe { _mm256_sub_ps(a, b) }
        }
        #[inline(always)]
        fn mul(self, a: __m256, b: __m256) -> __m256 {
            unsafe { _mm256_mul_ps(a, b) }
        }
        #[inline(always)]
        fn div(self, a: __m256, b: __m256) -> __m256 {
            unsafe { _mm256_div_ps(a, b) }
        }
        #[inline(always)]
        fn fma(self, a: __m256, b: __m256, c: __m256) -> __m256 {
            unsafe { _mm256_fmadd_ps(a, b, c) }
        }
        #[inline(always)]
        fn max(self, a: __m256, b: __m256) -> __m256 {
            unsafe { _mm256_max_ps(a, b) }
        }
        #[inline(always)]
        fn min(self, a: __m256, b: __m256) -> __m256 {
            unsafe { _mm256_min_ps(a, b) }
        }
        #[inline(always)]
        fn round(self, a: __m256) -> __m256 {
            unsafe { _mm256_round_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(a) }
        }
        #[inline(always)]
        fn scale2(self, a: __m256, n: __m256) -> __m256 {
            unsafe {
                let exponent = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
                _mm256_mul_ps(a, _mm256_castsi256_ps(_mm256_slli_epi32::<23>(exponent)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Exp<'a>(&'a [f32], &'a mut [f32]);
    impl Kernel for Exp<'_> {
        type Output = ();
        #[inline(always)]
        fn run<S: Simd>(self, s: S) {
            map(
                s,
                self.0,
                self.1,
                #[inline(always)]
                |x| s.exp(x),
            );
        }
    }

    #[test]
    fn the_exponential_is_good_to_an_ulp_or_so() {
        let x: Vec<f32> = (0..200_001).map(|i| -87.3 + 175.3 * i as f32 / 200_000.0).collect();
        let mut y = vec![0.0; x.len()];
        for level in Level::all() {
            level.run(Exp(&x, &mut y));
            let worst = x.iter().zip(&y).map(|(&x, &y)| {
                let exact = f64::from(x.min(88.0)).exp();
                (f64::from(y) / exact - 1.0).abs()
            });
            let worst = worst.fold(0.0, f64::max);
            assert!(worst < 1.5e-7, "{level:?}: {worst:e}");
        }
    }

    #[test]
    fn the_exponential_saturates_and_keeps_nan() {
        let x = [f32::NAN, -1e9, f32::NEG_INFINITY, 1e9, 0.0];
        for level in Level::all() {
            let mut y = [1.0; 5];
            level.run(Exp(&x, &mut y));
            assert!(y[0].is_nan() && y[1] < 1.3e-38 && y[1] == y[2] && y[3] > 1e38 && y[4] == 1.0, "{level:?} {y:?}");
        }
    }

    struct Sum<'a>(&'a [f32]);
    impl Kernel for Sum<'_> {
        type Output = f32;
        #[inline(always)]
        fn run<S: Simd>(self, s: S) -> f32 {
            s.sum(s.load(self.0)) + s.sum(s.load_part(&self.0[..3]))
        }
    }

    #[test]
    fn lanes_are_summed_and_parts_padded_with_zeros() {
        let x: Vec<f32> = (1..17).map(|i| i as f32).collect();
        for level in Level::all() {
            let lanes = if level == Level::Avx512 { 16 } else { 8 };
            assert_eq!(level.run(Sum(&x)), (lanes * (lanes + 1) / 2) as f32 + 6.0);
        }
    }
}
