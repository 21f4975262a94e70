//! Cells that need more than sampled images: those that measure the network itself, and those of guided networks.
use super::cell::{Cell, CellResult};
use super::plan::GuideFile;
use super::run::{Event, Work};
use crate::checkpoint::Checkpoint;
use crate::error::{Error, Result};
use crate::generate::{LikelihoodConfig, Pipeline};
use crate::torchfile::Weights;
use std::time::Instant;

impl Work<'_> {
    /// Measures the network on the images of the data, at as many noise levels of each image as the column says; none if the
    /// run was stopped before the end. Nothing is sampled, so that there is no sheet.
    pub(super) fn measure_network(
        &self,
        cell: &Cell,
        pipeline: &Pipeline,
        tell: &mut dyn FnMut(Event),
    ) -> Result<Option<CellResult>> {
        let began = Instant::now();
        let count = self.plan.study.sample.count;
        let config = LikelihoodConfig {
            count: usize::try_from(count).unwrap_or(usize::MAX),
            times: cell.column,
            seed: cell.seed,
            batch: self.options.batch,
            ..LikelihoodConfig::default()
        };
        let mut before = 0;
        let found = pipeline.likelihood(self.evaluator.data()?, &config, &mut |done, _| {
            self.report(cell, done - before, tell);
            before = done;
            !self.stopped()
        })?;
        let Some(found) = found else { return Ok(None) };
        Ok(Some(CellResult {
            key: cell.key.clone(),
            count: found.images as u64,
            nfe: cell.column,
            values: found.values(),
            estimate: vec![],
            estimate_metric: vec![],
            seconds: began.elapsed().as_secs_f64(),
        }))
    }

    /// The network with its guide.
    pub(super) fn guided(&self, pipeline: &Pipeline, guide: &GuideFile) -> Result<Pipeline> {
        let found = Checkpoint::open(&guide.path)?;
        if found.checksum != guide.checksum {
            return Err(Error::file(&guide.path, "changed while the study was running"));
        }
        pipeline.clone().guided_by(&found, Weights::Ema)
    }
}
