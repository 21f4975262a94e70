//! The measurement of one cell: its images are sampled, evaluated and drawn on a contact sheet.
use super::cell::{Cell, CellResult};
use super::plan::rows;
use super::run::{Event, Work};
use super::subject::{Curve, held_out_pair, images};
use crate::data::{Filter, Image, PassOrder, contact_sheet, resize};
use crate::error::Result;
use crate::files::write_atomic;
use crate::generate::{Pipeline, StartNoise};
use crate::metrics::{Accumulator, Sample};
use std::time::Instant;

/// Images on the sheet of a cell.
const SHEET: usize = 24;
/// Its columns.
const SHEET_COLUMNS: usize = 8;
/// Longest side of an image on it.
const SHEET_SIDE: usize = 256;

/// An output as a sample of the metric.
fn sample(name: String, output: Image, target: Option<Image>) -> Sample {
    Sample { origin: name.clone().into(), name, output: output.into(), target: target.map(Into::into), class: None }
}

/// An image as it is shown on a sheet: at most [`SHEET_SIDE`] pixels a side.
fn reduced(image: &Image) -> Image {
    let longest = image.width.max(image.height);
    if longest <= SHEET_SIDE {
        return image.clone();
    }
    let side = |n: usize| (n * SHEET_SIDE / longest).max(1);
    resize(image, side(image.width), side(image.height), Filter::Box, PassOrder::HorizontalFirst)
}

/// The state of a measurement.
struct Progress<'a> {
    accumulator: Box<dyn Accumulator + 'a>,
    /// Of the pictures x̂_0(t), by t, if the study measures them.
    estimates: Vec<(f64, Box<dyn Accumulator + 'a>)>,
    /// The first images, for the sheet.
    shown: Vec<Image>,
    /// Network evaluations per image.
    nfe: usize,
}

impl Progress<'_> {
    fn add(&mut self, samples: Vec<Sample>) -> Result<()> {
        let missing = SHEET.saturating_sub(self.shown.len());
        self.shown.extend(samples.iter().take(missing).map(|sample| sample.output.clone().into_image()));
        self.accumulator.add(samples)
    }
}

impl Work<'_> {
    /// Measures one cell; none if the run was stopped before its end.
    pub(super) fn measure(
        &self,
        cell: &Cell,
        pipeline: &Pipeline,
        tell: &mut dyn FnMut(Event),
    ) -> Result<Option<CellResult>> {
        let began = Instant::now();
        let pipeline = pipeline.with_sample(&cell.sample)?;
        if self.plan.study.evaluate.metric.measures_network() {
            return self.measure_network(cell, &pipeline, tell);
        }
        let classes = self.evaluator.classes_of(pipeline.class_names())?;
        let accumulator = self.evaluator.accumulator()?;
        let (mut progress, mut curve) =
            (Progress { accumulator, estimates: vec![], shown: vec![], nfe: 0 }, Curve::default());
        let complete = match self.evaluator.held_out() {
            None => self.batches(cell, tell, &mut |part| {
                let evaluate = &self.plan.study.evaluate;
                let watched = Some(&mut curve).filter(|_| evaluate.estimate);
                let made = images(&pipeline, cell.seed, part, watched, evaluate.estimate_metric)?;
                progress.nfe = made.nfe;
                let sample = |(k, image)| sample(format!("image {k} of seed {}", cell.seed), image, None);
                let samples = |images: Vec<Image>| (part[0]..).zip(images).map(sample).collect::<Vec<Sample>>();
                // All batches of a cell have the same times.
                for (i, (t, pictures)) in made.estimates.into_iter().enumerate() {
                    if progress.estimates.len() == i {
                        progress.estimates.push((t, self.evaluator.accumulator()?));
                    }
                    progress.estimates[i].1.add(samples(pictures))?;
                }
                let mut samples = samples(made.images);
                for (k, sample) in (part[0]..).zip(&mut samples) {
                    let class = pipeline.class_of(cell.seed, StartNoise::Index(k))?;
                    sample.class = class.and_then(|class| classes.get(class as usize).copied());
                }
                progress.add(samples)
            })?,
            Some(set) => {
                progress.nfe = pipeline.evaluations()?;
                self.batches(cell, tell, &mut |[from, to]| {
                    // One image at a time, because the outputs of a task are larger than those of unconditional generation.
                    (from..to).try_for_each(|k| {
                        let [output, target] = held_out_pair(&pipeline, cell.seed, set, k)?;
                        progress.add(vec![sample(set.name(k as usize), output, Some(target))])
                    })
                })?
            }
        };
        if !complete {
            return Ok(None);
        }
        let Progress { accumulator, estimates, shown, nfe } = progress;
        let values = accumulator.finish()?.report.checked()?.values;
        let finish = |(t, accumulator): (f64, Box<dyn Accumulator>)| Ok((t, accumulator.finish()?.report.values));
        let estimate_metric = estimates.into_iter().map(finish).collect::<Result<Vec<_>>>()?;
        // One sheet per training, row and column is enough.
        if cell.seed == self.plan.study.sample.seeds[0] {
            let sheet = contact_sheet(&shown.iter().map(reduced).collect::<Vec<_>>(), SHEET_COLUMNS, 1, 1);
            write_atomic(self.dir.sheet(&cell.key), &sheet.encode_png(&[])?)?;
        }
        let (key, count) = (cell.key.clone(), self.plan.study.sample.count);
        let seconds = began.elapsed().as_secs_f64();
        Ok(Some(CellResult { key, count, nfe, values, estimate: curve.points()?, estimate_metric, seconds }))
    }

    /// Calls `work` for the images of a cell batch by batch, `[from, to]`, and reports progress; false if it was stopped.
    fn batches(
        &self,
        cell: &Cell,
        tell: &mut dyn FnMut(Event),
        work: &mut dyn FnMut([u64; 2]) -> Result<()>,
    ) -> Result<bool> {
        let (cost, count) = (self.cost(cell)?, self.plan.study.sample.count);
        let batch = self.options.batch.max(1);
        self.report(cell, 0, tell);
        for from in (0..count).step_by(batch) {
            // Checked once per batch, so that Ctrl-C takes effect soon. The cell is measured again from its
            // start.
            if self.stopped() {
                return Ok(false);
            }
            let to = (from + batch as u64).min(count);
            work([from, to])?;
            self.report(cell, cost * (to - from) / count, tell);
        }
        Ok(true)
    }

    /// Reports that `more` network evaluations of a cell are done.
    pub(super) fn report(&self, cell: &Cell, more: u64, tell: &mut dyn FnMut(Event)) {
        self.done.set(self.done.get() + more);
        let (row, done, all) = (&rows(&self.plan.study)[cell.row], self.done.get(), self.all);
        tell(Event::Sampling { row: &row.label, column: cell.column, seed: cell.seed, done, all });
    }
}
