//! The models of a server: what they can do, and their weights, loaded at first use and unloaded under a memory budget.
use crate::config::ModelSource;
use crossfade::checkpoint::{Checkpoint, Weights};
use crossfade::config::{RunConfig, SampleConfig};
use crossfade::engine::Device;
use crossfade::generate::Pipeline;
use crossfade::math::GridKind;
use crossfade::nn::{BackboneConfig, Network};
use crossfade::sample::Sampler;
use crossfade::{Error, Result};
use serde::Serialize;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use utoipa::ToSchema;

/// Default settings of a model.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct Defaults {
    /// The sampler.
    pub sampler: String,
    /// Its steps.
    pub steps: usize,
    /// The time grid.
    pub grid: String,
    /// The class.
    pub class: String,
    /// The weight of guidance.
    pub guidance: f64,
}

/// A model as the interface describes it.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct ModelInfo {
    /// Its name.
    pub id: String,
    /// `model`.
    pub object: &'static str,
    /// When the server opened it, in seconds since 1970.
    pub created: u64,
    /// `crossfade`.
    pub owned_by: &'static str,
    /// Identifies its weights.
    pub digest: String,
    /// The task that it was trained for.
    pub task: String,
    /// The kinds of jobs that it can do.
    pub kinds: Vec<&'static str>,
    /// Its name in `/v1/tasks/{task}`.
    pub tasks: Vec<String>,
    /// The diffusion process.
    pub process: String,
    /// Width of its pictures; none for any.
    pub width: Option<usize>,
    /// Height of its pictures; none for any.
    pub height: Option<usize>,
    /// Channels of its pictures.
    pub channels: usize,
    /// How many times larger than what is sent a result is.
    pub scale: usize,
    /// The names of its classes.
    pub classes: Vec<String>,
    /// Whether it can be guided.
    pub guidable: bool,
    /// The number of its weights.
    pub parameters: usize,
    /// Whether its weights are in memory.
    pub loaded: bool,
    /// The samplers that fit.
    pub samplers: Vec<&'static str>,
    /// The time grids.
    pub grids: Vec<&'static str>,
    /// The settings of requests that give none.
    pub defaults: Defaults,
}

/// A network in memory.
pub struct Loaded {
    /// Tells networks apart, also after one was unloaded and loaded again.
    pub id: u64,
    /// The checkpoint, for recipes.
    pub checkpoint: Checkpoint,
    /// The network with its own settings.
    pub pipeline: Pipeline,
    /// The network alone.
    pub network: Network,
    bytes: u64,
}

/// A model.
pub struct Model {
    /// The configuration of its run.
    pub config: RunConfig,
    source: ModelSource,
    info: ModelInfo,
    loaded: Mutex<Option<Arc<Loaded>>>,
    used: AtomicU64,
}

impl Model {
    fn open(source: ModelSource) -> Result<Self> {
        let checkpoint = (source.open)()?;
        let (config, classes) = (&checkpoint.config, checkpoint.class_names.clone());
        let network = &config.network;
        let generates = config.task.is_unconditional();
        let tasks = if generates { vec![] } else { vec![config.task.verb().to_string()] };
        let mut kinds = if generates { vec!["generation"] } else { vec!["task"] };
        if generates && config.process.estimates_x0() {
            kinds.push("variation");
        }
        if config.task.name() == "inpainting" {
            kinds.push("edit");
        }
        let sample = config.sample.resolved(&config.process)?;
        let mut samplers: Vec<_> = Sampler::fitting(&config.process).iter().map(Sampler::name).collect();
        samplers.dedup();
        let info = ModelInfo {
            id: source.name.clone(),
            object: "model",
            created: crate::now() as u64,
            owned_by: "crossfade",
            digest: format!("crc32:{}", checkpoint.checksum),
            task: config.task.name().into(),
            kinds,
            tasks,
            process: config.process.name().into(),
            width: None,
            height: None,
            channels: network.channels(),
            scale: config.task.task().scale(),
            guidable: !classes.is_empty() && config.train.label_dropout > 0.0,
            classes,
            parameters: network.parameter_count(config.ports()),
            loaded: false,
            samplers,
            grids: GridKind::NAMES.iter().copied().filter(|name| *name != "explicit").collect(),
            defaults: Defaults {
                sampler: sample.sampler.name().into(),
                steps: default_steps(config, &sample),
                grid: config.sample.grid.kind.argument(),
                class: sample.class.clone(),
                guidance: sample.guidance,
            },
        };
        Ok(Self {
            config: config.clone(),
            info: with_size(info, &checkpoint),
            source,
            loaded: Mutex::default(),
            used: AtomicU64::new(0),
        })
    }

    /// Its description.
    pub fn info(&self) -> ModelInfo {
        ModelInfo { loaded: self.is_loaded(), ..self.info.clone() }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.info.id
    }

