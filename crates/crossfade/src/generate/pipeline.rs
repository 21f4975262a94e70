//! The pipeline from noise to images: network, latent space, size and sampler, for unconditional generation and for tasks.
use super::guide::GuideNetwork;
use super::solve::solve;
use super::start::{StartNoise, normals};
use crate::apply::{Model, Part, field};
use crate::checkpoint::Checkpoint;
use crate::config::{RunConfig, SampleConfig};
use crate::data::classes::numbers;
use crate::data::{Image, Planes};
use crate::engine::{Device, Images, Tensor, from_vec, to_host};
use crate::error::{Error, Result, Shown};
use crate::latent::{Latent, check_finite, to_images};
use crate::nn::{BackboneConfig, Conditioned, Denoiser, Evaluate};
use crate::rng::Purpose;
use crate::sample::{Hooks, Sampled, State};
use crate::task::TaskConfig;
use crate::torchfile::Weights;
use crossfade_math::Process;
use std::path::PathBuf;
use std::sync::Arc;

/// A trained network with everything that it needs to make images.
///
/// All commands make images through this type, so that sizes, `auto` settings and the check for non-finite values are
/// in one place.
#[derive(Clone)]
pub struct Pipeline {
    pub(super) net: Denoiser,
    pub(super) latent: Option<Latent>,
    task: TaskConfig,
    /// Sampler and grid are resolved, never `auto`.
    pub(super) sample: SampleConfig,
    /// Channels of x_t.
    pub(super) channels: usize,
    /// The side of x_t, if the network has a fixed one.
    pub(super) resolution: Option<usize>,
    /// The sides of x_t must be multiples of this.
    unit: usize,
    /// The names of the classes; empty for a network without classes.
    pub(super) class_names: Vec<String>,
    /// The share of training samples that the network saw without their class.
    pub(super) label_dropout: f64,
    /// The network that guides this one in place of itself without a class.
    pub(super) guide: Option<GuideNetwork>,
    pub(super) device: Device,
    /// The mean of the training images or latents, if it is known: `[C, H, W]`.
    mean_x0: Option<Vec<f32>>,
    /// The path of the checkpoint, for messages.
    origin: Option<PathBuf>,
    /// What is evaluated in place of the network.
    evaluator: Option<Arc<dyn Evaluate + Send + Sync>>,
}

