//! Checkpoints: one self-contained safetensors file from which a run can be sampled or resumed.
//!
//! Tensors are named `model.…`, `ema.…`, `adam_m.…` and `adam_v.…` followed by the parameter's name, and `average-0.05.…`
//! for the power-function average of that width; the metadata holds
//! the whole configuration, the step, the tool's version and a checksum of the tensors. Files are written to a
//! temporary name and then renamed, so that a killed run never leaves an incomplete checkpoint.
mod pack;

pub use crate::torchfile::Weights;
pub use pack::{Packed, Rounding};

use crate::config::{AutoencoderRun, RunConfig, is_autoencoder};
use crate::data::classes::numbers;
use crate::digest::sha256_file;
use crate::engine::Device;
use crate::error::{Error, Result, Shown, visible};
use crate::limits::{CONFIG as CONFIG_LIMIT, STEPS};
use crate::models;
use crate::nn::weights::apply;
use crate::nn::{AutoencoderConfig, BackboneConfig, Denoiser, Network};
use crate::sample::FittedTimes;
use crate::tensorfile::{HostTensor, TensorFile, TensorMap, save_tensors_as};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// An opened checkpoint.
pub struct Checkpoint {
    /// The path of the file, or the name of a model that ships.
    pub path: PathBuf,
    /// The configuration of its run.
    pub config: RunConfig,
    /// Training steps done.
    pub step: u64,
    /// Checksum of its tensors, which identifies the weights in reports and pictures.
    pub checksum: String,
    /// The names of the classes that the network knows; empty for a network without classes.
    pub class_names: Vec<String>,
    opened: Opened,
}

/// An opened checkpoint of any kind, of a diffusion network or of an autoencoder.
pub(crate) struct Opened {
    /// The configuration of its run, as TOML.
    pub config: String,
    /// Training steps done.
    pub step: u64,
    /// Checksum of its tensors.
    pub checksum: String,
    file: TensorFile,
}

/// The metadata of a checkpoint of `config` after `step` steps. Times that were fitted to earlier weights are left out.
pub fn metadata(config: &RunConfig, step: u64) -> Result<BTreeMap<String, String>> {
    let mut config = config.clone();
    config.sample.fitted.clear();
    Ok(metadata_of(config.to_toml()?, step))
}

/// As [`metadata`], for an autoencoder.
pub fn autoencoder_metadata(config: &AutoencoderRun, step: u64) -> Result<BTreeMap<String, String>> {
    Ok(metadata_of(config.to_toml()?, step))
}

/// As [`metadata`], for any configuration as TOML.
pub(crate) fn metadata_of(config: String, step: u64) -> BTreeMap<String, String> {
    let entries = [(VERSION, env!("CARGO_PKG_VERSION").to_string()), (CONFIG, config), (STEP, step.to_string())];
    entries.map(|(k, v)| (k.to_string(), v)).into()
}

/// The metadata entry with the configuration of a latent run's autoencoder.
pub(crate) fn first_stage_entry(config: &AutoencoderConfig) -> Result<(String, String)> {
    let text = toml::to_string(config).map_err(|e| Error::Run(format!("the autoencoder cannot be described: {e}")))?;
    Ok((FIRST_STAGE_CONFIG.to_string(), text))
}

/// The metadata entry with the names of the classes; none for a network without classes.
pub(crate) fn class_names_entry(names: &[String]) -> Option<(String, String)> {
    (!names.is_empty()).then(|| (CLASS_NAMES.to_string(), serde_json::json!(names).to_string()))
}

const VERSION: &str = "crossfade";
const CONFIG: &str = "config";
const STEP: &str = "step";
const CLASS_NAMES: &str = "classes";
const FIRST_STAGE_CONFIG: &str = "first_stage";
/// The prefix of the weights of a latent run's autoencoder, as in the reference.
pub(crate) const FIRST_STAGE: &str = "first_stage_model.";
/// The tensor that holds the mean of the training images or latents, `[C, H, W]`.
pub(crate) const MEAN_X0: &str = "mean_x0";
/// The tensor that holds the factor by which latents are multiplied before diffusion; the name is the reference's.
pub(crate) const SCALE_FACTOR: &str = "scale_factor";

/// The prefix of the weights of the power-function average of a relative width.
pub(crate) fn average_prefix(sigma: f64) -> String {
    // Rust writes the shortest text that is read as the same number.
    format!("average-{sigma}.")
}