    /// Identifies its weights.
    pub fn digest(&self) -> &str {
        &self.info.digest
    }

    fn is_loaded(&self) -> bool {
        self.lock().is_some()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Arc<Loaded>>> {
        self.loaded.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Steps of requests that give none: tasks take five, as on the command line.
fn default_steps(config: &RunConfig, sample: &SampleConfig) -> usize {
    if config.task.is_unconditional() { sample.steps } else { 5 }
}

/// With the size of its pictures, for a network of a fixed size.
fn with_size(info: ModelInfo, checkpoint: &Checkpoint) -> ModelInfo {
    let config = &checkpoint.config;
    let Some(side) = config.network.resolution().filter(|_| config.task.is_unconditional()) else { return info };
    // The factor of an autoencoder is known from its options; its weights are not needed.
    let stage = checkpoint.first_stage().ok().flatten();
    let (factor, channels) = stage.map_or((1, info.channels), |(stage, ..)| (stage.factor(), stage.channels));
    ModelInfo { width: Some(side * factor), height: Some(side * factor), channels, ..info }
}

/// All models of a server.
pub struct Library {
    models: Vec<Arc<Model>>,
    budget: u64,
    device: Device,
    clock: AtomicU64,
    next_id: AtomicU64,
    /// Held while weights are loaded, so that two networks do not exceed the budget together.
    loading: Mutex<()>,
}

impl Library {
    /// Opens all models; their weights are loaded later.
    pub fn open(sources: Vec<ModelSource>, budget: u64, device: &Device) -> Result<Self> {
        let mut models: Vec<Arc<Model>> = vec![];
        for source in sources {
            if models.iter().any(|model| model.name() == source.name) {
                let name = &source.name;
                return Err(Error::request(format!("two models are called {name}; give one another name: NAME=PATH")));
            }
            models.push(Arc::new(Model::open(source)?));
        }
        let counters = (AtomicU64::new(1), AtomicU64::new(0));
        Ok(Self {
            models,
            budget,
            device: device.clone(),
            clock: counters.0,
            next_id: counters.1,
            loading: Mutex::default(),
        })
    }

    /// The models, in the order of the command line.
    pub fn models(&self) -> &[Arc<Model>] {
        &self.models
    }

    /// The model with this name or digest.
    pub fn find(&self, name: &str) -> Option<&Arc<Model>> {
        self.models.iter().find(|model| model.name() == name || model.digest() == name)
    }

    /// The network of a model; loads it, and unloads those used longest ago, if necessary.
    pub fn load(&self, model: &Model) -> Result<Arc<Loaded>> {
        model.used.store(self.clock.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
        if let Some(loaded) = model.lock().as_ref() {
            return Ok(loaded.clone());
        }
        let _one_at_a_time = self.loading.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(loaded) = model.lock().as_ref() {
            return Ok(loaded.clone());
        }
        let checkpoint = (model.source.open)()?;
        if format!("crc32:{}", checkpoint.checksum) != model.digest() {
            let problem = "the file has other weights than when the server was started; start it again";
            return Err(Error::file(&checkpoint.path, problem));
        }
        let pipeline = Pipeline::open(&checkpoint, Weights::Ema, &checkpoint.config.sample, &self.device)?;
        let bytes = 4 * model.info.parameters as u64;
        self.make_room(bytes);
        let network = pipeline.net().network.clone();
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let loaded = Arc::new(Loaded { id, checkpoint, pipeline, network, bytes });
        *model.lock() = Some(loaded.clone());
        Ok(loaded)
    }

    /// Bytes of weights in memory.
    pub fn bytes(&self) -> u64 {
        self.models.iter().filter_map(|model| model.lock().as_ref().map(|loaded| loaded.bytes)).sum()
    }

    /// Unloads networks beyond the budget that were in use when others were loaded.
    pub fn unload_unused(&self) {
        // While one is being loaded, that makes room itself.
        if let Ok(_one_at_a_time) = self.loading.try_lock() {
            self.make_room(0);
        }
    }

    /// Unloads networks that nobody uses, the one used longest ago first, until `bytes` more fit the budget. The model that
    /// was used last stays, or one that is larger than the budget would be loaded for each job.
    fn make_room(&self, bytes: u64) {
        let mut by_age: Vec<&Arc<Model>> = self.models.iter().collect();
        by_age.sort_by_key(|model| model.used.load(Ordering::Relaxed));
        by_age.pop();
        for model in by_age {
            if self.bytes() + bytes <= self.budget {
                return;
            }
            let mut loaded = model.lock();
            if loaded.as_ref().is_some_and(|network| Arc::strong_count(network) == 1) {
                *loaded = None;
            }
        }
    }
}
