//! Samplers under the names of k-diffusion make its images: its updates, written plainly in sigma = κ and x/α, give the
//! same numbers from the same noise, on processes with α = 1 and on others.
#![allow(clippy::unwrap_used)]
use crossfade::Result;
use crossfade::math::process::{Edm, Flow, Ve, Vp};
use crossfade::math::{Adm, Gaussian, GaussianFn, Prediction, Process};
use crossfade::sample::gaussian::{Denoise, GaussianProblem};
use crossfade::sample::{Hooks, Sampler};

/// Uneven times, which start where every process has some signal.
const TIMES: [f64; 9] = [0.95, 0.7, 0.55, 0.3, 0.17, 0.1, 0.04, 0.01, 0.0];

/// A denoiser that is not linear: E[x_0 | x] for data that is −1 or 1 with some noise.
fn denoised(x: f64, sigma: f64) -> f64 {
    let variance = sigma * sigma + 0.09;
    (0.09 * x + sigma * sigma * (x / variance).tanh()) / variance
}

struct Network(Gaussian);

impl Denoise<f64> for Network {
    fn denoise(&self, x_t: &f64, t: f64) -> Result<Prediction<f64>> {
        let x0 = denoised(x_t / self.0.alpha(t), self.0.ratio(t));
        Ok(self.0.prediction_of_x0(x_t, x0, t))
    }
}

/// The normal number n.
fn z(n: usize) -> f64 {
    (1.7 * (n as f64 + 1.0).powi(2)).sin() * 1.3
}

/// k-diffusion's `get_ancestral_step` with eta = 1: (sigma_down, sigma_up).
fn ancestral(from: f64, to: f64) -> (f64, f64) {
    let up = (to * to * (from * from - to * to) / (from * from)).sqrt();
    ((to * to - up * up).sqrt(), up)
}

fn euler(mut x: f64, sigmas: &[f64]) -> f64 {
    for w in sigmas.windows(2) {
        x += (x - denoised(x, w[0])) / w[0] * (w[1] - w[0]);
    }
    x
}

fn euler_ancestral(mut x: f64, sigmas: &[f64]) -> f64 {
    for (i, w) in sigmas.windows(2).enumerate() {
        let (down, up) = ancestral(w[0], w[1]);
        x += (x - denoised(x, w[0])) / w[0] * (down - w[0]) + up * z(i);
    }
    x
}

fn lms(mut x: f64, sigmas: &[f64]) -> f64 {
    let mut slopes: Vec<f64> = vec![];
    for i in 0..sigmas.len() - 1 {
        slopes.push((x - denoised(x, sigmas[i])) / sigmas[i]);
        let order = slopes.len().min(4);
        for j in 0..order {
            let lagrange = |tau: f64| -> f64 {
                let others = (0..order).filter(|k| *k != j);
                others.map(|k| (tau - sigmas[i - k]) / (sigmas[i - j] - sigmas[i - k])).product()
            };
            // Simpson's rule is exact for cubic polynomials.
            let (a, b) = (sigmas[i], sigmas[i + 1]);
            x += (b - a) / 6.0 * (lagrange(a) + 4.0 * lagrange(0.5 * (a + b)) + lagrange(b)) * slopes[i - j];
        }
    }
    x
}

fn dpmpp_2m(mut x: f64, sigmas: &[f64]) -> f64 {
    let mut old = None;
    for (i, w) in sigmas.windows(2).enumerate() {
        let d = denoised(x, w[0]);
        let h = (w[0] / w[1]).ln();
        let mixed = match old {
            Some(old) if w[1] > 0.0 => {
                let r = (sigmas[i - 1] / w[0]).ln() / h;
                (1.0 + 0.5 / r) * d - 0.5 / r * old
            }
            _ => d,
        };
        x = w[1] / w[0] * x - (-h).exp_m1() * mixed;
        old = Some(d);
    }
    x
}

