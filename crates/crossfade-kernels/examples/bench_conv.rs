//! Times convolutions by shape: milliseconds, operations of the direct method per second, and share of the peak.
//!
//! `cargo run --release -p crossfade-kernels --example bench_conv [-- FILTER]`; RAYON_NUM_THREADS sets the threads.
#![allow(clippy::print_stdout)]
use crossfade_kernels::conv::{Algorithm, ConvShape, Method, Prepared};
use crossfade_kernels::{Isa, fma_peak};
use std::time::{Duration, Instant};

/// [n, ci, co, h = w, kernel, stride, padding]
const SHAPES: [[usize; 7]; 17] = [
    [16, 160, 160, 32, 3, 1, 1],
    [16, 320, 320, 16, 3, 1, 1],
    [16, 320, 320, 8, 3, 1, 1],
    [16, 320, 320, 4, 3, 1, 1],
    [64, 64, 64, 32, 3, 1, 1],
    [16, 64, 64, 32, 3, 1, 1],
    [16, 128, 128, 16, 3, 1, 1],
    [16, 320, 160, 32, 3, 1, 1],
    [1, 160, 160, 32, 3, 1, 1],
    [1, 320, 320, 16, 3, 1, 1],
    [1, 320, 320, 8, 3, 1, 1],
    [16, 3, 160, 32, 3, 1, 1],
    [16, 160, 3, 32, 3, 1, 1],
    [16, 160, 160, 32, 3, 2, 1],
    [16, 160, 160, 32, 4, 2, 1],
    [16, 320, 320, 16, 1, 1, 0],
    [16, 3, 64, 64, 7, 1, 3],
];

fn noise(len: usize, scale: f32) -> Vec<f32> {
    let mut state = 12_345u32;
    (0..len)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 17;
            state ^= state << 5;
            (state as f32 / u32::MAX as f32 * 2.0 - 1.0) * scale
        })
        .collect()
}

/// The best of some repeats, in seconds.
fn best(mut f: impl FnMut()) -> f64 {
    f();
    let (start, mut best) = (Instant::now(), f64::INFINITY);
    let mut repeats = 0;
    while repeats < 7 || start.elapsed() < Duration::from_millis(400) {
        let begin = Instant::now();
        f();
        best = best.min(begin.elapsed().as_secs_f64());
        repeats += 1;
    }
    best
}

fn main() {
    let filter = std::env::args().nth(1).unwrap_or_default();
    let isa = Isa::detect();
    let peak = fma_peak(isa);
    println!("{}, {} threads, peak {:.0} GF/s", isa.name(), rayon::current_num_threads(), peak / 1e9);
    println!("{:<26} {:<9}{:>30}{:>30}{:>30}{:>30}", "shape", "method", "forward", "prepared", "by input", "by weight");
    for [n, ci, co, h, kernel, stride, padding] in SHAPES {
        let s = ConvShape { n, ci, co, h, w: h, kernel, stride, padding };
        let name = format!("b{n} {ci}→{co} @{h} {kernel}x{kernel}/{stride}");
        if !name.contains(&filter) {
            continue;
        }
        let (x, weight, dy) = (noise(s.x_len(), 1.0), noise(s.weight_len(), 0.02), noise(s.y_len(), 1.0));
        let (mut y, mut dx) = (vec![0.0; s.y_len()], vec![0.0; s.x_len()]);
        let (mut dw, mut db, bias) = (vec![0.0; s.weight_len()], vec![0.0; co], vec![0.1; co]);
        let prepared = Prepared::new(&weight, &s);
        let chosen = Algorithm::choose(&s);
        let methods: Vec<_> = [Algorithm::Winograd, Algorithm::Direct]
            .into_iter()
            .filter_map(|algorithm| Some((algorithm, Method::new(isa, algorithm, &s)?)))
            .collect();
        for (algorithm, method) in methods {
            let mut times = vec![best(|| method.forward(&x, &weight, Some(&bias), &s, &mut y))];
            let ready = algorithm == chosen;
            times.push(if ready { best(|| prepared.forward(&x, Some(&bias), n, &mut y)) } else { f64::NAN });
            times.push(best(|| method.backward_input(&dy, &weight, &s, &mut dx)));
            times.push(best(|| method.backward_weight(&x, &dy, &s, &mut dw, Some(&mut db))));
            let column = |t: f64| {
                let rate = s.flops() / t;
                format!("{:>8.2} ms {:>5.0} GF/s {:>5.0} %", t * 1e3, rate / 1e9, rate / peak * 100.0)
            };
            let columns: String = times.iter().map(|&t| format!("{:>30}", column(t))).collect();
            let mark = if ready { "*" } else { " " };
            println!("{name:<26} {:<8}{mark}{columns}", format!("{algorithm:?}"));
        }
    }
}
