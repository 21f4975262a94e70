//! A study from the first model to the last cell; whatever is there already is not made again.
use super::cell::{Cell, CellResult, Identity, Record, StudyDir, cells, read, write};
use super::judge::{Basis, Judge};
use super::plan::{Model, Plan, rows};
use super::subject::Subject;
use super::{Results, results};
use crate::checkpoint::{self, Checkpoint};
use crate::digest::sha256;
use crate::engine::Device;
use crate::error::{Error, Result};
use crate::generate::Shard;
use crate::train::{RunDir, StepReport, seconds_of, train};
use std::fs::{File, TryLockError};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

/// Which part of the work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Only {
    /// Training and measuring; shards share the models.
    #[default]
    Both,
    /// Training; shards share the models.
    Train,
    /// Measuring models that are all trained; shards share the cells.
    Sample,
}

/// How a study is run.
#[derive(Clone, Debug)]
pub struct Options {
    /// The directory of the study.
    pub out: PathBuf,
    /// Where models are trained; `models` below `out` without it. Studies may share it.
    pub models: Option<PathBuf>,
    /// Which share is done here.
    pub shard: Shard,
    /// Which part of the work.
    pub only: Only,
    /// Inception's weights; those of the cache without it.
    pub weights: Option<PathBuf>,
    /// Images a network evaluation; changes the speed and nothing else.
    pub batch: usize,
}

/// What a run tells of itself.
pub enum Event<'a> {
    /// A step of training.
    Training {
        /// The model.
        model: &'a str,
        /// The step.
        step: &'a StepReport,
        /// Steps to do.
        steps: u64,
    },
    /// Another process trains the model; this one waits until it is done.
    Waiting {
        /// The model.
        model: &'a str,
    },
    /// The reference is worked through.
    Reference {
        /// Images done.
        done: usize,
        /// Images to do.
        all: usize,
    },
    /// Images were made and judged.
    Sampling {
        /// The row.
        row: &'a str,
        /// The column.
        column: usize,
        /// The seed.
        seed: u64,
        /// Network evaluations of images done in this run.
        done: u64,
        /// Network evaluations of images to do in this run.
        all: u64,
    },
}

/// How a run ended.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Outcome {
    /// Cells measured in this run.
    pub measured: usize,
    /// Cells with a result, over all runs and shards in this directory.
    pub done: usize,
    /// Cells of the study.
    pub cells: usize,
    /// Whether it was asked to stop.
    pub stopped: bool,
}

/// Trains what is missing, measures what is missing, and writes table, charts and report. A run that is killed or stopped
/// goes on where it was.
pub fn run(
    plan: &Plan,
    options: &Options,
    device: &Device,
    stop: &AtomicBool,
    tell: &mut dyn FnMut(Event),
) -> Result<(Outcome, Results)> {
    let basis = Basis::open(plan, options.weights.as_deref(), options.only != Only::Train, device)?;
    let dir = StudyDir(options.out.clone());
    dir.create()?;
    let record = Record::new(plan, basis.facts.clone(), basis.reference.clone());
    write(&dir.record(), &record)?;
    let mut work =
        Work { plan, options, device, stop, dir, record, basis, judge: None, done: 0.into(), all: 0, measured: 0 };
    work.forget_others()?;
    work.all = work.estimate()?;
    for number in 0..plan.models.len() {
        if work.stopped() {
            break;
        }
        if work.owns_model(number) && !work.ready(number, tell)? {
            break;
        }
        if options.only != Only::Train {
            work.measure_model(number, tell)?;
        }
    }
    let results = results::collate(&work.dir)?;
    results.save(&work.dir)?;
    let (done, cells) = results.progress();
    Ok((Outcome { measured: work.measured, done, cells, stopped: work.stopped() }, results))
}

/// All that the parts of a run share.
pub(super) struct Work<'a> {
    pub(super) plan: &'a Plan,
    pub(super) options: &'a Options,
    pub(super) device: &'a Device,
    stop: &'a AtomicBool,
    pub(super) dir: StudyDir,
    record: Record,
    pub(super) basis: Basis,
    pub(super) judge: Option<Judge>,
    /// Network evaluations done and to do in this run.
    pub(super) done: std::cell::Cell<u64>,
    pub(super) all: u64,
    measured: usize,
}

