//! Treating subnormal numbers as zero: x86 processors compute with them many times slower than with others.

/// Makes arithmetic of the *current thread* read subnormal inputs as zero and write subnormal results as zero, from now
/// until the thread ends (flush-to-zero and denormals-are-zero of MXCSR). Other threads, and threads started later by a
/// pool, keep their own setting. Does nothing on other architectures than x86_64.
///
/// Set it on every thread that calls kernels or on none; threads that help with a kernel take over the caller's setting.
/// Otherwise a result could depend on the thread that computed it, and so on the number of threads.
///
/// # Safety
/// Rust assumes the default floating-point environment, so the compiler may still evaluate an operation on subnormal
/// numbers exactly, for instance in advance. The caller promises that no code on this thread, libraries included, relies
/// on a difference between a subnormal number and zero: not for memory safety (as in `x != 0.0` before an unchecked
/// access), and not for a correct result.
#[inline(never)]
pub unsafe fn flush_subnormals() {
    #[cfg(target_arch = "x86_64")]
    {
        /// Flush-to-zero is bit 15 of MXCSR, denormals-are-zero bit 6.
        const FLUSH: u32 = 1 << 15 | 1 << 6;
        let mut mxcsr = 0u32;
        // SAFETY: both instructions touch only the four bytes of `mxcsr` and the control register; every x86_64
        // processor has them and both bits. What the new mode means for other code is the caller's promise.
        unsafe {
            std::arch::asm!("stmxcsr [{}]", in(reg) &raw mut mxcsr, options(nostack, preserves_flags));
            mxcsr |= FLUSH;
            std::arch::asm!("ldmxcsr [{}]", in(reg) &raw const mxcsr, options(nostack, preserves_flags));
        }
    }
}

/// How a thread treats subnormal numbers, to be passed to the threads that help it.
#[derive(Clone, Copy)]
pub(crate) struct Mode {
    #[cfg(target_arch = "x86_64")]
    mxcsr: u32,
}

impl Mode {
    /// The mode of the current thread.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn current() -> Self {
        let mut mxcsr = 0u32;
        // SAFETY: writes the four bytes of `mxcsr`; every x86_64 processor has the instruction.
        unsafe { std::arch::asm!("stmxcsr [{}]", in(reg) &raw mut mxcsr, options(nostack, preserves_flags)) };
        Self { mxcsr }
    }

    /// Sets the mode of the current thread.
    ///
    /// # Safety
    /// The conditions of [`flush_subnormals`]; and the mode was read from a thread of this program.
    #[cfg(target_arch = "x86_64")]
    pub(crate) unsafe fn set(self) {
        // SAFETY: reads the four bytes, which another thread had in its register; the rest is the caller's promise.
        unsafe { std::arch::asm!("ldmxcsr [{}]", in(reg) &raw const self.mxcsr, options(nostack, preserves_flags)) };
    }

    #[cfg(not(target_arch = "x86_64"))]
    pub(crate) fn current() -> Self {
        Self {}
    }

    /// # Safety
    /// None needed here.
    #[cfg(not(target_arch = "x86_64"))]
    pub(crate) unsafe fn set(self) {}
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;
    use std::hint::black_box;

    /// Whether this thread computes with subnormal results and with subnormal inputs.
    fn keeps_subnormals() -> (bool, bool) {
        let result = black_box(f32::MIN_POSITIVE) * black_box(0.5);
        let input = black_box(f32::from_bits(1)) * black_box(2f32.powi(100));
        (result.to_bits() != 0, input.to_bits() != 0)
    }

    #[test]
    fn flushing_affects_one_thread() {
        let flushed = std::thread::spawn(|| {
            // SAFETY: the thread does nothing but the comparison below.
            unsafe { flush_subnormals() };
            keeps_subnormals()
        });
        assert_eq!(flushed.join().expect("the thread"), (false, false));
        assert_eq!(keeps_subnormals(), (true, true));
    }
}
