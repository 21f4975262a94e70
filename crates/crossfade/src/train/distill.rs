//! Progressive distillation (§2.9): a network that needs n steps teaches a copy of itself to need half as many, which teaches the
//! next one. Each stage is a run of the shared training loop in a directory of its own.
mod plan;

use super::diffusion::{StepReport, train_student};
use super::run_loop::together;
use super::{RunDir, Summary};
use crate::checkpoint::{self, Checkpoint, Weights};
use crate::config::{DistillConfig, RunConfig, SampleConfig};
use crate::engine::Device;
use crate::error::{Error, Result, Shown};
use crate::files::FolderLock;
use crossfade_math::GridKind;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

/// What is to be distilled into what.
#[derive(Clone, Debug, Default)]
pub struct DistillRequest {
    /// The sampling steps of the students, each half of the one before.
    pub to: Vec<usize>,
    /// The sampling steps of the first teacher, a multiple of the first student's; by default twice as many.
    pub from: Option<usize>,
    /// Training steps of each stage; by default a quarter of the teacher's training.
    pub steps: Option<u64>,
    /// The grid of the first teacher's times; by default `images`.
    pub grid: Option<GridKind>,
    /// The weight of the guidance that is distilled into the first student; by default that of the teacher's settings.
    pub guidance: Option<f64>,
    /// Which of the first teacher's weights are used.
    pub weights: Weights,
    /// Changes of the configuration, `section.key=value`.
    pub sets: Vec<String>,
    /// The directory that relative paths of images start from.
    pub data_root: Option<PathBuf>,
}

/// A stage: one student.
#[derive(Clone, Debug, Serialize)]
pub struct Stage {
    /// Sampling steps of the student.
    pub steps: usize,
    /// Its sampling settings.
    pub sample: SampleConfig,
    /// How its teacher samples.
    pub teacher: SampleConfig,
}

/// How a stage ended.
#[derive(Clone, Debug, Serialize)]
pub struct StageSummary {
    /// Sampling steps of the student.
    pub sampling_steps: usize,
    /// The directory of its run.
    #[serde(serialize_with = "crate::error::serialize_path")]
    pub run: PathBuf,
    /// How the run ended.
    #[serde(flatten)]
    pub summary: Summary,
}

/// A distillation that can be run.
pub struct Distillation {
    teacher: Checkpoint,
    weights: Weights,
    /// The configuration of all stages, without their own settings.
    config: RunConfig,
    stages: Vec<Stage>,
}

impl Distillation {
    /// Plans the stages from `teacher`; an error if they cannot work.
    pub fn new(teacher: Checkpoint, request: &DistillRequest) -> Result<Self> {
        plan::check_process(&teacher)?;
        plan::check_steps(&request.to)?;
        let config = plan::student_config(&teacher.config, request.steps).with_overrides(&request.sets)?;
        let config = match &request.data_root {
            Some(root) => config.with_data_root(root),
            None => config,
        };
        plan::check_changes(&teacher, &config, &request.sets)?;
        let first = plan::first_teacher(&teacher, &config, request)?;
        let stages = plan::stages(&config, &first, &request.to)?;
        let all = Self { teacher, weights: request.weights, config, stages };
        for (number, stage) in all.stages.iter().enumerate() {
            let config = all.config_of(number, stage, "");
            config.validate()?;
            config.validate_training()?;
            plan::check_weights(&config, stage)?;
        }
        Ok(all)
    }

    /// The stages in their order.
    pub fn stages(&self) -> &[Stage] {
        &self.stages
    }

    /// The configuration that all stages share.
    pub fn config(&self) -> &RunConfig {
        &self.config
    }

    /// The configuration of a stage, whose teacher has this checksum.
    fn config_of(&self, number: usize, stage: &Stage, teacher: &str) -> RunConfig {
        let weights = if number == 0 { self.weights } else { Weights::Ema };
        let (steps, sample) = (stage.steps, stage.teacher.clone());
        let distill = DistillConfig { teacher: teacher.to_string(), weights, steps, sample };
        RunConfig { sample: stage.sample.clone(), distill: Some(distill), ..self.config.clone() }
    }

    /// Runs the stages until the last one is done or `stop` is set. The student of n steps is in the directory `out`/n. With
    /// `resume` finished stages are kept and the others continued, to exactly the weights of an uninterrupted run. `report` is
    /// called with the stage and each training step.
    pub fn run(
        &self,
        out: &Path,
        device: &Device,
        resume: bool,
        stop: &AtomicBool,
        report: &mut dyn FnMut(&Stage, &StepReport),
    ) -> Result<Vec<StageSummary>> {
        together(&RunDir(out.to_path_buf()), || self.run_locked(out, device, resume, stop, report))
    }

    fn run_locked(
        &self,
        out: &Path,
        device: &Device,
        resume: bool,
        stop: &AtomicBool,
        report: &mut dyn FnMut(&Stage, &StepReport),
    ) -> Result<Vec<StageSummary>> {
        let dir = |stage: &Stage| RunDir(out.join(stage.steps.to_string()));
        // All directories are looked at first, so that nothing is trained before it is known that the rest can be.
        for stage in self.stages.iter().filter(|_| !resume) {
            if !checkpoint::list(&dir(stage).checkpoints())?.is_empty() {
                let message = "already holds a distillation; go on with --resume or choose another directory";
                return Err(Error::request(format!("{} {message}", out.shown())));
            }
        }
        let (mut done, mut student): (Vec<StageSummary>, Option<Checkpoint>) = (vec![], None);
        for (number, stage) in self.stages.iter().enumerate() {
            let teacher = student.as_ref().unwrap_or(&self.teacher);
            let config = self.config_of(number, stage, &teacher.checksum);
            let summary = match finished(&dir(stage), &config)? {
                Some(summary) => {
                    FolderLock::remove_left(&dir(stage).0);
                    summary
                }
                None => train_student(&config, &dir(stage), device, resume, stop, teacher, &mut |step| {
                    report(stage, step);
                })?,
            };
            let (stopped, path) = (summary.stopped, summary.checkpoint.clone());
            done.push(StageSummary { sampling_steps: stage.steps, run: dir(stage).0, summary });
            if stopped {
                break;
            }
            student = Some(Checkpoint::open(&path)?);
        }
        Ok(done)
    }
}

/// How a stage ended that needs no more training; an error if it is of another configuration.
fn finished(dir: &RunDir, config: &RunConfig) -> Result<Option<Summary>> {
    let Some((step, path)) = checkpoint::list(&dir.checkpoints())?.pop() else { return Ok(None) };
    // A file that cannot be read is skipped when the stage is resumed.
    let Some(last) = Checkpoint::open(&path).ok().filter(|_| step == config.train.steps) else { return Ok(None) };
    last.config.must_resume_as(config)?;
    Ok(Some(Summary { step, stopped: false, checkpoint: path, passed_over: vec![] }))
}
