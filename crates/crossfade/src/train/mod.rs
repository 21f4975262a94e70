//! Training (Alg. 1): the loop, readable top to bottom.
mod autoencoder;
mod batch;
mod events;
mod learner;
mod log;
mod optimiser;
mod sheet;
mod start;
mod state;

pub use autoencoder::{AutoencoderReport, Event, train_autoencoder};
pub use batch::{Prepared, prepare};
pub use learner::Learner;
pub use optimiser::Gradients;
pub use state::TrainState;

use crate::checkpoint::{self, Checkpoint};
use crate::config::RunConfig;
use crate::data::{Dataset, Image};
use crate::engine::{Device, from_vec, recording};
use crate::error::{Error, Result};
use crate::files::write_atomic;
use crate::latent::{Batches, Latent, image_size};
use crate::loader::Loader;
use crate::nn::condition::Statistics;
use crate::nn::{CondUNet, Decoders, DropoutKey, UNet};
use burn::optim::GradientsParams;
use crossfade_math::{Precond, Weighting};
use events::Events;
use learner::loss as loss_of;
use log::Log;
use sheet::Sheet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// What a step has to say.
#[derive(Clone, Debug, serde::Serialize)]
pub struct StepReport {
    /// Steps done.
    pub step: u64,
    /// The mean loss of its micro-batches.
    pub loss: f64,
    /// The learning rate it used.
    pub lr: f64,
    /// The gradients' joint norm before clipping.
    pub grad_norm: f64,
    /// Images a second of this step.
    pub images_per_second: f64,
}

/// How a run ended.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Summary {
    /// Steps done.
    pub step: u64,
    /// Whether it was asked to stop before its last step.
    pub stopped: bool,
    /// The last checkpoint.
    pub checkpoint: PathBuf,
    /// A damaged checkpoint that was passed over on resume.
    pub passed_over: Vec<String>,
}

/// A directory of a run.
pub struct RunDir(pub PathBuf);

impl RunDir {
    /// Checkpoints.
    pub fn checkpoints(&self) -> PathBuf {
        self.0.join("checkpoints")
    }
    /// Sample grids.
    pub fn samples(&self) -> PathBuf {
        self.0.join("samples")
    }
    /// Writes the grid of a step; also gives its PNG.
    fn save_sheet(&self, step: u64, sheet: &Image) -> Result<Vec<u8>> {
        let folder = self.samples();
        std::fs::create_dir_all(&folder).map_err(Error::io(&folder))?;
        let png = sheet.encode_png(&[])?;
        write_atomic(folder.join(format!("step-{step:08}.png")), &png)?;
        Ok(png)
    }
    /// One JSON line a logged step.
    pub fn log(&self) -> PathBuf {
        self.0.join("log.jsonl")
    }
    /// The same and sample grids as event files for TensorBoard.
    pub fn events(&self) -> PathBuf {
        self.0.join("events")
    }
    /// The resolved configuration.
    pub fn config(&self) -> PathBuf {
        self.0.join("config.toml")
    }
}

/// Trains until the last step or until `stop` is set, and leaves a checkpoint either way. With `resume` it goes on from the
/// newest good checkpoint in `dir`, to the very weights that an uninterrupted run would have.
pub fn train(
    config: &RunConfig,
    dir: &RunDir,
    device: &Device,
    resume: bool,
    stop: &AtomicBool,
    report: &mut dyn FnMut(&StepReport),
) -> Result<Summary> {
    check_weighting(config)?;
    match config.condition {
        None => fit::<UNet>(config, dir, device, resume, stop, report),
        Some(_) => fit::<CondUNet>(config, dir, device, resume, stop, report),
    }
}

/// The raw targets of the adaptive weighting use c_out² = 1 − c_skip σ_t (§4.1), which the older scalings do not have. Only
/// training needs them: such networks can still be sampled.
pub(crate) fn check_weighting(config: &RunConfig) -> Result<()> {
    let older = matches!(config.precond, Precond::OlderRelease | Precond::Conditional | Precond::DiffusionEdge);
    if older && config.loss.weighting == Weighting::Adaptive && config.baseline.is_none() {
        return Err(Error::request(
            "loss.weighting = \"adaptive\" does not fit this precond.kind; use precond.kind = \"optimal\", or another \
             weighting such as \"reference\"",
        ));
    }
    // The optimal scalings give both heads of one decoder the same raw target; without scalings they have two.
    let decoders = config.condition.as_ref().map_or(config.network.decoders, |network| network.decoders);
    let adaptive = config.loss.weighting == Weighting::Adaptive && config.baseline.is_none();
    if adaptive && config.precond == Precond::None && decoders == Decoders::One {
        return Err(Error::request(
            "loss.weighting = \"adaptive\" with precond.kind = \"none\" asks one decoder for two things; use two decoders, \
             or precond.kind = \"optimal\"",
        ));
    }
    Ok(())
}

