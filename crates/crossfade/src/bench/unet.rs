//! Benchmarks of the whole network: one evaluation, one training step, or one sampling run, as `tools/compare_peers.py`
//! times them in PyTorch.
use super::{median_and_best, peak_rss_mb};
use crate::config::RunConfig;
use crate::engine::{Device, Tensor};
use crate::error::Result;
use crate::generate::{Pipeline, StartNoise};
use crate::loader::Batch;
use crate::nn::{BackboneConfig, Context, Denoiser, DropoutKey, Mode, NetworkPorts, Statistics, UNetConfig};
use crate::rng::{Purpose, Stream};
use crate::sample::Sampler;
use crate::train::{Gradients, Prepared, TrainState, prepare};
use burn::optim::GradientsParams;
use crossfade_math::{Grid, GridKind};
use serde::Serialize;
use std::time::Instant;

/// The part of the work that is timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// One evaluation of the network.
    Forward,
    /// One training step with AdamW.
    Train {
        /// Whether activations that are cheap to compute are recomputed in the backward pass instead of kept.
        recompute: bool,
    },
    /// One deterministic first-order sampling run.
    Sample,
}

/// The result of a benchmark.
#[derive(Clone, Debug, Serialize)]
pub struct Timing {
    /// Images per batch.
    pub batch: usize,
    /// The number of parameters of the network.
    pub parameters: usize,
    /// Median over the repeats.
    pub median_ms: f64,
    /// Best of the repeats.
    pub best_ms: f64,
    /// Peak resident memory of the process so far, in MiB.
    pub peak_rss_mb: u64,
}

/// Times `what` on a network with random weights: two warm-up rounds, then `repeat` timed ones.
pub fn unet(
    what: What,
    network: UNetConfig,
    batch: usize,
    steps: usize,
    repeat: usize,
    device: &Device,
) -> Result<Timing> {
    let mut config = RunConfig { network: network.into(), ..RunConfig::default() };
    config.sample.sampler = Sampler::FirstOrder;
    config.sample.grid = Grid { kind: GridKind::UniformT, final_t: None };
    config.sample.steps = steps;
    config.sample.clip = 0.0;
    config.train.recompute = matches!(what, What::Train { recompute: true });
    let mut work = match what {
        What::Forward => evaluation(&config, batch, device),
        What::Train { .. } => training(&config, batch, device),
        What::Sample => sampling(&config, batch, device),
    };
    // The first rounds allocate memory, fill the caches and, on GPUs, compile shaders.
    for _ in 0..2 {
        work()?;
    }
    let mut times = vec![];
    for _ in 0..repeat.max(1) {
        let began = Instant::now();
        work()?;
        times.push(began.elapsed().as_secs_f64() * 1e3);
    }
    let (median, best) = median_and_best(times);
    let round = |ms: f64| (ms * 100.0).round() / 100.0;
    Ok(Timing {
        batch,
        parameters: config.network.parameter_count(NetworkPorts::default()),
        median_ms: round(median),
        best_ms: round(best),
        peak_rss_mb: peak_rss_mb(),
    })
}

/// One timed repeat of a benchmark.
type Repeat<'a> = Box<dyn FnMut() -> Result<()> + 'a>;

fn images(config: &RunConfig, batch: usize) -> Batch {
    let (c, side) = (config.network.channels(), config.network.resolution().unwrap_or_default());
    let shape = [batch, c, side, side];
    let mut pixels = vec![0.0; shape.iter().product()];
    Stream::new(0, 0, 0, Purpose::Procedural).fill_normal(&mut pixels);
    Batch { counters: (0..batch as u64).collect(), indices: vec![0; batch], shape, x0: pixels, condition: None }
}

/// A network with initial weights for inference, without gradients.
fn denoiser(config: &RunConfig, device: &Device) -> Denoiser {
    config.denoiser(config.network.init(config.ports(), config.seed, device))
}

/// Waits for an asynchronous device: reading one value forces it to finish the computation.
fn finish(x: Tensor<4>) {
    let _ = x.slice([0..1, 0..1, 0..1, 0..1]).into_data();
}

fn evaluation<'a>(config: &'a RunConfig, batch: usize, device: &'a Device) -> Repeat<'a> {
    let (net, x) = (denoiser(config, device), prepare(images(config, batch), config, None, device).noised);
    Box::new(move || {
        finish(net.heads(x.x_t.0.clone(), &x.t, &Context::default()).eps);
        Ok(())
    })
}

fn sampling<'a>(config: &'a RunConfig, batch: usize, device: &'a Device) -> Repeat<'a> {
    let starts: Vec<_> = (0..batch as u64).map(StartNoise::Index).collect();
    let net = denoiser(config, device);
    Box::new(move || {
        let pipeline = Pipeline::new(net.clone(), None, None, config, &config.sample, device)?;
        pipeline.sample(0, &starts, &mut |_| ())?;
        Ok(())
    })
}

fn training<'a>(config: &'a RunConfig, batch: usize, device: &'a Device) -> Repeat<'a> {
    let (mut state, data) = (TrainState::new(config, device), images(config, batch));
    Box::new(move || {
        let key = DropoutKey { seed: 0, step: state.step, samples: data.counters.clone() };
        let Prepared { noised, labels, .. } = prepare(data.clone(), config, None, device);
        let loss = {
            let statistics = Statistics::default();
            let mode = Mode::Train { dropout: &key, statistics: &statistics };
            config.loss.loss(&state.net, &noised, &Context::default().with_labels(labels), mode, None).total
        };
        let grads = GradientsParams::from_grads(loss.backward(), &state.net.network);
        let grads = Gradients::new(grads, &state.net.network);
        let norm = grads.norm();
        state.update(&grads, norm, config)
    })
}
