//! Networks as the baselines use them (§9): what they are shown, and what their outputs mean. Training and sampling share it.
use burn::tensor::Tensor;
use crossfade_math::cld::Cld;
use crossfade_math::path::{Baseline, Output, PathFn};
use crossfade_math::{Coef, Field, Process};

use super::backbone::Backbone;
use super::condition::Given;
use super::denoiser::Denoiser;
use super::mode::Mode;
use super::unet::RawHeads;
use crate::engine::{Images, vector};
use crate::sample::Predict;

/// What a network says under a baseline.
#[derive(Clone, Debug)]
pub struct Said {
    /// Its target: a·x_0 + b·eps of a path, the velocity's normal of CLD.
    pub target: Images,
    /// x_0 itself, where it has a second output for that.
    pub x0: Option<Images>,
}

/// The smallest time that an embedding of ln t is shown.
const SMALLEST: f64 = 1e-6;

/// Networks that embed times by random frequencies cannot tell thousandths apart: they are shown ln t.
fn shown_time(baseline: &Baseline, t: f64, log_time: bool) -> f64 {
    if log_time { t.max(SMALLEST).ln() } else { baseline.input(t).noise }
}

/// c_in·x_t, and the time as the network sees it, one for each of `t`.
///
/// # Shapes
/// `[B, C, H, W]` to the same; `t` has one time for all samples, or one each.
pub fn shown(baseline: &Baseline, x_t: &Images, t: &[f64], log_time: bool) -> (Tensor<4>, Vec<f64>) {
    let x = x_t.scale(coef(t).map(|t| baseline.input(t).scale));
    (x.0, t.iter().map(|&t| shown_time(baseline, t, log_time)).collect())
}

/// The meaning of a network's outputs at x_t; `mixing` is m of a mixed output.
///
/// # Shapes
/// `x_t` `[B, C, H, W]` (twice the channels for CLD: x and v), `raw` `[B, C, H, W]` each, `mixing` `[C]`.
pub fn said(baseline: &Baseline, x_t: &Images, t: &[f64], raw: RawHeads, mixing: Option<Tensor<1>>) -> Said {
    let t = coef(t);
    if let Baseline::Cld(cld) = baseline {
        return Said { target: mixed_velocity(cld, x_t, &t, Images(raw.mean())), x0: None };
    }
    match (baseline.output(), mixing, baseline.path()) {
        (Output::WithX0, ..) => Said { target: Images(raw.phi), x0: raw.eps.map(Images) },
        (Output::Mixed, Some(m), Some(path)) => {
            // eps = (1−m) σ_t x_t + m F.
            let normal = x_t.scale(t.map(|t| path.sigma(t)));
            let channels = m.dims()[0];
            let m = m.reshape([1, channels, 1, 1]);
            Said { target: Images(normal.0.clone() + m * (raw.mean() - normal.0)), x0: None }
        }
        _ => Said { target: Images(raw.mean()), x0: None },
    }
}

/// α = c_t v + F.
fn mixed_velocity(cld: &Cld, state: &Images, t: &Coef, raw: Images) -> Images {
    let parts = Images::split(state.0.clone(), 2);
    Images::lincomb(&[(t.map(|t| cld.mixing(t)), &parts[1]), (1.0.into(), &raw)])
}

fn coef(t: &[f64]) -> Coef {
    if let [t] = t { Coef::Same(*t) } else { Coef::Each(t.to_vec()) }
}

/// A network as sampling sees it, with its condition if it has one.
pub trait Network: Predict<Images> {
    /// F(x, c_noise) in evaluation.
    ///
    /// # Shapes
    /// `x` `[B, C, H, W]`, `c_noise` `[B]`.
    fn outputs(&self, x: Tensor<4>, c_noise: Tensor<1>) -> RawHeads;
    /// m of a mixed output.
    fn mixing(&self) -> Option<Tensor<1>>;
    /// Whether it embeds ln t.
    fn log_time(&self) -> bool;
    /// The attenuation that it was trained for,
    fn process(&self) -> Process;
    /// unless this was in its place.
    fn baseline(&self) -> Option<Baseline>;
}

/// What a network says at one time.
///
/// # Shapes
/// As [`said`].
pub fn ask(net: &dyn Network, baseline: &Baseline, x_t: &Images, t: f64) -> Said {
    let (x, c_noise) = shown(baseline, x_t, &[t], net.log_time());
    let times = vector(&vec![c_noise[0]; x.dims()[0]], &x.device());
    said(baseline, x_t, &[t], net.outputs(x, times), net.mixing())
}

impl Network for Denoiser {
    fn outputs(&self, x: Tensor<4>, c_noise: Tensor<1>) -> RawHeads {
        self.unet.forward(x, c_noise, None, None)
    }
    fn mixing(&self) -> Option<Tensor<1>> {
        self.unet.mixing()
    }
    fn log_time(&self) -> bool {
        false
    }
    fn process(&self) -> Process {
        self.process
    }
    fn baseline(&self) -> Option<Baseline> {
        self.baseline
    }
}

impl Network for Given<'_> {
    fn outputs(&self, x: Tensor<4>, c_noise: Tensor<1>) -> RawHeads {
        self.net.unet.forward(x, c_noise, &self.features, Mode::Eval)
    }
    fn mixing(&self) -> Option<Tensor<1>> {
        self.net.unet.mixing()
    }
    fn log_time(&self) -> bool {
        true
    }
    fn process(&self) -> Process {
        self.net.process
    }
    fn baseline(&self) -> Option<Baseline> {
        self.net.baseline
    }
}