/// Is told every step of a batch of windows of a picture.
pub type Watch<'a> = &'a dyn Fn(&[Part], &State<'_, Images>);

impl Pipeline {
    /// Loads the chosen weights of a checkpoint, to be sampled with the settings `sample`.
    pub fn open(checkpoint: &Checkpoint, weights: Weights, sample: &SampleConfig, device: &Device) -> Result<Self> {
        let net = checkpoint.denoiser(weights, device)?;
        let latent = Latent::of(checkpoint, device)?;
        let mean = checkpoint.mean_x0()?;
        let pipeline = Self::unchecked(net, latent, mean, &checkpoint.config, sample, device)?;
        let class_names = checkpoint.class_names.clone();
        Self { origin: Some(checkpoint.path.clone()), class_names, ..pipeline }.checked()
    }

    /// Wraps a network of `config` that is not from a checkpoint, such as one in training; its classes are named by their
    /// numbers. `mean_x0` is the mean of its training images or latents, shape and values, if it is known.
    pub fn new(
        net: Denoiser,
        latent: Option<Latent>,
        mean_x0: Option<(Vec<usize>, Vec<f32>)>,
        config: &RunConfig,
        sample: &SampleConfig,
        device: &Device,
    ) -> Result<Self> {
        Self::unchecked(net, latent, mean_x0, config, sample, device)?.checked()
    }

    fn unchecked(
        net: Denoiser,
        latent: Option<Latent>,
        mean_x0: Option<(Vec<usize>, Vec<f32>)>,
        config: &RunConfig,
        sample: &SampleConfig,
        device: &Device,
    ) -> Result<Self> {
        let network = &config.network;
        let size = network.resolution().map(|side| vec![network.channels(), side, side]);
        let mean = mean_x0.filter(|(shape, _)| Some(shape) == size.as_ref());
        // Images that are mirrored half of the time have a symmetric mean. The latents of mirrored images are not exactly
        // mirrored latents.
        let mirrored = config.train.flip && latent.is_none();
        let mean_x0 = mean.map(|(shape, values)| if mirrored { symmetric(values, shape[2]) } else { values });
        Ok(Self {
            sample: sample.resolved(&net.process)?,
            net: net.in_precision(sample.precision, device)?,
            latent,
            task: config.task.clone(),
            channels: network.channels(),
            resolution: network.resolution(),
            unit: network.unit(),
            class_names: numbers(network.classes()),
            label_dropout: config.train.label_dropout,
            guide: None,
            device: device.clone(),
            mean_x0,
            origin: None,
            evaluator: None,
        })
    }

    /// The same network with other sampling settings; weights are shared, not copied.
    pub fn with_sample(&self, sample: &SampleConfig) -> Result<Self> {
        let own = self.sample.precision;
        if sample.precision != own && !own.is_f32() {
            // Its weights have been rounded.
            return Err(Error::request(format!(
                "a network in {} cannot be changed to {}",
                own.name(),
                sample.precision.name()
            )));
        }
        let net = self.net.clone().in_precision(sample.precision, &self.device)?;
        Self { net, sample: sample.resolved(self.process())?, ..self.clone() }.checked()
    }

    /// The same pipeline, which asks `evaluator` for the outputs of its network. It stands for the same weights, for example
    /// to evaluate the images of several pipelines in one batch.
    pub fn evaluated_by(&self, evaluator: Arc<dyn Evaluate + Send + Sync>) -> Self {
        Self { evaluator: Some(evaluator), ..self.clone() }
    }

    /// The network for one batch of conditions.
    pub(super) fn conditioned(&self, condition: Option<Tensor<4>>) -> Result<Conditioned<'_>> {
        let Some(evaluator) = &self.evaluator else { return Ok(self.net.conditioned(condition)) };
        Ok(self.net.evaluated_by(evaluator.as_ref(), evaluator.look_at(condition)?))
    }

    /// An error if the evaluation at t = 1 is to be saved and its result is not known.
    fn checked(self) -> Result<Self> {
        let known = self.mean_x0.is_some() && self.task.is_unconditional() && self.process().first_step_is_known();
        if known || !self.sample.free_first_step {
            return Ok(self);
        }
        Err(Error::request(format!(
            "{}: sample.free_first_step needs the mean of the training images, which checkpoints of unconditional training \
             with adm (all attenuations but the sine) or flow contain, but not converted ones and those of earlier \
             versions; set it to false",
            self.origin()
        )))
    }

    /// The process that the network was trained for.
    pub fn process(&self) -> &Process {
        &self.net.process
    }

    /// The task that the network was trained for.
    pub fn task(&self) -> &TaskConfig {
        &self.task
    }

    /// The sampling settings, with `auto` resolved.
    pub(crate) fn sample_config(&self) -> &SampleConfig {
        &self.sample
    }

    /// The network with its process.
    pub fn net(&self) -> &Denoiser {
        &self.net
    }

    /// The device.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The latent space; none for a network on pixels.
    pub fn latent(&self) -> Option<&Latent> {
        self.latent.as_ref()
    }

    /// Network evaluations per image.
    pub fn evaluations(&self) -> Result<usize> {
        self.sample.evaluations(self.process())
    }

    /// The shape (C, H, W) of x_t in unconditional generation; an error if the network is for a task.
    pub fn size(&self) -> Result<[usize; 3]> {
        match self.resolution {
            Some(side) if self.task.is_unconditional() => Ok([self.channels, side, side]),
            _ => Err(Error::request(format!(
                "{} was trained for the task {}; use `crossfade {}`",
                self.origin(),
                self.task.name(),
                self.task.verb()
            ))),
        }
    }

    /// Samples one batch in the space of the network, pixels or latents; `observe` is called with every intermediate state.
    ///
    /// # Shapes
    /// The result is `[starts.len(), C, H, W]`.
    pub fn sample(
        &self,
        seed: u64,
        starts: &[StartNoise],
        observe: &mut dyn FnMut(State<'_, Images>),
    ) -> Result<Sampled<Images>> {
        let [c, h, w] = self.ready()?;
        let (len, shape) = (c * h * w, [starts.len(), c, h, w]);
        let tensor = |noise: &dyn Fn(&StartNoise) -> Vec<f32>| -> Tensor<4> {
            from_vec(starts.iter().flat_map(noise).collect(), shape, &self.device)
        };
        // The noise of an image depends on its own index only, so that it does not depend on the batch.
        let mut noise =
            |step: usize| Images(tensor(&|start| normals(seed, start.index(), step as u64, Purpose::Step, len)));
        let start = |part: u64| Images(tensor(&|start| start.noise(seed, part, len)));
        let classes = starts.iter().map(|start| self.class_of(seed, *start)).collect::<Result<Vec<_>>>()?;
        self.run(
            &self.of_classes(&classes)?,
            self.known_mean(starts.len()),
            &start,
            &mut Hooks { noise: &mut noise, observe },
        )
    }

    /// Samples the 8-bit images `indices` of a seed.
    pub fn images(&self, seed: u64, indices: std::ops::Range<u64>) -> Result<Vec<Image>> {
        let starts: Vec<_> = indices.map(StartNoise::Index).collect();
        self.pictures(self.sample(seed, &starts, &mut |_| ())?.x0.0)
    }

    /// Decodes a finished batch in the space of the network to 8-bit images; an error if a value is not finite, also where
    /// the decoder of the autoencoder overflows on finite latents.
    ///
    /// # Shapes
    /// `[B, C, H, W]` to B images.
    pub fn pictures(&self, x: Tensor<4>) -> Result<Vec<Image>> {
        to_images(self.pixels(x)).map_err(|error| self.named(error))
    }

    /// As [`Pipeline::pictures`], for states on the way, which are only looked at: values that are not finite become black, and
    /// the end of the same trajectory is an error.
    ///
    /// # Shapes
    /// `[B, C, H, W]` to B images.
    pub fn decode(&self, x: Tensor<4>) -> Vec<Image> {
        let pixels = self.pixels(x);
        let [_, c, h, w] = pixels.dims();
        let planes = |values: &[f32]| Planes::new([c, h, w], values.to_vec());
        to_host(pixels).chunks_exact(c * h * w).map(|values| planes(values).to_image()).collect()
    }

    /// The network of the task `kind` as [`crate::apply`] uses it; an error if the network is unconditional or was
    /// trained for another task.
    pub fn task_model(&self, kind: &str, seed: u64) -> Result<TaskModel<'_>> {
        let task = self.task.name();
        if self.task.is_unconditional() {
            return Err(Error::request(format!(
                "{} is an unconditional network; use `crossfade sample`",
                self.origin()
            )));
        }
        if task != kind {
            return Err(Error::request(format!(
                "{} was trained for the task {task}, not for {kind}; use `crossfade {}`",
                self.origin(),
                self.task.verb()
            )));
        }
        Ok(TaskModel { pipeline: self, seed, watch: None })
    }

    pub(super) fn origin(&self) -> String {
        self.origin.as_ref().map_or_else(|| "the network".into(), |path| path.shown())
    }

    fn pixels(&self, x: Tensor<4>) -> Tensor<4> {
        match &self.latent {
            Some(latent) => latent.decode(x),
            None => x,
        }
    }

    /// E[x_0] for a batch, if the evaluation at t = 1 is to be saved.
    pub(super) fn known_mean(&self, batch: usize) -> Option<Images> {
        let [c, h, w] = self.size().ok()?;
        let mean = self.mean_x0.as_ref().filter(|_| self.sample.free_first_step)?;
        Some(Images(from_vec(mean.repeat(batch), [batch, c, h, w], &self.device)))
    }

    /// Decodes a batch in the space of the network to values in [−1, 1], one for each sample. Non-finite values are an error,
    /// also where the decoder of the autoencoder overflows on finite latents.
    pub(super) fn planes(&self, x: Tensor<4>) -> Result<Vec<Planes>> {
        let images = self.pixels(x);
        let [_, c, h, w] = images.dims();
        let values = to_host(images);
        self.check_finite(&values)?;
        let values: Vec<f32> = values.into_iter().map(|v| v.clamp(-1.0, 1.0)).collect();
        Ok(values.chunks_exact(c * h * w).map(|planes| Planes::new([c, h, w], planes.to_vec())).collect())
    }

    /// Runs the sampler. Non-finite values are an error, because NaN would silently become black pixels.
    pub(super) fn run(
        &self,
        net: &Conditioned,
        mean_x0: Option<Images>,
        start: &dyn Fn(u64) -> Images,
        hooks: &mut Hooks<Images>,
    ) -> Result<Sampled<Images>> {
        let sampled = solve(net, &self.sample, mean_x0, start, hooks)?;
        self.check_finite(&to_host(sampled.x0.0.clone()))?;
        Ok(sampled)
    }

    pub(super) fn check_finite(&self, values: &[f32]) -> Result<()> {
        check_finite(values).map_err(|error| self.named(error))
    }

    /// The error with the path of the checkpoint.
    fn named(&self, error: Error) -> Error {
        Error::Run(self.origin.as_ref().map_or_else(|| error.to_string(), |path| format!("{}: {error}", path.shown())))
    }
}

