//! A network together with its process: what the network reads, and what its outputs mean (§4.1, §9).
//!
//! Training and sampling share this file, so that a parameterisation is written once.
use burn::tensor::{Device, Tensor};
use crossfade_math::process::{Cld, Outputs};
use crossfade_math::{Adm, AttenuationFn, Coef, Field, GaussianFn, Process, ProcessFn, Scaling, Scalings};

use super::backbone::{Backbone, BackboneConfig, Context};
use super::guided::{Conditioned, Evaluate};
use super::mode::Mode;
use super::network::{Network, NetworkConfig};
use super::precision::Precision;
use super::unet::RawHeads;
use crate::engine::{Images, column, vector};
use crate::error::Result;

/// phi_hat and eps_hat.
#[derive(Clone, Debug)]
pub struct Heads {
    /// The parts of phi_hat along the channels, `[B, parts·C, H, W]`.
    pub phi: Tensor<4>,
    /// eps_hat, `[B, C, H, W]`.
    pub eps: Tensor<4>,
}

/// The outputs of a network whose process has a single target.
#[derive(Clone, Debug)]
pub struct TargetOutput {
    /// The target: a·x_0 + b·eps, or the normal of CLD's velocity.
    pub target: Images,
    /// x_0 itself, where the network has a second output for it.
    pub x0: Option<Images>,
}

/// A network and the process that it predicts.
#[derive(Clone, Debug)]
pub struct Denoiser {
    /// The network.
    pub network: Network,
    /// The process.
    pub process: Process,
    /// Whether the network embeds the time by random frequencies: ln t, or another small number.
    log_time: bool,
}

impl Denoiser {
    /// `network` made from `config`, trained or to be trained on `process`.
    pub fn new(network: Network, config: &NetworkConfig, process: Process) -> Self {
        Self { network, process, log_time: config.log_time() }
    }

    /// The same network with convolutions and products in another precision; an error if the device cannot.
    pub(crate) fn in_precision(self, precision: Precision, device: &Device) -> Result<Self> {
        Ok(Self { network: precision.of(self.network, device)?, ..self })
    }

    /// F(c_in·x_t, c_noise, context), the network's own outputs. `t` has one time for all samples, or one each.
    ///
    /// # Shapes
    /// `x_t` `[B, inputs·C, H, W]`.
    pub fn raw(&self, x_t: Tensor<4>, t: &[f64], context: &Context, mode: Mode) -> RawHeads {
        let (x, c_noise) = inputs(&self.process, self.log_time, x_t, t);
        self.network.forward(x, c_noise, context, mode)
    }

    /// phi_hat and eps_hat in evaluation mode, for attenuation.
    ///
    /// # Shapes
    /// As [`Denoiser::raw`].
    pub fn heads(&self, x_t: Tensor<4>, t: &[f64], context: &Context) -> Heads {
        let raw = self.raw(x_t.clone(), t, context, Mode::Eval);
        self.precondition(x_t, t, raw)
    }

    /// What the outputs of attenuation's network mean: head = c_skip·x_t + c_out·F.
    ///
    /// # Shapes
    /// As `precondition`.
    pub fn precondition(&self, x_t: Tensor<4>, t: &[f64], raw: RawHeads) -> Heads {
        precondition(self.adm(), x_t, t, raw)
    }

    /// The attenuation of this network's process.
    pub(crate) fn adm(&self) -> &Adm {
        self.process.adm().expect("only attenuation has two heads")
    }

    /// What the outputs of any other process's network mean.
    ///
    /// # Shapes
    /// As `target_output`.
    pub(crate) fn target_output(&self, x_t: &Images, t: &[f64], raw: RawHeads) -> TargetOutput {
        target_output(&self.process, x_t, t, raw, self.network.mixing())
    }

    /// The network for one batch of conditions, which are encoded here once and used at every time.
    ///
    /// # Shapes
    /// `condition` `[B, condition_channels, H, W]`; none for a network without a condition.
    pub fn conditioned(&self, condition: Option<Tensor<4>>) -> Conditioned<'_> {
        let context = self.network.encode(condition, Mode::Eval);
        self.evaluated_by(&self.network, context)
    }

    /// As [`Denoiser::conditioned`], with the outputs of `network`, which stands for the network of this denoiser.
    pub(crate) fn evaluated_by<'a>(&self, network: &'a dyn Evaluate, context: Context) -> Conditioned<'a> {
        Conditioned { network, process: self.process, log_time: self.log_time, context, guide: None }
    }
}

