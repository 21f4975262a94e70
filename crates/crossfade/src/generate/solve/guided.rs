//! Guidance on a mixture of two classes, whose exact networks are known: the sampler must follow the guided equation.
#![allow(clippy::unwrap_used)]
use super::*;
use crate::engine::{Device, Tensor, from_vec, to_host};
use crate::nn::{Backbone, Context, Guide, Mode, RawHeads, Weak, one_hot};
use crate::sample::{Guidance, Sampler};
use crossfade_math::process::Outputs;
use crossfade_math::{Adm, GaussianFn, Grid, GridKind, ProcessFn};

/// The mean of each class; both have this deviation in both coordinates.
const MEANS: [[f64; 2]; 2] = [[-0.5, 0.2], [0.6, -0.1]];
const STD: f64 = 0.3;

/// E[x_0 | x_t] of a class, or of the mixture of both.
fn posterior_mean(x: [f64; 2], alpha: f64, sigma: f64, class: Option<usize>) -> [f64; 2] {
    let var = (alpha * STD).powi(2) + sigma * sigma;
    let gain = alpha * STD * STD / var;
    let of = |mean: &[f64; 2]| [0, 1].map(|d| mean[d] + gain * (x[d] - alpha * mean[d]));
    if let Some(class) = class {
        return of(&MEANS[class]);
    }
    let log = MEANS.map(|mean| -0.5 / var * (0..2).map(|d| (x[d] - alpha * mean[d]).powi(2)).sum::<f64>());
    let largest = log[0].max(log[1]);
    let share = log.map(|l| (l - largest).exp());
    let [a, b] = MEANS.each_ref().map(of);
    [0, 1].map(|d| (share[0] * a[d] + share[1] * b[d]) / (share[0] + share[1]))
}

/// The exact network of `process`: told a class, that of the class, and without one that of the mixture.
struct Exact {
    process: Process,
    gaussian: Gaussian,
    /// The times at which it is evaluated: it is told a function of the time only.
    times: Vec<f64>,
}

impl Exact {
    /// The outputs whose meaning is this prediction.
    fn outputs(&self, x: f64, x0: f64, eps: f64, t: f64) -> [f64; 2] {
        if let Process::Adm(adm) = &self.process {
            let scalings = Adm::scalings(adm, t);
            // Constant attenuation: phi = −x_0.
            let head = |value: f64, s: crossfade_math::Scaling| (value - s.skip * x) / s.out;
            return [head(-x0, scalings.phi[0]), head(eps, scalings.eps)];
        }
        let target = self.gaussian.target(t);
        [target.x0 * x0 + target.eps * eps, 0.0]
    }

    fn conditioned<'a>(&'a self, classes: &[Option<u32>]) -> Conditioned<'a> {
        let context = Context::default().with_classes(Some(one_hot(classes, 2, &Device::flex())));
        Conditioned { network: self, process: self.process, log_time: false, context, guide: None }
    }
}

impl Backbone for Exact {
    fn encode(&self, _: Option<Tensor<4>>, _: Mode) -> Context {
        Context::default()
    }
    fn forward(&self, x: Tensor<4>, c_noise: Tensor<1>, context: &Context, _: Mode) -> RawHeads {
        let shape = x.dims();
        let noise = f64::from(to_host(c_noise)[0]);
        let distance = |t: &f64| (self.process.input(*t).noise - noise).abs();
        let t = *self.times.iter().min_by(|a, b| distance(a).total_cmp(&distance(b))).unwrap();
        let (scale, alpha, sigma) = (self.process.input(t).scale, self.gaussian.alpha(t), self.gaussian.sigma(t));
        let classes = to_host(context.classes.clone().unwrap());
        let (mut phi, mut second) = (vec![], vec![]);
        for (x, class) in to_host(x).chunks(2).zip(classes.chunks(2)) {
            let x = [0, 1].map(|d| f64::from(x[d]) / scale);
            let x0 = posterior_mean(x, alpha, sigma, class.iter().position(|&v| v == 1.0));
            for d in 0..2 {
                let [a, b] = self.outputs(x[d], x0[d], (x[d] - alpha * x0[d]) / sigma, t);
                phi.push(a as f32);
                second.push(b as f32);
            }
        }
        let device = Device::flex();
        let two = self.process.outputs() == Outputs::Heads;
        RawHeads { phi: from_vec(phi, shape, &device), eps: two.then(|| from_vec(second, shape, &device)) }
    }
    fn mixing(&self) -> Option<Tensor<1>> {
        None
    }
}

