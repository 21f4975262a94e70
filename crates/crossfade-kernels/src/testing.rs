//! Helpers of the kernels' tests.
use rayon::ThreadPoolBuilder;

/// Numbers in [−1, 1), the same for the same seed.
pub fn numbers(seed: u64, count: usize) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1 << 23) as f32 - 1.0
    };
    std::iter::repeat_with(next).take(count).collect()
}

/// Asserts that no difference exceeds `limit` times the largest exact value, or `limit` times 0.01 if all are smaller.
pub fn assert_close(got: &[f32], exact: &[f64], limit: f64, what: &str) {
    assert_eq!(got.len(), exact.len(), "{what}");
    let size = exact.iter().fold(1e-2, |a: f64, b| a.max(b.abs()));
    for (i, (got, exact)) in got.iter().zip(exact).enumerate() {
        let error = (f64::from(*got) - exact).abs();
        assert!(error <= limit * size, "{what}: element {i} is {got}, not {exact} (error {:.1e})", error / size);
    }
}

/// The results of `work` on 1, 2 and 3 threads.
pub fn pools<R: Send>(work: impl Fn() -> R + Sync) -> [R; 3] {
    [1, 2, 3].map(|threads| ThreadPoolBuilder::new().num_threads(threads).build().expect("a pool").install(&work))
}