impl Opened {
    /// Opens a checkpoint and checks its metadata; tensors are not read yet. This is the one place where a name stands for a
    /// checkpoint: a file of that name goes before a model.
    pub fn open(path: &Path) -> Result<Self> {
        let file = match models::of(path).filter(|_| !path.is_file()) {
            Some(model) => TensorFile::of_bytes(path, model.read()?)?,
            None => {
                // Asked first, because only a missing file may be a misspelt name.
                std::fs::metadata(path).map_err(|error| models::no_checkpoint(path, error))?;
                TensorFile::open(path)?
            }
        };
        let metadata = file.metadata();
        let entry = |key: &str, value: Option<String>| {
            value.ok_or_else(|| {
                let advice = "not a crossfade checkpoint (`crossfade convert` reads the reference's)";
                Error::file(path, format!("{advice}: its metadata has no '{key}'"))
            })
        };
        let text = |key: &str| entry(key, metadata.get(key).cloned());
        // The version itself is not compared: the configuration is validated, and tensors are matched by name and
        // shape.
        text(VERSION)?;
        let config = text(CONFIG)?;
        let step = text(STEP)?.parse().map_err(|_| Error::file(path, "its step is not a number"))?;
        // Rates and the order of the images are computed from it.
        STEPS.check(step).map_err(|why| Error::file(path, format!("its step: {why}")))?;
        let checksum = entry("crc32", file.checksum())?;
        // It is printed before the tensors are compared with it.
        if checksum.len() != 8 || !checksum.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(Error::file(path, format!("its checksum is {checksum:?} and not eight hexadecimal digits")));
        }
        Ok(Self { config, step, checksum, file })
    }

    /// The names of `count` classes; their numbers if the file names none, as a converted one.
    fn class_names(&self, path: &Path, count: usize) -> Result<Vec<String>> {
        let Some(text) = self.file.metadata().remove(CLASS_NAMES) else { return Ok(numbers(count)) };
        let names: Vec<String> = serde_json::from_str(&text)
            .map_err(|e| Error::file(path, format!("the names of its classes are unreadable: {e}")))?;
        if names.len() != count {
            let message = format!("names {} classes, but its network has {count}", names.len());
            return Err(Error::file(path, message));
        }
        Ok(names)
    }

    /// All tensors, by name; an error if the file is damaged.
    pub fn read(&self) -> Result<TensorMap> {
        let tensors = self.file.read_all()?;
        Ok(tensors.into_iter().map(|(name, shape, values)| (name, (shape, values))).collect())
    }

    /// Of the tensors that have this prefix, those of a network with the parameters `expected`, without the prefix. Shapes are
    /// compared before anything is read, so that a file takes as much memory as the network of its configuration.
    pub fn read_network(&self, path: &Path, prefix: &str, expected: &[(String, Vec<usize>)]) -> Result<TensorMap> {
        let expected: BTreeMap<&str, &[usize]> = expected.iter().map(|(name, shape)| (&name[..], &shape[..])).collect();
        let of = |name: &str| expected.get(name.strip_prefix(prefix)?).copied();
        let shapes = self.file.shapes();
        let wrong =
            shapes.iter().find_map(|(name, shape)| Some((name, shape, of(name).filter(|of| *of != &shape[..])?)));
        if let Some((name, shape, expected)) = wrong {
            let problem =
                format!("does not fit the network of its configuration: {name} is {shape:?}, not {expected:?}");
            return Err(Error::file(path, problem));
        }
        let read = self.file.read_wanted(&|name| of(name).is_some())?;
        Ok(read.into_iter().map(|(name, shape, values)| (name[prefix.len()..].to_string(), (shape, values))).collect())
    }

    /// The prefix of the chosen weights. A converted or packed file holds one copy of the weights, without a prefix.
    pub fn prefix_of(&self, weights: Weights) -> &'static str {
        if self.is_of_training() { weights.prefix() } else { "" }
    }

    /// Whether it was written by a training: it then holds two copies of the weights and the state of the optimiser.
    fn is_of_training(&self) -> bool {
        self.file.shapes().iter().any(|(name, _)| name.starts_with("model."))
    }
}

impl Checkpoint {
    /// Opens a checkpoint and checks its metadata; tensors are not read yet.
    pub fn open(path: &Path) -> Result<Self> {
        let opened = Opened::open(path)?;
        if is_autoencoder(&opened.config) {
            let message = "holds an autoencoder, not a diffusion network; see what it keeps of images with \
                           `crossfade reconstruct`, or train on its latents with a [latent] section";
            return Err(Error::file(path, message));
        }
        let config = RunConfig::parse(&opened.config, &path.shown())?;
        let class_names = opened.class_names(path, config.network.classes())?;
        let (step, checksum) = (opened.step, opened.checksum.clone());
        Ok(Self { path: path.to_path_buf(), config, step, checksum, class_names, opened })
    }

