//! The order of the work of a study: model by model in one process; models, then measurements, where ranks share it.
use super::cell::write;
use super::run::{Event, Only, Work};
use crate::digest::sha256;
use crate::error::{Error, Result};
use crate::ranks;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// What became of a model.
enum Trained {
    Ready,
    /// The reason is noted.
    Failed,
    Stopped,
}

impl Work<'_> {
    /// Writes the record before the work, so that a run that is killed can be resumed and merged. Of several ranks the first one
    /// writes it; all must be about to do the same.
    pub(super) fn begin(&self) -> Result<()> {
        let text = serde_json::to_string(&self.record).map_err(|e| Error::Run(e.to_string()))?;
        self.group.agree(&[
            ("version", env!("CARGO_PKG_VERSION").into()),
            ("processor's instructions", crossfade_kernels::Isa::detect().name().into()),
            ("study", sha256(text.as_bytes())),
        ])?;
        if self.group.is_first() {
            self.dir.create()?;
            write(&self.dir.record(), &self.record)?;
            self.remove_outdated_identities()?;
        }
        self.group.wait()
    }

    /// Trains and measures everything that is missing.
    pub(super) fn pass(&mut self, tell: &mut dyn FnMut(Event)) -> Result<()> {
        if self.group.size() > 1 {
            return self.pass_together(tell);
        }
        // One model after the other, so that there are results early.
        for number in 0..self.plan.models.len() {
            match self.train_model(number, tell)? {
                Trained::Stopped => break,
                Trained::Failed => continue,
                Trained::Ready => (),
            }
            if self.options.only != Only::Train {
                self.measure_model(number, tell)?;
            }
        }
        Ok(())
    }

    /// Trains all models, then measures all of them: there may be fewer models than ranks, which divide the cells then. Each
    /// rank does its part alone.
    fn pass_together(&mut self, tell: &mut dyn FnMut(Event)) -> Result<()> {
        let (group, models) = (Arc::clone(&self.group), self.plan.models.len());
        ranks::alone(|| (0..models).try_for_each(|number| self.train_model(number, tell).map(|_| ())))?;
        if self.options.only != Only::Train && !group.any(self.stopped())? {
            let missing = (0..models).map(|number| Ok(!self.missing(number)?.is_empty()));
            let missing = missing.collect::<Result<Vec<bool>>>()?.contains(&true);
            // The images of the reference are shared, too.
            if group.any(missing)? && self.prepare(tell)? {
                ranks::alone(|| (0..models).try_for_each(|number| self.measure_model(number, tell)))?;
            }
        }
        // After this, everything is written that the first rank brings together.
        let stopped = group.any(self.stopped())?;
        self.stop.fetch_or(stopped, Ordering::Relaxed);
        self.measured = group.gather(&self.measured)?.map_or(self.measured, |all| all.iter().sum());
        // The first rank reports what has failed anywhere.
        self.failed = group.gather(&self.failed)?.unwrap_or_default().concat();
        Ok(())
    }

    /// Trains a model of this shard if that is necessary.
    fn train_model(&mut self, number: usize, tell: &mut dyn FnMut(Event)) -> Result<Trained> {
        if self.stopped() {
            return Ok(Trained::Stopped);
        }
        if !self.owns_model(number) || self.is_finished(number)? {
            return Ok(Trained::Ready);
        }
        Ok(match self.ready(number, tell) {
            Ok(true) => Trained::Ready,
            Ok(false) => Trained::Stopped,
            Err(error) => {
                self.failed.push(error.to_string());
                Trained::Failed
            }
        })
    }
}
