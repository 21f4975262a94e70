//! The training loop that diffusion networks and autoencoders share: steps, log, sample sheets, checkpoints.
use super::Summary;
use super::events::Events;
use super::log::Log;
use crate::checkpoint::{self, RunDir};
use crate::config::TrainConfig;
use crate::data::Image;
use crate::error::Result;
use crate::files::{Folder, write_atomic};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

/// A kind of training that the loop can run.
pub(super) trait Training {
    /// The report of a step, which is also a line of the log.
    type Report: serde::Serialize;
    /// The tag of the sheets in event files.
    const SHEET: &'static str;

    /// Steps done.
    fn step(&self) -> u64;
    /// Does one optimiser step.
    fn advance(&mut self) -> Result<Self::Report>;
    /// The scalars of a report, for event files.
    fn scalars(report: &Self::Report) -> Vec<(&'static str, f64)>;
    /// A contact sheet made with the moving average of the weights, always from the same noise and examples, so that
    /// sheets of different steps can be compared.
    fn sheet(&self) -> Result<Image>;
    /// The configuration of the run as a file.
    fn config(&self) -> Result<String>;
    /// Writes a checkpoint.
    fn save(&self, path: &Path) -> Result<()>;
    /// Writes a snapshot of further averages of the weights, if any are kept.
    fn save_averages(&self, _: &Path) -> Result<()> {
        Ok(())
    }
}

/// Trains until the last step of `plan` or until `stop` is set, and writes a checkpoint in both cases.
pub(super) fn run<T: Training>(
    training: &mut T,
    plan: &TrainConfig,
    dir: &RunDir,
    stop: &AtomicBool,
    passed_over: Vec<String>,
    report: &mut dyn FnMut(&T::Report),
) -> Result<Summary> {
    // Removed again if the first step fails.
    let _checkpoints = Folder::create(&dir.checkpoints())?;
    if training.step() == 0 {
        write_atomic(dir.config(), training.config()?.as_bytes())?;
    }
    let mut log = Log::open(&dir.log(), training.step())?;
    let mut events = plan.tensorboard.then(|| Events::new(&dir.events(), training.step()));
    let mut saved = None;
    while training.step() < plan.steps && !stop.load(Ordering::Relaxed) {
        let done = training.advance()?;
        report(&done);
        let step = training.step();
        let due = |every: u64| every > 0 && step.is_multiple_of(every);
        // The last step is always logged, so that the end of a run is in its loss curve.
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
        // Before the checkpoint: a run that is killed in between is resumed from an earlier one and writes it again. A
        // stop is no reason for a snapshot, so that a resumed run has the snapshots of an uninterrupted one.
        if due(plan.snapshot_interval()) || step == plan.steps {
            training.save_averages(&dir.averages().join(checkpoint::file_name(step)))?;
        }
        if due(plan.checkpoint_every) {
            saved = Some(save(training, plan, dir)?);
        }
    }
    // The last step may have been saved by the interval already.
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
    // Old checkpoints are removed only after the new one is complete.
    checkpoint::prune(&dir.checkpoints(), plan.keep)?;
    Ok(path)
}

/// Writes the sheet of a step and returns its PNG for the event files.
fn save_sheet(dir: &RunDir, step: u64, sheet: &Image) -> Result<Vec<u8>> {
    let folder = dir.samples();
    let _folder = Folder::create(&folder)?;
    let png = sheet.encode_png(&[])?;
    write_atomic(folder.join(format!("step-{step:08}.png")), &png)?;
    Ok(png)
}
