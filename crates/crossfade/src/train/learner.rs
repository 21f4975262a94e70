//! What the loop needs to know of a kind of network: how it is made, and what it says of a prepared batch.
use super::batch::Prepared;
use crate::config::RunConfig;
use crate::engine::{Device, Tensor, vector};
use crate::error::Result;
use crate::nn::baseline::{said, shown};
use crate::nn::condition::load_encoder;
use crate::nn::{Backbone, BackboneConfig, CondUNet, Denoiser, DropoutKey, Mode, RawHeads, Statistics, UNet};
use burn::module::Module;

/// A kind of network under training.
pub trait Learner: Module + Sized {
    /// Whether it embeds ln t, whatever the process.
    const LOG_TIME: bool;
    /// With initial weights.
    fn fresh(config: &RunConfig, device: &Device) -> Self;
    /// As [`Learner::fresh`], with what a configuration has of trained parts.
    fn begun(config: &RunConfig, device: &Device) -> Result<Self> {
        Ok(Self::fresh(config, device))
    }
    /// For weights that come from elsewhere.
    fn lazy(config: &RunConfig, device: &Device) -> Self;
    /// Whether gradients change what has this name.
    fn is_trained(config: &RunConfig, name: &str) -> bool;
    /// m of a mixed output, `[C]`.
    fn mixing(&self) -> Option<Tensor<1>>;
    /// F(x; c_noise) in training, for an `x` that is already scaled; notes what batch normalisations see.
    ///
    /// # Shapes
    /// `x` `[B, C, H, W]`, `c_noise` `[B]`.
    fn run(&self, x: Tensor<4>, c_noise: Tensor<1>, batch: &Prepared, key: &DropoutKey, seen: &Statistics) -> RawHeads;
}

/// The loss of `net` on a batch: that of the process, or of the baseline that a configuration names.
pub fn loss<N: Learner>(
    net: &Denoiser<N>,
    config: &RunConfig,
    batch: &Prepared,
    key: &DropoutKey,
    seen: &Statistics,
) -> Tensor<1> {
    let noised = &batch.noised;
    let device = noised.x_t.0.device().without_autodiff();
    if let Some(baseline) = &net.baseline {
        let (x, c_noise) = shown(baseline, &noised.x_t, &noised.t, N::LOG_TIME);
        let raw = net.unet.run(x, vector(&c_noise, &device), batch, key, seen);
        let said = said(baseline, &noised.x_t, &noised.t, raw, net.unet.mixing());
        return config.loss.of_baseline(baseline, noised, said);
    }
    let (x, c_noise) = net.input(noised.x_t.0.clone(), &noised.t);
    let raw = net.unet.run(x, vector(&c_noise, &device), batch, key, seen);
    config.loss.of_raw(net, noised, raw, None).total
}

impl Learner for UNet {
    const LOG_TIME: bool = false;
    fn fresh(config: &RunConfig, device: &Device) -> Self {
        config.network.init(config.ports(), config.seed, device)
    }
    fn lazy(config: &RunConfig, device: &Device) -> Self {
        config.network.lazy(config.ports(), device)
    }
    fn is_trained(_config: &RunConfig, _name: &str) -> bool {
        true
    }
    fn mixing(&self) -> Option<Tensor<1>> {
        Backbone::mixing(self)
    }
    fn run(&self, x: Tensor<4>, c_noise: Tensor<1>, batch: &Prepared, key: &DropoutKey, _: &Statistics) -> RawHeads {
        self.forward(x, c_noise, batch.labels.clone(), Some(key))
    }
}

impl Learner for CondUNet {
    const LOG_TIME: bool = true;
    fn fresh(config: &RunConfig, device: &Device) -> Self {
        let network = config.condition.clone().unwrap_or_default();
        network.init(config.ports(), config.seed, device)
    }
    fn begun(config: &RunConfig, device: &Device) -> Result<Self> {
        let net = Self::fresh(config, device);
        let network = config.condition.clone().unwrap_or_default();
        match &network.encoder_weights {
            Some(path) => load_encoder(net, &network, path),
            None => Ok(net),
        }
    }
    fn lazy(config: &RunConfig, device: &Device) -> Self {
        config.condition.clone().unwrap_or_default().lazy(config.ports(), device)
    }
    fn is_trained(config: &RunConfig, name: &str) -> bool {
        config.condition.as_ref().is_none_or(|network| network.is_trained(name))
    }
    fn mixing(&self) -> Option<Tensor<1>> {
        Backbone::mixing(self)
    }
    fn run(&self, x: Tensor<4>, c_noise: Tensor<1>, batch: &Prepared, key: &DropoutKey, seen: &Statistics) -> RawHeads {
        let mode = Mode::Train { dropout: key, statistics: seen };
        let condition = batch.condition.clone().expect("batches of a conditioned task have a condition");
        self.forward(x, c_noise, &self.encode(condition, mode), mode)
    }
}
