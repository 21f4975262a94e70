//! The measured peak arithmetic rate and memory bandwidth of the processor.
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
    /// Peak rate of independent fused multiply-adds, counted as two operations each, in 10^9 operations per second.
    pub peak_gflops: f64,
    /// Memory bandwidth of a = b + s·c (the STREAM triad) on arrays much larger than the caches, in 10^9 bytes per second.
    pub triad_gbs: f64,
}

/// Measures the limits with the threads of the current pool, which takes about a second.
pub fn limits() -> Limits {
    let isa = Isa::detect();
    Limits {
        instructions: isa.name(),
        threads: rayon::current_num_threads(),
        peak_gflops: fma_peak(isa) / 1e9,
        triad_gbs: triad() / 1e9,
    }
}

/// Bytes per second of the STREAM triad: two reads and one write per element. The hardware also reads a cache line
/// before it writes to it, which is not counted, as in STREAM.
fn triad() -> f64 {
    const LEN: usize = 1 << 25;
    const CHUNK: usize = 1 << 16;
    let (mut a, b, c) = (vec![0.0f32; LEN], vec![1.0f32; LEN], vec![2.0f32; LEN]);
    let mut trial = || {
        let began = Instant::now();
        a.par_chunks_mut(CHUNK).zip(b.par_chunks(CHUNK)).zip(c.par_chunks(CHUNK)).for_each(|((a, b), c)| {
            a.iter_mut().zip(b).zip(c).for_each(|((a, b), c)| *a = b + 3.0 * c);
        });
        (12 * LEN) as f64 / began.elapsed().as_secs_f64()
    };
    // The best of several trials: a limit must not be lowered by other programs.
    (0..6).map(|_| trial()).fold(0.0, f64::max)
}