/// x_0 by the midpoint rule on a fine grid for dx = x̂_0 dα + ε̂ dσ with the guided x̂_0 and ε̂, in f64.
fn closed_form(gaussian: &Gaussian, times: &[f64], start: [f64; 2], class: usize, guidance: Guidance) -> [f64; 2] {
    let fields = |t: f64| (gaussian.alpha(t), gaussian.sigma(t));
    let guided = |x: [f64; 2], t: f64| {
        let (alpha, sigma) = fields(t);
        let strong = posterior_mean(x, alpha, sigma, Some(class));
        let weak = posterior_mean(x, alpha, sigma, None);
        // The guided score is the linear combination of both scores, and so is x̂_0.
        let w = if guidance.interval[0] <= t && t <= guidance.interval[1] { guidance.scale } else { 1.0 };
        [0, 1].map(|d| w * strong[d] + (1.0 - w) * weak[d])
    };
    let moved = |x: [f64; 2], from: f64, to: f64, x0: [f64; 2], eps: [f64; 2]| {
        let ((a, s), (b, r)) = (fields(from), fields(to));
        [0, 1].map(|d| x[d] + (b - a) * x0[d] + (r - s) * eps[d])
    };
    let slopes = |x: [f64; 2], t: f64| {
        let (x0, (alpha, sigma)) = (guided(x, t), fields(t));
        (x0, [0, 1].map(|d| (x[d] - alpha * x0[d]) / sigma))
    };
    times.windows(2).fold(start, |x, w| {
        let (x0, eps) = slopes(x, w[0]);
        if w[1] == 0.0 {
            return x0;
        }
        let middle = 0.5 * (w[0] + w[1]);
        let (x0, eps) = slopes(moved(x, w[0], middle, x0, eps), middle);
        moved(x, w[0], w[1], x0, eps)
    })
}

fn kinds() -> Vec<Process> {
    let wanted = |process: &Process| ["adm", "edm", "flow", "vp"].contains(&process.name());
    Process::all().into_iter().filter(|process| process.gaussian().is_some() && wanted(process)).collect()
}

#[test]
fn a_guided_sampler_follows_the_guided_equation_of_two_classes() {
    assert!(kinds().len() >= 4);
    let starts = [[0.3, -1.1], [-0.8, 0.4], [1.2, 0.9]];
    for process in kinds() {
        let gaussian = process.gaussian().unwrap();
        let sampler = if process.adm().is_some() { Sampler::Ab2 } else { Sampler::Heun };
        for (scale, interval) in [(1.0, [0.0, 1.0]), (2.5, [0.0, 1.0]), (0.0, [0.0, 1.0]), (2.0, [0.2, 0.6])] {
            let grid = Grid { kind: GridKind::UniformSqrt, ..Grid::default() };
            let (class, guidance) = ("0".into(), Guidance { scale, interval });
            let mut config = SampleConfig { sampler, grid, clip: 0.0, class, ..SampleConfig::default() };
            (config.steps, config.guidance, config.guidance_interval) = (160, scale, interval);
            let times = config.times(&process).unwrap();
            let net = Exact { process, gaussian, times: times.clone() };
            let guided = |weak| Some(Guide { guidance, weak });
            let classes = [Some(0), Some(1), Some(0)];
            let values = starts.iter().flatten().map(|&v| v as f32).collect::<Vec<_>>();
            let start = |_| Images(from_vec(values.clone(), [3, 1, 1, 2], &Device::flex()));
            let run = |net: Conditioned| {
                let mut hooks = Hooks { noise: &mut |_| unreachable!("deterministic"), observe: &mut |_| () };
                let sampled = solve(&net, &config, None, &start, &mut hooks).unwrap();
                (to_host(sampled.x0.0), sampled.nfe)
            };
            let (found, nfe) = run(net.conditioned(&classes).guided(guided(Weak::NoClass)));
            let fine = SampleConfig { steps: 4000, ..config.clone() }.times(&process).unwrap();
            for (k, (found, start)) in found.chunks(2).zip(starts).enumerate() {
                let start = start.map(|v| f64::from(v as f32) * gaussian.sigma(1.0));
                let truth = closed_form(&gaussian, &fine, start, classes[k].unwrap() as usize, guidance);
                for (found, truth) in found.iter().zip(truth) {
                    let error = (f64::from(*found) - truth).abs();
                    assert!(error < 0.02, "{} {scale} {interval:?}: {found} for {truth}", process.name());
                }
            }
            // Each guided evaluation counts twice, as the plan of the run says.
            let plain = SampleConfig { guidance: 1.0, ..config.clone() }.evaluations(&process).unwrap();
            assert_eq!(nfe, config.evaluations(&process).unwrap());
            match (scale == 1.0, interval == [0.0, 1.0]) {
                (true, _) => assert_eq!(nfe, plain),
                (_, true) => assert_eq!(nfe, 2 * plain),
                _ => assert!(plain < nfe && nfe < 2 * plain),
            }
            // A second network as guide, which is the mixture's, says the same as the network without a class.
            let weak = Weak::Network(Box::new(net.conditioned(&[None; 3])));
            assert_eq!(run(net.conditioned(&classes).guided(guided(weak))), (found, nfe), "{}", process.name());
        }
    }
}

#[test]
fn guidance_moves_away_from_the_other_class() {
    let process = kinds().into_iter().find(|process| process.name() == "edm").unwrap();
    let gaussian = process.gaussian().unwrap();
    let times = SampleConfig { steps: 200, ..SampleConfig::default() }.times(&process).unwrap();
    let end = |scale| {
        let guidance = Guidance { scale, ..Guidance::NONE };
        closed_form(&gaussian, &times, [0.1, 0.1].map(|v| v * gaussian.sigma(1.0)), 1, guidance)[0]
    };
    assert!(end(1.0) < end(2.0) && end(2.0) < end(3.0), "{} {} {}", end(1.0), end(2.0), end(3.0));
}