fn fit<N: Learner + Sheet>(
    config: &RunConfig,
    dir: &RunDir,
    device: &Device,
    resume: bool,
    stop: &AtomicBool,
    report: &mut dyn FnMut(&StepReport),
) -> Result<Summary> {
    let (mut state, passed_over) = start::<N>(config, dir, device, resume)?;
    let (plan, per_step) = (&config.train, (config.train.batch * config.train.accumulate) as u64);
    let dataset: Arc<dyn Dataset> = Arc::from(images(config, state.latent.as_ref())?);
    let loading = plan.loading(config.seed);
    if state.step == 0
        && let Some(latent) = &mut state.latent
        && config.latent.as_ref().is_some_and(|l| l.scale.is_none())
    {
        let first = Loader::pairs(Arc::clone(&dataset), config.task.clone(), loading.clone(), 0)?.next_batch()?;
        latent.measure(from_vec(first.x0, first.shape, device), config.seed, &first.counters)?;
    }
    let cache = config.latent.as_ref().and_then(|l| l.cache.as_deref());
    let first = state.step * per_step;
    let task = config.task.clone();
    let mut loader =
        Batches::start(Arc::clone(&dataset), task, loading, first, state.latent.as_ref(), cache, &mut |_, _| ())?;
    let mut log = Log::open(&dir.log(), state.step)?;
    let mut events = plan.tensorboard.then(|| Events::new(&dir.events(), state.step));
    let mut saved = None;
    while state.step < plan.steps && !stop.load(Ordering::Relaxed) {
        let began = Instant::now();
        let (mut loss, mut grads) = (0.0, None::<Gradients>);
        let (mut samples, seen) = (vec![], Statistics::default());
        for _ in 0..plan.accumulate {
            let batch = loader.next_batch()?;
            samples.extend(batch.counters.iter().copied());
            let key = DropoutKey { seed: config.seed, step: state.step, samples: batch.counters.clone() };
            let prepared = prepare(batch, config, device);
            let value = loss_of(&state.net, config, &prepared, &key, &seen) / plan.accumulate as f32;
            loss += f64::from(value.clone().into_scalar::<f32>());
            let found = Gradients::new(GradientsParams::from_grads(value.backward(), &state.net.unet), &state.net.unet);
            match &mut grads {
                None => grads = Some(found),
                Some(sum) => sum.add(&found),
            }
        }
        let Some(grads) = grads else { return Err(Error::request("train.accumulate must be at least 1")) };
        let norm = grads.norm();
        if !loss.is_finite() || !norm.is_finite() {
            return Err(diverged(&state, &grads, loss, &samples));
        }
        let lr = config.lr_schedule().at(state.step);
        state.net.unet = seen.into_module(state.net.unet);
        state.update(&grads, norm, config);
        let seconds = began.elapsed().as_secs_f64();
        let done =
            StepReport { step: state.step, loss, lr, grad_norm: norm, images_per_second: per_step as f64 / seconds };
        report(&done);
        let due = |every: u64| every > 0 && state.step.is_multiple_of(every);
        if due(plan.log_every) || state.step == plan.steps {
            log.write(&done)?;
            if let Some(events) = &mut events {
                let speed = done.images_per_second;
                let values = [("loss", loss), ("lr", lr), ("grad_norm", norm), ("images_per_second", speed)];
                events.scalars(state.step, &values)?;
            }
        }
        if due(plan.sample_every) {
            let (sheet, png) = sample_sheet(&state, config, &*dataset, dir, device)?;
            if let Some(events) = &mut events {
                events.image(state.step, "samples", &sheet, &png)?;
            }
        }
        if due(plan.checkpoint_every) {
            saved = Some(save(&state, config, dir)?);
        }
    }
    let last = dir.checkpoints().join(checkpoint::file_name(state.step));
    let checkpoint = match saved {
        Some(path) if path == last => path,
        _ => save(&state, config, dir)?,
    };
    Ok(Summary { step: state.step, stopped: state.step < plan.steps, checkpoint, passed_over })
}

