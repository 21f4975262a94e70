//! The loop that every kind of training shares: steps, log, sheets, checkpoints.
use super::Summary;
use super::events::Events;
use super::log::Log;
use crate::checkpoint::{self, RunDir};
use crate::config::TrainConfig;
use crate::data::Image;
use crate::error::{Error, Result};
use crate::files::write_atomic;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

/// A kind of training, such as that of a diffusion network or of an autoencoder.
pub(super) trait Training {
    /// What is logged and reported of a step.
    type Report: serde::Serialize;
    /// What the sheets show, as a tag of the event files.
    const SHEET: &'static str;

    /// Steps done.
    fn step(&self) -> u64;
    /// One step of the optimiser.
    fn advance(&mut self) -> Result<Self::Report>;
    /// The numbers of a report for event files.
    fn scalars(report: &Self::Report) -> Vec<(&'static str, f64)>;
    /// A picture of what the averaged weights do, always of the same noise and examples.
    fn sheet(&self) -> Result<Image>;
    /// Writes all that a resume needs.
    fn save(&self, path: &Path) -> Result<()>;
}

/// Trains until the last step of `plan` or until `stop` is set, and leaves a checkpoint either way.
pub(super) fn run<T: Training>(
    training: &mut T,
    plan: &TrainConfig,
    dir: &RunDir,
    stop: &AtomicBool,
    passed_over: Vec<String>,
    report: &mut dyn FnMut(&T::Report),
) -> Result<Summary> {
    let mut log = Log::open(&dir.log(), training.step())?;
    let mut events = plan.tensorboard.then(|| Events::new(&dir.events(), training.step()));
    let mut saved = None;
    while training.step() < plan.steps && !stop.load(Ordering::Relaxed) {
        let done = training.advance()?;
        report(&done);
        let step = training.step();
        let due = |every: u64| every > 0 && step.is_multiple_of(every);
        if due(plan.log_every) || step == plan.steps {
            log.write(&done)?;
            if let Some(events) = &mut events {
                events.scalars(step, &T::scalars(&done))?;
            }
        }
        if due(plan.sample_every) {
            let sheet = training.sheet()?;
            let png = save_sheet(dir, step, &sheet)?;
            if let Some(events) = &mut events {
                events.image(step, T::SHEET, &sheet, &png)?;
            }
        }
        if due(plan.checkpoint_every) {
            saved = Some(save(training, plan, dir)?);
        }
    }
    let last = dir.checkpoints().join(checkpoint::file_name(training.step()));
    let checkpoint = match saved {
        Some(path) if path == last => path,
        _ => save(training, plan, dir)?,
    };
    Ok(Summary { step: training.step(), stopped: training.step() < plan.steps, checkpoint, passed_over })
}

fn save<T: Training>(training: &T, plan: &TrainConfig, dir: &RunDir) -> Result<PathBuf> {
    let path = dir.checkpoints().join(checkpoint::file_name(training.step()));
    training.save(&path)?;
    checkpoint::prune(&dir.checkpoints(), plan.keep)?;
    Ok(path)
}

/// Writes the sheet of a step; returns its PNG for the event files.
fn save_sheet(dir: &RunDir, step: u64, sheet: &Image) -> Result<Vec<u8>> {
    let folder = dir.samples();
    std::fs::create_dir_all(&folder).map_err(Error::io(&folder))?;
    let png = sheet.encode_png(&[])?;
    write_atomic(folder.join(format!("step-{step:08}.png")), &png)?;
    Ok(png)
}
