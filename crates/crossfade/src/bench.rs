//! Timing the network, in the terms of the PyTorch peer: one evaluation, one training step, one sampling run.
use crate::config::RunConfig;
use crate::data::Batch;
use crate::engine::Device;
use crate::error::Result;
use crate::generate::{Start, sample_batch};
use crate::nn::{DropoutKey, UNetConfig};
use crate::rng::{Purpose, Stream};
use crate::train::{Gradients, Prepared, TrainState, prepare};
use burn::optim::GradientsParams;
use crossfade_math::{Grid, GridKind};
use serde::Serialize;
use std::time::Instant;

/// What is timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// One evaluation of the network.
    Forward,
    /// One training step with AdamW.
    Train,
    /// One deterministic first-order sampling run.
    Sample,
}

/// Times in milliseconds and what was timed.
#[derive(Clone, Debug, Serialize)]
pub struct Timing {
    /// Images a batch.
    pub batch: usize,
    /// Weights of the network.
    pub parameters: usize,
    /// Median over the repeats.
    pub median_ms: f64,
    /// Best of the repeats.
    pub best_ms: f64,
    /// Largest memory of the process so far, in MiB.
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
    let mut config = RunConfig { network, ..RunConfig::default() };
    config.sample.sampler = crate::sample::Sampler::FirstOrder;
    config.sample.grid = Grid { kind: GridKind::UniformT, final_t: None };
    config.sample.steps = steps;
    config.sample.clip = 0.0;
    let (c, side) = (config.network.channels, config.network.resolution);
    let shape = [batch, c, side, side];
    let mut pixels = vec![0.0; shape.iter().product()];
    Stream::new(0, 0, 0, Purpose::Procedural).fill_normal(&mut pixels);
    let data = Batch { counters: (0..batch as u64).collect(), indices: vec![0; batch], shape, pixels, condition: None };
    let mut state = TrainState::new(&config, device);
    let net = state.averaged(&config, device)?;
    let parameters = config.network.parameter_count(1);
    let starts: Vec<Start> = (0..batch as u64).map(Start::Index).collect();
    let x = prepare(data.clone(), &config, device).noised;
    let mut work = || -> Result<()> {
        match what {
            What::Forward => {
                let heads = net.heads(x.x_t.0.clone(), &x.t, None);
                // Reading a value makes an asynchronous device finish.
                let _ = heads.eps.slice([0..1, 0..1, 0..1, 0..1]).into_data();
            }
            What::Sample => {
                let out = sample_batch(&net, &config.sample, [c, side, side], 0, &starts, device, &mut |_| ())?;
                let _ = out.x0.0.slice([0..1, 0..1, 0..1, 0..1]).into_data();
            }
            What::Train => {
                let key = DropoutKey { seed: 0, step: state.step, samples: data.counters.clone() };
                let Prepared { noised, labels, .. } = prepare(data.clone(), &config, device);
                let loss = config.loss.loss(&state.net, &noised, labels, Some(&key), None).total;
                let grads = GradientsParams::from_grads(loss.backward(), &state.net.unet);
                let grads = Gradients::new(grads, &state.net.unet);
                let norm = grads.norm();
                state.update(&grads, norm, &config);
            }
        }
        Ok(())
    };
    for _ in 0..2 {
        work()?;
    }
    let mut times = vec![];
    for _ in 0..repeat.max(1) {
        let began = Instant::now();
        work()?;
        times.push(began.elapsed().as_secs_f64() * 1e3);
    }
    times.sort_by(f64::total_cmp);
    let middle = times.len() / 2;
    let median = if times.len() % 2 == 1 { times[middle] } else { 0.5 * (times[middle - 1] + times[middle]) };
    let round = |ms: f64| (ms * 100.0).round() / 100.0;
    Ok(Timing { batch, parameters, median_ms: round(median), best_ms: round(times[0]), peak_rss_mb: peak_rss_mb() })
}

/// The largest resident memory of this process in MiB, as the system counts it; 0 where it does not say.
pub fn peak_rss_mb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|l| l.split_whitespace().next()?.parse::<u64>().ok()).map_or(0, |kb| kb / 1024)
}
