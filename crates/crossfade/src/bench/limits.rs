//! What the processor can do at best, measured.
use crossfade_kernels::{Isa, fma_peak};
use rayon::prelude::*;
use serde::Serialize;
use std::time::Instant;

/// The limits that kernels are compared with.
#[derive(Clone, Debug, Serialize)]
pub struct Limits {
    /// Instruction set of the kernels.
    pub instructions: &'static str,
    /// Threads that compute.
    pub threads: usize,
    /// Multiplications and additions a second of independent fused operations, in 10^9.
    pub peak_gflops: f64,
    /// Memory that a = b + s·c moves a second, in 10^9 bytes; arrays much larger than the caches.
    pub triad_gbs: f64,
}

/// Measures the limits with the threads of the current pool; takes a second.
pub fn limits() -> Limits {
    let isa = Isa::detect();
    Limits {
        instructions: isa.name(),
        threads: rayon::current_num_threads(),
        peak_gflops: fma_peak(isa) / 1e9,
        triad_gbs: triad() / 1e9,
    }
}

/// Bytes a second, two reads and a write an element; the reading of a line that is to be written is not counted.
fn triad() -> f64 {
    const LEN: usize = 1 << 25;
    const SHARE: usize = 1 << 16;
    let (mut a, b, c) = (vec![0.0f32; LEN], vec![1.0f32; LEN], vec![2.0f32; LEN]);
    let mut trial = || {
        let began = Instant::now();
        a.par_chunks_mut(SHARE).zip(b.par_chunks(SHARE)).zip(c.par_chunks(SHARE)).for_each(|((a, b), c)| {
            a.iter_mut().zip(b).zip(c).for_each(|((a, b), c)| *a = b + 3.0 * c);
        });
        (12 * LEN) as f64 / began.elapsed().as_secs_f64()
    };
    (0..6).map(|_| trial()).fold(0.0, f64::max)
}
