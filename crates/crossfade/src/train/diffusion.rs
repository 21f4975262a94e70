//! Training of a diffusion network: gradients of micro-batches are accumulated to one optimiser step.
use super::Summary;
use super::batch::{Prepared, prepare, prepare_at};
use super::contribution::{Contribution, Sum, share};
use super::mean::MeanImage;
use super::optimiser::Gradients;
use super::run_loop::{self, Training, agree_on_run, agree_on_start, together};
use super::sheet;
use super::start::start;
use super::state::TrainState;
use super::teacher::Teacher;
use crate::checkpoint::{self, Checkpoint, RunDir};
use crate::config::{RunConfig, SampleConfig};
use crate::data::{Classes, Dataset, Image};
use crate::engine::{Device, Tensor, from_vec};
use crate::error::{Error, Result};
use crate::generate::Pipeline;
use crate::latent::{Batches, Latent, image_size};
use crate::limits;
use crate::loader::{Batch, Loader, LoaderConfig, Share};
use crate::nn::weights::collect;
use crate::nn::{Backbone, BackboneConfig, Denoiser, DropoutKey, Mode, Statistics};
use crate::ranks;
use burn::optim::GradientsParams;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

/// The report of one training step.
#[derive(Clone, Debug, serde::Serialize)]
pub struct StepReport {
    /// Steps done.
    pub step: u64,
    /// The mean loss of its micro-batches.
    pub loss: f64,
    /// The learning rate.
    pub lr: f64,
    /// The global norm of the gradients before clipping.
    pub grad_norm: f64,
    /// Images per second in this step.
    pub images_per_second: f64,
}

/// Trains until the last step or until `stop` is set, and writes a checkpoint in both cases. With `resume` it continues
/// from the newest readable checkpoint in `dir`, and ends with exactly the weights of an uninterrupted run.
pub fn train(
    config: &RunConfig,
    dir: &RunDir,
    device: &Device,
    resume: bool,
    stop: &AtomicBool,
    report: &mut dyn FnMut(&StepReport),
) -> Result<Summary> {
    if config.distill.is_some() {
        let message = "this is the configuration of a distilled network: continue it with `crossfade distill … --resume`, \
                       or leave the section [distill] out";
        return Err(Error::request(message));
    }
    config.validate_training()?;
    together(dir, || {
        limits::must_fit(config.sizes().train_bytes, "the training")?;
        let config = &with_recorded_origin(config, dir, resume)?;
        agree_on_run(&config.to_toml()?)?;
        let (mut training, passed_over) = DiffusionTraining::start(config, dir, device, resume, None)?;
        run_loop::run(&mut training, &config.train, dir, stop, passed_over, report)
    })
}

/// As [`train`], for the student of `teacher` that `config` describes.
pub(super) fn train_student(
    config: &RunConfig,
    dir: &RunDir,
    device: &Device,
    resume: bool,
    stop: &AtomicBool,
    teacher: &Checkpoint,
    report: &mut dyn FnMut(&StepReport),
) -> Result<Summary> {
    let Some(distill) = &config.distill else { return Err(Error::request("a student needs a [distill] section")) };
    together(dir, || {
        limits::must_fit(config.sizes().train_bytes, "the training")?;
        agree_on_run(&config.to_toml()?)?;
        let teacher = Teacher::open(teacher, distill, device)?;
        let (mut training, passed_over) = DiffusionTraining::start(config, dir, device, resume, Some(teacher))?;
        run_loop::run(&mut training, &config.train, dir, stop, passed_over, report)
    })
}

/// `config` with the `train.from` that a resumed run was started with, which need not be repeated: its checkpoints keep it.
fn with_recorded_origin(config: &RunConfig, dir: &RunDir, resume: bool) -> Result<RunConfig> {
    let mut config = config.clone();
    if resume && config.train.from.is_none() {
        let newest = checkpoint::list(&dir.checkpoints())?.pop();
        // A damaged checkpoint is reported later, when it is skipped.
        let newest = newest.and_then(|(_, path)| Checkpoint::open(&path).ok());
        config.train.from = newest.and_then(|checkpoint| checkpoint.config.train.from);
    }
    Ok(config)
}

/// The training of a diffusion network, for the shared loop.
struct DiffusionTraining<'a> {
    config: &'a RunConfig,
    device: &'a Device,
    state: TrainState,
    dataset: Arc<dyn Dataset>,
    /// The classes of the images, for a network with classes.
    classes: Option<Classes>,
    /// The batches of this rank; none if there are more ranks than micro-batches and it has none.
    loader: Option<Batches>,
    /// The teacher of a distillation.
    teacher: Option<Teacher<'a>>,
}

