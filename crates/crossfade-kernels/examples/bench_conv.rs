//! Times convolutions by shape: milliseconds, operations of the direct method per second, and share of the measured peak
//! (Winograd needs fewer operations, so its share can pass 100 %). A star marks the algorithm that the library chooses.
//! Below each, errors against f64 relative to the root mean square of the exact values.
//!
//! `cargo run --release -p crossfade-kernels --example bench_conv [-- SHAPE [INSTRUCTION-SET]]`, both parts of names;
//! RAYON_NUM_THREADS sets the threads.
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

/// Single values in f64.
struct Exact<'a> {
    s: &'a ConvShape,
    x: &'a [f32],
    weight: &'a [f32],
    dy: &'a [f32],
}

impl Exact<'_> {
    /// The pixel of the input under `tap` of output pixel `o`, along one side.
    fn input(&self, o: usize, tap: usize, size: usize) -> Option<usize> {
        (o * self.s.stride + tap).checked_sub(self.s.padding).filter(|&i| i < size)
    }

    fn product(&self, a: f32, b: f32) -> f64 {
        f64::from(a) * f64::from(b)
    }

    fn y(&self, at: usize) -> f64 {
        let (s, k, plane) = (self.s, self.s.kernel, self.s.out_h() * self.s.out_w());
        let (n, o, oy, ox) = (at / plane / s.co, at / plane % s.co, at % plane / s.out_w(), at % s.out_w());
        let mut sum = 0.0;
        for (i, tap) in (0..s.ci).flat_map(|i| (0..k * k).map(move |tap| (i, tap))) {
            if let (Some(iy), Some(ix)) = (self.input(oy, tap / k, s.h), self.input(ox, tap % k, s.w)) {
                let x = self.x[((n * s.ci + i) * s.h + iy) * s.w + ix];
                sum += self.product(x, self.weight[(o * s.ci + i) * k * k + tap]);
            }
        }
        sum
    }

    fn dx(&self, at: usize) -> f64 {
        let (s, k, plane) = (self.s, self.s.kernel, self.s.h * self.s.w);
        let (n, i, iy, ix) = (at / plane / s.ci, at / plane % s.ci, at % plane / s.w, at % s.w);
        let output = |i: usize, tap: usize, size: usize| {
            let from = (i + s.padding).checked_sub(tap)?;
            (from % s.stride == 0 && from / s.stride < size).then_some(from / s.stride)
        };
        let mut sum = 0.0;
        for (o, tap) in (0..s.co).flat_map(|o| (0..k * k).map(move |tap| (o, tap))) {
            if let (Some(oy), Some(ox)) = (output(iy, tap / k, s.out_h()), output(ix, tap % k, s.out_w())) {
                let dy = self.dy[((n * s.co + o) * s.out_h() + oy) * s.out_w() + ox];
                sum += self.product(dy, self.weight[(o * s.ci + i) * k * k + tap]);
            }
        }
        sum
    }

    fn dw(&self, at: usize) -> f64 {
        let (s, k) = (self.s, self.s.kernel);
        let (o, i, tap) = (at / (k * k) / s.ci, at / (k * k) % s.ci, at % (k * k));
        let mut sum = 0.0;
        for (n, oy) in (0..s.n).flat_map(|n| (0..s.out_h()).map(move |oy| (n, oy))) {
            let Some(iy) = self.input(oy, tap / k, s.h) else { continue };
            for ox in 0..s.out_w() {
                let Some(ix) = self.input(ox, tap % k, s.w) else { continue };
                let x = self.x[((n * s.ci + i) * s.h + iy) * s.w + ix];
                sum += self.product(x, self.dy[((n * s.co + o) * s.out_h() + oy) * s.out_w() + ox]);
            }
        }
        sum
    }
}

/// Errors of some thousand values, spread over all.
fn error(computed: &[f32], exact: impl Fn(usize) -> f64) -> String {
    let count = 2000.min(computed.len());
    let (mut error, mut size, mut largest) = (0.0, 0.0, 0.0f64);
    for sample in 0..count {
        let at = sample * 7919 * 104_729 % computed.len();
        let exact = exact(at);
        let difference = f64::from(computed[at]) - exact;
        (error, size) = (error + difference * difference, size + exact * exact);
        largest = largest.max(difference.abs());
    }
    format!("rms {:.1e} max {:.1e}", (error / size).sqrt(), largest / (size / count as f64).sqrt())
}

fn main() {
    let filter = std::env::args().nth(1).unwrap_or_default();
    let wanted = std::env::args().nth(2).unwrap_or_default();
    let isa = Isa::available().into_iter().find(|isa| isa.name().contains(&wanted)).unwrap_or_else(Isa::detect);
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
            // Prepared weights are for the chosen method.
            let ready = algorithm == chosen && isa == Isa::detect();
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
            let case = Exact { s: &s, x: &x, weight: &weight, dy: &dy };
            let y = error(&y, |i| 0.1f32 as f64 + case.y(i));
            println!("{:<36}{y:>30}{:>60}{:>30}", "", error(&dx, |i| case.dx(i)), error(&dw, |i| case.dw(i)));
        }
    }
}
