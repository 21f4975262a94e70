//! The training loop that diffusion networks and autoencoders share: steps, log, sample sheets, checkpoints.
use super::Summary;
use super::events::Events;
use super::log::Log;
use crate::checkpoint::{self, RunDir};
use crate::config::TrainConfig;
use crate::data::{Dataset, Image, content_digest};
use crate::digest::{Hasher, sha256};
use crate::error::Result;
use crate::files::{Folder, FolderLock, write_atomic};
use crate::ranks;
use crate::tensorfile::HostTensor;
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
    /// All ranks call this, and the first one gets it.
    fn sheet(&self) -> Result<Option<Image>>;
    /// The configuration of the run as a file.
    fn config(&self) -> Result<String>;
    /// Writes a checkpoint. All ranks call this, and the first one writes.
    fn save(&self, path: &Path) -> Result<()>;
    /// Writes a snapshot of further averages of the weights, if any are kept.
    fn save_averages(&self, _: &Path) -> Result<()> {
        Ok(())
    }
}

/// Checks that all ranks run the same program with the same configuration, before any of them does what depends on it.
pub(super) fn agree_on_run(config: &str) -> Result<()> {
    ranks::current().agree(&[
        ("version", env!("CARGO_PKG_VERSION").into()),
        ("processor's instructions", crossfade_kernels::Isa::detect().name().into()),
        ("configuration", sha256(config.as_bytes())),
    ])
}

/// Checks that all ranks begin at the same step with the same images and the same weights, whichever files these come from. This is
/// done before images are encoded together, so that a cache never holds the latents of two sets.
pub(super) fn agree_on_start(
    step: u64,
    dataset: &dyn Dataset,
    weights: impl FnOnce() -> Vec<HostTensor>,
) -> Result<()> {
    let group = ranks::current();
    if group.size() == 1 {
        return Ok(());
    }
    let images = format!("{} images with the digest {}", dataset.len(), content_digest(dataset)?);
    let mut hasher = Hasher::default();
    for (name, shape, values) in weights() {
        hasher.update(format!("{name} {shape:?}"));
        values.iter().for_each(|value| hasher.update(value.to_le_bytes()));
    }
    group.agree(&[("step", step.to_string()), ("data", images), ("digest of the weights", hasher.finish())])
}

