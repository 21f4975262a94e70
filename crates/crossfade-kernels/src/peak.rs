//! How many multiply-adds a processor can do at most, to compare kernels with.
use crate::simd::{Isa, Kernel, MAX_LANES, Simd};
use std::time::Instant;

/// Registers of independent chains of multiply-adds: enough to hide their latency, few enough to stay in registers.
const REGISTERS: usize = 12;

/// Multiply-adds in registers only.
struct Peak {
    repeats: usize,
}

impl Kernel for Peak {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        // A portable vector takes two registers.
        if s.isa().register_lanes() == S::LANES {
            self.chains::<S, REGISTERS>(s);
        } else {
            self.chains::<S, { REGISTERS / 2 }>(s);
        }
    }
}

impl Peak {
    #[inline(always)]
    fn chains<S: Simd, const CHAINS: usize>(self, s: S) {
        let x = s.splat(std::hint::black_box(0.5));
        let mut acc = [s.splat(1.0); CHAINS];
        for _ in 0..self.repeats {
            for acc in &mut acc {
                *acc = s.fma(*acc, x, x);
            }
        }
        let mut out = [0.0f32; MAX_LANES];
        let mut sum = x;
        for acc in acc {
            sum = s.add(sum, acc);
        }
        s.store(sum, &mut out);
        std::hint::black_box(out);
    }
}

/// The most floating-point operations a second that the threads of the current pool reach, the best of some trials.
pub fn fma_peak(isa: Isa) -> f64 {
    let repeats = 1_000_000;
    let threads = rayon::current_num_threads();
    let flops = (2 * threads * repeats * REGISTERS * isa.register_lanes()) as f64;
    let trial = || {
        let start = Instant::now();
        rayon::broadcast(|_| isa.run(Peak { repeats }));
        flops / start.elapsed().as_secs_f64()
    };
    (0..20).map(|_| trial()).fold(0.0, f64::max)
}
