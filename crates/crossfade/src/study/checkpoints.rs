//! A study of checkpoints that exist already: what `compare` and the sweep over averages have in common.
use super::plan::Plan;
use super::results::Results;
use super::run::{Event, Only, Options, run};
use crate::config::{Axes, Evaluate, Study, StudyModel};
use crate::engine::Device;
use crate::error::{Error, Result};
use crate::generate::Shard;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

/// How checkpoints are measured, and where the results go.
#[derive(Clone, Debug)]
pub struct Measuring {
    /// How images are made; the same for all checkpoints.
    pub sample: Axes,
    /// How images are evaluated.
    pub evaluate: Evaluate,
    /// Directory for the results.
    pub out: PathBuf,
    /// The directory that relative paths of images start from.
    pub data_root: Option<PathBuf>,
    /// The weights of the metric's network; by default the cached ones.
    pub weights: Option<PathBuf>,
    /// Images per batch; this changes the speed and nothing else.
    pub batch: usize,
}

impl Measuring {
    /// Measures models that have checkpoints; none if `stop` was set before the end. A failed model is an error.
    pub(super) fn run(
        &self,
        title: &str,
        model: Vec<StudyModel>,
        device: &Device,
        stop: &AtomicBool,
        tell: &mut dyn FnMut(Event),
    ) -> Result<Option<(Plan, Results)>> {
        let (title, sample, evaluate) = (title.into(), self.sample.clone(), self.evaluate.clone());
        let study = Study { title, model, sample, evaluate, ..Study::default() };
        let mut plan = Plan::new(study, Path::new(""), self.data_root.as_deref())?;
        if let Some(root) = &self.data_root {
            plan.base = plan.base.with_data_root(root);
        }
        let options = Options {
            out: self.out.clone(),
            models: None,
            shard: Shard::ALL,
            only: Only::Both,
            weights: self.weights.clone(),
            batch: self.batch,
        };
        let (outcome, results) = run(&plan, &options, device, stop, tell)?;
        if !outcome.failed.is_empty() {
            return Err(Error::Run(outcome.failed.join("\n")));
        }
        Ok((!outcome.stopped).then_some((plan, results)))
    }
}
