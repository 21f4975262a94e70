//! Checkpoints of autoencoders.
use super::load;
use crate::checkpoint::{Opened, Weights, newest};
use crate::config::{AutoencoderRun, is_autoencoder};
use crate::engine::Device;
use crate::error::{Error, Result, Shown};
use crate::nn::Autoencoder;
use crate::tensorfile::TensorMap;
use std::path::{Path, PathBuf};

/// An opened checkpoint of an autoencoder's training.
pub struct AutoencoderCheckpoint {
    /// The path of the file.
    pub path: PathBuf,
    /// The configuration of its run.
    pub config: AutoencoderRun,
    /// Training steps done.
    pub step: u64,
    /// Checksum of its tensors.
    pub checksum: String,
    opened: Opened,
}

impl AutoencoderCheckpoint {
    /// Opens a checkpoint, or the newest one in the directory of a run.
    pub fn open(path: &Path) -> Result<Self> {
        let path = newest(path)?;
        let opened = Opened::open(&path)?;
        if !is_autoencoder(&opened.config) {
            let message = "holds a diffusion network where an autoencoder is needed; train one from a configuration \
                           with an [autoencoder] section";
            return Err(Error::file(&path, message));
        }
        let config = AutoencoderRun::parse(&opened.config, &path.shown())?;
        Ok(Self { config, step: opened.step, checksum: opened.checksum.clone(), opened, path })
    }

    /// All tensors, by name; an error if the file is damaged.
    pub fn read(&self) -> Result<TensorMap> {
        self.opened.read()
    }

    /// The autoencoder with the chosen weights, without gradients.
    pub fn autoencoder(&self, weights: Weights, device: &Device) -> Result<Autoencoder> {
        let (network, prefix) = (&self.config.autoencoder, self.opened.prefix_of(weights));
        let chosen = self.opened.read_network(&self.path, prefix, &network.parameter_shapes())?;
        load(network, &chosen, device).map_err(|e| Error::file(&self.path, e.to_string()))
    }
}
