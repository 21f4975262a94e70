//! Times the forward and backward passes of one kernel on random data.
use super::Case;
use crossfade_kernels::attention::{self, AttentionShape};
use crossfade_kernels::conv::{self, ConvShape};
use crossfade_kernels::linear::{self, LinearShape};
use crossfade_kernels::norm::{self, NormGrads, NormShape, NormTail};
use crossfade_kernels::{AdamW, adamw_step, concat, dropout, elementwise, ema_update, resample, sum_sq};
use std::hint::black_box;
use std::time::{Duration, Instant};

/// The work of a pass, from which its rate is computed.
#[derive(Clone, Copy, Debug)]
pub(super) enum Work {
    /// Multiplications and additions; for convolutions those of the direct method, whatever algorithm is used.
    Flops(f64),
    /// Bytes read and written if every element is touched once.
    Bytes(f64),
}

/// A pass: its name, its times in seconds and its work.
pub(super) type Timed = (&'static str, Vec<f64>, Work);

/// Short kernels are measured more often than requested, until this time has passed: single measurements of them are noisy.
const MIN_DURATION: Duration = Duration::from_millis(15);

fn time(repeat: usize, mut f: impl FnMut()) -> Vec<f64> {
    // A warm-up run: it fills the caches and allocates scratch memory.
    f();
    let (start, mut times) = (Instant::now(), vec![]);
    while times.len() < repeat || (start.elapsed() < MIN_DURATION && times.len() < 1000) {
        let began = Instant::now();
        f();
        times.push(began.elapsed().as_secs_f64());
    }
    times
}

/// Pseudo-random numbers between −1 and 1, by xorshift: their quality does not matter here.
fn noise(len: usize) -> Vec<f32> {
    let mut state = 0x9e37_79b9u32;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state as f32 / u32::MAX as f32 * 2.0 - 1.0
    };
    (0..len).map(|_| next()).collect()
}

fn bytes(numbers: usize) -> Work {
    Work::Bytes(4.0 * numbers as f64)
}

/// Times all passes of `case`.
pub(super) fn run(case: &Case, repeat: usize) -> Vec<Timed> {
    match *case {
        Case::Conv(shape) => convolution(&shape, repeat),
        Case::Attention(shape) => self_attention(shape, repeat),
        Case::Linear(shape) => dense(shape, repeat),
        Case::Norm { shape, modulated, silu } => normalisation(shape, modulated, silu, repeat),
        Case::AdamW(_) | Case::Ema(_) | Case::SumSq(_) => update(case, repeat),
        _ => memory_bound(case, repeat),
    }
}

fn convolution(s: &ConvShape, repeat: usize) -> Vec<Timed> {
    let (x, dy, bias) = (noise(s.x_len()), noise(s.y_len()), noise(s.co));
    let weight: Vec<f32> = noise(s.weight_len()).iter().map(|w| 0.05 * w).collect();
    let (mut y, mut dx) = (vec![0.0; s.y_len()], vec![0.0; s.x_len()]);
    let (mut dw, mut db) = (vec![0.0; s.weight_len()], vec![0.0; s.co]);
    let work = Work::Flops(s.flops());
    vec![
        ("forward", time(repeat, || conv::forward(&x, &weight, Some(&bias), s, &mut y)), work),
        ("by input", time(repeat, || conv::backward_input(&dy, &weight, s, &mut dx)), work),
        ("by weights", time(repeat, || conv::backward_weight(&x, &dy, s, &mut dw, Some(&mut db))), work),
    ]
}

fn self_attention(s: AttentionShape, repeat: usize) -> Vec<Timed> {
    let (qkv, dout) = (noise(3 * s.out_len()), noise(s.out_len()));
    let (mut out, mut log_sums, mut dqkv) = (dout.clone(), vec![0.0; s.rows()], qkv.clone());
    // Forward computes two matrix products (QKᵀ and PV). Backward computes five: it recomputes QKᵀ.
    let work = |products: f64| Work::Flops(products * 2.0 * (s.rows() * s.positions * s.d) as f64);
    let forward = time(repeat, || attention::forward(&qkv, s, &mut out, &mut log_sums));
    let backward = time(repeat, || attention::backward(&qkv, &out, &dout, &log_sums, s, &mut dqkv));
    vec![("forward", forward, work(2.0)), ("backward", backward, work(5.0))]
}

fn dense(s: LinearShape, repeat: usize) -> Vec<Timed> {
    let (x, weight, dy) = (noise(s.n * s.cin), noise(s.cout * s.cin), noise(s.n * s.cout));
    let (mut out, mut dx, mut dw, mut db) = (dy.clone(), x.clone(), weight.clone(), vec![0.0; s.cout]);
    let work = |products: usize| Work::Flops((2 * products * s.n * s.cin * s.cout) as f64);
    let forward = time(repeat, || linear::forward(&x, &weight, None, s, &mut out));
    let backward = time(repeat, || linear::backward(&x, &weight, &dy, s, &mut dx, &mut dw, &mut db));
    vec![("forward", forward, work(1)), ("backward", backward, work(2))]
}

