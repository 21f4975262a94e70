//! The bound of exact denoisers against the entropy of the data.
#![allow(clippy::unwrap_used)]
use super::*;
use crate::data::Image;
use crate::engine::from_vec;
use crossfade_math::{GaussianFn, level};

const SIDE: usize = 8;

/// The levels of a pixel and their probabilities; pixels are independent.
const LEVELS: [(u8, f64); 5] = [(0, 0.1), (90, 0.3), (91, 0.2), (140, 0.25), (255, 0.15)];

struct Pixels(usize);

impl Dataset for Pixels {
    fn len(&self) -> usize {
        self.0
    }
    fn get(&self, index: usize) -> Result<Image> {
        let mut stream = Stream::new(3, index as u64, 0, Purpose::Lab);
        let mut pixel = || {
            let (u, mut sum) = (stream.uniform(), 0.0);
            let found = LEVELS.iter().find(|(_, probability)| {
                sum += probability;
                u < sum
            });
            found.map_or(255, |(byte, _)| *byte)
        };
        Ok(Image::new(SIDE, SIDE, 1, (0..SIDE * SIDE).map(|_| pixel()).collect()))
    }
    fn name(&self, index: usize) -> String {
        index.to_string()
    }
    fn describe(&self) -> String {
        "pixels".into()
    }
}

fn entropy() -> f64 {
    -LEVELS.iter().map(|(_, p)| p * p.log2()).sum::<f64>()
}

/// E(x_0 | x_0 + κ eps = z).
fn posterior_mean(z: f64, kappa: f64) -> f64 {
    let exponent = |byte: u8| -0.5 * ((z - level(byte)) / kappa).powi(2);
    let most = LEVELS.iter().map(|(byte, _)| exponent(*byte)).fold(f64::MIN, f64::max);
    let terms = LEVELS.map(|(byte, p)| (p * (exponent(byte) - most).exp(), level(byte)));
    terms.iter().map(|(w, x)| w * x).sum::<f64>() / terms.iter().map(|(w, _)| w).sum::<f64>()
}

fn exact(process: Gaussian, range: &NoiseRange, config: &LikelihoodConfig) -> Likelihood {
    let device = Device::flex();
    let estimate = |x_t: &Images, times: &[f64], _: &[usize]| {
        let values = to_host(x_t.0.clone());
        let each = values.chunks_exact(SIDE * SIDE).zip(times).flat_map(|(image, &t)| {
            let (alpha, kappa) = (process.alpha(t), process.ratio(t));
            image.iter().map(move |&x| posterior_mean(f64::from(x) / alpha, kappa) as f32)
        });
        Ok(Images(from_vec(each.collect(), [times.len(), 1, SIDE, SIDE], &device)))
    };
    let set = &Pixels(400);
    let measurement = Measurement { set, process, range, config, estimate: &estimate, device: &device };
    measurement.run(&mut |_, _| true).unwrap().unwrap()
}

fn config(kappa_min: f64) -> LikelihoodConfig {
    LikelihoodConfig { count: 200, times: 4, kappa_min, seed: 1, batch: 64, flow: None }
}

/// With the exact denoiser the bound is tight but for the decoder, which does not know which levels are frequent. Where the
/// noise is much smaller than a level it need not know that.
#[test]
fn exact_denoisers_reach_the_entropy_of_discrete_data() {
    for process in Gaussian::all().into_iter().filter(|process| process.tick().is_none()) {
        let config = LikelihoodConfig { count: 400, times: 64, ..config(0.0008) };
        let range = NoiseRange::new(process, config.kappa_min, f64::INFINITY).unwrap();
        let found = exact(process, &range, &config);
        let (bits, error) = (found.bits_per_dim, found.standard_error);
        let name = process.name();
        assert!(error > 0.0 && error < 0.05, "{name}: {error}");
        if name == "ve" {
            // Its smallest σ of 0.01 is larger than a level.
            assert!(bits > entropy() + 0.2 && found.reconstruction > 1.0, "ve: {bits} {}", found.reconstruction);
        } else {
            assert!((bits - entropy()).abs() < 3.5 * error, "{name}: {bits} ± {error}, entropy {}", entropy());
        }
        let sum = found.prior + found.reconstruction + found.diffusion;
        assert!((sum - bits).abs() < 1e-12);
    }
}

/// DDPM has 1000 terms in place of the integral and starts at κ = 0.01: above the entropy.
#[test]
fn the_bound_of_discrete_times_is_above_the_entropy() {
    for process in Gaussian::all().into_iter().filter(|process| process.tick().is_some()) {
        let config = config(KAPPA_MIN);
        let range = NoiseRange::new(process, config.kappa_min, f64::INFINITY).unwrap();
        let found = exact(process, &range, &config);
        let bits = found.bits_per_dim;
        assert!(bits > entropy() + 0.2 && bits < entropy() + 3.0, "{}: {bits}", process.name());
    }
}

/// At the same noise levels all processes give the same number: only κ matters.
#[test]
fn the_bound_does_not_depend_on_the_process() {
    let of = |process: Gaussian| {
        let range = NoiseRange::new(process, 0.02, 40.0).unwrap();
        exact(process, &range, &config(0.02)).bits_per_dim
    };
    let mut processes = Gaussian::all().into_iter().filter(|process| process.tick().is_none());
    let first = of(processes.next().unwrap());
    for process in processes {
        let bits = of(process);
        assert!((bits - first).abs() < 1e-4 * first, "{}: {bits} and {first}", process.name());
    }
}

/// The bits do not depend on the batch, and more noise levels give a smaller error.
#[test]
fn batches_change_nothing() {
    let process = Process::default().gaussian().unwrap();
    let range = NoiseRange::new(process, 0.02, f64::INFINITY).unwrap();
    let all = exact(process, &range, &config(0.02));
    for batch in [1, 7, 1000] {
        assert_eq!(exact(process, &range, &LikelihoodConfig { batch, ..config(0.02) }), all);
    }
    let more = exact(process, &range, &LikelihoodConfig { times: 16, ..config(0.02) });
    assert!(more.standard_error < all.standard_error);
    assert!((more.bits_per_dim - all.bits_per_dim).abs() < 4.0 * all.standard_error);
    let other = exact(process, &range, &LikelihoodConfig { seed: 2, ..config(0.02) });
    assert!(other.bits_per_dim != all.bits_per_dim);
}