impl<'a> DiffusionTraining<'a> {
    /// Starts or resumes a run; also returns the errors of damaged checkpoints that were skipped.
    fn start(
        config: &'a RunConfig,
        dir: &RunDir,
        device: &'a Device,
        resume: bool,
        teacher: Option<Teacher<'a>>,
    ) -> Result<(Self, Vec<String>)> {
        let fresh = || {
            if let (Some(teacher), Some(distill)) = (&teacher, &config.distill) {
                return TrainState::student(config, teacher.checkpoint, distill.weights, device);
            }
            let mut state = TrainState::begin(config, device)?;
            if let (Some(latent), None) = (&config.latent, &state.latent) {
                let latent = Latent::open(latent, device)?;
                latent.must_fit(config.network.channels())?;
                state.latent = Some(latent);
            }
            Ok(state)
        };
        let resumed = |path: &Path| {
            let checkpoint = Checkpoint::open(path)?;
            checkpoint.config.must_resume_as(config)?;
            TrainState::resume(&checkpoint, config.train.recompute, device)
        };
        let (mut state, passed_over) = start(dir, resume, fresh, resumed)?;
        let (plan, task) = (&config.train, config.task.clone());
        let dataset: Arc<dyn Dataset> = Arc::from(images(config, state.latent.as_ref())?);
        let classes = classes(config, &*dataset)?;
        let names = classes.as_ref().map_or(&[][..], |classes| &classes.names);
        // The names are those of a fresh run or must be those of the run that is resumed: a network would take the images of
        // one class for those of another. A student has those of its teacher.
        if (state.step > 0 || teacher.is_some()) && state.class_names != names {
            let message = "the classes of the images are not those that the run was started with";
            return Err(Error::request(format!("{message}: {names:?} in place of {:?}", state.class_names)));
        }
        state.class_names = names.to_vec();
        let loading = plan.loading(config.seed);
        // As in the reference, the scale is measured once, on the first batch (§2.7). A resumed run reads it from its
        // checkpoint, a student has its teacher's.
        if state.step == 0
            && teacher.is_none()
            && config.train.from.is_none()
            && let Some(latent) = &mut state.latent
            && config.latent.as_ref().is_some_and(|l| l.scale.is_none())
        {
            let first = Loader::pairs(
                Arc::clone(&dataset),
                task.clone(),
                LoaderConfig { share: Share::ALL, ..loading.clone() },
                0,
            )?
            .next_batch()?;
            latent.measure(from_vec(first.x0, first.shape, device), config.seed, &first.counters)?;
        }
        agree_on_start(state.step, &*dataset, || {
            let latent = state.latent.as_ref().map_or(vec![], Latent::tensors);
            collect(&state.net.network).into_iter().chain(latent).collect()
        })?;
        let cache = config.latent.as_ref().and_then(|l| l.cache.as_deref());
        // The loader skips the samples of the steps that are done, so that a resumed run continues the same order.
        let first = state.step * (plan.batch * plan.accumulate) as u64;
        let latent = state.latent.as_ref();
        let loader = match loading.share.of_step() {
            // All ranks share the encoding of images into a cache that is missing.
            0 if cache.is_none() => None,
            _ => Some(Batches::start(Arc::clone(&dataset), task, loading, first, latent, cache, &mut |_, _| ())?),
        };
        Ok((Self { config, device, state, dataset, classes, loader, teacher }, passed_over))
    }
}

impl Training for DiffusionTraining<'_> {
    type Report = StepReport;
    const SHEET: &'static str = "samples";

    fn step(&self) -> u64 {
        self.state.step
    }

    /// Sums the gradients of `train.accumulate` micro-batches in their order, then updates the weights and their moving
    /// average.
    fn advance(&mut self) -> Result<StepReport> {
        let Self { config, device, state, loader, classes, teacher, .. } = self;
        let began = Instant::now();
        let mut mean_count = state.step * config.train.accumulate as u64;
        let (accumulate, group) = (config.train.accumulate, ranks::current());
        let (mut sum, mut samples) = (Sum::default(), vec![]);
        for round in 0..accumulate.div_ceil(group.size()) {
            let is_own = round * group.size() + group.rank() < accumulate;
            let own = match (loader.as_mut(), is_own) {
                (Some(loader), true) => {
                    let batch = loader.next_batch()?;
                    samples.extend(batch.counters.iter().copied());
                    let own = contribution(state, config, batch, classes.as_ref(), teacher.as_ref(), device)?;
                    // In the sum it could not be told which rank it came from.
                    if group.size() > 1 && !own.is_finite() {
                        return Err(diverged(state, &own.gradients[0], own.values[0], &samples));
                    }
                    Some(own)
                }
                _ => None,
            };
            for next in share(own, &[state.optimiser()])? {
                if let Some(mean) = &mut state.mean_x0 {
                    mean_count += 1;
                    mean.add(&next.mean, mean_count);
                }
                sum.add(next);
            }
        }
        let ([loss], [grads]) = (&sum.values[..], &sum.gradients[..]) else {
            return Err(Error::request("train.accumulate must be at least 1"));
        };
        let loss = *loss;
        let norm = state.optimiser().norm(grads)?;
        // Checked before the update, so that NaN never gets into the weights.
        if !loss.is_finite() || !norm.is_finite() {
            return Err(diverged(state, grads, loss, &samples));
        }
        let lr = config.lr_schedule().at(state.step);
        let statistics = Statistics::default();
        statistics.extend(sum.moments, &state.net.network);
        state.absorb(statistics, config);
        state.update(grads, norm, config)?;
        let images_per_second = (config.train.batch * accumulate) as f64 / began.elapsed().as_secs_f64();
        Ok(StepReport { step: state.step, loss, lr, grad_norm: norm, images_per_second })
    }

    fn scalars(report: &StepReport) -> Vec<(&'static str, f64)> {
        let StepReport { loss, lr, grad_norm, images_per_second, .. } = *report;
        vec![("loss", loss), ("lr", lr), ("grad_norm", grad_norm), ("images_per_second", images_per_second)]
    }

    fn sheet(&self) -> Result<Option<Image>> {
        let config = self.config;
        let Some(net) = self.state.averaged(config, self.device)? else { return Ok(None) };
        let (latent, mean) = (self.state.latent.clone(), self.state.mean_x0.as_ref().map(MeanImage::parts));
        // A run that was begun before the mean was measured has none.
        let free_first_step = config.sample.free_first_step && mean.is_some();
        let sample = SampleConfig { free_first_step, ..sheet::settings(config) };
        let pipeline = Pipeline::new(net, latent, mean, config, &sample, self.device)?;
        sheet::draw(&pipeline, config, &*self.dataset).map(Some)
    }

    fn config(&self) -> Result<String> {
        self.config.to_toml()
    }

    fn save(&self, path: &Path) -> Result<()> {
        self.state.save(path, self.config)
    }

    fn save_averages(&self, path: &Path) -> Result<()> {
        self.state.save_averages(path, self.config)
    }
}