    /// SHA-256 of the file, in hexadecimal. That of a model that ships was verified when it was opened.
    pub fn sha256(&self) -> Result<String> {
        let shipped = models::of(&self.path).filter(|_| !self.opened.file.is_on_disk());
        shipped.map_or_else(|| sha256_file(&self.path), |model| Ok(model.sha256.to_string()))
    }

    /// All tensors, by name; an error if the file is damaged.
    pub fn read(&self) -> Result<TensorMap> {
        self.opened.read()
    }

    /// The mean of the training images or latents that the network saw, if it was measured: shape and values, `[C, H, W]`.
    pub(crate) fn mean_x0(&self) -> Result<Option<(Vec<usize>, Vec<f32>)>> {
        let file = &self.opened.file;
        if !file.shapes().iter().any(|(name, _)| name == MEAN_X0) {
            return Ok(None);
        }
        let (shape, values) = file.read(MEAN_X0)?;
        if shape.len() != 3 || values.iter().any(|v| !v.is_finite()) {
            let problem = format!("its {MEAN_X0} is no image of finite numbers, but of the shape {shape:?}");
            return Err(Error::file(&self.path, problem));
        }
        Ok(Some((shape, values)))
    }

    /// What an average of weights takes over from a checkpoint, with its metadata: the autoencoder of a latent run and its
    /// scale, the mean of the training images, and the names of the classes.
    pub(crate) fn fixed_parts(&self) -> Result<(Vec<HostTensor>, BTreeMap<String, String>)> {
        let file = &self.opened.file;
        let fixed = |name: &str| name.starts_with(FIRST_STAGE) || [SCALE_FACTOR, MEAN_X0].contains(&name);
        let mut metadata = file.metadata();
        metadata.retain(|key, _| [FIRST_STAGE_CONFIG, CLASS_NAMES].contains(&key.as_str()));
        Ok((file.read_wanted(&fixed)?, metadata))
    }

    /// Keeps `fitted` times in the file, in place of those for the same sampler and number of steps. The file is written anew
    /// under a temporary name and then renamed; its weights and their checksum do not change. A model that ships cannot be
    /// changed.
    pub fn keep_times(&mut self, fitted: &[FittedTimes]) -> Result<()> {
        if !self.opened.file.is_on_disk() {
            let name = self.path.shown();
            return Err(Error::request(format!(
                "{name} is a model that ships and cannot be changed; write it to a file of your own with \
                 `crossfade models get {name} --out FILE`"
            )));
        }
        let mut config = self.config.clone();
        let is_new = |old: &FittedTimes| fitted.iter().any(|new| (new.sampler, new.steps) == (old.sampler, old.steps));
        config.sample.fitted.retain(|old| !is_new(old));
        config.sample.fitted.extend(fitted);
        config.sample.fitted.sort_by_key(|times| (times.sampler.name(), times.steps));
        config.validate()?;
        let mut metadata = self.opened.file.metadata();
        metadata.insert(CONFIG.to_string(), config.to_toml()?);
        let file = &self.opened.file;
        // Each tensor keeps its type, so that the checksum of the weights stays the same.
        let tensors = file.read_all()?;
        save_tensors_as(&self.path, &tensors, &metadata, &|name| file.element(name).unwrap_or_default())?;
        *self = Self::open(&self.path)?;
        Ok(())
    }

    /// The autoencoder of a latent run: its configuration, its weights by the reference's names, and the scale factor.
    pub fn first_stage(&self) -> Result<Option<(AutoencoderConfig, TensorMap, f64)>> {
        let file = &self.opened.file;
        let Some(text) = file.metadata().remove(FIRST_STAGE_CONFIG) else { return Ok(None) };
        let unreadable = |why: String| Error::file(&self.path, format!("its autoencoder is unreadable: {why}"));
        CONFIG_LIMIT.check(text.len() as u64).map_err(unreadable)?;
        let config: AutoencoderConfig =
            toml::from_str(&text).map_err(|e| unreadable(visible(e.message()).into_owned()))?;
        if let Some(problem) = config.validate().first() {
            return Err(Error::file(&self.path, format!("the configuration of its autoencoder is invalid: {problem}")));
        }
        let tensors = self.opened.read_network(&self.path, FIRST_STAGE, &config.parameter_shapes())?;
        // Latents are divided by the scale before decoding, so it must be a positive number.
        match file.read(SCALE_FACTOR)?.1.as_slice() {
            [scale] if *scale > 0.0 && scale.is_finite() => Ok(Some((config, tensors, f64::from(*scale)))),
            other => Err(Error::file(&self.path, format!("its scale_factor is {other:?}"))),
        }
    }

