//! Training of an autoencoder with a discriminator (§5).
use super::Summary;
use super::contribution::{Contribution, Sum, share};
use super::optimiser::{Gradients, Optimiser, adamw};
use super::run_loop::{self, Training, agree_on_run, agree_on_start, together};
use super::start::start;
use crate::checkpoint::{self, RunDir};
use crate::config::AutoencoderRun;
use crate::data::planes::append_planes;
use crate::data::{Dataset, Image};
use crate::engine::{Device, Tensor, from_vec, recording};
use crate::error::{Error, Result};
use crate::generate::to_images;
use crate::latent::{AutoencoderCheckpoint, Latent, pairs};
use crate::loader::{Batch, Loader};
use crate::loss::{GeneratorTerms, Perceptual};
use crate::nn::lpips::Lpips;
use crate::nn::weights::collect;
use crate::nn::{Autoencoder, PatchGan, Statistics};
use crate::ranks;
use crate::rng::{Purpose, Stream};
use crate::tensorfile::save_tensors;
use burn::optim::GradientsParams;
use serde::Serialize;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

/// The prefix of the discriminator's weights in a checkpoint, as in the reference.
const DISCRIMINATOR: &str = "loss.discriminator.";

/// The report of one training step.
#[derive(Clone, Debug, Serialize)]
pub struct AutoencoderReport {
    /// Steps done.
    pub step: u64,
    /// The autoencoder's loss.
    pub loss: f64,
    /// Its terms.
    pub terms: GeneratorTerms,
    /// The discriminator's loss, once the discriminator is trained.
    pub disc_loss: Option<f64>,
    /// The learning rate.
    pub lr: f64,
    /// Images per second in this step.
    pub images_per_second: f64,
}