/// Runs a training in `dir`, which is locked. Of several ranks the first one has the lock; one that fails tells the others, which
/// then stop with its reason.
pub(super) fn together<T>(dir: &RunDir, train: impl FnOnce() -> Result<T>) -> Result<T> {
    let group = ranks::current();
    let locked = || -> Result<T> {
        let _lock = if group.is_first() { Some(FolderLock::take(&dir.0)?) } else { None };
        train()
    };
    locked().inspect_err(|error| group.announce(error))
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
    let group = ranks::current();
    let mut output = if group.is_first() { Some(Output::open(training, plan, dir)?) } else { None };
    let mut saved = None;
    while training.step() < plan.steps && !group.any(stop.load(Ordering::Relaxed))? {
        let done = training.advance()?;
        let step = training.step();
        let due = |every: u64| every > 0 && step.is_multiple_of(every);
        if let Some(output) = &mut output {
            report(&done);
            // The last step is always logged, so that the end of a run is in its loss curve.
            if due(plan.log_every) || step == plan.steps {
                output.log(training, &done)?;
            }
        }
        if due(plan.sample_every)
            && let (Some(sheet), Some(output)) = (training.sheet()?, &mut output)
        {
            output.sheet(training, dir, &sheet)?;
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
    // The checkpoint is complete when any rank returns.
    group.wait()?;
    Ok(Summary { step: training.step(), stopped: training.step() < plan.steps, checkpoint, passed_over })
}

/// What the first rank writes beside checkpoints.
struct Output {
    log: Log,
    events: Option<Events>,
    /// Removed again if the first step fails.
    _checkpoints: Folder,
}

impl Output {
    fn open<T: Training>(training: &T, plan: &TrainConfig, dir: &RunDir) -> Result<Self> {
        let _checkpoints = Folder::create(&dir.checkpoints())?;
        if training.step() == 0 {
            write_atomic(dir.config(), training.config()?.as_bytes())?;
        }
        let log = Log::open(&dir.log(), training.step())?;
        let events = plan.tensorboard.then(|| Events::new(&dir.events(), training.step()));
        Ok(Self { log, events, _checkpoints })
    }

    fn log<T: Training>(&mut self, training: &T, done: &T::Report) -> Result<()> {
        self.log.write(done)?;
        self.events.as_mut().map_or(Ok(()), |events| events.scalars(training.step(), &T::scalars(done)))
    }

    /// Writes the sheet of a step.
    fn sheet<T: Training>(&mut self, training: &T, dir: &RunDir, sheet: &Image) -> Result<()> {
        let (folder, step) = (dir.samples(), training.step());
        let _folder = Folder::create(&folder)?;
        let png = sheet.encode_png(&[])?;
        write_atomic(folder.join(format!("step-{step:08}.png")), &png)?;
        self.events.as_mut().map_or(Ok(()), |events| events.image(step, T::SHEET, sheet, &png))
    }
}

/// Writes a checkpoint; all ranks call this.
fn save<T: Training>(training: &T, plan: &TrainConfig, dir: &RunDir) -> Result<PathBuf> {
    let path = dir.checkpoints().join(checkpoint::file_name(training.step()));
    training.save(&path)?;
    if ranks::current().is_first() {
        // Old checkpoints are removed only after the new one is complete.
        checkpoint::prune(&dir.checkpoints(), plan.keep)?;
    }
    Ok(path)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::data::DataConfig;
    use std::sync::Arc;

    /// What `agree` says on each of three ranks.
    fn on_three_ranks(agree: impl Fn(usize) -> Result<()> + Sync) -> Vec<Result<()>> {
        std::thread::scope(|scope| {
            let groups = ranks::threads::groups(3).into_iter().enumerate();
            let threads: Vec<_> = groups
                .map(|(rank, group)| {
                    let agree = &agree;
                    scope.spawn(move || {
                        ranks::enter(Arc::new(group));
                        agree(rank)
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        })
    }

    fn folder(root: &Path, brightness: u8) -> Box<dyn Dataset> {
        std::fs::create_dir_all(root).unwrap();
        for k in 0..3 {
            let pixels = vec![if k == 1 { brightness } else { 9 }; 3 * 8 * 8];
            let image = Image::new(8, 8, 3, pixels);
            std::fs::write(root.join(format!("{k}.png")), image.encode_png(&[]).unwrap()).unwrap();
        }
        let (fit, filter) = (crate::data::Fit::default(), crate::data::Filter::default());
        DataConfig::Folder { path: root.to_path_buf(), fit, filter }.open(8, 3).unwrap()
    }

    #[test]
    fn ranks_with_other_images_weights_or_steps_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let one = |value: f32| vec![("w".to_string(), vec![1], vec![value])];
        let set = |name: &str, brightness: u8| folder(&dir.path().join(name), brightness);
        let same = [set("a", 100), set("b", 100), set("c", 100)];
        // On the last rank one image of the same name has another brightness.
        let other = [set("d", 100), set("e", 100), set("f", 101)];
        for result in on_three_ranks(|rank| agree_on_start(7, &*same[rank], || one(1.0))) {
            result.unwrap();
        }
        for (what, results) in [
            ("data", on_three_ranks(|rank| agree_on_start(7, &*other[rank], || one(1.0)))),
            ("digest of the weights", on_three_ranks(|rank| agree_on_start(7, &*same[rank], || one(rank as f32)))),
            ("step", on_three_ranks(|rank| agree_on_start(rank as u64, &*same[rank], || one(1.0)))),
            ("configuration", on_three_ranks(|rank| agree_on_run(&rank.to_string()))),
        ] {
            for result in results {
                let message = result.unwrap_err().to_string();
                assert!(message.starts_with(&format!("the {what} of rank ")), "{message}");
            }
        }
    }
}