    /// The chosen weights by the names of the parameters.
    pub(crate) fn weights(&self, weights: Weights) -> Result<TensorMap> {
        let expected = self.config.network.state_shapes(self.config.ports());
        self.opened.read_network(&self.path, self.opened.prefix_of(weights), &expected)
    }

    /// Whether it was written by a training.
    pub(crate) fn is_of_training(&self) -> bool {
        self.opened.is_of_training()
    }

    /// The network with the chosen weights and its process.
    pub fn denoiser(&self, weights: Weights, device: &Device) -> Result<Denoiser> {
        let lazy = self.config.network.lazy(self.config.ports(), device);
        Ok(self.config.denoiser(self.fill(lazy, weights)?))
    }

    /// `network` with the chosen weights.
    pub(crate) fn fill(&self, network: Network, weights: Weights) -> Result<Network> {
        // `apply` calls a shared closure; each tensor is moved out of the map, so that it is in memory only once.
        let chosen = RefCell::new(self.weights(weights)?);
        let take = |name: &str| chosen.borrow_mut().remove(name);
        apply(network, &take).map_err(|e| Error::file(&self.path, e.to_string()))
    }
}

/// The directory of a run.
pub struct RunDir(pub PathBuf);

impl RunDir {
    /// The directory of checkpoints.
    pub fn checkpoints(&self) -> PathBuf {
        self.0.join("checkpoints")
    }
    /// The directory of sample sheets.
    pub fn samples(&self) -> PathBuf {
        self.0.join("samples")
    }
    /// The directory of the stored averages `optim.ema_profiles`.
    pub fn averages(&self) -> PathBuf {
        self.0.join("averages")
    }
    /// The log: one JSON line per logged step.
    pub fn log(&self) -> PathBuf {
        self.0.join("log.jsonl")
    }
    /// The directory of TensorBoard event files, with the values of the log and the sample sheets.
    pub fn events(&self) -> PathBuf {
        self.0.join("events")
    }
    /// The resolved configuration of the run.
    pub fn config(&self) -> PathBuf {
        self.0.join("config.toml")
    }
}

/// The path itself if it is a file or the name of a model, or the newest checkpoint if it is the directory of a run.
pub fn newest(path: &Path) -> Result<PathBuf> {
    if !path.is_dir() {
        return Ok(path.to_path_buf());
    }
    let found = list(&RunDir(path.to_path_buf()).checkpoints())?.pop();
    // A directory without checkpoints, such as one of images, does not take the name of a model.
    if found.is_none() && models::of(path).is_some() {
        return Ok(path.to_path_buf());
    }
    found.map(|(_, file)| file).ok_or_else(|| Error::file(path, "holds no checkpoints; is it the directory of a run?"))
}

/// The file name of the checkpoint after `step` steps.
pub fn file_name(step: u64) -> String {
    format!("step-{step:08}.safetensors")
}

/// The checkpoints in `dir`, oldest first.
pub fn list(dir: &Path) -> Result<Vec<(u64, PathBuf)>> {
    let entries = match std::fs::read_dir(dir) {
        Ok(entries) => entries,
        // A run that was stopped before its first checkpoint has no such directory yet.
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(vec![]),
        Err(e) => return Err(Error::io(dir)(e)),
    };
    let mut found = vec![];
    for entry in entries {
        let path = entry.map_err(Error::io(dir))?.path();
        let step = path
            .file_name()
            .and_then(|n| n.to_str())
            .and_then(|n| n.strip_prefix("step-")?.strip_suffix(".safetensors")?.parse().ok());
        found.extend(step.map(|step: u64| (step, path)));
    }
    found.sort();
    Ok(found)
}

/// Removes all but the newest `keep` checkpoints of `dir`.
pub(crate) fn prune(dir: &Path, keep: usize) -> Result<()> {
    let found = list(dir)?;
    // At least one checkpoint is kept, whatever `keep` is.
    for (_, path) in &found[..found.len().saturating_sub(keep.max(1))] {
        std::fs::remove_file(path).map_err(Error::io(path))?;
    }
    Ok(())
}
