//! The conditional network with its preconditioning.
use burn::tensor::Tensor;

use super::cond_unet::{CondUNet, Features};
use crate::engine::{Images, vector};
use crate::error::Result;
use crate::nn::denoiser::{Denoiser, Heads};
use crate::nn::mode::Mode;
use crate::nn::unet::RawHeads;
use crate::sample::{self, Predict};

impl Denoiser<CondUNet> {
    /// F(c_in·x_t, c_noise, condition). `t` has one time for all samples, or one each.
    ///
    /// # Shapes
    /// `x_t` `[B, C, H, W]`.
    pub fn raw_given(&self, x_t: Tensor<4>, t: &[f64], features: &Features, mode: Mode) -> RawHeads {
        let (x, c_noise) = self.input(x_t, t);
        let c_noise = vector(&c_noise, &x.device().without_autodiff());
        self.unet.forward(x, c_noise, features, mode)
    }

    /// phi_hat and eps_hat in evaluation mode.
    ///
    /// # Shapes
    /// As [`Denoiser::raw_given`].
    pub fn heads_given(&self, x_t: Tensor<4>, t: &[f64], features: &Features) -> Heads {
        let raw = self.raw_given(x_t.clone(), t, features, Mode::Eval);
        self.precondition(x_t, t, raw)
    }

    /// The network as a sampler sees it, for one batch of conditions, which are encoded here once.
    ///
    /// # Shapes
    /// `condition` `[B, condition_channels, H, W]`.
    pub fn given(&self, condition: Tensor<4>) -> Given<'_> {
        Given { net: self, features: self.unet.encode(condition, Mode::Eval) }
    }
}

/// A conditional network together with what it knows of its condition.
pub struct Given<'a> {
    pub(in crate::nn) net: &'a Denoiser<CondUNet>,
    pub(in crate::nn) features: Features,
}

impl Predict<Images> for Given<'_> {
    fn predict(&self, x_t: &Images, t: f64) -> Result<sample::Heads<Images>> {
        let heads = self.net.heads_given(x_t.0.clone(), &[t], &self.features);
        let parts = heads.phi.dims()[1] / x_t.0.dims()[1];
        Ok(sample::Heads { phi: Images::split(heads.phi, parts), eps: Images(heads.eps) })
    }
}
