//! Pictures from a network with a condition.
use super::{DIVERGED, solve};
use crate::apply::{Model, Part, field};
use crate::checkpoint::{Checkpoint, Weights};
use crate::config::{RunConfig, SampleConfig};
use crate::data::Planes;
use crate::engine::{Device, Images, from_vec, to_host};
use crate::error::{Error, Result};
use crate::latent::Latent;
use crate::nn::{BackboneConfig, CondUNet, Denoiser};
use crate::rng::Purpose;
use crate::sample::{Hooks, Law};

/// A trained network with all that it needs to make outputs.
pub struct Maker {
    net: Denoiser<CondUNet>,
    latent: Option<Latent>,
    sample: SampleConfig,
    seed: u64,
    device: Device,
    /// Channels of x_t.
    channels: usize,
    /// Sides of x_t must be multiples of this.
    unit: usize,
}

impl Maker {
    /// The network of a configuration.
    pub fn new(
        net: Denoiser<CondUNet>,
        config: &RunConfig,
        latent: Option<Latent>,
        sample: SampleConfig,
        seed: u64,
        device: &Device,
    ) -> Self {
        let unit = config.condition.as_ref().map_or(1, |network| network.unit());
        let channels = config.channels();
        Self { net, latent, sample, seed, device: device.clone(), channels, unit }
    }

    /// The network of a checkpoint, which must be one of the task `kind`.
    pub fn open(
        checkpoint: &Checkpoint,
        kind: &str,
        weights: Weights,
        sample: SampleConfig,
        seed: u64,
        device: &Device,
    ) -> Result<Self> {
        let task = checkpoint.config.task.name();
        if task != kind {
            return Err(Error::request(format!(
                "{} was trained for the task {task}, not for {kind}; use `crossfade {}`",
                checkpoint.path.display(),
                checkpoint.config.task.verb()
            )));
        }
        let net = checkpoint.conditional(weights, device)?;
        let latent = Latent::of(checkpoint, device)?;
        Ok(Self::new(net, &checkpoint.config, latent, sample, seed, device))
    }

    /// Network evaluations an output.
    pub fn evaluations(&self) -> Result<usize> {
        self.sample.evaluations(&Law::new(self.net.process, self.net.baseline))
    }
}

impl Model for Maker {
    fn channels(&self) -> usize {
        self.latent.as_ref().map_or(self.channels, Latent::image_channels)
    }

    fn unit(&self) -> usize {
        self.unit * self.latent.as_ref().map_or(1, Latent::factor)
    }

    fn make(&self, picture: u64, parts: &[Part]) -> Result<Vec<Planes>> {
        let Some(first) = parts.first() else { return Ok(vec![]) };
        let factor = self.latent.as_ref().map_or(1, Latent::factor);
        let [c, h, w] = first.condition.shape;
        let told = parts.iter().flat_map(|part| part.condition.values.iter().copied()).collect();
        let condition = from_vec(told, [parts.len(), c, h, w], &self.device);
        let shape = [self.channels, first.size[0] / factor, first.size[1] / factor];
        let noise = |step: usize, purpose: Purpose| {
            let values = parts.iter().flat_map(|part| {
                field(self.seed, picture, step as u64, purpose, shape, part.y / factor, part.x / factor)
            });
            Images(from_vec(values.collect(), [parts.len(), shape[0], shape[1], shape[2]], &self.device))
        };
        let mut hooks = Hooks { noise: &mut |step| noise(step, Purpose::TileStep), observe: &mut |_| () };
        let start = |part: u64| noise(part as usize, Purpose::Tile);
        let x0 = solve(&self.net.given(condition), &self.sample, &start, &mut hooks)?.x0;
        let images = match &self.latent {
            Some(latent) => latent.decode(x0.0),
            None => x0.0,
        };
        let [_, c, h, w] = images.dims();
        let values = to_host(images);
        if !values.iter().all(|v| v.is_finite()) {
            return Err(Error::Run(DIVERGED.into()));
        }
        let values: Vec<f32> = values.into_iter().map(|v| v.clamp(-1.0, 1.0)).collect();
        Ok(values.chunks_exact(c * h * w).map(|planes| Planes::new([c, h, w], planes.to_vec())).collect())
    }
}
