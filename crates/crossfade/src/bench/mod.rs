//! Benchmarks: whole networks, measured as `tools/compare_peers.py` measures PyTorch, and single kernels against the limits
//! of the processor.
mod cases;
mod kernels;
mod limits;
mod run;
mod unet;

pub use cases::{Case, Counted, Kind, network_cases, other_cases};
pub use kernels::{KernelReport, Options, Pass, Row, Share, kernels};
pub use limits::{Limits, limits};
pub use unet::{Timing, What, unet};

/// The median and the minimum of `times`, which must not be empty.
fn median_and_best(mut times: Vec<f64>) -> (f64, f64) {
    times.sort_by(f64::total_cmp);
    let middle = times.len() / 2;
    let median = if times.len() % 2 == 1 { times[middle] } else { 0.5 * (times[middle - 1] + times[middle]) };
    (median, times[0])
}

/// The peak resident memory of this process in MiB; 0 on systems without `/proc`.
pub fn peak_rss_mb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|l| l.split_whitespace().next()?.parse::<u64>().ok()).map_or(0, |kb| kb / 1024)
}