/// What the network reads: c_in·x_t and c_noise.
///
/// # Shapes
/// `x_t` `[B, inputs·C, H, W]`; `t` has one time for all samples, or one each. The result is `[B, inputs·C, H, W]`, `[B]`.
pub(super) fn inputs(process: &Process, log_time: bool, x_t: Tensor<4>, t: &[f64]) -> (Tensor<4>, Tensor<1>) {
    let samples = x_t.dims()[0];
    assert!(t.len() == 1 || t.len() == samples, "{} times for {samples} samples", t.len());
    let each = |i: usize| t[if t.len() == 1 { 0 } else { i }];
    let input = |t: f64| if log_time { process.log_time_input(t) } else { process.input(t) };
    let inputs: Vec<_> = (0..samples).map(|i| input(each(i))).collect();
    let device = x_t.device().without_autodiff();
    let c_in: Vec<f64> = inputs.iter().map(|input| input.scale).collect();
    let c_noise: Vec<f64> = inputs.iter().map(|input| input.noise).collect();
    (x_t * column(&c_in, &device), vector(&c_noise, &device))
}

/// head = c_skip·x_t + c_out·F; with a single decoder eps follows from phi.
///
/// # Shapes
/// `x_t` `[B, C, H, W]`; every part of phi is scaled on its own.
pub fn precondition(adm: &Adm, x_t: Tensor<4>, t: &[f64], raw: RawHeads) -> Heads {
    let samples = x_t.dims()[0];
    let scalings: Vec<Scalings> = t.iter().map(|&t| adm.scalings(t)).collect();
    let scalings = if t.len() == samples { scalings } else { vec![scalings[0].clone(); samples] };
    let apply = |pick: &dyn Fn(&Scalings) -> Scaling, raw: Tensor<4>| {
        let device = x_t.device().without_autodiff();
        let coefs = |part: fn(Scaling) -> f64| {
            let coefs: Vec<f64> = scalings.iter().map(|s| part(pick(s))).collect();
            column(&coefs, &device)
        };
        x_t.clone() * coefs(|s| s.skip) + raw * coefs(|s| s.out)
    };
    let parts = raw.phi.dims()[1] / x_t.dims()[1];
    let raw_phi = Images::split(raw.phi, parts);
    let phi: Vec<_> = raw_phi.into_iter().enumerate().map(|(i, part)| apply(&|s| s.phi[i], part.0)).collect();
    let eps = match raw.eps {
        Some(eps) => apply(&|s| s.eps, eps),
        None => eps_from_phi(adm, &x_t, &phi, t),
    };
    Heads { phi: Tensor::cat(phi, 1), eps }
}

/// eps = (x_t − x̂_0 − H_t(phi))/σ_t with x̂_0 = −H_1(phi); (x_t + (1−t)·phi)/σ_t for constant attenuation.
fn eps_from_phi(adm: &Adm, x_t: &Tensor<4>, phi: &[Tensor<4>], t: &[f64]) -> Tensor<4> {
    let phi: Vec<Images> = phi.iter().cloned().map(Images).collect();
    let time = coef(t);
    let x0_hat = adm.H(&phi, 1.0).scale(-1.0);
    let mean = adm.attenuation.mean(&x0_hat, &phi, &time);
    let noise = Images(x_t.clone()).minus(&mean);
    noise.scale(time.map(|t| 1.0 / adm.noise.sigma(t))).0
}

/// The outputs of a network whose process has a single target; `mixing` is m of a mixed output.
///
/// # Shapes
/// `x_t` `[B, C, H, W]` (twice the channels for CLD: x and v), `raw` `[B, C, H, W]` each, `mixing` `[C]`.
pub(crate) fn target_output(
    process: &Process,
    x_t: &Images,
    t: &[f64],
    raw: RawHeads,
    mixing: Option<Tensor<1>>,
) -> TargetOutput {
    let t = coef(t);
    if let Process::Cld(cld) = process {
        return TargetOutput { target: mixed_velocity(cld, x_t, &t, Images(raw.mean())), x0: None };
    }
    match (process.outputs(), mixing, process.gaussian()) {
        (Outputs::TargetAndX0, ..) => TargetOutput { target: Images(raw.phi), x0: raw.eps.map(Images) },
        (Outputs::MixedTarget, Some(m), Some(gaussian)) => {
            // eps = (1−m) σ_t x_t + m F.
            let normal = x_t.scale(t.map(|t| gaussian.sigma(t)));
            let channels = m.dims()[0];
            let m = m.reshape([1, channels, 1, 1]);
            TargetOutput { target: Images(normal.0.clone() + m * (raw.mean() - normal.0)), x0: None }
        }
        _ => TargetOutput { target: Images(raw.mean()), x0: None },
    }
}