/// A new state, or that of the newest checkpoint that can be read.
fn start<N: Learner>(
    config: &RunConfig,
    dir: &RunDir,
    device: &Device,
    resume: bool,
) -> Result<(TrainState<N>, Vec<String>)> {
    let fresh = || {
        let mut state = TrainState::with(N::begun(config, &recording(device, config.train.recompute))?, config);
        if let Some(latent) = &config.latent {
            let latent = Latent::open(latent, device)?;
            latent.must_fit(config.channels())?;
            state.latent = Some(latent);
        }
        Ok(state)
    };
    let resumed = |path: &Path| {
        let checkpoint = Checkpoint::open(path)?;
        checkpoint.config.must_resume_as(config)?;
        TrainState::resume(&checkpoint, config.train.recompute, device)
    };
    start::start(dir, &config.to_toml()?, resume, fresh, resumed)
}

/// The images that a run is made of: of one size, or as they are stored where a task cuts them.
pub fn images(config: &RunConfig, latent: Option<&Latent>) -> Result<Box<dyn Dataset>> {
    let Some([height, width]) = config.task.task().size() else {
        let (side, channels) = image_size(config, latent);
        return config.data.open(side, channels);
    };
    let set = config.data.source(height.max(width))?;
    let (task, channels) = (config.task.task(), latent.map(Latent::image_channels));
    if task.needs_labels() && !set.has_labels() {
        let kinds = "pairs, duts, bsds, nyu-depth or sketchy-coco";
        let problem = format!("the task {} needs images with maps; data.kind must be {kinds}", config.task.name());
        return Err(Error::request(problem));
    }
    if let (Some(have), Some(want)) = (channels, task.target_channels())
        && have != want
    {
        let problem = format!("the task {} makes {want} channels, the autoencoder is for {have}", config.task.name());
        return Err(Error::request(problem));
    }
    let unit = latent.map_or(1, Latent::factor) * config.condition.as_ref().map_or(1, |c| c.unit());
    if height % unit != 0 || width % unit != 0 {
        let problem = format!("task.size must be a multiple of {unit} for this network, not {height}x{width}");
        return Err(Error::request(problem));
    }
    Ok(set)
}

fn save<N: Learner>(state: &TrainState<N>, config: &RunConfig, dir: &RunDir) -> Result<PathBuf> {
    let path = dir.checkpoints().join(checkpoint::file_name(state.step));
    state.save(&path, config)?;
    checkpoint::prune(&dir.checkpoints(), config.train.keep)?;
    Ok(path)
}

/// A contact sheet of the averaged network's pictures, always of the same noise; also as it was written.
fn sample_sheet<N: Learner + Sheet>(
    state: &TrainState<N>,
    config: &RunConfig,
    set: &dyn Dataset,
    dir: &RunDir,
    device: &Device,
) -> Result<(Image, Vec<u8>)> {
    let net = state.averaged(config, device)?;
    let sheet = N::sheet(net, config, state.latent.as_ref(), set, device)?;
    let png = dir.save_sheet(state.step, &sheet)?;
    Ok((sheet, png))
}

/// The error of a loss or gradient that is no number.
fn diverged<N: Learner>(state: &TrainState<N>, grads: &Gradients, loss: f64, samples: &[u64]) -> Error {
    let bad = state.not_finite(grads);
    let first: Vec<_> = bad.iter().take(3).map(String::as_str).collect();
    Error::Run(format!(
        "step {}: the loss is {loss} and {} gradients are not finite ({}…); samples {}..={} of the run. \
         Lower optim.lr, or look at these images with `crossfade data`; the last checkpoint is untouched",
        state.step,
        bad.len(),
        first.join(", "),
        samples.first().copied().unwrap_or(0),
        samples.last().copied().unwrap_or(0),
    ))
}

/// The loss curve that a log holds: (step, loss).
pub fn loss_curve(log: &Path) -> Result<Vec<(f64, f64)>> {
    log::read(log)
}

/// How long the steps of a run took, by its log; none without one.
pub fn seconds_of(log: &Path, plan: &crate::config::TrainConfig) -> Option<f64> {
    log::seconds(log, plan.batch * plan.accumulate)
}
