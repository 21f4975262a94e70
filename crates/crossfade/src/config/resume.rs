//! The options that may change when a run is resumed.
use super::RunConfig;
use super::difference::must_equal;
use crate::error::Result;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

impl RunConfig {
    /// Fails if a resumed run would differ from the one that wrote the checkpoint; the error lists every option that
    /// differs. Output intervals and sampling settings may change, because the weights do not depend on them.
    pub fn must_resume_as(&self, wanted: &Self) -> Result<()> {
        must_equal(&self.weight_options(), &wanted.weight_options())
    }

    /// The configuration with all options that the weights do not depend on reset: output options, sampling settings,
    /// and the paths of the autoencoder and its cached latents.
    fn weight_options(&self) -> Self {
        let mut config = self.clone();
        config.sample = Self::default().sample;
        config.train = config.train.with_default_output_options();
        // The checkpoint contains the autoencoder, so the path it was loaded from may change, as may that of the cache.
        if let Some(latent) = &mut config.latent {
            (latent.autoencoder, latent.cache) = (PathBuf::new(), None);
        }
        // It also contains the weights of the pretrained encoder.
        config.network = config.network.without_pretrained();
        config
    }

    /// The options that the weights depend on, as TOML and without the paths of images: it is equal for equal trainings on
    /// different machines.
    pub(crate) fn fingerprint(&self) -> Result<String> {
        let mut config = self.weight_options();
        config.data.paths_mut().into_iter().for_each(|(_, path)| *path = PathBuf::new());
        // A training from other weights is another one. Its directory may differ between machines.
        config.train.from = self.train.from.as_deref().and_then(Path::file_name).map(PathBuf::from);
        config.to_toml()
    }

    /// Whether both use files of the same names, in whatever directories.
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
