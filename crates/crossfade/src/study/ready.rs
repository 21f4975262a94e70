//! Trains the models of a study that are not trained yet.
use super::cell::{Identity, write};
use super::plan::Model;
use super::run::{Event, Only, Work};
use crate::checkpoint::RunDir;
use crate::checkpoint::{self, Checkpoint};
use crate::error::{Error, Result, Shown};
use crate::files::{FolderLock, create_directories};
use crate::train::{StepReport, seconds_of, train};
use std::fs::{File, TryLockError};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The interval at which a process checks whether another one has finished training a model.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

impl Work<'_> {
    /// The checkpoint of a model, or the directory that it is trained into.
    pub(super) fn home(&self, model: &Model) -> PathBuf {
        let models = self.options.models.clone().unwrap_or_else(|| self.options.out.join("models"));
        model.checkpoint.clone().unwrap_or_else(|| models.join(&model.training.slug))
    }

    /// The checkpoint of a model, if it is trained completely.
    fn trained(&self, model: &Model) -> Result<Option<Checkpoint>> {
        if let Some(path) = &model.checkpoint {
            return Checkpoint::open(&checkpoint::newest(path)?).map(Some);
        }
        // A damaged checkpoint counts as missing here; the training skips it and reports it.
        let last = checkpoint::list(&RunDir(self.home(model)).checkpoints())?.pop();
        Ok(last.and_then(|(_, path)| Checkpoint::open(&path).ok()).filter(|found| {
            let same = found.config.fingerprint().ok() == model.config.fingerprint().ok();
            same && found.step >= model.config.train.steps && found.config.names_same_files(&model.config)
        }))
    }

    /// Reports models that cannot be trained or resumed, before anything is written.
    pub(super) fn check_models(&self) -> Result<()> {
        for (number, model) in self.plan.models.iter().enumerate().filter(|(number, _)| self.owns_model(*number)) {
            let named = |error: Error| named(model, &self.home(model), error);
            if self.is_finished(number)? || self.trained(model).map_err(named)?.is_some() {
                continue;
            }
            if self.options.only == Only::Sample {
                let problem =
                    format!("the model {} is not trained yet; run with --only train first", model.training.name);
                return Err(Error::request(problem));
            }
            model.config.validate_training().map_err(named)?;
            let newest = checkpoint::list(&RunDir(self.home(model)).checkpoints())?.pop();
            if let Some(newest) = newest.and_then(|(_, path)| Checkpoint::open(&path).ok()) {
                newest.config.must_resume_as(&model.config).map_err(named)?;
            }
        }
        Ok(())
    }

    /// Trains a model if necessary and writes its identity; false if the run was stopped before the end.
    pub(super) fn ready(&self, number: usize, tell: &mut dyn FnMut(Event)) -> Result<bool> {
        let model = &self.plan.models[number];
        let (home, name) = (self.home(model), &model.training.name);
        let named = |error: Error| named(model, &home, error);
        let found = match self.trained(model)? {
            Some(found) => {
                FolderLock::remove_left(&home);
                found
            }
            None => {
                let mut on_wait = || tell(Event::Waiting { model: name });
                let Some(_lock) = locked(&home, &|| self.stopped(), &mut on_wait)? else { return Ok(false) };
                // Another process may have trained it in the meantime.
                match self.trained(model)? {
                    Some(found) => found,
                    None => {
                        let steps = model.config.train.steps;
                        let mut report = |step: &StepReport| tell(Event::Training { model: name, step, steps });
                        let run = RunDir(home.clone());
                        let summary = train(&model.config, &run, self.device, true, self.stop, &mut report);
                        let summary = summary.map_err(named)?;
                        if summary.stopped {
                            return Ok(false);
                        }
                        Checkpoint::open(&summary.checkpoint)?
                    }
                }
            }
        };
        let seconds = seconds_of(&RunDir(home.clone()).log(), &model.config.train);
        let identity = Identity::new(model, &found, seconds)?;
        if self.dir.known(&model.training).as_ref() != Some(&identity) {
            write(&self.dir.identity(&model.training.slug), &identity)?;
        }
        Ok(true)
    }
}

/// Adds the name and the directory of a model to an error.
fn named(model: &Model, home: &Path, error: Error) -> Error {
    let message = format!("model {} ({}): {error}", model.training.name, home.shown());
    match error {
        Error::Request(_) | Error::Config(_) => Error::request(message),
        _ => Error::Run(message),
    }
}

/// Locks the directory `home`, which several studies may share; other processes wait until the returned file is closed.
/// If another process has the lock, `on_wait` is called once; none if `stop` became true while waiting.
fn locked(home: &Path, stop: &dyn Fn() -> bool, on_wait: &mut dyn FnMut()) -> Result<Option<File>> {
    create_directories(home)?;
    let path = home.join("lock");
    let file = File::create(&path).map_err(Error::io(&path))?;
    let mut reported = false;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(Some(file)),
            // Some network file systems have no locks; there the user has to avoid two runs at once.
            Err(TryLockError::Error(error)) if error.kind() == ErrorKind::Unsupported => return Ok(Some(file)),
            Err(TryLockError::Error(error)) => return Err(Error::io(&path)(error)),
            Err(TryLockError::WouldBlock) if stop() => return Ok(None),
            Err(TryLockError::WouldBlock) => {
                if !reported {
                    on_wait();
                    reported = true;
                }
                std::thread::sleep(POLL_INTERVAL);
            }
        }
    }
}