/// The mixed score of CLD: c_t v + F.
fn mixed_velocity(cld: &Cld, state: &Images, t: &Coef, raw: Images) -> Images {
    let parts = Images::split(state.0.clone(), 2);
    Images::lincomb(&[(t.map(|t| cld.mixing(t)), &parts[1]), (1.0.into(), &raw)])
}

/// A time for all samples, or one for each.
pub(super) fn coef(t: &[f64]) -> Coef {
    if let [t] = t { Coef::Same(*t) } else { Coef::Each(t.to_vec()) }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::engine::{from_host, to_host};
    use crate::nn::{Decoders, NetworkPorts, UNetConfig, preset};
    use crate::rng::{Purpose, Stream};
    use crate::sample::Predict;
    use crossfade_math::{Attenuation, NoiseScale};

    fn noise(shape: [usize; 4]) -> Tensor<4> {
        let mut values = vec![0.0; shape.iter().product()];
        Stream::new(5, 0, 0, Purpose::Noise).fill_normal(&mut values);
        from_host(&values, shape, &Device::flex())
    }

    fn denoiser(decoders: Decoders, attenuation: Attenuation) -> Denoiser {
        let config = NetworkConfig::UNet(UNetConfig { decoders, ..preset("tiny").unwrap() });
        let network = config.init(NetworkPorts::with_phi_parts(attenuation.parts()), 1, &Device::flex());
        Denoiser::new(network, &config, Adm::new(attenuation, NoiseScale::Sqrt).into())
    }

    /// §13: the eps of a single decoder is that of two heads with equal raw outputs.
    #[test]
    fn a_single_decoder_gives_the_eps_of_equal_heads() {
        let one = denoiser(Decoders::One, Attenuation::Constant);
        let (x_t, t) = (noise([3, 3, 16, 16]), [1.0, 0.6, 0.05]);
        let raw = one.raw(x_t.clone(), &t, &Context::default(), Mode::Eval);
        let two = one.precondition(x_t.clone(), &t, RawHeads { eps: Some(raw.phi.clone()), ..raw.clone() });
        let one = one.precondition(x_t, &t, raw);
        let pairs = to_host(one.eps).into_iter().zip(to_host(two.eps));
        pairs.for_each(|(a, b)| assert!((a - b).abs() < 2e-5, "{a} {b}"));
    }

    /// Whatever the attenuation, x_t = x̂_0 + H_t(phi) + σ_t eps with x̂_0 = −H_1(phi) for a single decoder.
    #[test]
    fn a_single_decoder_is_consistent_for_every_attenuation() {
        for &attenuation in Attenuation::ALL {
            let net = denoiser(Decoders::One, attenuation);
            let x_t = Images(noise([2, 3, 16, 16]));
            let heads = net.conditioned(None).predict(&x_t, 0.4).unwrap();
            assert_eq!(heads.phi.len(), attenuation.parts());
            let (from_phi, native) = net.adm().x0_estimates(&x_t, &heads.phi, &heads.eps, &0.4.into());
            let pairs = to_host(from_phi.0).into_iter().zip(to_host(native.0));
            pairs.for_each(|(a, b)| assert!((a - b).abs() < 1e-4, "{attenuation:?}: {a} {b}"));
        }
    }

    #[test]
    fn one_time_stands_for_all_samples_and_samples_do_not_mix() {
        for decoders in [Decoders::Two, Decoders::One, Decoders::Conv] {
            let net = denoiser(decoders, Attenuation::Constant);
            let x_t = noise([2, 3, 16, 24]);
            let (same, each) = (
                net.heads(x_t.clone(), &[0.3], &Context::default()),
                net.heads(x_t.clone(), &[0.3, 0.3], &Context::default()),
            );
            assert_eq!(to_host(same.eps.clone()), to_host(each.eps));
            let alone = to_host(net.heads(x_t.narrow(0, 1, 1), &[0.3], &Context::default()).eps);
            let pairs = alone.iter().zip(to_host(same.eps).split_off(alone.len()));
            pairs.for_each(|(a, b)| assert!((a - b).abs() < 1e-5, "{a} {b}"));
        }
    }
}
