//! The denoising errors of two networks on the same images at the same noise levels. The processes of the networks may
//! differ.
use crate::checkpoint::{Checkpoint, Weights};
use crate::config::RunConfig;
use crate::engine::Device;
use crate::error::{Error, Result};
use crate::generate::{RATIOS, denoising_errors};
use crate::nn::BackboneConfig;
use crate::train;
use serde::Serialize;

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
    if shape(0) != shape(1) {
        return Err(Error::request("images of different sizes"));
    }
    let set = &*train::images(base, None)?;
    let errors = |i: usize| denoising_errors(&checkpoints[i], Weights::Ema, set, batch, device);
    let (a, b) = (errors(0)?, errors(1)?);
    let pairs = RATIOS.into_iter().zip(a.rms.into_iter().zip(b.rms));
    Ok(pairs.map(|(ratio, (rms_a, rms_b))| Denoising { ratio, rms: [rms_a, rms_b], images: a.images }).collect())
}
