//! What a network's outputs become: a network that says the exact target must give back the picture it was made from.
#![allow(clippy::unwrap_used)]
use super::*;
use crate::engine::{Device, Tensor, from_vec, to_host};
use crate::nn::RawHeads;
use crate::rng::{Purpose, Stream};
use crate::sample::{Heads, Predict};
use crossfade_math::Process;
use crossfade_math::path::Output;
use std::cell::RefCell;

/// m of a mixed output, the same for every channel.
const MIXING: f64 = 0.3;

/// A network that always says the same, and remembers what it was shown.
struct Stub {
    baseline: Baseline,
    says: RawHeads,
    shown: RefCell<Vec<f32>>,
}

impl Predict<Images> for Stub {
    fn predict(&self, _: &Images, _: f64) -> Result<Heads<Images>> {
        unreachable!("baselines are asked for their outputs")
    }
}

impl Network for Stub {
    fn outputs(&self, x: Tensor<4>, c_noise: Tensor<1>) -> RawHeads {
        let time = to_host(c_noise.reshape([1, 1, 1, 2]));
        *self.shown.borrow_mut() = [to_host(x), time].concat();
        self.says.clone()
    }
    fn mixing(&self) -> Option<Tensor<1>> {
        let mixed = !matches!(self.baseline, Baseline::Cld(_)) && self.baseline.output() == Output::Mixed;
        mixed.then(|| Tensor::from_floats([MIXING as f32; 3], &Device::flex()))
    }
    fn log_time(&self) -> bool {
        false
    }
    fn process(&self) -> Process {
        Process::default()
    }
    fn baseline(&self) -> Option<Baseline> {
        Some(self.baseline)
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

/// x_0, eps and their x_t, with a network that says the exact target there.
fn told(baseline: Baseline, path: Path, t: f64, second: Option<&Images>) -> (Images, Images, Stub) {
    let (x0, eps) = (drawn(0, 0.4), drawn(1, 1.0));
    let x_t = mix(&[(path.alpha(t), &x0), (path.sigma(t), &eps)]);
    let target = path.target(t);
    let said = mix(&[(target.x0, &x0), (target.eps, &eps)]);
    let says = match baseline.output() {
        // eps = (1−m) σ_t x_t + m F.
        Output::Mixed => mix(&[(1.0 / MIXING, &eps), (-(1.0 - MIXING) * path.sigma(t) / MIXING, &x_t)]),
        _ => said,
    };
    let says = RawHeads { phi: says.0, eps: second.map(|x| x.0.clone()) };
    (x0, x_t, Stub { baseline, says, shown: RefCell::default() })
}

#[test]
fn exact_outputs_give_back_the_picture() {
    for baseline in Baseline::all() {
        let Some(path) = baseline.path() else { continue };
        for t in [0.2, 0.5, 0.8].map(|u| path.training_time(u, 2.0 * u - 1.0)) {
            let second = (baseline.output() == Output::WithX0).then(|| drawn(0, 0.4));
            let (x0, x_t, net) = told(baseline, path, t, second.as_ref());
            let found = estimate_at(&net, &sampling(Blend::Heads, 0.0), path, &x_t, t).unwrap();
            // x_0 is what remains of x_t, whose rounding grows by 1/α.
            let tolerance = 1e-5 * (1.0 + path.ratio(t)) as f32;
            assert_near(&found, &x0, tolerance, baseline.name());
            let input = path.input(t);
            let mut shown = net.shown.borrow().clone();
            assert!(shown.split_off(24).iter().all(|&c| (f64::from(c) - input.noise).abs() < 1e-3), "{baseline:?}");
            let shown = Images(from_vec(shown, [2, 3, 2, 2], &Device::flex()));
            assert_near(&shown, &x_t.scale(input.scale), 1e-5, baseline.name());
        }
    }
}

/// A second output that says something else: each alone, their mean, and their mean after both were limited.
#[test]
fn two_outputs_are_blended_as_asked() {
    let baseline = Baseline::all().into_iter().find(|b| b.output() == Output::WithX0).unwrap();
    let (path, other, t) = (baseline.path().unwrap(), drawn(2, 3.0), 0.5);
    let (x0, x_t, net) = told(baseline, path, t, Some(&other));
    let estimate = |blend, clip| estimate_at(&net, &sampling(blend, clip), path, &x_t, t).unwrap();
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
        let says = mix(&[(1.0, &eps_v), (-cld.mixing(t), &v)]);
        let says = RawHeads { phi: says.0, eps: None };
        let net = Stub { baseline: Baseline::Cld(cld), says, shown: RefCell::default() };
        let score = CldNet { net: &net, cld }.score(&x, &v, t).unwrap();
        let (l_xx, l_xv, l_vv) = cld.covariance(t).cholesky();
        let (off_x, off_v) = (eps_x.scale(l_xx), mix(&[(l_xv, &eps_x), (l_vv, &eps_v)]));
        let (cov, det) = (cld.covariance(t), (l_xx * l_vv).powi(2));
        let truth = mix(&[(cov.xv / det, &off_x), (-cov.xx / det, &off_v)]);
        assert_near(&score, &truth, 2e-3, &format!("t = {t}"));
    }
}
