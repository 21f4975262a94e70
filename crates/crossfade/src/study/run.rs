//! The run of a study from the first model to the last cell; results that exist already are not made again.
use super::cell::{Cell, Identity, Record, StudyDir, cells, readable, write};
use super::evaluator::Evaluator;
use super::plan::{Model, Plan, rows};
use super::{Results, results};
use crate::checkpoint::{self, Checkpoint};
use crate::engine::Device;
use crate::error::{Error, Result};
use crate::files::is_writable;
use crate::generate::Pipeline;
use crate::generate::Shard;
use crate::ranks::{self, Group};
use crate::torchfile::Weights;
use crate::train::StepReport;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The part of the work that a run does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Only {
    /// Training and measuring; the models are divided among shards.
    #[default]
    Both,
    /// Only training; the models are divided among shards.
    Train,
    /// Only measuring, where all models are trained; the cells are divided among shards.
    Sample,
}

/// How a study is run.
#[derive(Clone, Debug)]
pub struct Options {
    /// The directory of the study.
    pub out: PathBuf,
    /// The directory that models are trained in, which studies may share; by default `models` in `out`.
    pub models: Option<PathBuf>,
    /// The shard that is done here.
    pub shard: Shard,
    /// The part of the work that is done.
    pub only: Only,
    /// The weights of the metric's network; by default the cached ones.
    pub weights: Option<PathBuf>,
    /// Images per batch; this changes the speed and nothing else.
    pub batch: usize,
}

/// The progress of a run.
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
    /// Another process is training the model; this one waits for it.
    Waiting {
        /// The model.
        model: &'a str,
    },
    /// The reference is being processed.
    Reference {
        /// Images done.
        done: usize,
        /// Images to do.
        all: usize,
    },
    /// Images were made and evaluated.
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
    /// Whether it was stopped before the end.
    pub stopped: bool,
    /// The errors of models and cells that failed; the others were completed.
    pub failed: Vec<String>,
}

/// Trains the models that are missing, measures the cells that are missing, and writes table, charts and report. A run
/// that was killed or stopped continues where it was. If a model fails, the others are still completed.
///
/// Ranks divide the models among them, then the cells; the first one brings the results together.
pub fn run(
    plan: &Plan,
    options: &Options,
    device: &Device,
    stop: &AtomicBool,
    tell: &mut dyn FnMut(Event),
) -> Result<(Outcome, Results)> {
    let group = ranks::current();
    if group.size() > 1 && options.shard != Shard::ALL {
        return Err(Error::request("either shards or ranks divide a study, not both"));
    }
    let shard = options.shard.of_rank(&group);
    let options = &Options { shard, ..options.clone() };
    let others = Arc::clone(&group);
    let tell = &mut |event: Event| {
        tell(event);
        // If another rank has failed, this one need not do its part. The next exchange returns the reason.
        if others.check().is_err() {
            stop.store(true, Ordering::Relaxed);
        }
    };
    // Before anything is trained: a missing reference or wrong weights are reported at once.
    let evaluator = Evaluator::open(plan, options.weights.as_deref(), options.only != Only::Train, device)?;
    let dir = StudyDir(options.out.clone());
    let mut record = Record::new(plan, evaluator.facts.clone(), evaluator.reference_text.clone())?;
    let before: Option<Record> = readable(&dir.record());
    if let Some(before) = before.filter(|before| options.only == Only::Train && before.continues(&record)) {
        // A run that only trains may not know the weights of the metric. The existing record knows them, and the cells that
        // are measured already depend on it.
        record = before;
    }
    let (done, failed) = (0.into(), vec![]);
    let mut work =
        Work { plan, options, device, stop, group, dir, record, evaluator, done, all: 0, measured: 0, failed };
    work.check_models()?;
    work.begin()?;
    work.all = work.estimate()?;
    work.pass(tell)?;
    let now: Option<Record> = readable(&work.dir.record());
    let Some(now) = now.filter(|now| now.continues(&work.record)) else {
        return Err(Error::file(
            work.dir.record(),
            "another study was started in this directory; use one directory for each",
        ));
    };
    // Another process may have recorded the weights of the metric, if this one only trained.
    let record = if now.facts.len() > work.record.facts.len() { now } else { work.record.clone() };
    let results = results::collate(&work.dir, record)?;
    if work.group.is_first() {
        results.save(&work.dir)?;
    }
    let (done, cells) = results.progress();
    let stopped = work.stopped();
    Ok((Outcome { measured: work.measured, done, cells, stopped, failed: work.failed }, results))
}

