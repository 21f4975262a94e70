//! Latent space: images to latents and back, by a trained autoencoder that no longer changes (§5).
//!
//! A run in latent space keeps its autoencoder in its own checkpoints, under `first_stage_model.` as in the reference,
//! beside the `scale_factor`; one file is then enough to make pictures.
mod cache;
mod checkpoint;
mod reconstruct;
mod source;

pub use cache::LatentCache;
pub use checkpoint::AutoencoderCheckpoint;
pub(crate) use reconstruct::pairs;
pub use reconstruct::{Originals, Reconstruction, reconstruct};
pub use source::Batches;

use crate::data::{Image, Planes};
use crate::checkpoint::{Checkpoint, FIRST_STAGE, SCALE_FACTOR, Weights};
use crate::config::{LatentConfig, RunConfig};
use crate::engine::{Device, Tensor, from_vec, to_host};
use crate::error::{Error, Result};
use crate::nn::weights::{apply, collect};
use crate::nn::{BackboneConfig, Autoencoder, AutoencoderConfig, Posterior};
use crate::rng::{Purpose, Stream};
use crate::tensorfile::{HostTensor, TensorMap};
use rayon::prelude::*;

/// Pixels that go through the autoencoder at once; more take memory and gain nothing.
const PORTION: usize = 1 << 18;

/// An autoencoder in use.
#[derive(Clone, Debug)]
pub struct Latent {
    config: AutoencoderConfig,
    net: Autoencoder,
    scale: f64,
    device: Device,
}

impl Latent {
    /// The autoencoder that a configuration names, with its averaged weights. Without a scale in the configuration it is 1
    /// until [`Latent::measure`].
    pub fn open(config: &LatentConfig, device: &Device) -> Result<Self> {
        let checkpoint = AutoencoderCheckpoint::open(&config.autoencoder)?;
        let net = checkpoint.autoencoder(Weights::Ema, device)?;
        Ok(Self::new(checkpoint.config.autoencoder, net, config.scale.unwrap_or(1.0), device))
    }

    /// The autoencoder inside the checkpoint of a run; none if the run is one on pixels.
    pub fn of(checkpoint: &Checkpoint, device: &Device) -> Result<Option<Self>> {
        let Some((config, tensors, scale)) = checkpoint.first_stage()? else { return Ok(None) };
        let net = load(&config, &tensors, device).map_err(|e| Error::file(&checkpoint.path, e.to_string()))?;
        Ok(Some(Self::new(config, net, scale, device)))
    }

    /// A given autoencoder; latents are multiplied by `scale`.
    pub fn new(config: AutoencoderConfig, net: Autoencoder, scale: f64, device: &Device) -> Self {
        Self { config, net, scale, device: device.clone().without_autodiff() }
    }

    /// Channels of a latent.
    pub fn latent_channels(&self) -> usize {
        self.config.latent
    }

    /// Channels of an image.
    pub fn image_channels(&self) -> usize {
        self.config.channels
    }

    /// Side of an image over side of its latent.
    pub fn factor(&self) -> usize {
        self.config.factor()
    }

    /// What latents are multiplied by.
    pub fn scale(&self) -> f64 {
        self.scale
    }

    /// What the autoencoder consists of.
    pub fn config(&self) -> &AutoencoderConfig {
        &self.config
    }

    /// Checks that a network for `channels` channels can work on these latents.
    pub fn must_fit(&self, channels: usize) -> Result<()> {
        if channels == self.latent_channels() {
            return Ok(());
        }
        Err(Error::request(format!(
            "the network has {channels} channels, but the autoencoder's latents have {}",
            self.latent_channels()
        )))
    }

    /// What the latents of images may be, before scaling.
    ///
    /// # Shapes
    /// `[B, C, H, W]` in \[−1, 1\], H and W multiples of the factor.
    pub fn posterior(&self, images: Tensor<4>) -> Posterior {
        let side = images.dims()[2] * images.dims()[3];
        Posterior::new(self.in_portions(images, side, |x| self.net.encode(x).moments()))
    }

    /// Latents drawn for training: mean + std·n of each image, scaled. The noise n belongs to (seed, sample).
    ///
    /// # Shapes
    /// `[B, C, H, W]` with B `samples` to `[B, latent, H/f, W/f]`.
    pub fn encode(&self, images: Tensor<4>, seed: u64, samples: &[u64]) -> Tensor<4> {
        self.draw(self.posterior(images), seed, samples)
    }

