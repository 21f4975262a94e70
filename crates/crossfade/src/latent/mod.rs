//! Latent space: encodes images to latents and decodes them, with a frozen autoencoder (§5).
//!
//! A latent diffusion run stores its autoencoder in its own checkpoints, under `first_stage_model.` as in the
//! reference, with the `scale_factor`, so that a checkpoint is enough to make images.
mod cache;
mod checkpoint;
mod reconstruct;
mod source;

pub use cache::LatentCache;
pub use checkpoint::AutoencoderCheckpoint;
pub(crate) use reconstruct::pairs;
pub use reconstruct::{Originals, Reconstruction, reconstruct};
pub use source::Batches;

use crate::checkpoint::{Checkpoint, FIRST_STAGE, SCALE_FACTOR, Weights};
use crate::config::{LatentConfig, RunConfig};
use crate::data::{Image, Planes};
use crate::engine::{Device, Tensor, from_vec, to_host};
use crate::error::{Error, Result};
use crate::nn::weights::{apply, collect};
use crate::nn::{Autoencoder, AutoencoderConfig, BackboneConfig, Posterior};
use crate::rng::{Purpose, Stream};
use crate::tensorfile::{HostTensor, TensorMap};
use rayon::prelude::*;

/// The largest number of pixels per batch of the autoencoder; larger batches take more memory and are not faster.
const BATCH_PIXELS: usize = 1 << 18;

/// A frozen autoencoder with the scale of its latents.
#[derive(Clone, Debug)]
pub struct Latent {
    config: AutoencoderConfig,
    net: Autoencoder,
    scale: f64,
    device: Device,
}

impl Latent {
    /// Opens the autoencoder of a configuration, with the moving average of its weights. If the configuration has no
    /// scale, it is 1 until [`Latent::measure`] is called.
    pub fn open(config: &LatentConfig, device: &Device) -> Result<Self> {
        let checkpoint = AutoencoderCheckpoint::open(&config.autoencoder)?;
        let net = checkpoint.autoencoder(Weights::Ema, device)?;
        Ok(Self::new(checkpoint.config.autoencoder, net, config.scale.unwrap_or(1.0), device))
    }

    /// The autoencoder in the checkpoint of a diffusion network; none for a network on pixels.
    pub fn of(checkpoint: &Checkpoint, device: &Device) -> Result<Option<Self>> {
        let Some((config, tensors, scale)) = checkpoint.first_stage()? else { return Ok(None) };
        let net = load(&config, &tensors, device).map_err(|e| Error::file(&checkpoint.path, e.to_string()))?;
        Ok(Some(Self::new(config, net, scale, device)))
    }

    /// Wraps an autoencoder; latents are multiplied by `scale`.
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

    /// The side of an image divided by the side of its latent.
    pub fn factor(&self) -> usize {
        self.config.factor()
    }

    /// The factor that latents are multiplied by.
    pub fn scale(&self) -> f64 {
        self.scale
    }

    /// A digest of the autoencoder: its configuration and its weights.
    pub(crate) fn fingerprint(&self) -> String {
        cache::fingerprint(self)
    }

    /// The configuration of the autoencoder.
    pub fn config(&self) -> &AutoencoderConfig {
        &self.config
    }

    /// Checks that a network with `channels` channels can be used on these latents.
    pub fn must_fit(&self, channels: usize) -> Result<()> {
        if channels == self.latent_channels() {
            return Ok(());
        }
        Err(Error::request(format!(
            "the network has {channels} channels, but the autoencoder's latents have {}",
            self.latent_channels()
        )))
    }

    /// The posterior distribution of the latents of images, before scaling.
    ///
    /// # Shapes
    /// `[B, C, H, W]` in \[−1, 1\], H and W multiples of the factor.
    pub fn posterior(&self, images: Tensor<4>) -> Posterior {
        let pixels = images.dims()[2] * images.dims()[3];
        Posterior::new(self.in_batches(images, pixels, |x| self.net.encode(x).moments()))
    }

    /// Latents for training: a draw mean + std·n from the posterior of each image, scaled. The noise n is a function of
    /// (seed, sample).
    ///
    /// # Shapes
    /// `[B, C, H, W]` with B `samples` to `[B, latent, H/f, W/f]`.
    pub fn encode(&self, images: Tensor<4>, seed: u64, samples: &[u64]) -> Tensor<4> {
        self.draw(self.posterior(images), seed, samples)
    }