/// The progress of training.
pub enum Event<'a> {
    /// A note for the user, which is reported once at the start.
    Note(&'a str),
    /// A step was done.
    Step(&'a AutoencoderReport),
}

/// Both networks with their optimisers, and the step.
struct State {
    step: u64,
    net: Autoencoder,
    net_optimiser: Optimiser,
    disc: PatchGan,
    disc_optimiser: Optimiser,
}

impl State {
    fn new(config: &AutoencoderRun, device: &Device) -> Self {
        let (device, loss) = (recording(device, config.train.recompute), &config.loss);
        let (channels, seed) = (config.autoencoder.channels, config.seed);
        let net = config.autoencoder.init(seed, &device);
        let disc = PatchGan::new(channels, loss.disc_width, loss.disc_depth, seed, &device);
        let (net_optimiser, disc_optimiser) = (Optimiser::new(&net, |_| true), Optimiser::new(&disc, |_| true));
        Self { step: 0, net, net_optimiser, disc, disc_optimiser }
    }

    fn resume(path: &Path, config: &AutoencoderRun, device: &Device) -> Result<Self> {
        let checkpoint = AutoencoderCheckpoint::open(path)?;
        checkpoint.config.must_resume_as(config)?;
        let (mut tensors, mut state) = (checkpoint.read()?, Self::new(config, device));
        let named = |e: Error| Error::file(path, e.to_string());
        state.step = checkpoint.step;
        state.net = state.net_optimiser.restore(state.net, &mut tensors, "").map_err(named)?;
        state.disc = state.disc_optimiser.restore(state.disc, &mut tensors, DISCRIMINATOR).map_err(named)?;
        Ok(state)
    }

    /// Whether the discriminator is trained and used in the next step.
    fn uses_disc(&self, config: &AutoencoderRun) -> bool {
        self.step >= config.loss.disc_start
    }

    /// Losses and gradients of both networks for one micro-batch.
    fn contribution(
        &self,
        batch: Batch,
        config: &AutoencoderRun,
        device: &Device,
        perceptual: Option<Perceptual>,
    ) -> Contribution {
        let loss = &config.loss;
        let noise = posterior_noise(&batch, config, device);
        let x: Tensor<4> = from_vec(batch.x0, batch.shape, device);
        let disc = self.uses_disc(config).then_some(&self.disc);
        let generator = loss.generator_step(&self.net, disc, x.clone(), noise, perceptual);
        let GeneratorTerms { total, nll, kl, verdict, verdict_weight } = generator.terms;
        let mut values = vec![total, nll, kl, verdict, verdict_weight];
        let mut gradients =
            vec![Gradients::new(GradientsParams::from_grads(generator.gradients, &self.net), &self.net)];
        let mut moments = vec![];
        // Both losses use the same x̂, which is computed before either network is updated.
        if let Some(disc) = disc {
            let step = loss.discriminator_step(disc, x, generator.x_hat);
            values.push(step.loss);
            gradients.push(Gradients::new(GradientsParams::from_grads(step.gradients, disc), disc));
            let seen = generator.seen.into_iter().chain([step.seen]);
            moments = seen.flat_map(|seen| seen.into_places(disc)).collect();
        }
        // Sums over the micro-batches are then their means.
        let share = 1.0 / config.train.accumulate as f64;
        values.iter_mut().for_each(|value| *value *= share);
        if config.train.accumulate > 1 {
            gradients.iter_mut().for_each(|gradients| gradients.scale(share as f32));
        }
        Contribution { values, mean: vec![], gradients, moments }
    }

    /// One optimiser step of both networks with the sum over the micro-batches.
    fn update(&mut self, sum: Sum, config: &AutoencoderRun, samples: &[u64]) -> Result<(GeneratorTerms, Option<f64>)> {
        let (at, uses_disc) = (self.step, self.uses_disc(config));
        let (terms, disc_loss) = losses(&sum.values)?;
        let norms = [&self.net_optimiser, &self.disc_optimiser].into_iter().zip(&sum.gradients);
        let norms = norms.map(|(optimiser, gradients)| optimiser.norm(gradients)).collect::<Result<Vec<f64>>>()?;
        // Both losses are checked before any weight changes, so that the last checkpoint can be resumed with other options.
        if !sum.values.iter().all(|value| value.is_finite()) || !norms[0].is_finite() {
            return Err(diverged(at, &terms, disc_loss, samples));
        }
        let ema = config.optim.ema_action(at);
        let lr = config.optim.lr_schedule(config.train.steps).at(at);
        let hyper = adamw(&config.optim, lr, at + 1, norms[0]);
        let net = self.net_optimiser.update(self.net.clone(), &sum.gradients[0], hyper, ema);
        self.net = self.net_optimiser.synchronise(net)?;
        if let (true, Some(gradients), Some(&norm)) = (uses_disc, sum.gradients.get(1), norms.get(1)) {
            // AdamW's bias correction counts the steps of the discriminator, which starts later than the autoencoder.
            let hyper = adamw(&config.optim, lr, at - config.loss.disc_start + 1, norm);
            let disc = self.disc_optimiser.update(self.disc.clone(), gradients, hyper, ema);
            let disc = self.disc_optimiser.synchronise(disc)?;
            let seen = Statistics::default();
            seen.extend(sum.moments, &disc);
            self.disc = seen.into_module(disc);
        }
        self.step += 1;
        Ok((terms, disc_loss))
    }
}

/// Standard normals in the shape of the latents, as a function of each sample's counter.
fn posterior_noise(batch: &Batch, config: &AutoencoderRun, device: &Device) -> Tensor<4> {
    let ([b, _, h, w], f) = (batch.shape, config.autoencoder.factor());
    let shape = [b, config.autoencoder.latent, h / f, w / f];
    let size: usize = shape[1..].iter().product();
    let mut noise = vec![0.0; b * size];
    for (out, &k) in noise.chunks_mut(size).zip(&batch.counters) {
        Stream::new(config.seed, k, 0, Purpose::Posterior).fill_normal(out);
    }
    from_vec(noise, shape, device)
}

/// The terms of the generator's loss and the discriminator's loss, which it only has once it is trained.
fn losses(values: &[f64]) -> Result<(GeneratorTerms, Option<f64>)> {
    let [total, nll, kl, verdict, verdict_weight, ref rest @ ..] = *values else {
        return Err(Error::request("train.accumulate must be at least 1"));
    };
    Ok((GeneratorTerms { total, nll, kl, verdict, verdict_weight }, rest.first().copied()))
}

fn diverged(step: u64, terms: &GeneratorTerms, disc_loss: Option<f64>, samples: &[u64]) -> Error {
    let [first, last] = [samples.first(), samples.last()].map(|k| k.copied().unwrap_or(0));
    Error::Run(format!(
        "step {step}: the loss is not finite ({terms:?}, discriminator {disc_loss:?}) or its gradients are not finite; \
         samples {first}..={last} of the run. Lower optim.lr; the last checkpoint is untouched"
    ))
}

/// Trains until the last step or until `stop` is set, and writes a checkpoint in both cases. With `resume` it continues
/// from the newest readable checkpoint in `dir`, and ends with exactly the weights of an uninterrupted run.
pub fn train_autoencoder(
    config: &AutoencoderRun,
    dir: &RunDir,
    device: &Device,
    resume: bool,
    stop: &AtomicBool,
    report: &mut dyn FnMut(Event),
) -> Result<Summary> {
    together(dir, || {
        agree_on_run(&config.to_toml()?)?;
        let fresh = || Ok(State::new(config, device));
        let resumed = |path: &Path| State::resume(path, config, device);
        let (state, passed_over) = start(dir, resume, fresh, resumed)?;
        let (plan, net) = (&config.train, &config.autoencoder);
        let dataset: Arc<dyn Dataset> = Arc::from(config.data.open(net.resolution, net.channels)?);
        agree_on_start(state.step, &*dataset, || [collect(&state.net), collect(&state.disc)].concat())?;
        // The loader skips the samples of the steps that are done, so that a resumed run continues the same order.
        let (loading, first) = (plan.loading(config.seed), state.step * (plan.batch * plan.accumulate) as u64);
        let loader = match loading.share.of_step() {
            0 => None,
            _ => Some(Loader::start(Arc::clone(&dataset), loading, first)?),
        };
        let lpips = perceptual(config, device, report)?;
        let mut training = AutoencoderTraining { config, device, state, dataset, loader, lpips };
        run_loop::run(&mut training, plan, dir, stop, passed_over, &mut |step| report(Event::Step(step)))
    })
}

/// The training of an autoencoder, for the shared loop.
struct AutoencoderTraining<'a> {
    config: &'a AutoencoderRun,
    device: &'a Device,
    state: State,
    dataset: Arc<dyn Dataset>,
    /// The batches of this rank; none if there are more ranks than micro-batches and it has none.
    loader: Option<Loader>,
    lpips: Option<Lpips>,
}

