//! Network outputs are converted correctly: from exact targets, x_0 must be recovered.
#![allow(clippy::unwrap_used)]
use super::*;
use crate::engine::{Device, Tensor, from_vec, to_host};
use crate::nn::{Backbone, Context, Mode, RawHeads};
use crate::rng::{Purpose, Stream};
use crossfade_math::process::Outputs;
use crossfade_math::{GaussianFn, ProcessFn};
use std::cell::RefCell;

/// m of a mixed output, the same for every channel.
const MIXING: f64 = 0.3;

/// A network with constant outputs that records its last input.
struct Stub {
    process: Process,
    outputs: RawHeads,
    input: RefCell<Vec<f32>>,
}

impl Stub {
    fn conditioned(&self) -> Conditioned<'_> {
        Conditioned { network: self, process: self.process, log_time: false, context: Context::default(), guide: None }
    }
}

impl Backbone for Stub {
    fn encode(&self, _: Option<Tensor<4>>, _: Mode) -> Context {
        Context::default()
    }
    fn forward(&self, x: Tensor<4>, c_noise: Tensor<1>, _: &Context, _: Mode) -> RawHeads {
        let time = to_host(c_noise.reshape([1, 1, 1, 2]));
        *self.input.borrow_mut() = [to_host(x), time].concat();
        self.outputs.clone()
    }
    fn mixing(&self) -> Option<Tensor<1>> {
        let mixed = self.process.outputs() == Outputs::MixedTarget;
        mixed.then(|| Tensor::from_floats([MIXING as f32; 3], &Device::flex()))
    }
}

fn drawn(index: u64, scale: f32) -> Images {
    let mut values = vec![0.0; 24];
    Stream::new(1, index, 0, Purpose::Start).fill_normal(&mut values);
    Images(from_vec(values.iter().map(|v| scale * v).collect(), [2, 3, 2, 2], &Device::flex()))
}

fn mix(parts: &[(f64, &Images)]) -> Images {
    let parts: Vec<_> = parts.iter().map(|(factor, x)| ((*factor).into(), *x)).collect();
    Images::lincomb(&parts)
}

fn assert_near(ours: &Images, truth: &Images, tolerance: f32, what: &str) {
    let pairs = to_host(ours.0.clone()).into_iter().zip(to_host(truth.0.clone()));
    for (a, b) in pairs {
        assert!((a - b).abs() <= tolerance * (1.0 + b.abs()), "{what}: {a} instead of {b}");
    }
}

fn sampling(blend: Blend, clip: f64) -> SampleConfig {
    SampleConfig { blend, clip, ..SampleConfig::default() }
}

/// x_0, x_t, and a network whose outputs are the exact targets there.
fn exact(process: Process, t: f64, second: Option<&Images>) -> (Images, Images, Stub) {
    let gaussian = process.gaussian().unwrap();
    let (x0, eps) = (drawn(0, 0.4), drawn(1, 1.0));
    let x_t = mix(&[(gaussian.alpha(t), &x0), (gaussian.sigma(t), &eps)]);
    let target = gaussian.target(t);
    let first = match process.outputs() {
        // eps = (1−m) σ_t x_t + m F.
        Outputs::MixedTarget => mix(&[(1.0 / MIXING, &eps), (-(1.0 - MIXING) * gaussian.sigma(t) / MIXING, &x_t)]),
        _ => mix(&[(target.x0, &x0), (target.eps, &eps)]),
    };
    let outputs = RawHeads { phi: first.0, eps: second.map(|x| x.0.clone()) };
    (x0, x_t, Stub { process, outputs, input: RefCell::default() })
}

#[test]
fn exact_outputs_give_back_the_picture() {
    for process in Process::all().into_iter().filter(|process| process.outputs() != Outputs::Heads) {
        let Some(gaussian) = process.gaussian() else { continue };
        for t in [0.2, 0.5, 0.8].map(|u| process.training_time(u, 2.0 * u - 1.0)) {
            let second = (process.outputs() == Outputs::TargetAndX0).then(|| drawn(0, 0.4));
            let (x0, x_t, net) = exact(process, t, second.as_ref());
            let found = estimate_at(&net.conditioned(), &sampling(Blend::Heads, 0.0), gaussian, &x_t, t).unwrap();
            // x_0 is computed by a subtraction from x_t, whose rounding error is divided by α.
            let tolerance = 1e-5 * (1.0 + gaussian.ratio(t)) as f32;
            assert_near(&found, &x0, tolerance, process.name());
            let input = process.input(t);
            let mut read = net.input.borrow().clone();
            assert!(read.split_off(24).iter().all(|&c| (f64::from(c) - input.noise).abs() < 1e-3), "{process:?}");
            let read = Images(from_vec(read, [2, 3, 2, 2], &Device::flex()));
            assert_near(&read, &x_t.scale(input.scale), 1e-5, process.name());
        }
    }
}

/// With a second output that differs from the first: each alone, their mean, and their mean after clamping.
#[test]
fn two_outputs_are_blended_as_asked() {
    let process = Process::all().into_iter().find(|process| process.outputs() == Outputs::TargetAndX0).unwrap();
    let (gaussian, other, t) = (process.gaussian().unwrap(), drawn(2, 3.0), 0.5);
    let (x0, x_t, net) = exact(process, t, Some(&other));
    let net = net.conditioned();
    let estimate = |blend, clip| estimate_at(&net, &sampling(blend, clip), gaussian, &x_t, t).unwrap();
    assert_near(&estimate(Blend::Phi, 0.0), &other, 1e-4, "the second output alone");
    assert_near(&estimate(Blend::Eps, 0.0), &x0, 1e-4, "eps alone");
    assert_near(&estimate(Blend::Heads, 0.0), &mix(&[(0.5, &x0), (0.5, &other)]), 1e-4, "the mean");
    let limited = mix(&[(0.5, &x0.clamp(-0.5, 0.5)), (0.5, &other.clamp(-0.5, 0.5))]);
    assert_near(&estimate(Blend::Heads, 0.5), &limited, 1e-4, "limited before the mean");
}

/// The score of CLD's velocity is that of the Gaussian that u_t has given x_0: −[Σ⁻¹(u − mean)]_v.
#[test]
fn the_velocitys_normal_becomes_its_score() {
    let cld = Cld::default();
    for t in [1e-4, 0.1, 0.9] {
        let (x0, eps_x, eps_v) = (drawn(0, 0.4), drawn(1, 1.0), drawn(2, 1.0));
        let [x, v] = cld.forward(t).map(|[a, b, c]| mix(&[(a, &x0), (b, &eps_x), (c, &eps_v)]));
        let outputs = RawHeads { phi: mix(&[(1.0, &eps_v), (-cld.mixing(t), &v)]).0, eps: None };
        let net = Stub { process: Process::Cld(cld), outputs, input: RefCell::default() };
        let score = ScoreNet { net: &net.conditioned(), cld }.score(&x, &v, t).unwrap();
        let (l_xx, l_xv, l_vv) = cld.covariance(t).cholesky();
        let (off_x, off_v) = (eps_x.scale(l_xx), mix(&[(l_xv, &eps_x), (l_vv, &eps_v)]));
        let (cov, det) = (cld.covariance(t), (l_xx * l_vv).powi(2));
        let truth = mix(&[(cov.xv / det, &off_x), (-cov.xx / det, &off_v)]);
        assert_near(&score, &truth, 2e-3, &format!("t = {t}"));
    }
}
