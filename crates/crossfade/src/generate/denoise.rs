//! The error of a network's estimate of x_0 at fixed noise levels.
use super::solve::estimate_at;
use crate::checkpoint::{Checkpoint, Weights};
use crate::data::{Dataset, Planes};
use crate::engine::{Device, Images, from_host, to_host};
use crate::error::{Error, Result};
use crate::nn::{BackboneConfig, Denoiser};
use crate::rng::{Purpose, Stream};
use crossfade_math::{Field, Gaussian, GaussianFn};

/// The number of images that are denoised.
const IMAGES: usize = 256;
/// The noise levels κ = σ/α at which networks are compared.
pub const RATIOS: [f64; 9] = [0.05, 0.1, 0.2, 0.35, 0.7, 1.4, 3.0, 8.0, 30.0];

/// The errors of a network at the levels [`RATIOS`].
pub(crate) struct DenoisingErrors {
    /// The root mean square of x̂_0 − x_0 over values in [−1, 1], to which x̂_0 is clamped.
    pub rms: Vec<f64>,
    /// The number of images.
    pub images: usize,
}

/// The errors of an unconditional network on pixels on the first images of `set`, which must have its resolution. The
/// noise is a function of image and κ, so it is the same for every network.
pub(crate) fn denoising_errors(
    checkpoint: &Checkpoint,
    weights: Weights,
    set: &dyn Dataset,
    batch: usize,
    device: &Device,
) -> Result<DenoisingErrors> {
    let config = &checkpoint.config;
    if config.latent.is_some() {
        return Err(Error::request("a network on latents"));
    }
    if config.network.condition_channels().is_some() {
        return Err(Error::request("a network with a condition"));
    }
    let process = config.process.gaussian();
    let process = process.ok_or_else(|| Error::request("a process without (alpha_t, sigma_t)"))?;
    let net = checkpoint.denoiser(weights, device)?;
    let error = |ratio| error(&net, checkpoint, process, ratio, (set, batch.max(1)), device);
    Ok(DenoisingErrors { rms: RATIOS.into_iter().map(error).collect::<Result<_>>()?, images: IMAGES.min(set.len()) })
}

/// The error of one network at one noise level.
fn error(
    net: &Denoiser,
    checkpoint: &Checkpoint,
    process: Gaussian,
    ratio: f64,
    (set, batch): (&dyn Dataset, usize),
    device: &Device,
) -> Result<f64> {
    // The nearest time that the network was trained on.
    let t = process.time_of_ratio(ratio);
    let t = process.tick().map_or(t, |tick| (t / tick).round().max(1.0) * tick);
    let network = &checkpoint.config.network;
    let (count, channels) = (IMAGES.min(set.len()), network.channels());
    let side = network.resolution().unwrap_or_default();
    let net = net.conditioned(None);
    let (mut sum, mut values) = (0.0, 0);
    for first in (0..count).step_by(batch) {
        let last = (first + batch).min(count);
        let (mut clean, mut noise) = (vec![], vec![]);
        for k in first..last {
            let planes = Planes::from_image(&set.get(k)?.with_channels(channels));
            let mut eps = vec![0.0; planes.values.len()];
            Stream::new(0, k as u64, ratio.to_bits(), Purpose::Noise).fill_normal(&mut eps);
            clean.extend(planes.values);
            noise.extend(eps);
        }
        let shape = [last - first, channels, side, side];
        let (x0, eps) = (Images(from_host(&clean, shape, device)), Images(from_host(&noise, shape, device)));
        let x_t = Images::lincomb(&[(process.alpha(t).into(), &x0), (process.sigma(t).into(), &eps)]);
        let x0_hat = estimate_at(&net, &checkpoint.config.sample, process, &x_t, t)?.clamp(-1.0, 1.0);
        let found = to_host(x0_hat.0);
        sum += found.iter().zip(&clean).map(|(a, b)| f64::from(a - b).powi(2)).sum::<f64>();
        values += found.len();
    }
    Ok((sum / values.max(1) as f64).sqrt())
}
