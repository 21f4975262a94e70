//! Vectors of f32 for whichever instruction set the processor has, chosen at run time.
//!
//! A kernel is written once against the trait [`Simd`] and compiled for AVX-512, for AVX2 with FMA, and for any
//! processor. [`Isa::run`] calls it inside a function that enables the target features of the set and hands it a *token*,
//! a value of a type that implements [`Simd`]. Tokens are only made where the processor has the instructions, so the
//! arithmetic needs no `unsafe`.
//!
//! Pitfall: only code that is inlined into the function with the target features is compiled with them. So every
//! function between [`Isa::run`] and the intrinsics is `#[inline(always)]`, the closures given to [`map`] and its
//! relatives included. A call that is left standing passes its vectors through memory and costs a multiple.
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod portable;
mod slices;
#[cfg(test)]
mod tests;

pub(crate) use slices::{map, map2, update};

/// Floats of the widest vector.
pub(crate) const MAX_LANES: usize = 16;

/// The vector operations. A value of an implementing type is the proof that the processor has the instructions.
pub(crate) trait Simd: Copy + Send + Sync + 'static {
    /// A vector.
    type V: Copy;
    /// Floats in a vector.
    const LANES: usize;
    /// Rows of the register tile of [`crate::product`].
    const ROWS: usize;
    /// Vectors in each of these rows. With the operands the tile fills the registers: one more vector and the compiler
    /// spills them to the stack, at half the speed.
    const PANEL: usize;

    /// The instruction set that this token stands for.
    fn isa(self) -> Isa;

    /// A vector whose lanes are all `x`.
    fn splat(self, x: f32) -> Self::V;
    /// Reads a vector.
    ///
    /// # Safety
    /// `from` is valid for reading `LANES` floats; it need not be aligned.
    unsafe fn load_at(self, from: *const f32) -> Self::V;
    /// Writes a vector.
    ///
    /// # Safety
    /// `to` is valid for writing `LANES` floats; it need not be aligned.
    unsafe fn store_at(self, v: Self::V, to: *mut f32);
    /// Reads the first `x.len()` < `LANES` lanes and sets the others to zero.
    fn load_part(self, x: &[f32]) -> Self::V;
    /// Writes the first `out.len()` < `LANES` lanes.
    fn store_part(self, v: Self::V, out: &mut [f32]);
    /// Writes the transpose of a block of LANES x LANES floats: `dst[j * dst_stride + i] = src[i * src_stride + j]`.
    ///
    /// # Safety
    /// `src` is valid for reading and `dst` for writing at all these offsets, and they do not overlap.
    unsafe fn transpose(self, src: *const f32, src_stride: usize, dst: *mut f32, dst_stride: usize);

    /// a + b
    fn add(self, a: Self::V, b: Self::V) -> Self::V;
    /// a − b
    fn sub(self, a: Self::V, b: Self::V) -> Self::V;
    /// a·b
    fn mul(self, a: Self::V, b: Self::V) -> Self::V;
    /// a/b
    fn div(self, a: Self::V, b: Self::V) -> Self::V;
    /// a·b + c, with one rounding where the processor has the instruction and with two elsewhere.
    fn fma(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// c − a·b, rounded as [`Self::fma`].
    fn fnma(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// The larger of both; `b` if one of them is NaN.
    fn max(self, a: Self::V, b: Self::V) -> Self::V;
    /// The smaller of both; `b` if one of them is NaN.
    fn min(self, a: Self::V, b: Self::V) -> Self::V;
    /// The nearest integer.
    fn round(self, a: Self::V) -> Self::V;
    /// a·2^n for integers n in −126..=127.
    fn scale2(self, a: Self::V, n: Self::V) -> Self::V;

    /// A vector of zeros.
    #[inline(always)]
    fn zero(self) -> Self::V {
        self.splat(0.0)
    }

    /// Reads a vector from the start of `x`.
    #[inline(always)]
    fn load(self, x: &[f32]) -> Self::V {
        assert!(x.len() >= Self::LANES);
        // SAFETY: the length was just asserted.
        unsafe { self.load_at(x.as_ptr()) }
    }

    /// Writes a vector to the start of `out`.
    #[inline(always)]
    fn store(self, v: Self::V, out: &mut [f32]) {
        assert!(out.len() >= Self::LANES);
        // SAFETY: the length was just asserted.
        unsafe { self.store_at(v, out.as_mut_ptr()) }
    }

    /// The sum of all lanes: the upper half is added to the lower one until a single lane is left.
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

    /// e^x to about one unit in the last place for −87.3 ≤ x ≤ 88. Outside it is the value at the nearer end, and NaN
    /// for NaN.
    #[inline(always)]
    fn exp(self, x: Self::V) -> Self::V {
        let c = |x| self.splat(x);
        // The argument comes second in both, because that is the operand which a NaN passes through.
        let x = self.min(c(88.0), self.max(c(-87.3), x));
        // x = n ln 2 + r with |r| ≤ ½ ln 2. ln 2 is the sum of two constants, the first short enough that its product
        // with n is exact (Cody and Waite).
        let n = self.round(self.mul(x, c(std::f32::consts::LOG2_E)));
        let r = self.fma(n, c(-0.693_359_4), x);
        let r = self.fma(n, c(2.121_944_4e-4), r);
        // The polynomial of Cephes' expf: e^r = 1 + r + r² p(r).
        let mut p = c(1.987_569_1e-4);
        for k in [1.398_2e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5] {
            p = self.fma(p, r, c(k));
        }
        let y = self.add(self.fma(self.mul(r, r), p, r), c(1.0));
        self.scale2(y, n)
    }

    /// σ(x) = 1/(1 + e^(−x))
    #[inline(always)]
    fn sigmoid(self, x: Self::V) -> Self::V {
        self.sigmoid_and_complement(x).0
    }

    /// σ(x) and 1 − σ(x), both without cancellation.
    #[inline(always)]
    fn sigmoid_and_complement(self, x: Self::V) -> (Self::V, Self::V) {
        let one = self.splat(1.0);
        let e = self.exp(self.sub(self.zero(), x));
        let sigmoid = self.div(one, self.add(one, e));
        (sigmoid, self.mul(e, sigmoid))
    }

    /// σ(x)(1 + x(1 − σ(x))), the derivative of SiLU.
    #[inline(always)]
    fn silu_derivative(self, x: Self::V) -> Self::V {
        let (sigmoid, complement) = self.sigmoid_and_complement(x);
        self.fma(self.mul(x, sigmoid), complement, sigmoid)
    }
}

/// Work of one thread that can be compiled for any instruction set.
pub(crate) trait Kernel {
    /// What it returns.
    type Output;
    /// Does the work. Implementations are `#[inline(always)]`.
    fn run<S: Simd>(self, s: S) -> Self::Output;
}

/// As [`Kernel`], for work through raw pointers: several threads write different elements of one array, interleaved so
/// that no slices could describe their parts.
pub(crate) trait RawKernel {
    /// Does the work. Implementations are `#[inline(always)]`.
    ///
    /// # Safety
    /// The contract in the documentation of the implementing type holds.
    unsafe fn run<S: Simd>(self, s: S);
}

/// A [`RawKernel`] whose contract holds: [`Isa::run_raw`], the only place that makes one, demands it.
struct Trusted<K>(K);

impl<K: RawKernel> Kernel for Trusted<K> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        // SAFETY: whoever called `run_raw` promised that the contract holds.
        unsafe { self.0.run(s) }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Set {
    Avx512,
    Avx2,
    Portable,
}

impl Set {
    const ALL: [Self; 3] = [Self::Avx512, Self::Avx2, Self::Portable];

    fn is_available(self) -> bool {
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
}

/// An instruction set that this processor has. Values are only made for sets that were detected, so that running
/// kernels with one is safe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Isa(Set);

impl Isa {
    /// The widest set of this processor.
    pub fn detect() -> Self {
        Self(Set::ALL.into_iter().find(|set| set.is_available()).unwrap_or(Set::Portable))
    }

    /// Every set of this processor, widest first.
    pub fn available() -> Vec<Self> {
        Set::ALL.into_iter().filter(|set| set.is_available()).map(Self).collect()
    }

    /// The set's name.
    pub fn name(self) -> &'static str {
        match self.0 {
            Set::Avx512 => "AVX-512",
            Set::Avx2 => "AVX2+FMA",
            Set::Portable => "portable",
        }
    }

    /// Floats in a vector: [`Simd::LANES`].
    pub(crate) fn lanes(self) -> usize {
        match self.0 {
            Set::Avx512 => 16,
            Set::Avx2 | Set::Portable => 8,
        }
    }

    /// Floats in a register of the processor. A portable vector takes two of them.
    pub(crate) fn register_lanes(self) -> usize {
        match self.0 {
            Set::Portable => 4,
            _ => self.lanes(),
        }
    }

    /// Most vectors in a panel of columns: [`Simd::PANEL`].
    pub(crate) fn panel(self) -> usize {
        match self.0 {
            Set::Avx512 => 3,
            Set::Avx2 => 2,
            Set::Portable => 1,
        }
    }

    /// Runs `kernel` compiled for this set.
    // A call of its own would copy the kernel's fields once more, which costs small products a few per cent.
    #[inline(always)]
    pub(crate) fn run<K: Kernel>(self, kernel: K) -> K::Output {
        match self.0 {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: `self` exists only where the set was detected.
            Set::Avx512 => unsafe { avx512::run(kernel) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as above.
            Set::Avx2 => unsafe { avx2::run(kernel) },
            _ => kernel.run(portable::Portable),
        }
    }

    /// As [`Self::run`], for work through raw pointers.
    ///
    /// # Safety
    /// The contract of the kernel's type holds.
    #[inline(always)]
    pub(crate) unsafe fn run_raw<K: RawKernel>(self, kernel: K) {
        self.run(Trusted(kernel));
    }
}

/// Implements operations of [`Simd`] by one intrinsic each.
#[cfg(target_arch = "x86_64")]
macro_rules! by_intrinsics {
    ($($name:ident($($operand:ident),+) = $intrinsic:ident;)+) => {$(
        #[inline(always)]
        fn $name(self, $($operand: Self::V),+) -> Self::V {
            // SAFETY: the instructions exist because the token does.
            unsafe { $intrinsic($($operand),+) }
        }
    )+};
}
#[cfg(target_arch = "x86_64")]
use by_intrinsics;
