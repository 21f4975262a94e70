//! The configuration for training an autoencoder: a file with an `[autoencoder]` section.
use super::difference::must_equal;
use super::read::Finding;
use super::sections::LABEL_DROPOUT;
use super::validate::Checks;
use super::{Checked, OptimConfig, TrainConfig, finish, override_as, parse_as, read_text, unwritable};
use crate::data::DataConfig;
use crate::error::{Result, Shown};
use crate::loss::AutoencoderLoss;
use crate::nn::{AutoencoderConfig, PatchGan};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// Every option of an autoencoder's training.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AutoencoderRun {
    /// Seed of the weights, the order of the images and the noise.
    pub seed: u64,
    /// The autoencoder.
    pub autoencoder: AutoencoderConfig,
    /// The images.
    pub data: DataConfig,
    /// The training loss.
    pub loss: AutoencoderLoss,
    /// The optimiser; both networks use the same settings.
    pub optim: OptimConfig,
    /// Steps, batch size, and the output of the run.
    pub train: TrainConfig,
}

impl Default for AutoencoderRun {
    fn default() -> Self {
        Self {
            seed: 0,
            autoencoder: AutoencoderConfig::default(),
            data: DataConfig::Procedural { seed: 0, len: 50_000 },
            loss: AutoencoderLoss::default(),
            optim: OptimConfig::default(),
            train: TrainConfig::default(),
        }
    }
}

/// Whether the text is the configuration of an autoencoder, and not of a diffusion network.
pub fn is_autoencoder(text: &str) -> bool {
    super::document::Document::parse(text, "").is_ok_and(|document| document.table.contains_key("autoencoder"))
}

impl AutoencoderRun {
    /// Reads and validates the configuration in `path`.
    pub fn load(path: &Path) -> Result<Self> {
        Self::parse(&read_text(path)?, &path.shown())
    }

    /// Reads and validates a configuration; `origin` is the file that errors name.
    pub fn parse(text: &str, origin: &str) -> Result<Self> {
        parse_as(text, origin)
    }

    /// The configuration with `section.key=value` assignments applied; all problems are reported at once.
    pub fn with_overrides<S: AsRef<str>>(self, sets: &[S]) -> Result<Self> {
        override_as(self, sets)
    }

    /// The configuration with relative paths of images joined to `root`.
    pub fn with_data_root(mut self, root: &Path) -> Self {
        for (_, path) in self.data.paths_mut() {
            *path = root.join(&*path);
        }
        self
    }

    /// The whole configuration as TOML, defaults included; reading it gives the same configuration.
    pub fn to_toml(&self) -> Result<String> {
        toml::to_string(self).map_err(unwritable)
    }

    /// An error that lists every option in which a resumed run would differ from the one that wrote the checkpoint.
    pub fn must_resume_as(&self, wanted: &Self) -> Result<()> {
        let neutral = |config: &Self| {
            let mut config = config.clone();
            config.train = config.train.with_default_output_options();
            config
        };
        must_equal(&neutral(self), &neutral(wanted))
    }

    /// Checks that the values make sense, alone and together.
    pub fn validate(&self) -> Result<()> {
        finish((), self.problems(&[]).iter().map(Finding::to_string).collect())
    }
}

impl Checked for AutoencoderRun {
    fn problems(&self, earlier: &[Finding]) -> Vec<Finding> {
        let mut checks = Checks::after(earlier);
        checks.require(i64::try_from(self.seed).is_ok(), &["seed"], format!("must be at most {}", i64::MAX));
        checks.report("autoencoder", self.autoencoder.validate());
        checks.data(&self.data);
        checks.optim(&self.optim);
        checks.train(&self.train);
        let t = &self.train;
        checks.require(
            t.augment == 0.0,
            &["train.augment"],
            "must be 0: an autoencoder must reproduce images as they are",
        );
        let plain = self.optim.ema_profiles.is_empty();
        let message = "is for diffusion networks: an autoencoder keeps one moving average";
        checks.require(plain, &["optim.ema_profiles"], message);
        checks.require(t.from.is_none(), &["train.from"], "is for diffusion networks: an autoencoder starts anew");
        let message = "is for networks with classes; an autoencoder has none";
        checks.require(t.label_dropout == LABEL_DROPOUT, &["train.label_dropout"], message);
        let l = &self.loss;
        checks.not_negative(l.kl_weight, "loss.kl_weight");
        checks.not_negative(l.perceptual, "loss.perceptual");
        checks.not_negative(l.disc_weight, "loss.disc_weight");
        let (side, least) = (self.autoencoder.resolution, l.perceptual_net.min_side());
        let fits = side >= least || l.perceptual == 0.0 || l.perceptual_weights.is_none();
        let keys = ["loss.perceptual", "autoencoder.resolution", "loss.perceptual_net"];
        checks.require(fits, &keys, format!("its network needs images of {least} pixels or more, not {side}"));
        checks.require((1..=1024).contains(&l.disc_width), &["loss.disc_width"], "must be from 1 to 1024");
        checks.require((1..=6).contains(&l.disc_depth), &["loss.disc_depth"], "must be from 1 to 6");
        // A discriminator that never starts may be of any depth.
        let least = PatchGan::least_side(l.disc_depth.min(6));
        checks.require(
            side >= least || l.disc_start >= t.steps,
            &["loss.disc_depth", "autoencoder.resolution", "loss.disc_start"],
            format!("a discriminator of this depth needs images of {least} pixels or more, not {side}"),
        );
        checks.problems
    }
}