/// The mean of images and their mirror images; `width` is that of a row.
fn symmetric(mut values: Vec<f32>, width: usize) -> Vec<f32> {
    for row in values.chunks_exact_mut(width) {
        for i in 0..width / 2 {
            let mean = 0.5 * (row[i] + row[width - 1 - i]);
            (row[i], row[width - 1 - i]) = (mean, mean);
        }
    }
    values
}

/// The network of a task, with the seed of its noise.
pub struct TaskModel<'a> {
    pipeline: &'a Pipeline,
    seed: u64,
    watch: Option<Watch<'a>>,
}

impl<'a> TaskModel<'a> {
    /// The same model, which tells `watch` of every step.
    pub fn watched(self, watch: Watch<'a>) -> Self {
        Self { watch: Some(watch), ..self }
    }
}

impl Model for TaskModel<'_> {
    fn channels(&self) -> usize {
        let pipeline = self.pipeline;
        pipeline.latent.as_ref().map_or(pipeline.channels, Latent::image_channels)
    }

    fn unit(&self) -> usize {
        self.pipeline.unit * self.pipeline.latent.as_ref().map_or(1, Latent::factor)
    }

    fn make(&self, picture: u64, parts: &[Part]) -> Result<Vec<Planes>> {
        let (pipeline, seed) = (self.pipeline, self.seed);
        let Some(first) = parts.first() else { return Ok(vec![]) };
        // Noise is drawn in the space of the network, where positions are those of the output divided by this factor.
        let factor = pipeline.latent.as_ref().map_or(1, Latent::factor);
        let [c, h, w] = first.condition.shape;
        let values = parts.iter().flat_map(|part| part.condition.values.iter().copied()).collect();
        let condition = from_vec(values, [parts.len(), c, h, w], &pipeline.device);
        let shape = [pipeline.channels, first.size[0] / factor, first.size[1] / factor];
        let noise = |step: usize, purpose: Purpose| {
            let values = parts
                .iter()
                .flat_map(|part| field(seed, picture, step as u64, purpose, shape, part.y / factor, part.x / factor));
            Images(from_vec(values.collect(), [parts.len(), shape[0], shape[1], shape[2]], &pipeline.device))
        };
        let mut observe = |state: State<'_, Images>| self.watch.iter().for_each(|watch| watch(parts, &state));
        let mut hooks = Hooks { noise: &mut |step| noise(step, Purpose::TileStep), observe: &mut observe };
        let start = |part: u64| noise(part as usize, Purpose::Tile);
        let net = pipeline.conditioned(Some(condition))?;
        pipeline.planes(pipeline.run(&net, None, &start, &mut hooks)?.x0.0)
    }
}
