//! A model in use: images of a seed, and how its estimate approaches them.
use super::held_out::held_out_draw;
use crate::apply::{Model, Part};
use crate::checkpoint::{Checkpoint, Weights};
use crate::config::SampleConfig;
use crate::data::{Dataset, Image};
use crate::engine::{Device, to_host};
use crate::error::{Error, Result};
use crate::generate::{DIVERGED, Maker, Start, decoded, sample_batch};
use crate::latent::Latent;
use crate::nn::Denoiser;

/// An unconditional model, ready to sample.
pub struct Subject {
    net: Denoiser,
    latent: Option<Latent>,
    /// C, H, W.
    size: [usize; 3],
    device: Device,
}

/// Images of one batch.
pub struct Batch {
    /// The images.
    pub images: Vec<Image>,
    /// Network evaluations each.
    pub nfe: usize,
}

/// The mean square of x̂_0(t) − x_0 over the way of a sampler.
#[derive(Default)]
pub struct Curve {
    times: Vec<f64>,
    sums: Vec<f64>,
    images: u64,
}

impl Subject {
    /// The averaged weights of a checkpoint.
    pub fn open(checkpoint: &Checkpoint, device: &Device) -> Result<Self> {
        let network = &checkpoint.config.network;
        Ok(Self {
            net: checkpoint.denoiser(Weights::Ema, device)?,
            latent: Latent::of(checkpoint, device)?,
            size: [network.channels, network.resolution, network.resolution],
            device: device.clone(),
        })
    }

    /// Images `from` to `to` of a seed, as `crossfade sample` makes them; `curve` sees the estimates on the way.
    pub fn make(
        &self,
        sample: &SampleConfig,
        seed: u64,
        [from, to]: [u64; 2],
        curve: Option<&mut Curve>,
    ) -> Result<Batch> {
        let starts: Vec<_> = (from..to).map(Start::Index).collect();
        let mut seen: Vec<(f64, Vec<f32>)> = vec![];
        let wanted = curve.is_some();
        let mut observe = |state: crate::sample::State<'_, crate::engine::Images>| {
            if wanted {
                seen.push((state.t, to_host(state.x0.0.clone())));
            }
        };
        let sampled = sample_batch(&self.net, sample, self.size, seed, &starts, &self.device, &mut observe)?;
        let last = to_host(sampled.x0.0.clone());
        if !last.iter().all(|v| v.is_finite()) {
            return Err(Error::Run(DIVERGED.into()));
        }
        if let Some(curve) = curve {
            curve.add(&seen, &last, starts.len());
        }
        Ok(Batch { images: decoded(self.latent.as_ref(), sampled.x0.0), nfe: sampled.nfe })
    }
}

impl Curve {
    /// Adds `count` images one after the other, so that sums do not depend on batches.
    fn add(&mut self, seen: &[(f64, Vec<f32>)], last: &[f32], count: usize) {
        let size = last.len() / count;
        self.times = seen.iter().map(|(t, _)| *t).collect();
        self.sums.resize(seen.len(), 0.0);
        for (sum, (_, estimate)) in self.sums.iter_mut().zip(seen) {
            for (a, b) in estimate.chunks_exact(size).zip(last.chunks_exact(size)) {
                *sum += a.iter().zip(b).map(|(a, b)| f64::from(a - b).powi(2)).sum::<f64>() / size as f64;
            }
        }
        self.images += count as u64;
    }

    /// (t, mean square).
    pub fn points(&self) -> Result<Vec<[f64; 2]>> {
        if !self.sums.iter().all(|sum| sum.is_finite()) {
            return Err(Error::Run(DIVERGED.into()));
        }
        Ok(self.times.iter().zip(&self.sums).map(|(t, sum)| [*t, sum / self.images.max(1) as f64]).collect())
    }
}

/// A model with a condition and the pairs it is tried on.
pub struct Told<'a> {
    maker: Maker,
    checkpoint: &'a Checkpoint,
    held_out: &'a dyn Dataset,
}

impl<'a> Told<'a> {
    /// The averaged weights of a checkpoint on held-out images.
    pub fn open(
        checkpoint: &'a Checkpoint,
        sample: &SampleConfig,
        seed: u64,
        held_out: &'a dyn Dataset,
        device: &Device,
    ) -> Result<Self> {
        let kind = checkpoint.config.task.name();
        let maker = Maker::open(checkpoint, kind, Weights::Ema, sample.clone(), seed, device)?;
        Ok(Self { maker, checkpoint, held_out })
    }

    /// Network evaluations an output.
    pub fn evaluations(&self) -> Result<usize> {
        self.maker.evaluations()
    }

    /// What the network makes of held-out image k, and what was wanted. Crops and holes depend on k alone.
    pub fn pair(&self, k: u64) -> Result<[Image; 2]> {
        let draw = held_out_draw(k);
        let (set, index) = (self.held_out, k as usize);
        let task = self.checkpoint.config.task.task();
        let pair = task.pair(&set.get(index)?, set.label(index)?.as_ref(), &draw)?;
        let [_, height, width] = pair.target.shape;
        let none = || Error::request("held-out images need a task with a condition; see [task]");
        let part = Part { condition: pair.condition.ok_or_else(none)?, size: [height, width], y: 0, x: 0 };
        let made = self.maker.make(k, std::slice::from_ref(&part))?.pop();
        let made = made.ok_or_else(|| Error::Run("no output came out".into()))?;
        // The network may make something else than pictures, such as what a filter lacks.
        Ok([made, pair.target].map(|planes| task.output(planes, &part.condition).to_image()))
    }
}