impl Work<'_> {
    pub(super) fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn owns_model(&self, number: usize) -> bool {
        let Shard { index, count } = self.options.shard;
        self.options.only == Only::Sample || number as u64 % count == index
    }

    /// Whether cell `place` of model `number` is done here.
    fn owns_cell(&self, number: usize, place: usize) -> bool {
        let Shard { index, count } = self.options.shard;
        let (study, axes) = (&self.plan.study, &self.plan.study.sample);
        let earlier = rows(study).iter().filter(|row| row.model < number).count();
        let place = earlier * axes.columns().len() * axes.seeds.len() + place;
        match self.options.only {
            Only::Sample => place as u64 % count == index,
            _ => self.owns_model(number),
        }
    }

    /// Removes what an earlier study in the same directory knew of models that only have their names in common.
    fn forget_others(&self) -> Result<()> {
        for (number, model) in self.plan.models.iter().enumerate() {
            let Some(known) = self.dir.known(&self.plan.study, number)? else { continue };
            if known.fingerprint != sha256(model.config.fingerprint()?.as_bytes()) {
                let path = self.dir.identity(&model.slug);
                std::fs::remove_file(&path).map_err(Error::io(&path))?;
            }
        }
        Ok(())
    }

    /// Network evaluations of all images that are to be made here.
    fn estimate(&self) -> Result<u64> {
        let (study, mut all) = (&self.plan.study, 0);
        if self.options.only == Only::Train {
            return Ok(0);
        }
        for number in 0..self.plan.models.len() {
            let known = self.dir.known(study, number)?;
            for (place, cell) in self.cells(number, known.as_ref())?.iter().enumerate() {
                let missing = known.is_none() || !self.dir.cell(&cell.key).is_file();
                if self.owns_cell(number, place) && missing {
                    all += self.cost(number, cell)?;
                }
            }
        }
        Ok(all)
    }

    /// Network evaluations of a cell's images.
    pub(super) fn cost(&self, number: usize, cell: &Cell) -> Result<u64> {
        let evaluations = cell.sample.evaluations(&self.plan.models[number].config.law())?;
        Ok(self.plan.study.sample.count * evaluations as u64)
    }

    /// The cells of a model; without its identity their keys mean nothing.
    fn cells(&self, number: usize, identity: Option<&Identity>) -> Result<Vec<Cell>> {
        let model = &self.plan.models[number];
        let unknown = || -> Result<Identity> {
            let (config, name) = (model.config.to_toml()?, model.name.clone());
            let [fingerprint, checkpoint, checksum] = [(); 3].map(|()| String::new());
            Ok(Identity { name, config, fingerprint, checkpoint, checksum, step: 0, parameters: 0, seconds: None })
        };
        let identity = identity.cloned().map_or_else(unknown, Ok)?;
        let mut all = vec![];
        for (row, of) in rows(&self.plan.study).iter().enumerate().filter(|(_, row)| row.model == number) {
            for &column in self.plan.study.sample.columns() {
                all.extend(cells(&self.record, row, of, column, &identity)?);
            }
        }
        Ok(all)
    }

    /// Where the weights of a model are, or are to be.
    fn home(&self, model: &Model) -> PathBuf {
        let models = self.options.models.clone().unwrap_or_else(|| self.options.out.join("models"));
        model.checkpoint.clone().unwrap_or_else(|| models.join(&model.slug))
    }

    /// Trains a model unless that is done, and writes down who it is; false if the run was stopped before the end.
    fn ready(&self, number: usize, tell: &mut dyn FnMut(Event)) -> Result<bool> {
        let model = &self.plan.models[number];
        let home = self.home(model);
        let _alone = match &model.checkpoint {
            Some(_) => None,
            None => Some(locked(&home, &mut || tell(Event::Waiting { model: &model.name }))?),
        };
        let found = match &model.checkpoint {
            Some(path) => Some(Checkpoint::open(&checkpoint::newest(path)?)?),
            None => {
                // A damaged checkpoint is for the training to pass over.
                let last = checkpoint::list(&RunDir(home.clone()).checkpoints())?.pop();
                last.and_then(|(_, path)| Checkpoint::open(&path).ok()).filter(|found| {
                    let same = found.config.fingerprint().ok() == model.config.fingerprint().ok();
                    same && found.step >= model.config.train.steps && found.config.names_same_files(&model.config)
                })
            }
        };
        let checkpoint = match found {
            Some(checkpoint) => checkpoint,
            None if self.options.only == Only::Sample => {
                let problem = format!("the model {} is not trained yet; run with --only train first", model.name);
                return Err(Error::request(problem));
            }
            None => {
                let steps = model.config.train.steps;
                let mut report = |step: &StepReport| tell(Event::Training { model: &model.name, step, steps });
                let run = RunDir(home.clone());
                let summary = train(&model.config, &run, self.device, true, self.stop, &mut report)?;
                if summary.stopped {
                    return Ok(false);
                }
                Checkpoint::open(&summary.checkpoint)?
            }
        };
        let seconds = seconds_of(&RunDir(home).log(), &model.config.train);
        let identity = Identity::new(&model.name, &model.config, &checkpoint, seconds)?;
        let known = self.dir.known(&self.plan.study, number)?;
        if known.as_ref() != Some(&identity) {
            write(&self.dir.identity(&model.slug), &identity)?;
        }
        Ok(true)
    }

    /// Measures the cells of a model that are done here and have no result.
    fn measure_model(&mut self, number: usize, tell: &mut dyn FnMut(Event)) -> Result<()> {
        let model = &self.plan.models[number];
        let Some(identity) = self.dir.known(&self.plan.study, number)? else { return Ok(()) };
        let all = self.cells(number, Some(&identity))?;
        let wanted = all.into_iter().enumerate().filter(|(place, _)| self.owns_cell(number, *place));
        let missing: Vec<Cell> =
            wanted.map(|(_, cell)| cell).filter(|cell| !self.dir.cell(&cell.key).is_file()).collect();
        if missing.is_empty() {
            return Ok(());
        }
        let checkpoint = Checkpoint::open(&checkpoint::newest(&self.home(model))?)?;
        if checkpoint.checksum != identity.checksum {
            return Err(Error::file(&checkpoint.path, "changed while the study was running"));
        }
        if self.judge.is_none() {
            let cache = self.options.models.clone().unwrap_or_else(|| self.options.out.clone());
            let mut progress = |done, all| tell(Event::Reference { done, all });
            self.judge = self.basis.judge(&cache, &|| self.stopped(), &mut progress)?;
        }
        if self.judge.is_none() {
            return Ok(());
        }
        let subject = match self.basis.held_out() {
            None => Some(Subject::open(&checkpoint, self.device)?),
            Some(_) => None,
        };
        for cell in missing {
            let Some(result) = self.measure(&cell, &checkpoint, subject.as_ref(), tell)? else { return Ok(()) };
            write(&self.dir.cell(&cell.key), &result)?;
            self.measured += 1;
        }
        Ok(())
    }
}

/// The right to train into `home`, which studies may share: until the file is closed others wait. `waits` is called once
/// if another has it.
fn locked(home: &Path, waits: &mut dyn FnMut()) -> Result<File> {
    std::fs::create_dir_all(home).map_err(Error::io(home))?;
    let path = home.join("lock");
    let file = File::create(&path).map_err(Error::io(&path))?;
    let taken = match file.try_lock() {
        Ok(()) => Ok(()),
        Err(TryLockError::WouldBlock) => {
            waits();
            file.lock()
        }
        Err(TryLockError::Error(error)) => Err(error),
    };
    match taken {
        // Some network file systems have no locks; there it is up to the user not to run two at once.
        Err(error) if error.kind() != ErrorKind::Unsupported => Err(Error::io(&path)(error)),
        _ => Ok(file),
    }
}

/// A result that is there.
pub(super) fn result(dir: &StudyDir, key: &str) -> Result<Option<CellResult>> {
    read(&dir.cell(key))
}
