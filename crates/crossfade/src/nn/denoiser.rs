//! The network with its preconditioning: from (x_t, t) to phi_hat and eps_hat (§4.1).
use burn::tensor::Tensor;
use crossfade_math::path::Baseline;
use crossfade_math::{AttenuationFn, Coef, Field, Precond, Process, Scaling, Scalings};

use super::dropout::DropoutKey;
use super::unet::{RawHeads, UNet};
use crate::engine::{Images, column, vector};
use crate::error::Result;
use crate::sample::{self, Predict};

/// phi_hat and eps_hat.
#[derive(Clone, Debug)]
pub struct Heads {
    /// The parts of phi_hat along the channels, `[B, parts·C, H, W]`.
    pub phi: Tensor<4>,
    /// eps_hat, `[B, C, H, W]`.
    pub eps: Tensor<4>,
}

/// A network and the process that it predicts.
#[derive(Clone, Debug)]
pub struct Denoiser<N = UNet> {
    /// The network.
    pub unet: N,
    /// The process.
    pub process: Process,
    /// Another one in its place.
    pub baseline: Option<Baseline>,
    /// The scalings around the network.
    pub precond: Precond,
}

impl Denoiser {
    /// F(c_in·x_t, c_noise), the network's own outputs. `t` has one time for all samples, or one each.
    ///
    /// # Shapes
    /// `x_t` `[B, C, H, W]`, `labels` `[B, augment_dim]`.
    pub fn raw(&self, x_t: Tensor<4>, t: &[f64], labels: Option<Tensor<2>>, dropout: Option<&DropoutKey>) -> RawHeads {
        let (x, c_noise) = self.input(x_t, t);
        let c_noise = vector(&c_noise, &x.device().without_autodiff());
        self.unet.forward(x, c_noise, labels, dropout)
    }

    /// phi_hat and eps_hat without dropout.
    ///
    /// # Shapes
    /// As [`Denoiser::raw`].
    pub fn heads(&self, x_t: Tensor<4>, t: &[f64], labels: Option<Tensor<2>>) -> Heads {
        let raw = self.raw(x_t.clone(), t, labels, None);
        self.precondition(x_t, t, raw)
    }
}

impl<N> Denoiser<N> {
    /// c_in·x_t and c_noise of every sample.
    ///
    /// # Shapes
    /// `[B, C, H, W]` to the same.
    pub(crate) fn input(&self, x_t: Tensor<4>, t: &[f64]) -> (Tensor<4>, Vec<f64>) {
        let scalings = self.scalings(t, x_t.dims()[0]);
        let device = x_t.device().without_autodiff();
        let c_in: Vec<f64> = scalings.iter().map(|s| s.c_in).collect();
        (x_t * column(&c_in, &device), scalings.iter().map(|s| s.c_noise).collect())
    }

    /// head = c_skip·x_t + c_out·F; with a single decoder eps follows from phi.
    ///
    /// # Shapes
    /// `x_t` `[B, C, H, W]`; every part of phi is scaled on its own.
    pub fn precondition(&self, x_t: Tensor<4>, t: &[f64], raw: RawHeads) -> Heads {
        let scalings = self.scalings(t, x_t.dims()[0]);
        let apply = |pick: &dyn Fn(&Scalings) -> Scaling, raw: Tensor<4>| {
            let device = x_t.device().without_autodiff();
            let coefs = |part: fn(Scaling) -> f64| {
                let coefs: Vec<f64> = scalings.iter().map(|s| part(pick(s))).collect();
                column(&coefs, &device)
            };
            x_t.clone() * coefs(|s| s.skip) + raw * coefs(|s| s.out)
        };
        let raw_phi = split(raw.phi, x_t.dims()[1]);
        let phi: Vec<_> = raw_phi.into_iter().enumerate().map(|(i, part)| apply(&|s| s.phi[i], part)).collect();
        let eps = match raw.eps {
            Some(eps) => apply(&|s| s.eps, eps),
            None => self.eps_from_phi(&x_t, &phi, t),
        };
        Heads { phi: Tensor::cat(phi, 1), eps }
    }