    /// As [`Latent::encode`], from posteriors that are known already.
    pub fn draw(&self, posterior: Posterior, seed: u64, samples: &[u64]) -> Tensor<4> {
        let shape = posterior.dims();
        let size = shape[1..].iter().product();
        let mut noise = vec![0.0; size * samples.len()];
        (noise.par_chunks_mut(size).zip(samples))
            .for_each(|(out, &k)| Stream::new(seed, k, 0, Purpose::Posterior).fill_normal(out));
        posterior.sample(from_vec(noise, shape, &self.device)) * self.scale
    }

    /// The modes of the posteriors, scaled.
    ///
    /// # Shapes
    /// As [`Latent::encode`].
    pub(crate) fn encode_mode(&self, images: Tensor<4>) -> Tensor<4> {
        self.posterior(images).mode() * self.scale
    }

    /// Decodes latents to images, which are not clamped to \[−1, 1\].
    ///
    /// # Shapes
    /// `[B, latent, H, W]` to `[B, C, f·H, f·W]`.
    pub fn decode(&self, z: Tensor<4>) -> Tensor<4> {
        let pixels = z.dims()[2] * z.dims()[3] * self.factor().pow(2);
        self.in_batches(z, pixels, |z| self.net.decode(z / self.scale))
    }

    /// Sets the scale to one over the standard deviation of all elements of these latents (§2.7).
    pub fn measure(&mut self, images: Tensor<4>, seed: u64, samples: &[u64]) -> Result<()> {
        self.scale = 1.0;
        let z = to_host(self.encode(images, seed, samples));
        // In f64, because a sum of millions of f32 would lose digits; with N − 1, as `torch.std`.
        let count = z.len() as f64;
        let mean = z.iter().map(|&v| f64::from(v)).sum::<f64>() / count;
        let variance = z.iter().map(|&v| (f64::from(v) - mean).powi(2)).sum::<f64>() / (count - 1.0);
        let scale = 1.0 / variance.sqrt();
        if !scale.is_finite() {
            return Err(Error::Run("all latents of the autoencoder are equal or not finite; is it trained?".into()));
        }
        // Rounded to f32, as in a checkpoint, so that a resumed run has exactly the same scale.
        self.scale = f64::from(scale as f32);
        Ok(())
    }

    /// Weights and scale as tensors of a checkpoint.
    pub(crate) fn tensors(&self) -> Vec<HostTensor> {
        let weights = collect(&self.net).into_iter();
        let named = weights.map(|(name, shape, values)| (format!("{FIRST_STAGE}{name}"), shape, values));
        named.chain([(SCALE_FACTOR.to_string(), vec![], vec![self.scale as f32])]).collect()
    }

    /// Applies `f` to a few samples at a time, of `pixels` pixels each. The result of a sample does not depend on the
    /// others.
    fn in_batches(&self, x: Tensor<4>, pixels: usize, f: impl Fn(Tensor<4>) -> Tensor<4>) -> Tensor<4> {
        let (count, batch) = (x.dims()[0], (BATCH_PIXELS / pixels.max(1)).max(1));
        if count <= batch {
            return f(x);
        }
        let part = |first: usize| f(x.clone().narrow(0, first, batch.min(count - first)));
        Tensor::cat((0..count).step_by(batch).map(part).collect(), 0)
    }
}

/// Converts to 8-bit images: (x + 1)/2 · 255, rounded and clamped. Values that are not finite are an error, because they would
/// become plausible grey or black pixels.
///
/// # Shapes
/// `[B, C, H, W]` to B images.
pub fn to_images(x: Tensor<4>) -> Result<Vec<Image>> {
    let ([_, c, h, w], values) = (x.dims(), to_host(x));
    check_finite(&values)?;
    Ok(values.chunks_exact(c * h * w).map(|planes| Planes::new([c, h, w], planes.to_vec()).to_image()).collect())
}

/// An error if the values that a network has made are not all finite: the one check of every way from a network to a picture.
pub(crate) fn check_finite(values: &[f32]) -> Result<()> {
    let message = "the output of the network is not finite; has its training diverged?";
    if values.iter().all(|v| v.is_finite()) { Ok(()) } else { Err(Error::Run(message.into())) }
}

/// Side and channels of the training images of a run.
pub fn image_size(config: &RunConfig, latent: Option<&Latent>) -> (usize, usize) {
    let (side, channels) = (config.network.resolution().unwrap_or_default(), config.network.channels());
    match latent {
        Some(latent) => (side * latent.factor(), latent.image_channels()),
        None => (side, channels),
    }
}

/// Builds an autoencoder with these weights.
fn load(config: &AutoencoderConfig, tensors: &TensorMap, device: &Device) -> Result<Autoencoder> {
    apply(config.init(0, &device.clone().without_autodiff()), &|name| tensors.get(name).cloned())
}