fn normalisation(s: NormShape, modulated: bool, silu: bool, repeat: usize) -> Vec<Timed> {
    let (x, dy, gamma, modulation) = (noise(s.len()), noise(s.len()), noise(s.c), noise(2 * s.n * s.c));
    let (mut out, mut stats) = (x.clone(), vec![[0.0; 2]; s.n * s.groups]);
    let (mut dgamma, mut dbeta, mut dmodulation) = (gamma.clone(), gamma.clone(), modulation.clone());
    let tail = NormTail { gamma: &gamma, beta: &gamma, scale_shift: modulated.then_some(&modulation[..]), silu };
    let forward = time(repeat, || norm::forward(&x, tail, 1e-5, s, &mut out, &mut stats));
    let backward = time(repeat, || {
        let scale_shift = modulated.then_some(&mut dmodulation[..]);
        let grads = NormGrads { x: &mut out, gamma: &mut dgamma, beta: &mut dbeta, scale_shift };
        norm::backward(&x, &dy, tail, &stats, s, grads);
    });
    vec![("forward", forward, bytes(2 * s.len())), ("backward", backward, bytes(3 * s.len()))]
}

fn update(case: &Case, repeat: usize) -> Vec<Timed> {
    let (Case::AdamW(len) | Case::Ema(len) | Case::SumSq(len)) = *case else { return vec![] };
    let (grad, mut param) = (noise(len), noise(len));
    let (times, passes) = match case {
        Case::AdamW(_) => {
            let (mut m, mut v) = (vec![0.0; len], vec![0.0; len]);
            let h = AdamW {
                lr: 1e-4,
                beta1: 0.9,
                beta2: 0.999,
                adam_eps: 1e-8,
                weight_decay: 0.01,
                step: 10,
                grad_scale: 1.0,
            };
            (time(repeat, || adamw_step(&mut param, &mut m, &mut v, &grad, &h)), 7)
        }
        Case::Ema(_) => (time(repeat, || ema_update(&mut param, &grad, 0.999)), 3),
        _ => {
            let sum = || {
                black_box(sum_sq(black_box(&grad)));
            };
            (time(repeat, sum), 1)
        }
    };
    vec![("step", times, bytes(passes * len))]
}

/// Kernels that are limited by memory bandwidth.
fn memory_bound(case: &Case, repeat: usize) -> Vec<Timed> {
    match *case {
        Case::Downsample { planes, side } | Case::Upsample { planes, side } => {
            let len = planes * side * side;
            let (mut large, mut small) = (noise(len), noise(len / 4));
            let down = time(repeat, || resample::downsample_2x(&large, planes, [side; 2], 0.25, &mut small));
            let up = time(repeat, || resample::upsample_2x(&small, planes, [side / 2; 2], 1.0, &mut large));
            // Each of the two is the other's backward pass, up to a factor.
            let (first, second) = if matches!(case, Case::Downsample { .. }) { (down, up) } else { (up, down) };
            let work = bytes(len + len / 4);
            vec![("forward", first, work), ("backward", second, work)]
        }
        Case::Concat { n, sizes } => {
            let [mut a, mut b] = sizes.map(|size| noise(n * size));
            let mut both = vec![0.0; a.len() + b.len()];
            let work = bytes(2 * both.len());
            let forward = time(repeat, || concat::concat(&a, &b, sizes, &mut both));
            let backward = time(repeat, || concat::split(&both, sizes, &mut a, &mut b));
            vec![("forward", forward, work), ("backward", backward, work)]
        }
        Case::Silu(len) => {
            let (x, mut y, dy) = (noise(len), vec![0.0; len], noise(len));
            let forward = time(repeat, || elementwise::silu(&x, &mut y));
            let backward = time(repeat, || elementwise::silu_backward(&x, &dy, &mut y));
            vec![("forward", forward, bytes(2 * len)), ("backward", backward, bytes(3 * len))]
        }
        Case::Dropout { n, size } => {
            let (x, mut y, starts) = (noise(n * size), vec![0.0; n * size], vec![1; n]);
            let forward = time(repeat, || dropout::dropout(&x, &starts, 6554, &mut y));
            vec![("forward", forward.clone(), bytes(2 * n * size)), ("backward", forward, bytes(2 * n * size))]
        }
        Case::Add(len) => {
            // The summand is zero, so that the sum stays finite over many repeats.
            let (x, mut sum) = (vec![0.0; len], noise(len));
            vec![("forward", time(repeat, || elementwise::add_to(&mut sum, &x)), bytes(3 * len))]
        }
        _ => vec![],
    }
}
