//! The state of a training run: weights, moving average, optimiser, step.
use super::fine_tune::FineTuning;
use super::mean::MeanImage;
use super::optimiser::{Gradients, Optimiser, adamw};
use crate::checkpoint::{self, Checkpoint, Weights};
use crate::config::RunConfig;
use crate::engine::{Device, recording};
use crate::error::{Error, Result};
use crate::files::Folder;
use crate::latent::Latent;
use crate::nn::{BackboneConfig, Denoiser, Network, Statistics};
use crate::tensorfile::save_tensors;
use std::path::Path;

/// A network in training.
pub struct TrainState {
    /// Steps done.
    pub step: u64,
    /// The network, on a device that records gradients.
    pub net: Denoiser,
    /// The autoencoder of a latent diffusion run; it is stored in the checkpoints too.
    pub latent: Option<Latent>,
    /// The mean of the images or latents so far, for runs that have a use for it.
    pub(crate) mean_x0: Option<MeanImage>,
    /// The names of the classes of the images; empty for a network without classes.
    pub class_names: Vec<String>,
    optimiser: Optimiser,
}

impl TrainState {
    /// The state at step 0 with random initial weights.
    pub fn new(config: &RunConfig, device: &Device) -> Self {
        let device = recording(device, config.train.recompute);
        Self::with(config.network.init(config.ports(), config.seed, &device), config)
    }

    /// The state at step 0 of a new run: with the weights of `train.from`, or with the parts whose pretrained weights the
    /// configuration names.
    pub fn begin(config: &RunConfig, device: &Device) -> Result<Self> {
        let recorder = recording(device, config.train.recompute);
        if let Some(from) = &config.train.from {
            let start = FineTuning::open(from, config)?;
            let network = start.weights(config.network.init(config.ports(), config.seed, &recorder))?;
            // The first stage belongs to the weights: a network on the latents of another one would start from nothing.
            let latent = Latent::of(&start.checkpoint, device)?.filter(|_| config.latent.is_some());
            return Ok(Self { latent, ..Self::with(network, config) });
        }
        Ok(Self::with(config.network.init_with_pretrained(config.ports(), config.seed, &recorder)?, config))
    }

    /// The state at step 0 of a student: the network of `config` with the weights of its teacher, whose latents and classes
    /// it has.
    pub(crate) fn student(config: &RunConfig, teacher: &Checkpoint, weights: Weights, device: &Device) -> Result<Self> {
        let recorded = recording(device, config.train.recompute);
        let network = teacher.fill(config.network.lazy(config.ports(), &recorded), weights)?;
        let (latent, class_names) = (Latent::of(teacher, device)?, teacher.class_names.clone());
        Ok(Self { latent, class_names, ..Self::with(network, config) })
    }

    /// The state at step 0 of a given network.
    fn with(network: Network, config: &RunConfig) -> Self {
        let optimiser = Optimiser::new(&network, |name| config.network.is_trained(name));
        let optimiser = optimiser.with_averages(config.optim.profiles());
        let (net, mean_x0) = (config.denoiser(network), MeanImage::new(config));
        Self { step: 0, net, latent: None, mean_x0, class_names: vec![], optimiser }
    }

    /// The state in a checkpoint. The network is that of the configuration in the checkpoint.
    pub fn resume(checkpoint: &Checkpoint, recompute: bool, device: &Device) -> Result<Self> {
        let mut tensors = checkpoint.read()?;
        let mut config = checkpoint.config.clone();
        // This option only trades memory for time, so a resumed run may change it.
        config.train.recompute = recompute;
        let mut state = Self::new(&config, device);
        let restored = state.optimiser.restore(state.net.network, &mut tensors, "");
        state.net.network = restored.map_err(|e| Error::file(&checkpoint.path, e.to_string()))?;
        state.mean_x0 = state.mean_x0.and_then(|mean| mean.restore(&mut tensors));
        state.step = checkpoint.step;
        state.latent = Latent::of(checkpoint, device)?;
        state.class_names = checkpoint.class_names.clone();
        Ok(state)
    }

    /// Writes the state as a checkpoint.
    ///
    /// All ranks call this, and the first one writes.
    pub fn save(&self, path: &Path, config: &RunConfig) -> Result<()> {
        let Some(optimiser) = self.optimiser.gathered()? else { return Ok(()) };
        let mut tensors = optimiser.tensors(&self.net.network, "");
        tensors.extend(self.mean_x0.as_ref().map(MeanImage::tensor));
        let mut metadata = checkpoint::metadata(config, self.step)?;
        metadata.extend(checkpoint::class_names_entry(&self.class_names));
        if let Some(latent) = &self.latent {
            tensors.extend(latent.tensors());
            metadata.extend([checkpoint::first_stage_entry(latent.config())?]);
        }
        save_tensors(path, &tensors, &metadata)
    }

    /// Writes the averages `optim.ema_profiles` into a file of their own, if there are any.
    pub(crate) fn save_averages(&self, path: &Path, config: &RunConfig) -> Result<()> {
        let Some(optimiser) = self.optimiser.gathered()? else { return Ok(()) };
        match optimiser.average_tensors() {
            tensors if tensors.is_empty() => Ok(()),
            tensors => {
                let _folder = Folder::of([path])?;
                save_tensors(path, &tensors, &checkpoint::metadata(config, self.step)?)
            }
        }
    }

    /// The network with the moving average of its weights, without gradients. All ranks call this, and the first one gets it.
    pub fn averaged(&self, config: &RunConfig, device: &Device) -> Result<Option<Denoiser>> {
        let Some(optimiser) = self.optimiser.gathered()? else { return Ok(None) };
        let lazy = config.network.lazy(config.ports(), device);
        Ok(Some(config.denoiser(optimiser.averaged(lazy)?)))
    }

    /// Updates the running statistics of batch normalisations with those of a step's batches.
    pub(crate) fn absorb(&mut self, statistics: Statistics, config: &RunConfig) {
        let network = self.take_network(config);
        self.net.network = statistics.into_module(network);
    }

    /// Moves the network out of the state, so that an update can reuse the memory of its parameters; the caller puts it
    /// back.
    fn take_network(&mut self, config: &RunConfig) -> Network {
        // The placeholder is lazy: its weights are never allocated.
        let lazy = config.network.lazy(config.ports(), &Device::flex());
        std::mem::replace(&mut self.net.network, lazy)
    }

    /// One step of AdamW with clipped gradients and the moving average (§2.5).
    pub fn update(&mut self, grads: &Gradients, norm: f64, config: &RunConfig) -> Result<()> {
        let hyper = adamw(&config.optim, config.lr_schedule().at(self.step), self.step + 1, norm);
        let ema = config.optim.ema_action(self.step);
        let network = self.take_network(config);
        let network = self.optimiser.update(network, grads, hyper, ema);
        self.net.network = self.optimiser.synchronise(network)?;
        self.step += 1;
        Ok(())
    }

    /// The optimiser.
    pub(super) fn optimiser(&self) -> &Optimiser {
        &self.optimiser
    }

    /// The names of parameters whose gradients are not finite.
    pub(crate) fn not_finite(&self, grads: &Gradients) -> Vec<String> {
        self.optimiser.not_finite(grads)
    }
}
