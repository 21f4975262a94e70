//! The configuration: one TOML file per run with the task, process, network, data, training and sampling.
//!
//! [`RunConfig`] holds every option; the only defaults are the `Default` impls of its sections. Reading is strict and
//! reports all problems at once, with their line numbers.
mod autoencoder;
mod difference;
mod distill;
mod document;
mod evaluate;
mod options;
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
pub use distill::DistillConfig;
pub(crate) use distill::SAMPLER as DISTILLED_SAMPLER;
pub use evaluate::Evaluate;
pub use options::SampleOptions;
pub(crate) use sections::RANDOM_CLASS;
pub use sections::{LatentConfig, OptimConfig, SampleConfig, TrainConfig};
pub use sizes::{BATCH, Sizes};
pub use study::{Axes, Study, StudyModel, Training};

use crate::data::DataConfig;
use crate::error::{Error, Result, Shown};
use crate::limits::{self, CONFIG};
use crate::loss::Objective;
use crate::nn::{Denoiser, Network, NetworkConfig, NetworkPorts};
use crate::task::TaskConfig;
use crossfade_math::process::Outputs;
use crossfade_math::{EmaSchedule, LrSchedule, Process};
use read::Finding;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// Every option of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RunConfig {
    /// Seed of the weights, the order of the images, the noise and the samples.
    pub seed: u64,
    /// The task: unconditional generation, or which condition gives which target.
    #[serde(skip_serializing_if = "TaskConfig::is_unconditional")]
    pub task: TaskConfig,
    /// The forward process and the parameterisation of the network.
    #[serde(deserialize_with = "sections::process")]
    pub process: Process,
    /// The network.
    pub network: NetworkConfig,
    /// The images.
    pub data: DataConfig,
    /// The training loss.
    pub loss: Objective,
    /// The optimiser.
    pub optim: OptimConfig,
    /// Steps, batch size, and the output of the run.
    pub train: TrainConfig,
    /// The sampler and its settings.
    pub sample: SampleConfig,
    /// The autoencoder of a latent diffusion run; none for a run on pixels.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latent: Option<LatentConfig>,
    /// Of a distilled network: who taught it. `crossfade distill` writes this section.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub distill: Option<DistillConfig>,
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
            distill: None,
        }
    }
}

impl RunConfig {
    /// Reads and validates the configuration in `path`.
    pub fn load(path: &Path) -> Result<Self> {
        Self::parse(&read_text(path)?, &path.shown())
    }

    /// Reads and validates a configuration; `origin` is the file that errors name.
    ///
    /// All problems are reported at once, each as `origin:LINE: section.key: message`.
    pub fn parse(text: &str, origin: &str) -> Result<Self> {
        parse_as(text, origin)
    }

    /// The configuration with `section.key=value` assignments applied; all problems are reported at once.
    ///
    /// Values are TOML; bare words are strings. A new `kind` drops the options of the old one.
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

    /// The configuration with relative paths of images joined to `root`.
    pub fn with_data_root(mut self, root: &Path) -> Self {
        for (_, path) in self.data.paths_mut() {
            *path = root.join(&*path);
        }
        self
    }

    /// The input and output channels of the network that the process needs.
    pub fn ports(&self) -> NetworkPorts {
        NetworkPorts {
            inputs: self.process.inputs(),
            phi_parts: self.process.phi_parts(),
            mixed: self.process.outputs() == Outputs::MixedTarget,
        }
    }

    /// Combines a network of this configuration with its process.
    pub fn denoiser(&self, network: Network) -> Denoiser {
        Denoiser::new(network, &self.network, self.process)
    }

    /// The learning rate schedule.
    pub fn lr_schedule(&self) -> LrSchedule {
        self.optim.lr_schedule(self.train.steps)
    }

    /// The ramp of the moving average of the weights.
    pub fn ema_schedule(&self) -> EmaSchedule {
        self.optim.ema_schedule()
    }
}

/// A configuration that can be validated.
trait Checked: Serialize + DeserializeOwned + Default {
    /// All problems, except those that are consequences of `earlier` ones.
    fn problems(&self, earlier: &[Finding]) -> Vec<Finding>;
}

impl Checked for RunConfig {
    fn problems(&self, earlier: &[Finding]) -> Vec<Finding> {
        self.semantic_problems(earlier)
    }
}

/// Reads the text of a configuration file.
pub fn read_text(path: &Path) -> Result<String> {
    let bytes = limits::read_at_most(path, CONFIG.max)?;
    let longer = || Error::file(path, format!("not a configuration: longer than {}", CONFIG.amount()));
    let bytes = bytes.ok_or_else(longer)?;
    String::from_utf8(bytes).map_err(|_| Error::file(path, "not a configuration: not UTF-8 text"))
}

fn parse_as<T: Checked>(text: &str, origin: &str) -> Result<T> {
    let refused = |why: String| Error::file(origin, format!("its configuration: {why}"));
    let document = document::Document::parse(text, origin).map_err(refused)?;
    let (config, mut problems) = read::read::<T>(&document.table);
    if document.syntax.is_empty() {
        problems.extend(config.problems(&problems));
    } else {
        // Any key may have been on the line that could not be parsed, so no key is reported as missing.
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
    // Through TOML, so that assignments are read and checked exactly like lines of a file.
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