/// The state of a run.
pub(super) struct Work<'a> {
    pub(super) plan: &'a Plan,
    pub(super) options: &'a Options,
    pub(super) device: &'a Device,
    pub(super) stop: &'a AtomicBool,
    pub(super) group: Arc<Group>,
    pub(super) dir: StudyDir,
    pub(super) record: Record,
    pub(super) evaluator: Evaluator,
    /// Network evaluations done and to do in this run.
    pub(super) done: std::cell::Cell<u64>,
    pub(super) all: u64,
    pub(super) measured: usize,
    pub(super) failed: Vec<String>,
}

impl Work<'_> {
    pub(super) fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    pub(super) fn owns_model(&self, number: usize) -> bool {
        let Shard { index, count } = self.options.shard;
        self.options.only == Only::Sample || number as u64 % count == index
    }

    /// Whether cell `place` of model `number` belongs to this shard.
    fn owns_cell(&self, number: usize, place: usize) -> bool {
        let Shard { index, count } = self.options.shard;
        let (axes, rows) = (&self.plan.study.sample, rows(&self.plan.study));
        let rows_of = |model: &Model| rows.iter().filter(|row| row.model == model.training.model).count();
        let earlier: usize = self.plan.models[..number].iter().map(rows_of).sum();
        let place = earlier * axes.columns().len() * axes.seeds.len() + place;
        match self.options.only {
            Only::Sample => place as u64 % count == index,
            // All models are trained before ranks measure.
            _ if self.group.size() > 1 => place as u64 % count == index,
            _ => self.owns_model(number),
        }
    }

    /// Removes identities of other models with the same names, which an earlier study in this directory has left.
    pub(super) fn remove_outdated_identities(&self) -> Result<()> {
        for model in &self.plan.models {
            let Some(known) = self.dir.known(&model.training) else { continue };
            if !known.is_of(model)? {
                let path = self.dir.identity(&model.training.slug);
                std::fs::remove_file(&path).map_err(Error::io(&path))?;
            }
        }
        Ok(())
    }

    /// Whether a model that the study trained has results for all its cells. Its weights are then not needed any more.
    pub(super) fn is_finished(&self, number: usize) -> Result<bool> {
        let model = &self.plan.models[number];
        if self.options.only == Only::Train || model.checkpoint.is_some() {
            return Ok(false);
        }
        let Some(known) = self.dir.known(&model.training) else { return Ok(false) };
        Ok(known.is_of(model)?
            && self.cells(number, Some(&known))?.iter().all(|cell| self.dir.result(&cell.key).is_some()))
    }

    /// The number of network evaluations that are left to do in this run, for the progress.
    fn estimate(&self) -> Result<u64> {
        let mut all = 0;
        if self.options.only == Only::Train {
            return Ok(0);
        }
        for number in 0..self.plan.models.len() {
            let known = self.dir.known(&self.plan.models[number].training);
            for (place, cell) in self.cells(number, known.as_ref())?.iter().enumerate() {
                let missing = known.is_none() || self.dir.result(&cell.key).is_none();
                if self.owns_cell(number, place) && missing {
                    all += self.cost(cell)?;
                }
            }
        }
        Ok(all)
    }

    /// The number of network evaluations of a cell.
    pub(super) fn cost(&self, cell: &Cell) -> Result<u64> {
        let process = &self.plan.config_of(&rows(&self.plan.study)[cell.row]).process;
        let evaluations = match self.plan.study.evaluate.metric.measures_network() {
            true => cell.column,
            false => cell.sample.evaluations(process)?,
        };
        Ok(self.plan.study.sample.count * evaluations as u64)
    }

    /// The cells of a model. Without its identity, their keys are placeholders that have no results.
    fn cells(&self, number: usize, identity: Option<&Identity>) -> Result<Vec<Cell>> {
        let model = &self.plan.models[number];
        let unknown = || -> Result<Identity> {
            let (config, name) = (model.config.to_toml()?, model.training.name.clone());
            let [fingerprint, checkpoint, checksum] = [(); 3].map(|()| String::new());
            let (step, parameters, seconds) = (0, 0, None);
            Ok(Identity { name, config, fingerprint, checkpoint, checksum, step, parameters, seconds, guide: None })
        };
        let identity = identity.cloned().map_or_else(unknown, Ok)?;
        let mut all = vec![];
        for (row, of) in rows(&self.plan.study).iter().enumerate().filter(|(_, row)| row.model == model.training.model)
        {
            for &column in self.plan.study.sample.columns() {
                all.extend(cells(&self.record, row, of, column, &identity)?);
            }
        }
        Ok(all)
    }

    /// The cells of a model that belong to this shard and have no result.
    pub(super) fn missing(&self, number: usize) -> Result<Vec<Cell>> {
        let Some(identity) = self.dir.known(&self.plan.models[number].training) else { return Ok(vec![]) };
        let all = self.cells(number, Some(&identity))?;
        let wanted = all.into_iter().enumerate().filter(|(place, _)| self.owns_cell(number, *place));
        Ok(wanted.map(|(_, cell)| cell).filter(|cell| self.dir.result(&cell.key).is_none()).collect())
    }

    /// Prepares the reference for the measurements; false if the run was stopped before the end.
    pub(super) fn prepare(&mut self, tell: &mut dyn FnMut(Event)) -> Result<bool> {
        // The statistics of the reference go to the shared directory of models, where other studies find them, unless it is
        // read-only.
        let writable = self.options.models.clone().filter(|models| is_writable(models));
        let cache = writable.unwrap_or_else(|| self.options.out.clone());
        let mut progress = |done, all| tell(Event::Reference { done, all });
        let (stop, shared) = (self.stop, self.options.models.as_deref());
        self.evaluator.prepare(&cache, shared, &|| stop.load(Ordering::Relaxed), &mut progress)
    }

    /// Measures the cells of a model that belong to this shard and have no result.
    pub(super) fn measure_model(&mut self, number: usize, tell: &mut dyn FnMut(Event)) -> Result<()> {
        let Some(identity) = self.dir.known(&self.plan.models[number].training) else { return Ok(()) };
        let missing = self.missing(number)?;
        if missing.is_empty() || !self.evaluator.is_prepared() && !self.prepare(tell)? {
            return Ok(());
        }
        if let Err(error) = self.measure_cells(number, &identity, missing, tell) {
            self.failed.push(format!("model {}: {error}", self.plan.models[number].training.name));
        }
        Ok(())
    }

    fn measure_cells(
        &mut self,
        number: usize,
        identity: &Identity,
        missing: Vec<Cell>,
        tell: &mut dyn FnMut(Event),
    ) -> Result<()> {
        let (model, axes) = (&self.plan.models[number], &self.plan.study.sample);
        let checkpoint = Checkpoint::open(&checkpoint::newest(&self.home(model))?)?;
        // The keys of cells contain the checksum, so results of other weights would be stored under the wrong keys.
        if checkpoint.checksum != identity.checksum {
            return Err(Error::file(&checkpoint.path, "changed while the study was running"));
        }
        let pipeline = Pipeline::open(&checkpoint, Weights::Ema, &checkpoint.config.sample, self.device)?;
        let guided = match &model.guide {
            Some(guide) => Some(self.guided(&pipeline, guide)?),
            None => None,
        };
        for cell in missing {
            // A guide has no effect with a guidance of 1.
            let pipeline = guided.as_ref().filter(|_| cell.sample.guidance != 1.0).unwrap_or(&pipeline);
            match self.measure(&cell, pipeline, tell) {
                Ok(None) => return Ok(()),
                Ok(Some(result)) => {
                    write(&self.dir.cell(&cell.key), &result)?;
                    self.measured += 1;
                }
                // Such an error, for example of a diverged model, concerns this cell only. Others, such as a full disk,
                // would repeat.
                Err(Error::Run(problem)) => {
                    let (row, seed) = (&rows(&self.plan.study)[cell.row].label, cell.seed);
                    self.failed.push(format!("{row}, {} {}, seed {seed}: {problem}", cell.column, axes.columns_are()));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
