//! Times everything but the convolutions: milliseconds, and bytes or operations per second.
//!
//! `cargo run --release -p crossfade-kernels --example bench_fused`; RAYON_NUM_THREADS sets the threads.
#![allow(clippy::print_stdout)]
use crossfade_kernels::attention::{self, AttentionShape};
use crossfade_kernels::norm::{self, NormGrads, NormShape, NormTail};
use crossfade_kernels::{concat, dropout, elementwise, resample};
use std::time::{Duration, Instant};

/// The best of some repeats, in seconds.
fn best(mut f: impl FnMut()) -> f64 {
    f();
    let (start, mut best) = (Instant::now(), f64::INFINITY);
    while start.elapsed() < Duration::from_millis(300) {
        let begin = Instant::now();
        f();
        best = best.min(begin.elapsed().as_secs_f64());
    }
    best
}

fn wave(len: usize) -> Vec<f32> {
    (0..len).map(|i| (i as f32 * 0.7).sin()).collect()
}

fn bytes(name: &str, seconds: f64, passes: usize, len: usize) {
    println!("{name:44} {:8.3} ms {:7.1} GB/s", seconds * 1e3, (4 * passes * len) as f64 / seconds * 1e-9);
}

fn norms() {
    for [n, c, side] in [[16, 160, 32], [16, 64, 32], [16, 128, 16], [16, 320, 8], [1, 64, 32]] {
        let shape = NormShape { n, c, hw: side * side, groups: (c / 4).clamp(1, 32) };
        let (x, dy, gamma, modulation) = (wave(shape.len()), wave(shape.len()), wave(c), wave(2 * n * c));
        let (mut out, mut stats) = (x.clone(), vec![[0.0; 2]; n * shape.groups]);
        let (mut dgamma, mut dbeta, mut dmodulation) = (gamma.clone(), gamma.clone(), modulation.clone());
        let tail = NormTail { gamma: &gamma, beta: &gamma, scale_shift: Some(&modulation), silu: true };
        let time = best(|| norm::forward(&x, tail, 1e-5, shape, &mut out, &mut stats));
        bytes(&format!("norm, modulation, SiLU {n}x{c}x{side}²"), time, 2, shape.len());
        let time = best(|| {
            let grads =
                NormGrads { x: &mut out, gamma: &mut dgamma, beta: &mut dbeta, scale_shift: Some(&mut dmodulation) };
            norm::backward(&x, &dy, tail, &stats, shape, grads);
        });
        bytes(&format!("  backward {n}x{c}x{side}²"), time, 3, shape.len());
    }
}

fn attentions() {
    for [n, heads, d, positions] in [[16, 2, 64, 256], [16, 4, 80, 256], [16, 2, 64, 64], [1, 1, 64, 4096]] {
        let shape = AttentionShape { n, heads, d, positions };
        let (qkv, dout) = (wave(3 * shape.out_len()), wave(shape.out_len()));
        let (mut out, mut log_sums, mut dqkv) = (dout.clone(), vec![0.0; shape.rows()], qkv.clone());
        let product = 2e-9 * (shape.rows() * positions * d) as f64;
        let report = |name: &str, time: f64, products: f64| {
            let name = format!("{name} {n}x{heads}x{d}, {positions} positions");
            println!("{name:44} {:8.3} ms {:7.1} GF/s", time * 1e3, products * product / time);
        };
        report("attention", best(|| attention::forward(&qkv, shape, &mut out, &mut log_sums)), 2.0);
        report("  backward", best(|| attention::backward(&qkv, &out, &dout, &log_sums, shape, &mut dqkv)), 5.0);
    }
}

fn maps() {
    let (len, side) = (16 * 128 * 32 * 32, 32);
    let (x, mut out, mut small) = (wave(len), wave(len), wave(len / 4));
    bytes("SiLU", best(|| elementwise::silu(&x, &mut out)), 2, len);
    bytes("sum", best(|| elementwise::add_to(&mut out, &x)), 3, len);
    bytes("dropout", best(|| dropout::dropout(&x, &[1; 16], 6554, &mut out)), 2, len);
    bytes("downsample", best(|| resample::downsample_2x(&x, 16 * 128, [side; 2], 0.25, &mut small)), 1, len);
    bytes("upsample", best(|| resample::upsample_2x(&small, 16 * 128, [side / 2; 2], 1.0, &mut out)), 1, len);
    let (a, b) = x.split_at(len / 2);
    bytes("concatenation", best(|| concat::concat(a, b, [len / 32; 2], &mut out)), 2, len);
}

fn main() {
    norms();
    attentions();
    maps();
}
