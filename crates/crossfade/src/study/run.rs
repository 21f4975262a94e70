//! A study from the first model to the last cell; whatever is there already is not made again.
use super::cell::{Cell, CellResult, Identity, Record, StudyDir, cells, read, write};
use super::judge::{Basis, Judge};
use super::plan::{Model, Plan, rows};
use super::subject::{Curve, Subject, Told, psnr};
use super::{Results, results};
use crate::checkpoint::{self, Checkpoint};
use crate::data::{Image, contact_sheet, write_atomic};
use crate::engine::Device;
use crate::error::{Error, Result};
use crate::generate::Shard;
use crate::train::{RunDir, StepReport, seconds_of, train};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// Images on the sheet of a cell.
const SHEET: usize = 24;
/// Its columns.
const SHEET_COLUMNS: usize = 8;

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
    let dir = StudyDir(options.out.clone());
    dir.create()?;
    let basis = Basis::open(plan, options.weights.as_deref(), device)?;
    let record = Record::new(plan, basis.facts.clone(), basis.reference.clone());
    write(&dir.record(), &record)?;
    let mut work =
        Work { plan, options, device, stop, dir, record, basis, judge: None, done: 0.into(), all: 0, measured: 0 };
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
struct Work<'a> {
    plan: &'a Plan,
    options: &'a Options,
    device: &'a Device,
    stop: &'a AtomicBool,
    dir: StudyDir,
    record: Record,
    basis: Basis,
    judge: Option<Judge>,
    /// Network evaluations done and to do in this run.
    done: std::cell::Cell<u64>,
    all: u64,
    measured: usize,
}

impl Work<'_> {
    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn owns_model(&self, number: usize) -> bool {
        let Shard { index, count } = self.options.shard;
        self.options.only == Only::Sample || number as u64 % count == index
    }

    /// Whether cell `place` of model `number` is done here.
    fn owns_cell(&self, number: usize, place: usize) -> bool {
        let Shard { index, count } = self.options.shard;
        match self.options.only {
            Only::Sample => place as u64 % count == index,
            _ => self.owns_model(number),
        }
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
    fn cost(&self, number: usize, cell: &Cell) -> Result<u64> {
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
        let trained = |path: PathBuf| -> Result<Option<Checkpoint>> {
            let checkpoint = Checkpoint::open(&path)?;
            let same = model.checkpoint.is_some() || checkpoint.config.fingerprint()? == model.config.fingerprint()?;
            let whole = model.checkpoint.is_some() || checkpoint.step >= model.config.train.steps;
            Ok(Some(checkpoint).filter(|_| same && whole))
        };
        let found = match model.checkpoint.is_some() || RunDir(home.clone()).checkpoints().is_dir() {
            true => checkpoint::newest(&home).and_then(trained)?,
            false => None,
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
            self.judge = Some(self.basis.judge(&cache, &mut |done, all| tell(Event::Reference { done, all }))?);
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

    /// One cell; none if the run was stopped before its end.
    fn measure(
        &self,
        cell: &Cell,
        checkpoint: &Checkpoint,
        subject: Option<&Subject>,
        tell: &mut dyn FnMut(Event),
    ) -> Result<Option<CellResult>> {
        let began = Instant::now();
        let found = match (subject, self.basis.held_out()) {
            (Some(subject), _) => self.images(cell, subject, tell)?,
            (None, Some(set)) => {
                let told = Told::open(checkpoint, &cell.sample, cell.seed, set, self.device)?;
                self.outputs(cell, &told, tell)?
            }
            (None, None) => None,
        };
        let Some((mut result, shown)) = found else { return Ok(None) };
        if cell.seed == self.plan.study.sample.seeds[0] {
            let sheet = contact_sheet(&shown, SHEET_COLUMNS, 1, 1);
            write_atomic(self.dir.sheet(&cell.key), &sheet.encode_png(&[])?)?;
        }
        result.seconds = began.elapsed().as_secs_f64();
        Ok(Some(result))
    }

    /// The images of a cell, judged; also the first of them.
    fn images(
        &self,
        cell: &Cell,
        subject: &Subject,
        tell: &mut dyn FnMut(Event),
    ) -> Result<Option<(CellResult, Vec<Image>)>> {
        let Some(judge) = &self.judge else { return Ok(None) };
        let (mut gathered, mut curve) = (judge.gather(), Curve::default());
        let (mut nfe, mut shown) = (0, vec![]);
        let whole = self.batches(cell, tell, &mut |part| {
            let watched = Some(&mut curve).filter(|_| self.plan.study.evaluate.estimate);
            let made = subject.make(&cell.sample, cell.seed, part, watched)?;
            nfe = made.nfe;
            shown.extend(made.images.iter().take(SHEET.saturating_sub(shown.len())).cloned());
            judge.add(&mut gathered, made.images)
        })?;
        if !whole {
            return Ok(None);
        }
        let (key, count) = (cell.key.clone(), self.plan.study.sample.count);
        let (values, estimate) = (judge.values(gathered)?, curve.points());
        Ok(Some((CellResult { key, count, nfe, values, estimate, seconds: 0.0 }, shown)))
    }

    /// The outputs of a task, compared with what was wanted; also the first of them.
    fn outputs(
        &self,
        cell: &Cell,
        told: &Told,
        tell: &mut dyn FnMut(Event),
    ) -> Result<Option<(CellResult, Vec<Image>)>> {
        let (mut shown, mut decibels) = (vec![], 0.0);
        let whole = self.batches(cell, tell, &mut |[from, to]| {
            for k in from..to {
                let [made, wanted] = told.pair(k)?;
                decibels += psnr(&made, &wanted);
                if shown.len() < SHEET {
                    shown.push(made);
                }
            }
            Ok(())
        })?;
        if !whole {
            return Ok(None);
        }
        let (key, count) = (cell.key.clone(), self.plan.study.sample.count);
        let values = vec![("psnr".to_string(), decibels / count as f64)];
        let nfe = told.evaluations()?;
        Ok(Some((CellResult { key, count, nfe, values, estimate: vec![], seconds: 0.0 }, shown)))
    }

    /// Does `work` for all images of a cell in portions `[from, to]`, and tells how far it is; false if it was stopped.
    fn batches(
        &self,
        cell: &Cell,
        tell: &mut dyn FnMut(Event),
        work: &mut dyn FnMut([u64; 2]) -> Result<()>,
    ) -> Result<bool> {
        let row = &rows(&self.plan.study)[cell.row];
        let (cost, count) = (self.cost(row.model, cell)?, self.plan.study.sample.count);
        let mut say = |done: u64| {
            self.done.set(self.done.get() + done);
            let (done, all) = (self.done.get(), self.all);
            tell(Event::Sampling { row: &row.label, column: cell.column, seed: cell.seed, done, all });
        };
        let batch = self.options.batch.max(1);
        say(0);
        for from in (0..count).step_by(batch) {
            if self.stopped() {
                return Ok(false);
            }
            let to = (from + batch as u64).min(count);
            work([from, to])?;
            say(cost * (to - from) / count);
        }
        Ok(true)
    }
}

/// A result that is there.
pub(super) fn result(dir: &StudyDir, key: &str) -> Result<Option<CellResult>> {
    read(&dir.cell(key))
}
