//! A trained network in the laboratory: the spectrum of its samples against that of the data, and its error over the noise
//! level, both beside those of the linear denoiser of the data's spectrum (§10.5).
use crate::checkpoint::{Checkpoint, Weights};
use crate::data::Dataset;
use crate::engine::Device;
use crate::error::{Error, Result, Shown};
use crate::generate::{BATCH, Pipeline, RATIOS, denoising_errors};
use crate::lab::{Estimator, SharesConfig, SharesReport, SharesRow, SharesRun, Spectrum};
use crate::sample::Sampler;
use crossfade_math::Grid;

/// What is measured of a network.
#[derive(Clone, Debug)]
pub struct DiagnoseConfig {
    /// Samplers; empty for that of the checkpoint.
    pub samplers: Vec<Sampler>,
    /// Time grids; empty for that of the checkpoint.
    pub grids: Vec<Grid>,
    /// Numbers of network evaluations.
    pub evaluations: Vec<usize>,
    /// Images that are sampled in every run.
    pub count: u64,
    /// The seed of their noise.
    pub seed: u64,
    /// The weights to use.
    pub weights: Weights,
}

/// Samples `config.count` images in every run and compares their spectrum with that of `set`, which is `data`. Other
/// settings, such as clipping and the blend of the heads, are those of the checkpoint. `progress` is called with (images
/// done, all images).
pub fn diagnose(
    checkpoint: &Checkpoint,
    set: &dyn Dataset,
    data: &Spectrum,
    config: &DiagnoseConfig,
    device: &Device,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<SharesReport> {
    if config.count < 2 {
        return Err(Error::request(format!("a spectrum needs two or more images, not {}", config.count)));
    }
    let pipeline = Pipeline::open(checkpoint, config.weights, &checkpoint.config.sample, device)?;
    check_size(&pipeline, data)?;
    let own = pipeline.sample_config();
    let runs = SharesConfig {
        processes: vec![*pipeline.process()],
        samplers: if config.samplers.is_empty() { vec![own.sampler] } else { config.samplers.clone() },
        grids: if config.grids.is_empty() { vec![own.grid.clone()] } else { config.grids.clone() },
        evaluations: config.evaluations.clone(),
    }
    .runs()?;
    let all = runs.len() as u64 * config.count;
    let mut rows = vec![];
    for (k, run) in runs.iter().enumerate() {
        let before = k as u64 * config.count;
        rows.push(measured(&pipeline, run, data, config, &mut |done| progress(before + done, all))?);
        // The linear denoiser is known where x_t is affine in x_0: not under other attenuations than the constant one.
        if run.process.gaussian().is_some() || !run.process.estimates_x0() {
            rows.push(run.linear(data)?);
        }
    }
    let mut report = SharesReport::linear(set.describe(), data, rows, &RATIOS);
    let (path, step) = (checkpoint.path.shown(), checkpoint.step);
    report.network = Some(format!("{path}, step {step}; {} images per run, seed {}", config.count, config.seed));
    match denoising_errors(checkpoint, config.weights, set, BATCH, device) {
        Ok(found) => {
            report.errors.iter_mut().zip(found.rms).for_each(|(error, rms)| error.network = Some(rms));
            report.denoised = found.images;
        }
        // The spectrum does not depend on these errors, so the reason is only reported.
        Err(error) => report.not_denoised = Some(error.to_string()),
    }
    Ok(report)
}

/// An error if the network makes images of another size than those of `data`. The size of images from latents is known
/// only when they are decoded, where the spectrum refuses others.
fn check_size(pipeline: &Pipeline, data: &Spectrum) -> Result<()> {
    let (made, [c, h, w]) = (pipeline.size()?, data.shape());
    if pipeline.latent().is_some() || made == [c, h, w] {
        return Ok(());
    }
    let [own_c, own_h, own_w] = made;
    Err(Error::request(format!(
        "the network makes images of {own_h}x{own_w}x{own_c}, those to compare with have {h}x{w}x{c}; give images of its size"
    )))
}

/// The shares of one run of the network.
fn measured(
    pipeline: &Pipeline,
    run: &SharesRun,
    data: &Spectrum,
    config: &DiagnoseConfig,
    progress: &mut dyn FnMut(u64),
) -> Result<SharesRow> {
    let mut sample = pipeline.sample_config().clone();
    (sample.sampler, sample.grid, sample.steps) = (run.sampler, run.grid.clone(), run.steps);
    let pipeline = pipeline.with_sample(&sample)?;
    let mut found = Spectrum::new(data.shape());
    for start in (0..config.count).step_by(BATCH) {
        let end = (start + BATCH as u64).min(config.count);
        pipeline.images(config.seed, start..end)?.iter().try_for_each(|image| found.add(image))?;
        progress(end);
    }
    Ok(run.row(Estimator::Network, found.shares(data)?))
}
