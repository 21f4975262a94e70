//! Vectors of f32 for whichever instruction set the processor has, chosen at run time.
//!
//! A kernel is written once against [`Simd`] and compiled for each set: [`Isa::run`] enters a function whose target
//! features are those of the set, and everything marked `inline(always)` below it is compiled with them.
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod portable;

/// One vector of [`Simd::LANES`] floats and what the kernels do with it.
///
/// # Safety
/// All functions require that the processor has the instruction set of the implementor; [`Isa`] is the proof of it.
/// Pointers need no alignment but must be valid for `LANES` floats.
pub(crate) trait Simd: Copy + Send + Sync + 'static {
    /// The vector.
    type V: Copy;
    /// Floats in a vector.
    const LANES: usize;
    /// Rows of [`crate::gemm`]'s register tile, 8 or 6.
    const ROWS: usize;
    /// Vectors in each of these rows, up to 3. With the operands the tile fills the registers: one more and the compiler
    /// moves them around, at half the speed.
    const PANEL: usize;

    unsafe fn zero() -> Self::V;
    unsafe fn splat(x: f32) -> Self::V;
    unsafe fn load(p: *const f32) -> Self::V;
    unsafe fn store(p: *mut f32, v: Self::V);
    unsafe fn add(a: Self::V, b: Self::V) -> Self::V;
    unsafe fn sub(a: Self::V, b: Self::V) -> Self::V;
    unsafe fn mul(a: Self::V, b: Self::V) -> Self::V;
    /// a·b + c
    unsafe fn fma(a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// c − a·b
    unsafe fn fnma(a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// Writes the transpose of a LANES x LANES block: `dst[j * dst_stride + i] = src[i * src_stride + j]`.
    unsafe fn transpose(src: *const f32, src_stride: usize, dst: *mut f32, dst_stride: usize);
}

/// Work that can be compiled for any instruction set.
pub(crate) trait Kernel {
    /// Does the work; implementations are `#[inline(always)]`.
    ///
    /// # Safety
    /// The processor has the instruction set `S`, and the contract of the implementor holds.
    unsafe fn run<S: Simd>(self);
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Level {
    #[cfg(target_arch = "x86_64")]
    Avx512,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    Portable,
}

/// An instruction set this processor has. A value exists only where the set does, so running kernels with it is safe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Isa(Level);

impl Isa {
    /// The widest set of this processor.
    pub fn detect() -> Self {
        #[cfg(target_arch = "x86_64")]
        {
            if is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512dq") {
                return Self(Level::Avx512);
            }
            if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
                return Self(Level::Avx2);
            }
        }
        Self(Level::Portable)
    }

    /// Every set of this processor, widest first.
    pub fn available() -> Vec<Self> {
        let mut all = vec![Self::detect()];
        #[cfg(target_arch = "x86_64")]
        if all[0].0 == Level::Avx512 && is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
            all.push(Self(Level::Avx2));
        }
        if all[0].0 != Level::Portable {
            all.push(Self(Level::Portable));
        }
        all
    }

    /// The set's name.
    pub fn name(self) -> &'static str {
        match self.0 {
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => "AVX-512",
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => "AVX2+FMA",
            Level::Portable => "portable",
        }
    }

    /// Floats in a vector.
    pub(crate) fn lanes(self) -> usize {
        match self.0 {
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => avx512::Avx512::LANES,
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => avx2::Avx2::LANES,
            Level::Portable => portable::Portable::LANES,
        }
    }

    /// Vectors in the widest panel of columns.
    pub(crate) fn panel(self) -> usize {
        match self.0 {
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => avx512::Avx512::PANEL,
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => avx2::Avx2::PANEL,
            Level::Portable => portable::Portable::PANEL,
        }
    }

    /// Runs `kernel` compiled for this set.
    ///
    /// # Safety
    /// The contract of the kernel's type holds.
    pub(crate) unsafe fn run<K: Kernel>(self, kernel: K) {
        // SAFETY: `self` exists only if `detect` or `available` found the set; the rest is the caller's promise.
        unsafe {
            match self.0 {
                #[cfg(target_arch = "x86_64")]
                Level::Avx512 => avx512::enter(kernel),
                #[cfg(target_arch = "x86_64")]
                Level::Avx2 => avx2::enter(kernel),
                Level::Portable => kernel.run::<portable::Portable>(),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Check;

    impl Kernel for Check {
        #[inline(always)]
        unsafe fn run<S: Simd>(self) {
            let l = S::LANES;
            let src: Vec<f32> = (0..l * (l + 3)).map(|i| i as f32).collect();
            let mut dst = vec![0.0; l * (l + 5)];
            // SAFETY: both arrays hold LANES rows of their stride.
            unsafe { S::transpose(src.as_ptr(), l + 3, dst.as_mut_ptr(), l + 5) };
            for i in 0..l {
                assert!((0..l).all(|j| dst[j * (l + 5) + i] == src[i * (l + 3) + j]), "row {i}");
            }
            let mut out = [0.0f32; 16];
            // SAFETY: `src` and `out` hold at least LANES floats.
            unsafe {
                let (x, two) = (S::load(src.as_ptr()), S::splat(2.0));
                let y = S::sub(S::add(S::fma(x, two, two), S::fnma(x, two, S::zero())), S::mul(x, two));
                S::store(out.as_mut_ptr(), y);
            }
            assert!((0..l).all(|i| out[i] == 2.0 - 2.0 * i as f32));
        }
    }

    #[test]
    fn every_set_computes_and_transposes() {
        for isa in Isa::available() {
            // SAFETY: `Check` asks for nothing.
            unsafe { isa.run(Check) };
        }
    }
}
