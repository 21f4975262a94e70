//! One cell: images made, judged and shown.
use super::cell::{Cell, CellResult};
use super::plan::rows;
use super::run::{Event, Work};
use super::subject::{Curve, Subject, Told, psnr};
use crate::checkpoint::Checkpoint;
use crate::data::{Filter, Image, PassOrder, contact_sheet, resize};
use crate::error::Result;
use crate::files::write_atomic;
use std::time::Instant;

/// Images on the sheet of a cell.
const SHEET: usize = 24;
/// Its columns.
const SHEET_COLUMNS: usize = 8;
/// Longest side of an image on it.
const SHEET_SIDE: usize = 256;

/// An image as it is shown on a sheet.
fn small(image: &Image) -> Image {
    let longest = image.width.max(image.height);
    if longest <= SHEET_SIDE {
        return image.clone();
    }
    let side = |n: usize| (n * SHEET_SIDE / longest).max(1);
    resize(image, side(image.width), side(image.height), Filter::Box, PassOrder::HorizontalFirst)
}

impl Work<'_> {
    /// One cell; none if the run was stopped before its end.
    pub(super) fn measure(
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
            let sheet = contact_sheet(&shown.iter().map(small).collect::<Vec<_>>(), SHEET_COLUMNS, 1, 1);
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
        let (values, estimate) = (judge.values(gathered)?, curve.points()?);
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
