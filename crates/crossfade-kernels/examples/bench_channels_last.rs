//! Times the layers of Inception-v3 on one thread: milliseconds an image, operations of the direct method per second,
//! and share of the measured peak (Winograd needs fewer operations, so its share can pass 100 %).
//!
//! `cargo run --release -p crossfade-kernels --example bench_channels_last`
#![allow(clippy::print_stdout)]
use crossfade_kernels::channels_last::{Conv, Map, Window};
use crossfade_kernels::{Isa, fma_peak};
use std::time::Instant;

/// Images, [rows = columns, channels in, channels out], kernel, stride, padding, how often the network has it.
type Layer = (usize, [usize; 3], [usize; 2], usize, [usize; 2], usize);

const LAYERS: [Layer; 16] = [
    (1, [299, 3, 32], [3, 3], 2, [0, 0], 1),
    (1, [149, 32, 32], [3, 3], 1, [0, 0], 1),
    (1, [147, 32, 64], [3, 3], 1, [1, 1], 1),
    (1, [73, 80, 192], [3, 3], 1, [0, 0], 1),
    (4, [35, 48, 64], [5, 5], 1, [2, 2], 3),
    (4, [35, 96, 96], [3, 3], 1, [1, 1], 3),
    (4, [35, 64, 96], [3, 3], 1, [1, 1], 4),
    (4, [35, 288, 64], [1, 1], 1, [0, 0], 9),
    (4, [35, 288, 384], [3, 3], 2, [0, 0], 1),
    (4, [17, 768, 192], [1, 1], 1, [0, 0], 16),
    (4, [17, 160, 160], [1, 7], 1, [0, 3], 12),
    (4, [17, 192, 192], [7, 1], 1, [3, 0], 14),
    (4, [17, 192, 320], [3, 3], 2, [0, 0], 1),
    (4, [8, 2048, 448], [1, 1], 1, [0, 0], 4),
    (4, [8, 384, 384], [1, 3], 1, [0, 1], 8),
    (4, [8, 448, 384], [3, 3], 1, [1, 1], 2),
];

fn main() {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build();
    let peak = pool.map_or(f64::NAN, |pool| pool.install(|| fma_peak(Isa::detect())));
    println!("peak {:.0} GF/s on one thread", peak / 1e9);
    let mut total = 0.0;
    for (n, [side, ci, co], kernel, stride, padding, times) in LAYERS {
        let window = Window { kernel, stride, padding };
        let weight: Vec<f32> = (0..co * ci * kernel[0] * kernel[1]).map(|i| (i % 17) as f32 * 0.01).collect();
        let conv = Conv::new(&weight, &vec![0.1; co], ci, window, side);
        let mut x = Map::new(n, [side, side, ci], padding);
        for (image, y) in (0..n).flat_map(|i| (0..side).map(move |y| (i, y))) {
            x.line_mut(image, y).iter_mut().enumerate().for_each(|(i, v)| *v = (i % 13) as f32 * 0.1);
        }
        let [oh, ow] = window.output(side, side);
        let mut out = Map::new(n, [oh, ow, co], [0, 0]);
        let run = |out: &mut Map| {
            let start = Instant::now();
            conv.forward(&x, out.from(0, 0));
            start.elapsed().as_secs_f64() / n as f64
        };
        let best = (0..9).map(|_| run(&mut out)).fold(f64::INFINITY, f64::min);
        let flops = 2.0 * (oh * ow * co * ci * kernel[0] * kernel[1]) as f64;
        total += best * times as f64;
        let share = flops / best / peak * 100.0;
        let [kh, kw] = kernel;
        println!(
            "{side:>3} {ci:>4} → {co:<3} {kh}x{kw}/{stride}  {:>7.3} ms {:>5.0} GF/s {share:>4.0} %  x{times}",
            best * 1e3,
            flops / best / 1e9
        );
    }
    println!("about {:.0} ms an image in convolutions", total * 1e3);
}