/// Loss and gradients of one micro-batch.
fn contribution(
    state: &TrainState,
    config: &RunConfig,
    batch: Batch,
    classes: Option<&Classes>,
    teacher: Option<&Teacher>,
    device: &Device,
) -> Result<Contribution> {
    // Before augmentation: sampling makes images without it.
    let mean = state.mean_x0.as_ref().map_or(vec![], |mean| mean.of_batch(&batch.x0));
    // Dropout masks depend on (seed, step, sample) only, so that a resumed run draws the same ones.
    let key = DropoutKey { seed: config.seed, step: state.step, samples: batch.counters.clone() };
    let prepared = match teacher {
        None => prepare(batch, config, classes, device),
        Some(teacher) => {
            let draw = |uniform: f64, _: f64| teacher.time(uniform);
            teacher.teach(prepare_at(batch, config, classes, device, &draw))?
        }
    };
    let (statistics, network) = (Statistics::default(), &state.net.network);
    let mode = Mode::Train { dropout: &key, statistics: &statistics };
    // Divided here, so that the sum of all gradients is their mean over the micro-batches (§2.5).
    let loss = batch_loss(&state.net, config, &prepared, mode) / config.train.accumulate as f32;
    let values = vec![f64::from(loss.clone().into_scalar::<f32>())];
    let gradients = vec![Gradients::new(GradientsParams::from_grads(loss.backward(), network), network)];
    Ok(Contribution { values, mean, gradients, moments: statistics.into_places(network) })
}

/// The loss of a prepared batch, a scalar.
fn batch_loss(net: &Denoiser, config: &RunConfig, batch: &Prepared, mode: Mode) -> Tensor<1> {
    let context = net.network.encode(batch.condition.clone(), mode);
    let context = context.with_labels(batch.labels.clone()).with_classes(batch.classes.clone());
    config.loss.loss(net, &batch.noised, &context, mode, None).total
}

/// Opens the training images of a run: resized to the network's resolution, or as they are stored if a task crops them.
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
    // Crops must be divisible by the downsampling of the autoencoder and of the network together.
    let unit = latent.map_or(1, Latent::factor) * config.network.unit();
    if height % unit != 0 || width % unit != 0 {
        let problem = format!("task.size must be a multiple of {unit} for this network, not {height}x{width}");
        return Err(Error::request(problem));
    }
    Ok(set)
}

/// The classes of the images, for a network that has classes; an error if they are not as many.
pub fn classes(config: &RunConfig, images: &dyn Dataset) -> Result<Option<Classes>> {
    let wanted = config.network.classes();
    if wanted == 0 {
        return Ok(None);
    }
    match images.classes()? {
        Some(classes) if classes.names.len() == wanted => Ok(Some(classes)),
        Some(classes) => Err(Error::request(format!(
            "network.classes is {wanted}, but the images have {found} classes: set network.classes = {found}",
            found = classes.names.len()
        ))),
        None => Err(Error::request(format!(
            "network.classes is {wanted}, but {} has no labels. Classes come from CIFAR-10, from a file of labels beside IDX \
             images, from \"labels\" in the dataset.json of a zip, or from one folder for each class",
            images.describe()
        ))),
    }
}

/// The error for a loss or gradient that is not finite.
fn diverged(state: &TrainState, grads: &Gradients, loss: f64, samples: &[u64]) -> Error {
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
