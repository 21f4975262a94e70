//! The models of a study: where they are, and their training, unless that is done.
use super::cell::{Identity, write};
use super::plan::Model;
use super::run::{Event, Only, Work};
use crate::checkpoint::{self, Checkpoint};
use crate::error::{Error, Result};
use crate::checkpoint::RunDir;
use crate::train::{StepReport, seconds_of, train};
use std::fs::{File, TryLockError};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long to wait before asking again whether another process has trained a model.
const PATIENCE: Duration = Duration::from_millis(200);

impl Work<'_> {
    /// Where the weights of a model are, or are to be.
    pub(super) fn home(&self, model: &Model) -> PathBuf {
        let models = self.options.models.clone().unwrap_or_else(|| self.options.out.join("models"));
        model.checkpoint.clone().unwrap_or_else(|| models.join(&model.slug))
    }

    /// The trained model, if it is there.
    fn trained(&self, model: &Model) -> Result<Option<Checkpoint>> {
        if let Some(path) = &model.checkpoint {
            return Checkpoint::open(&checkpoint::newest(path)?).map(Some);
        }
        // A damaged checkpoint is for the training to pass over.
        let last = checkpoint::list(&RunDir(self.home(model)).checkpoints())?.pop();
        Ok(last.and_then(|(_, path)| Checkpoint::open(&path).ok()).filter(|found| {
            let same = found.config.fingerprint().ok() == model.config.fingerprint().ok();
            same && found.step >= model.config.train.steps && found.config.names_same_files(&model.config)
        }))
    }

    /// Refuses what cannot be gone on with before anything is written.
    pub(super) fn check_models(&self) -> Result<()> {
        for (number, model) in self.plan.models.iter().enumerate().filter(|(number, _)| self.owns_model(*number)) {
            let named = |error: Error| named(model, &self.home(model), error);
            if self.is_finished(number)? || self.trained(model).map_err(named)?.is_some() {
                continue;
            }
            if self.options.only == Only::Sample {
                let problem = format!("the model {} is not trained yet; run with --only train first", model.name);
                return Err(Error::request(problem));
            }
            model.config.validate_training().map_err(named)?;
            let begun = checkpoint::list(&RunDir(self.home(model)).checkpoints())?.pop();
            if let Some(begun) = begun.and_then(|(_, path)| Checkpoint::open(&path).ok()) {
                begun.config.must_resume_as(&model.config).map_err(named)?;
            }
        }
        Ok(())
    }

    /// Trains a model unless that is done, and writes down who it is; false if the run was stopped before the end.
    pub(super) fn ready(&self, number: usize, tell: &mut dyn FnMut(Event)) -> Result<bool> {
        let model = &self.plan.models[number];
        let home = self.home(model);
        let named = |error: Error| named(model, &home, error);
        let found = match self.trained(model)? {
            Some(found) => found,
            None => {
                let mut waits = || tell(Event::Waiting { model: &model.name });
                let Some(_alone) = locked(&home, &|| self.stopped(), &mut waits)? else { return Ok(false) };
                // Another process may have trained it in the meantime.
                match self.trained(model)? {
                    Some(found) => found,
                    None => {
                        let steps = model.config.train.steps;
                        let mut report = |step: &StepReport| tell(Event::Training { model: &model.name, step, steps });
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
        let identity = Identity::new(&model.name, &model.config, &found, seconds)?;
        if self.dir.known(&self.plan.study, number).as_ref() != Some(&identity) {
            write(&self.dir.identity(&model.slug), &identity)?;
        }
        Ok(true)
    }
}

/// The error of a model, with its name and place.
fn named(model: &Model, home: &Path, error: Error) -> Error {
    let message = format!("model {} ({}): {error}", model.name, home.display());
    match error {
        Error::Request(_) | Error::Config(_) => Error::request(message),
        _ => Error::Run(message),
    }
}

/// The right to train into `home`, which studies may share: until the file is closed others wait. `waits` is called once
/// if another has it; none if `stop` became true before that one was done.
fn locked(home: &Path, stop: &dyn Fn() -> bool, waits: &mut dyn FnMut()) -> Result<Option<File>> {
    std::fs::create_dir_all(home).map_err(Error::io(home))?;
    let path = home.join("lock");
    let file = File::create(&path).map_err(Error::io(&path))?;
    let mut told = false;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(Some(file)),
            // Some network file systems have no locks; there it is up to the user not to run two at once.
            Err(TryLockError::Error(error)) if error.kind() == ErrorKind::Unsupported => return Ok(Some(file)),
            Err(TryLockError::Error(error)) => return Err(Error::io(&path)(error)),
            Err(TryLockError::WouldBlock) if stop() => return Ok(None),
            Err(TryLockError::WouldBlock) => {
                if !told {
                    waits();
                    told = true;
                }
                std::thread::sleep(PATIENCE);
            }
        }
    }
}
