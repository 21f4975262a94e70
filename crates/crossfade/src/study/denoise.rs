//! The denoising errors of two networks on the same images at the same noise levels. The processes of the networks may
//! differ.
use crate::checkpoint::{Checkpoint, Weights};
use crate::config::RunConfig;
use crate::data::Dataset;
use crate::data::Planes;
use crate::engine::{Device, Images, from_host, to_host};
use crate::error::{Error, Result};
use crate::generate::estimate_at;
use crate::nn::{BackboneConfig, Denoiser};
use crate::rng::{Purpose, Stream};
use crate::train;
use crossfade_math::{Field, Gaussian, GaussianFn};
use serde::Serialize;

/// The number of images that are denoised.
const IMAGES: usize = 256;
/// The noise levels κ = σ/α.
const RATIOS: [f64; 9] = [0.05, 0.1, 0.2, 0.35, 0.7, 1.4, 3.0, 8.0, 30.0];

/// The errors of both networks at one noise level.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Denoising {
    /// The noise level κ = σ/α.
    pub ratio: f64,
    /// The root mean square of x̂_0 − x_0 over values in [−1, 1], to which x̂_0 is clamped.
    pub rms: [f64; 2],
    /// The number of images.
    pub images: usize,
}

/// The errors of both networks on the first training images of `base`; an error gives the reason if they cannot be
/// compared.
pub(super) fn denoising(
    checkpoints: &[Checkpoint; 2],
    base: &RunConfig,
    batch: usize,
    device: &Device,
) -> Result<Vec<Denoising>> {
    let shape = |i: usize| (checkpoints[i].config.network.resolution(), checkpoints[i].config.network.channels());
    let alike = shape(0) == shape(1);
    for (bad, why) in [
        (!alike, "images of different sizes"),
        (checkpoints.iter().any(|c| c.config.latent.is_some()), "a network on latents"),
        (checkpoints.iter().any(|c| c.config.network.condition_channels().is_some()), "a network with a condition"),
        (checkpoints.iter().any(|c| c.config.process.gaussian().is_none()), "a process without (alpha_t, sigma_t)"),
    ] {
        if bad {
            return Err(Error::request(why));
        }
    }
    let set = &*train::images(base, None)?;
    let mut errors = [vec![], vec![]];
    for (checkpoint, errors) in checkpoints.iter().zip(&mut errors) {
        let net = checkpoint.denoiser(Weights::Ema, device)?;
        let Some(process) = checkpoint.config.process.gaussian() else { continue };
        for ratio in RATIOS {
            errors.push(error(&net, checkpoint, process, ratio, (set, batch.max(1)), device)?);
        }
    }
    let [a, b] = errors;
    let pairs = RATIOS.into_iter().zip(a.into_iter().zip(b));
    let images = IMAGES.min(set.len());
    Ok(pairs.map(|(ratio, (a, b))| Denoising { ratio, rms: [a, b], images }).collect())
}

/// The error of one network at one noise level. The noise is a function of image and κ, so it is the same for both.
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
