//! One TOML file a run: what is trained, on what, how, and how it is sampled.
//!
//! [`RunConfig`] holds every option once; the defaults are its sections' `Default` impls and nowhere else. Reading is
//! strict and reports every problem at once, with its line.
mod autoencoder;
mod difference;
mod overrides;
mod read;
mod resume;
mod sections;
mod sizes;
mod study;
mod tasks;
mod validate;

pub use autoencoder::{AutoencoderRun, is_autoencoder};
pub use difference::{Difference, differences};
pub use sections::{LatentConfig, OptimConfig, SampleConfig, TrainConfig};
pub use sizes::{BATCH, Sizes};
pub(crate) use study::slug;
pub use study::{Axes, Evaluate, Study, StudyModel};

use crate::data::DataConfig;
use crate::error::{Error, Result};
use crate::loss::Objective;
use crate::nn::{Denoiser, Network, NetworkConfig, NetworkPorts};
use crate::task::TaskConfig;
use crossfade_math::process::Outputs;
use crossfade_math::{EmaSchedule, LrSchedule, Process};
use read::Problem;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io::Read;
use std::path::Path;

/// Longest configuration that is read.
const MAX_BYTES: u64 = 256 << 10;

/// Every option of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RunConfig {
    /// Seed of the weights, the order of the images, the noise and the samples.
    pub seed: u64,
    /// What is made, from what.
    #[serde(skip_serializing_if = "TaskConfig::is_unconditional")]
    pub task: TaskConfig,
    /// The forward process, with what the network predicts under it.
    #[serde(deserialize_with = "read::process")]
    pub process: Process,
    /// The network.
    pub network: NetworkConfig,
    /// The images.
    pub data: DataConfig,
    /// What is minimised.
    pub loss: Objective,
    /// How weights follow the gradient.
    pub optim: OptimConfig,
    /// How long and in what portions.
    pub train: TrainConfig,
    /// How images are made.
    pub sample: SampleConfig,
    /// The autoencoder in whose latent space all of this happens; none for pixels.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latent: Option<LatentConfig>,
}

impl Default for RunConfig {
    fn default() -> Self {
        Self {
            seed: 0,
            task: TaskConfig::default(),
            process: Process::default(),
            network: NetworkConfig::default(),
            data: DataConfig::Procedural { seed: 0, len: 50_000 },
            loss: Objective::default(),
            optim: OptimConfig::default(),
            train: TrainConfig::default(),
            sample: SampleConfig::default(),
            latent: None,
        }
    }
}

impl RunConfig {
    /// Reads and validates the configuration in `path`.
    pub fn load(path: &Path) -> Result<Self> {
        Self::parse(&read_text(path)?, &path.display().to_string())
    }

    /// Reads and validates a configuration; `origin` is the file that errors name.
    ///
    /// All problems are reported at once, each as `origin:LINE: section.key: message`.
    pub fn parse(text: &str, origin: &str) -> Result<Self> {
        parse_as(text, origin)
    }

    /// The configuration with `section.key=value` assignments applied; all problems are reported at once.
    ///
    /// Values are TOML; bare words are strings. A new `kind` drops what belonged to the old one.
    pub fn with_overrides<S: AsRef<str>>(self, sets: &[S]) -> Result<Self> {
        override_as(self, sets)
    }

    /// Checks that the values make sense, alone and together; all problems are reported at once.
    pub fn validate(&self) -> Result<()> {
        finish((), self.semantic_problems(&[]).iter().map(ToString::to_string).collect())
    }

    /// The whole configuration as TOML, defaults included; reading it gives the same configuration.
    pub fn to_toml(&self) -> Result<String> {
        toml::to_string(self).map_err(unwritable)
    }

    /// The configuration with a relative path of images taken as one below `root`.
    pub fn with_data_root(mut self, root: &Path) -> Self {
        for (_, path) in self.data.paths_mut() {
            *path = root.join(&*path);
        }
        self
    }

    /// What the process asks of the network's input and output channels.
    pub fn ports(&self) -> NetworkPorts {
        NetworkPorts {
            inputs: self.process.inputs(),
            phi_parts: self.process.phi_parts(),
            mixed: self.process.outputs() == Outputs::MixedTarget,
        }
    }

    /// A network of this configuration with its process.
    pub fn denoiser(&self, network: Network) -> Denoiser {
        Denoiser::new(network, &self.network, self.process)
    }

    /// The learning rate over the steps.
    pub fn lr_schedule(&self) -> LrSchedule {
        self.optim.lr_schedule(self.train.steps)
    }

    /// The decay of the averaged weights over the steps.
    pub fn ema_schedule(&self) -> EmaSchedule {
        self.optim.ema_schedule()
    }
}

/// A kind of configuration that knows what is wrong with its values.
trait Checked: Serialize + DeserializeOwned + Default {
    /// All problems but those that follow from `earlier` ones.
    fn problems(&self, earlier: &[Problem]) -> Vec<Problem>;
}

impl Checked for RunConfig {
    fn problems(&self, earlier: &[Problem]) -> Vec<Problem> {
        self.semantic_problems(earlier)
    }
}

/// The text of a configuration.
pub fn read_text(path: &Path) -> Result<String> {
    let file = std::fs::File::open(path).map_err(Error::io(path))?;
    let mut bytes = Vec::new();
    file.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(Error::io(path))?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(Error::file(path, format!("no configuration: longer than {} KiB", MAX_BYTES >> 10)));
    }
    String::from_utf8(bytes).map_err(|_| Error::file(path, "no configuration: not UTF-8 text"))
}

fn parse_as<T: Checked>(text: &str, origin: &str) -> Result<T> {
    let document = read::Document::parse(text, origin);
    let (config, mut problems) = read::read::<T>(&document.table);
    if document.syntax.is_empty() {
        problems.extend(config.problems(&problems));
    } else {
        // What a broken line was to say is unknown, so nothing can be called missing.
        problems.retain(|p| !p.missing && !document.is_broken(&p.path));
    }
    let mut located: Vec<_> = problems.iter().map(|p| document.locate(p)).chain(document.syntax.clone()).collect();
    located.sort_by_key(|(line, _)| *line);
    finish(config, located.into_iter().map(|(_, text)| text).collect())
}

fn override_as<T: Checked, S: AsRef<str>>(config: T, sets: &[S]) -> Result<T> {
    if sets.is_empty() {
        return Ok(config);
    }
    let mut table = toml::Table::try_from(&config).map_err(unwritable)?;
    let (applied, mut lines) = overrides::apply(&mut table, sets);
    let (config, mut problems) = read::read::<T>(&table);
    problems.extend(config.problems(&problems));
    lines.extend(problems.iter().map(|p| overrides::locate(&applied, p)));
    finish(config, lines)
}

fn unwritable(error: toml::ser::Error) -> Error {
    Error::request(format!("the configuration cannot be written as TOML: {error}"))
}

fn finish<T>(value: T, problems: Vec<String>) -> Result<T> {
    if problems.is_empty() { Ok(value) } else { Err(Error::Config(problems)) }
}
