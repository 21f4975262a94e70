//! Which options may change between a run and its resumption.
use super::RunConfig;
use super::difference::must_equal;
use crate::error::Result;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

impl RunConfig {
    /// An error that lists every option in which a resumed run would differ from the one that wrote the checkpoint. How often
    /// things are written and how samples are drawn may change: the weights do not depend on them.
    pub fn must_resume_as(&self, wanted: &Self) -> Result<()> {
        must_equal(&self.essence(), &wanted.essence())
    }

    /// What the weights depend on: without output options, sampling settings and the places of the first stage and its latents.
    fn essence(&self) -> Self {
        let mut config = self.clone();
        config.sample = Self::default().sample;
        config.train = config.train.with_default_output_options();
        // The checkpoint holds the first stage; where it once came from and where its latents are kept may change.
        if let Some(latent) = &mut config.latent {
            (latent.autoencoder, latent.cache) = (PathBuf::new(), None);
        }
        // A checkpoint holds the weights of its encoder, too.
        config.network = config.network.without_pretrained();
        config
    }

    /// What the weights depend on as text, wherever the images lie: equal for equal trainings on any machine.
    pub(crate) fn fingerprint(&self) -> Result<String> {
        let mut config = self.essence();
        config.data.paths_mut().into_iter().for_each(|(_, path)| *path = PathBuf::new());
        config.to_toml()
    }

    /// Whether both name the same files, wherever these lie: the last parts of all paths are equal.
    pub(crate) fn names_same_files(&self, other: &Self) -> bool {
        let names = |config: &Self| -> Vec<Option<OsString>> {
            let mut data = config.data.clone();
            let images = data.paths_mut().into_iter().map(|(_, path)| path.clone());
            let first_stage = config.latent.iter().map(|latent| latent.autoencoder.clone());
            let encoder = config.network.pretrained().cloned();
            let name = |path: PathBuf| Path::file_name(&path).map(OsString::from);
            images.chain(first_stage).chain(encoder).map(name).collect()
        };
        names(self) == names(other)
    }
}