fn dpmpp_sde(mut x: f64, sigmas: &[f64]) -> f64 {
    for (i, w) in sigmas.windows(2).enumerate() {
        let d = denoised(x, w[0]);
        if w[1] == 0.0 {
            return x + (x - d) / w[0] * (w[1] - w[0]);
        }
        let (t, t_next) = (-w[0].ln(), -w[1].ln());
        let middle = (-(t + 0.5 * (t_next - t))).exp();
        // The Brownian tree: increments of one path in sigma, each divided by its deviation.
        let (before, after) = ((w[0] - middle).sqrt() * z(2 * i), (middle - w[1]).sqrt() * z(2 * i + 1));
        let (down, up) = ancestral(w[0], middle);
        let x_2 = down / w[0] * x - (t + down.ln()).exp_m1() * d + before / (w[0] - middle).sqrt() * up;
        let d_2 = denoised(x_2, middle);
        let (down, up) = ancestral(w[0], w[1]);
        x = down / w[0] * x - (t + down.ln()).exp_m1() * d_2 + (before + after) / (w[0] - w[1]).sqrt() * up;
    }
    x
}

fn dpmpp_2m_sde(mut x: f64, sigmas: &[f64]) -> f64 {
    let mut old: Option<(f64, f64)> = None;
    for (i, w) in sigmas.windows(2).enumerate() {
        let d = denoised(x, w[0]);
        if w[1] == 0.0 {
            return d;
        }
        let h = (w[0] / w[1]).ln();
        x = w[1] / w[0] * (-h).exp() * x - (-2.0 * h).exp_m1() * d;
        if let Some((old, h_last)) = old {
            x -= 0.5 * (-2.0 * h).exp_m1() * (h / h_last) * (d - old);
        }
        x += z(i) * w[1] * (-(-2.0 * h).exp_m1()).sqrt();
        old = Some((d, h));
    }
    x
}

fn dpmpp_3m_sde(mut x: f64, sigmas: &[f64]) -> f64 {
    let mut old: Vec<(f64, f64)> = vec![];
    for (i, w) in sigmas.windows(2).enumerate() {
        let d = denoised(x, w[0]);
        if w[1] == 0.0 {
            return d;
        }
        let h = (w[0] / w[1]).ln();
        let h_eta = 2.0 * h;
        x = (-h_eta).exp() * x - (-h_eta).exp_m1() * d;
        let phi_2 = (-h_eta).exp_m1() / h_eta + 1.0;
        let phi_3 = phi_2 / h_eta - 0.5;
        match old[..] {
            [.., (before, h_2), (last, h_1)] => {
                let (r0, r1) = (h_1 / h, h_2 / h);
                let (d1_0, d1_1) = ((d - last) / r0, (last - before) / r1);
                let d1 = d1_0 + (d1_0 - d1_1) * r0 / (r0 + r1);
                x += phi_2 * d1 - phi_3 * (d1_0 - d1_1) / (r0 + r1);
            }
            [(last, h_1)] => x += phi_2 * (d - last) * h / h_1,
            [] => (),
        }
        x += z(i) * w[1] * (-(-h_eta).exp_m1()).sqrt();
        old.push((d, h));
    }
    x
}

#[test]
fn samplers_with_names_of_k_diffusion_follow_its_updates() {
    type Update = fn(f64, &[f64]) -> f64;
    let updates: [(&str, Update); 7] = [
        ("euler", euler),
        ("euler_ancestral", euler_ancestral),
        ("lms", lms),
        ("dpmpp_2m", dpmpp_2m),
        ("dpmpp_sde", dpmpp_sde),
        ("dpmpp_2m_sde", dpmpp_2m_sde),
        ("dpmpp_3m_sde", dpmpp_3m_sde),
    ];
    let processes = [
        Process::Edm(Edm::default()),
        Process::Ve(Ve::default()),
        Process::Vp(Vp::default()),
        Process::Flow(Flow::default()),
        Adm::default().into(),
    ];
    for process in processes {
        let gaussian = process.gaussian().unwrap();
        let sigmas = TIMES.map(|t| gaussian.ratio(t));
        for (name, update) in updates {
            let start = 0.8 * sigmas[0];
            let expected = update(start, &sigmas);
            let network = Network(gaussian);
            let mut hooks = Hooks { noise: &mut z, observe: &mut |_| () };
            let x = gaussian.alpha(TIMES[0]) * start;
            let problem = GaussianProblem::new(&network, gaussian);
            let ours = Sampler::parse(name).unwrap().run(&problem, &TIMES, x, &mut hooks).unwrap().x0;
            assert!(expected.is_finite() && expected != 0.0, "{name} on {}", process.name());
            let bound = 1e-12 * (1.0 + expected.abs());
            assert!((ours - expected).abs() < bound, "{name} on {}: {ours}, but {expected}", process.name());
        }
    }
}