impl Training for AutoencoderTraining<'_> {
    type Report = AutoencoderReport;
    const SHEET: &'static str = "reconstructions";

    fn step(&self) -> u64 {
        self.state.step
    }

    fn advance(&mut self) -> Result<AutoencoderReport> {
        let Self { config, device, state, loader, lpips, .. } = self;
        let began = Instant::now();
        let plan = &config.train;
        let lr = config.optim.lr_schedule(plan.steps).at(state.step);
        let distance = lpips.as_ref().map(|lpips| |a, b| lpips.forward(a, b).unsqueeze_dim(1));
        let group = ranks::current();
        let (mut sum, mut samples) = (Sum::default(), vec![]);
        for round in 0..plan.accumulate.div_ceil(group.size()) {
            let is_own = round * group.size() + group.rank() < plan.accumulate;
            let own = match (loader.as_mut(), is_own) {
                (Some(loader), true) => {
                    let batch = loader.next_batch()?;
                    samples.extend(batch.counters.iter().copied());
                    let distance = distance.as_ref().map(|d| d as Perceptual);
                    let own = state.contribution(batch, config, device, distance);
                    // In the sum it could not be told which rank it came from.
                    if group.size() > 1 && !own.is_finite() {
                        let (terms, disc_loss) = losses(&own.values)?;
                        return Err(diverged(state.step, &terms, disc_loss, &samples));
                    }
                    Some(own)
                }
                _ => None,
            };
            share(own, &[&state.net_optimiser, &state.disc_optimiser])?.into_iter().for_each(|next| sum.add(next));
        }
        let (terms, disc_loss) = state.update(sum, config, &samples)?;
        let images_per_second = (plan.batch * plan.accumulate) as f64 / began.elapsed().as_secs_f64();
        Ok(AutoencoderReport { step: state.step, loss: terms.total, terms, disc_loss, lr, images_per_second })
    }

    fn scalars(report: &AutoencoderReport) -> Vec<(&'static str, f64)> {
        let AutoencoderReport { loss, lr, images_per_second, disc_loss, .. } = *report;
        let mut values = vec![("loss", loss), ("lr", lr), ("images_per_second", images_per_second)];
        values.extend(disc_loss.map(|loss| ("disc_loss", loss)));
        values
    }

    /// The first images of the dataset above their reconstructions by the moving average of the weights.
    fn sheet(&self) -> Result<Option<Image>> {
        let network = &self.config.autoencoder;
        let Some(optimiser) = self.state.net_optimiser.gathered()? else { return Ok(None) };
        let net = optimiser.averaged(network.init(0, &self.device.clone().without_autodiff()))?;
        let latent = Latent::new(network.clone(), net, 1.0, self.device);
        let originals = (0..self.dataset.len().min(8)).map(|i| self.dataset.get(i)).collect::<Result<Vec<_>>>()?;
        let mut planes = vec![];
        originals.iter().for_each(|image| append_planes(image, false, &mut planes));
        let (c, side) = (network.channels, network.resolution);
        let x = from_vec(planes, [originals.len(), c, side, side], self.device);
        Ok(Some(pairs(&originals, &to_images(latent.decode(latent.encode_mode(x)))?)))
    }

    fn config(&self) -> Result<String> {
        self.config.to_toml()
    }

    fn save(&self, path: &Path) -> Result<()> {
        let State { net, net_optimiser, disc, disc_optimiser, step } = &self.state;
        let (Some(first), Some(second)) = (net_optimiser.gathered()?, disc_optimiser.gathered()?) else {
            return Ok(());
        };
        let tensors = [first.tensors(net, ""), second.tensors(disc, DISCRIMINATOR)].concat();
        save_tensors(path, &tensors, &checkpoint::autoencoder_metadata(self.config, *step)?)
    }
}

/// Loads the perceptual distance. If it is enabled but has no weights, a note is reported.
fn perceptual(config: &AutoencoderRun, device: &Device, report: &mut dyn FnMut(Event)) -> Result<Option<Lpips>> {
    let loss = &config.loss;
    match &loss.perceptual_weights {
        _ if loss.perceptual == 0.0 => Ok(None),
        Some(path) => Lpips::load(path, loss.perceptual_net, device).map(Some),
        None => {
            report(Event::Note(
                "training without the perceptual term: loss.perceptual_weights names no file with LPIPS weights \
                 (loss.perceptual = 0 silences this)",
            ));
            Ok(None)
        }
    }
}