    /// As [`Latent::encode`] from what the encoder said before.
    pub fn draw(&self, posterior: Posterior, seed: u64, samples: &[u64]) -> Tensor<4> {
        let shape = posterior.dims();
        let size = shape[1..].iter().product();
        let mut noise = vec![0.0; size * samples.len()];
        (noise.par_chunks_mut(size).zip(samples))
            .for_each(|(out, &k)| Stream::new(seed, k, 0, Purpose::Posterior).fill_normal(out));
        posterior.sample(from_vec(noise, shape, &self.device)) * self.scale
    }

    /// The likeliest latents, scaled.
    ///
    /// # Shapes
    /// As [`Latent::encode`].
    pub fn encode_mode(&self, images: Tensor<4>) -> Tensor<4> {
        self.posterior(images).mode() * self.scale
    }

    /// The images of latents, not limited to \[−1, 1\].
    ///
    /// # Shapes
    /// `[B, latent, H, W]` to `[B, C, f·H, f·W]`.
    pub fn decode(&self, z: Tensor<4>) -> Tensor<4> {
        let pixels = z.dims()[2] * z.dims()[3] * self.factor().pow(2);
        self.in_portions(z, pixels, |z| self.net.decode(z / self.scale))
    }

    /// Sets the scale to one over the standard deviation of all numbers of these latents (§2.7).
    pub fn measure(&mut self, images: Tensor<4>, seed: u64, samples: &[u64]) -> Result<()> {
        self.scale = 1.0;
        let z = to_host(self.encode(images, seed, samples));
        let count = z.len() as f64;
        let mean = z.iter().map(|&v| f64::from(v)).sum::<f64>() / count;
        let variance = z.iter().map(|&v| (f64::from(v) - mean).powi(2)).sum::<f64>() / (count - 1.0);
        let scale = 1.0 / variance.sqrt();
        if !scale.is_finite() {
            return Err(Error::Run("the autoencoder gives the same latent for everything; is it trained?".into()));
        }
        // Rounded as the checkpoint stores it, so that a resumed run has the same.
        self.scale = f64::from(scale as f32);
        Ok(())
    }

    /// Weights and scale as a checkpoint holds them.
    pub(crate) fn tensors(&self) -> Vec<HostTensor> {
        let weights = collect(&self.net).into_iter();
        let named = weights.map(|(name, shape, values)| (format!("{FIRST_STAGE}{name}"), shape, values));
        named.chain([(SCALE_FACTOR.to_string(), vec![], vec![self.scale as f32])]).collect()
    }

    /// `f` on a few samples at a time, of `pixels` pixels each; a sample's result is the same in any company.
    fn in_portions(&self, x: Tensor<4>, pixels: usize, f: impl Fn(Tensor<4>) -> Tensor<4>) -> Tensor<4> {
        let (count, some) = (x.dims()[0], (PORTION / pixels.max(1)).max(1));
        if count <= some {
            return f(x);
        }
        let part = |first: usize| f(x.clone().narrow(0, first, some.min(count - first)));
        Tensor::cat((0..count).step_by(some).map(part).collect(), 0)
    }
}

/// 8-bit pictures: (x + 1)/2 · 255, rounded and limited.
///
/// # Shapes
/// `[B, C, H, W]` to B images.
pub fn to_images(x: Tensor<4>) -> Vec<Image> {
    let [_, c, h, w] = x.dims();
    let values = to_host(x);
    values.chunks_exact(c * h * w).map(|planes| Planes::new([c, h, w], planes.to_vec()).to_image()).collect()
}

/// Side and channels of the images that a run is made of.
pub fn image_size(config: &RunConfig, latent: Option<&Latent>) -> (usize, usize) {
    let (side, channels) = (config.network.resolution().unwrap_or_default(), config.network.channels());
    match latent {
        Some(latent) => (side * latent.factor(), latent.image_channels()),
        None => (side, channels),
    }
}

/// The autoencoder with these weights.
fn load(config: &AutoencoderConfig, tensors: &TensorMap, device: &Device) -> Result<Autoencoder> {
    apply(config.init(0, &device.clone().without_autodiff()), &|name| tensors.get(name).cloned())
}