    /// eps = (x_t − x̂_0 − H_t(phi))/σ_t with x̂_0 = −H_1(phi); (x_t + (1−t)·phi)/σ_t for constant attenuation.
    fn eps_from_phi(&self, x_t: &Tensor<4>, phi: &[Tensor<4>], t: &[f64]) -> Tensor<4> {
        let phi: Vec<Images> = phi.iter().cloned().map(Images).collect();
        let time = if let [t] = t { Coef::Same(*t) } else { Coef::Each(t.to_vec()) };
        let x0_hat = self.process.H(&phi, 1.0).scale(-1.0);
        let mean = self.process.attenuation.mean(&x0_hat, &phi, &time);
        let noise = Images(x_t.clone()).minus(&mean);
        noise.scale(time.map(|t| 1.0 / self.process.noise.sigma(t))).0
    }

    fn scalings(&self, t: &[f64], samples: usize) -> Vec<Scalings> {
        assert!(t.len() == 1 || t.len() == samples, "{} times for {samples} samples", t.len());
        let scalings: Vec<_> = t.iter().map(|&t| self.precond.scalings(&self.process, t)).collect();
        if t.len() == samples { scalings } else { vec![scalings[0].clone(); samples] }
    }
}

/// The parts of `channels` channels each.
fn split(x: Tensor<4>, channels: usize) -> Vec<Tensor<4>> {
    (0..x.dims()[1] / channels).map(|i| x.clone().narrow(1, i * channels, channels)).collect()
}

impl Predict<Images> for Denoiser {
    fn predict(&self, x_t: &Images, t: f64) -> Result<sample::Heads<Images>> {
        let heads = self.heads(x_t.0.clone(), &[t], None);
        let phi = split(heads.phi, x_t.0.dims()[1]).into_iter().map(Images).collect();
        Ok(sample::Heads { phi, eps: Images(heads.eps) })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::engine::{Device, from_host, to_host};
    use crate::nn::{Decoders, NetworkPorts, UNetConfig, preset};
    use crate::rng::{Purpose, Stream};
    use crossfade_math::{Attenuation, NoiseScale};

    fn noise(shape: [usize; 4]) -> Tensor<4> {
        let mut values = vec![0.0; shape.iter().product()];
        Stream::new(5, 0, 0, Purpose::Noise).fill_normal(&mut values);
        from_host(&values, shape, &Device::flex())
    }

    fn denoiser(decoders: Decoders, attenuation: Attenuation) -> Denoiser {
        let process = Process::new(attenuation, NoiseScale::Sqrt);
        let config = UNetConfig { decoders, ..preset("tiny").unwrap() };
        let unet = config.init(NetworkPorts::with_phi_parts(attenuation.parts()), 1, &Device::flex());
        Denoiser { unet, process, baseline: None, precond: Precond::default() }
    }

    /// §13: the eps of a single decoder is that of two heads with equal raw outputs.
    #[test]
    fn a_single_decoder_gives_the_eps_of_equal_heads() {
        let one = denoiser(Decoders::One, Attenuation::Constant);
        let (x_t, t) = (noise([3, 3, 16, 16]), [1.0, 0.6, 0.05]);
        let raw = one.raw(x_t.clone(), &t, None, None);
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
            let heads = net.predict(&x_t, 0.4).unwrap();
            assert_eq!(heads.phi.len(), attenuation.parts());
            let (from_phi, native) = net.process.x0_estimates(&x_t, &heads.phi, &heads.eps, &0.4.into());
            let pairs = to_host(from_phi.0).into_iter().zip(to_host(native.0));
            pairs.for_each(|(a, b)| assert!((a - b).abs() < 1e-4, "{attenuation:?}: {a} {b}"));
        }
    }

    #[test]
    fn one_time_stands_for_all_samples_and_samples_do_not_mix() {
        for decoders in [Decoders::Two, Decoders::One, Decoders::Conv] {
            let net = denoiser(decoders, Attenuation::Constant);
            let x_t = noise([2, 3, 16, 24]);
            let (same, each) = (net.heads(x_t.clone(), &[0.3], None), net.heads(x_t.clone(), &[0.3, 0.3], None));
            assert_eq!(to_host(same.eps.clone()), to_host(each.eps));
            let alone = to_host(net.heads(x_t.narrow(0, 1, 1), &[0.3], None).eps);
            let pairs = alone.iter().zip(to_host(same.eps).split_off(alone.len()));
            pairs.for_each(|(a, b)| assert!((a - b).abs() < 1e-5, "{a} {b}"));
        }
    }
}
