//! Everything that a resume needs: weights, moving average, optimiser, step.
use super::learner::Learner;
use super::optimiser::{Gradients, Optimiser, adamw};
use crate::checkpoint::{self, Checkpoint};
use crate::config::RunConfig;
use crate::engine::{Device, recording};
use crate::error::{Error, Result};
use crate::latent::Latent;
use crate::nn::{Denoiser, UNet};
use crate::tensorfile::save_tensors;
use std::path::Path;

/// A network under training.
pub struct TrainState<N = UNet> {
    /// Steps done.
    pub step: u64,
    /// The network, on the device with gradients.
    pub net: Denoiser<N>,
    /// The autoencoder of a run on latents; its checkpoints hold it too.
    pub latent: Option<Latent>,
    optimiser: Optimiser,
}

impl<N: Learner> TrainState<N> {
    /// Step 0.
    pub fn new(config: &RunConfig, device: &Device) -> Self {
        Self::with(N::fresh(config, &recording(device, config.train.recompute)), config)
    }

    /// Step 0 of a given network.
    pub fn with(unet: N, config: &RunConfig) -> Self {
        let optimiser = Optimiser::new(&unet, |name| N::is_trained(config, name));
        Self { step: 0, net: config.denoiser(unet), latent: None, optimiser }
    }

    /// The state that a checkpoint holds. Its own configuration says what the network is.
    pub fn resume(checkpoint: &Checkpoint, recompute: bool, device: &Device) -> Result<Self> {
        let mut tensors = checkpoint.read()?;
        let mut config = checkpoint.config.clone();
        config.train.recompute = recompute;
        let mut state = Self::new(&config, device);
        let restored = state.optimiser.restore(state.net.unet, &mut tensors, "");
        state.net.unet = restored.map_err(|e| Error::file(&checkpoint.path, e.to_string()))?;
        state.step = checkpoint.step;
        state.latent = Latent::of(checkpoint, device)?;
        Ok(state)
    }

    /// Writes the state as a checkpoint.
    pub fn save(&self, path: &Path, config: &RunConfig) -> Result<()> {
        let mut tensors = self.optimiser.tensors(&self.net.unet, "");
        let mut metadata = checkpoint::metadata(config, self.step)?;
        if let Some(latent) = &self.latent {
            tensors.extend(latent.tensors());
            metadata.extend([checkpoint::first_stage_entry(latent.config())?]);
        }
        save_tensors(path, &tensors, &metadata)
    }

    /// The network with the averaged weights, without gradients.
    pub fn averaged(&self, config: &RunConfig, device: &Device) -> Result<Denoiser<N>> {
        Ok(config.denoiser(self.optimiser.averaged(N::lazy(config, device))?))
    }

    /// One step of AdamW with clipped gradients and the moving average (§2.5).
    pub fn update(&mut self, grads: &Gradients, norm: f64, config: &RunConfig) {
        let hyper = adamw(&config.optim, config.lr_schedule().at(self.step), self.step + 1, norm);
        let ema = config.ema_schedule().action(self.step);
        // Taken out, so that the update works in the parameters' own memory.
        let lazy = N::lazy(config, &Device::flex());
        let unet = std::mem::replace(&mut self.net.unet, lazy);
        self.net.unet = self.optimiser.update(unet, grads, hyper, ema);
        self.step += 1;
    }

    /// Names of the parameters whose gradients are no numbers.
    pub fn not_finite(&self, grads: &Gradients) -> Vec<String> {
        self.optimiser.not_finite(grads)
    }
}
