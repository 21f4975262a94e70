//! Reductions of whole arrays.
use crate::CHUNK;
use crate::team::Share;
use rayon::prelude::*;
use std::sync::atomic::{AtomicBool, Ordering};

/// Independent accumulators, so that the additions of one chunk need not wait for each other.
const LANES: usize = 8;

/// Σ x² in f64. It is not finite if one of the values is not.
pub fn sum_sq(x: &[f32]) -> f64 {
    if x.len() <= CHUNK {
        return chunk_sum_sq(x);
    }
    // Collected first and added in order: the bits of a parallel sum would depend on how the work was split.
    let mut partial = vec![0.0; x.len().div_ceil(CHUNK)];
    partial.par_iter_mut().zip(x.par_chunks(CHUNK)).share(|(sum, x)| *sum = chunk_sum_sq(x));
    partial.iter().sum()
}

fn chunk_sum_sq(x: &[f32]) -> f64 {
    let mut lanes = [0.0f64; LANES];
    let (blocks, rest) = x.as_chunks::<LANES>();
    let square = |x: f32| f64::from(x) * f64::from(x);
    for block in blocks {
        lanes.iter_mut().zip(block).for_each(|(lane, &x)| *lane += square(x));
    }
    lanes.iter().sum::<f64>() + rest.iter().map(|&x| square(x)).sum::<f64>()
}

/// Whether all values are finite, neither infinite nor NaN.
pub fn all_finite(x: &[f32]) -> bool {
    // There is no early exit within a chunk: without one the compiler can vectorise the loop.
    let finite = |chunk: &[f32]| chunk.iter().fold(true, |all, x| all & x.is_finite());
    let all = AtomicBool::new(true);
    x.par_chunks(CHUNK).share(|chunk| {
        if !finite(chunk) {
            all.store(false, Ordering::Relaxed);
        }
    });
    all.into_inner()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(n: usize) -> Vec<f32> {
        (0..n).map(|i| (i as f32 * 0.37).sin() * 1e3f32.powf((i % 7) as f32 - 3.0)).collect()
    }

    #[test]
    fn the_sum_is_right_at_every_length() {
        for n in [0, 1, LANES - 1, LANES, LANES + 1, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK + 5] {
            let x = values(n);
            let exact: f64 = x.iter().map(|&x| f64::from(x).powi(2)).sum();
            assert!((sum_sq(&x) - exact).abs() <= 1e-12 * exact, "length {n}");
        }
        assert_eq!(sum_sq(&[1e30, 2e30]), f64::from(1e30f32).powi(2) + f64::from(2e30f32).powi(2));
    }

    #[test]
    fn threads_do_not_change_a_bit() {
        let x = values(9 * CHUNK + 77);
        let run = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("a pool");
            pool.install(|| sum_sq(&x)).to_bits()
        };
        assert!([2, 3, 5].into_iter().all(|threads| run(threads) == run(1)));
    }

    #[test]
    fn one_bad_value_is_found_anywhere() {
        let mut x = values(2 * CHUNK + 9);
        assert!(all_finite(&x) && all_finite(&[]) && all_finite(&[f32::MAX, f32::MIN_POSITIVE / 2.0]));
        for (at, bad) in [(0, f32::NAN), (CHUNK, f32::INFINITY), (2 * CHUNK + 8, f32::NEG_INFINITY)] {
            let good = std::mem::replace(&mut x[at], bad);
            assert!(!all_finite(&x), "{bad} at {at}");
            assert!(!sum_sq(&x).is_finite());
            x[at] = good;
        }
    }
}
