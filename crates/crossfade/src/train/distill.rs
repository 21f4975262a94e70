//! Progressive distillation (§2.9): a network that needs n steps teaches a copy of itself to need half as many, which teaches the
//! next one. Each stage is a run of the shared training loop in a directory of its own.
use super::diffusion::{StepReport, train_student};
use super::{RunDir, Summary};
use crate::checkpoint::{self, Checkpoint, Weights};
use crate::config::{DISTILLED_SAMPLER, DistillConfig, RunConfig, SampleConfig};
use crate::engine::Device;
use crate::error::{Error, Result};
use crate::loss::Objective;
use crate::nn::{BackboneConfig, NetworkConfig};
use crossfade_math::{Grid, GridKind, Weighting};
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

/// The default of `optim.ema_sigma` for students: stages are short, and the ramp of long trainings would average too much.
const EMA_SIGMA: f64 = 0.1;
/// The part of a stage that warms up at most.
const WARMUP: u64 = 20;
/// The part of the teacher's training that a stage takes by default.
const SHARE: u64 = 4;

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
        check_process(&teacher)?;
        check_steps(&request.to)?;
        let config = student_config(&teacher.config, request.steps).with_overrides(&request.sets)?;
        let config = match &request.data_root {
            Some(root) => config.with_data_root(root),
            None => config,
        };
        check_changes(&teacher, &config, &request.sets)?;
        let first = first_teacher(&teacher, &config, request)?;
        let stages = stages(&config, &first, &request.to)?;
        let plan = Self { teacher, weights: request.weights, config, stages };
        for (number, stage) in plan.stages.iter().enumerate() {
            let config = plan.config_of(number, stage, "");
            config.validate()?;
            config.validate_training()?;
            check_weights(&config, stage)?;
        }
        Ok(plan)
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
        let dir = |stage: &Stage| RunDir(out.join(stage.steps.to_string()));
        // All directories are looked at first, so that nothing is trained before it is known that the rest can be.
        for stage in self.stages.iter().filter(|_| !resume) {
            if !checkpoint::list(&dir(stage).checkpoints())?.is_empty() {
                let message = "already holds a distillation; go on with --resume or choose another directory";
                return Err(Error::request(format!("{} {message}", out.display())));
            }
        }
        let (mut done, mut student): (Vec<StageSummary>, Option<Checkpoint>) = (vec![], None);
        for (number, stage) in self.stages.iter().enumerate() {
            let teacher = student.as_ref().unwrap_or(&self.teacher);
            let config = self.config_of(number, stage, &teacher.checksum);
            let summary = match finished(&dir(stage), &config)? {
                Some(summary) => summary,
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

/// The teacher's configuration with defaults that suit a student, which `--set` may change.
fn student_config(teacher: &RunConfig, steps: Option<u64>) -> RunConfig {
    let mut config = teacher.clone();
    config.distill = None;
    // The error of the velocity, whatever the teacher's training minimised; times are those of the grid.
    config.loss = Objective { supervise: teacher.loss.supervise, ..Objective::default() };
    // The targets are a function of the input and have no noise that dropout would keep from being learnt.
    if let NetworkConfig::UNet(network) = &mut config.network {
        network.dropout = 0.0;
    }
    let train = &mut config.train;
    train.steps = steps.unwrap_or_else(|| (teacher.train.steps / SHARE).max(1));
    train.checkpoint_every = train.checkpoint_every.min(train.steps).max(1);
    train.sample_every = train.sample_every.min(train.steps);
    train.average_every = 0;
    config.optim.warmup = teacher.optim.warmup.min(train.steps / WARMUP);
    config.optim.ema_sigma = Some(teacher.optim.ema_sigma.unwrap_or(EMA_SIGMA));
    config.optim.ema_profiles.clear();
    let sample = &mut config.sample;
    (sample.sampler, sample.eta, sample.free_first_step) = (DISTILLED_SAMPLER, 0.0, false);
    sample.grid = Grid { kind: GridKind::Auto, final_t: None };
    sample.fitted.clear();
    config
}

fn check_process(teacher: &Checkpoint) -> Result<()> {
    let process = &teacher.config.process;
    if process.gaussian().is_some() {
        return Ok(());
    }
    let kind = match process.adm() {
        Some(adm) => format!("adm with {} attenuation", adm.attenuation.name()),
        None => process.name().to_string(),
    };
    Err(Error::request(format!(
        "{}: a network of {kind} cannot be distilled, because its process has not the form x_t = alpha x_0 + sigma eps. Those \
         of adm with constant attenuation, ddpm, ddpm-x0, vp, ve, edm, flow and lsgm can be",
        teacher.path.display()
    )))
}

/// The numbers of steps halve.
fn check_steps(to: &[usize]) -> Result<()> {
    let halves = to.windows(2).all(|pair| pair[0] == 2 * pair[1]);
    if halves && to.iter().all(|&steps| (1..=500_000).contains(&steps)) && !to.is_empty() {
        return Ok(());
    }
    let list: Vec<_> = to.iter().map(ToString::to_string).collect();
    Err(Error::request(format!(
        "the students' steps are {}: each number must be half of the one before, for example 4,2,1",
        list.join(",")
    )))
}

/// The student is the teacher's network on the teacher's process, and learns on images that are known.
fn check_changes(teacher: &Checkpoint, config: &RunConfig, sets: &[String]) -> Result<()> {
    let own = &teacher.config;
    let network = |config: &RunConfig| {
        let mut network = config.network.clone().without_pretrained();
        if let NetworkConfig::UNet(network) = &mut network {
            network.dropout = 0.0;
        }
        network
    };
    let same_network = network(config) == network(own) && config.latent.is_some() == own.latent.is_some();
    if config.process != own.process || !same_network || config.task != own.task {
        let message = "a student has the network, the process and the task of its teacher; only network.dropout may change";
        return Err(Error::request(message));
    }
    if config.sample.sampler != DISTILLED_SAMPLER || config.sample.eta != 0.0 || config.sample.free_first_step {
        let message = "distillation uses the deterministic sampler ddim and evaluates the network at t = 1; leave \
                       sample.sampler, sample.eta and sample.free_first_step out";
        return Err(Error::request(message));
    }
    // Converted weights have a configuration that names no images.
    let unknown = !teacher.is_of_training() && config.data == RunConfig::default().data;
    if unknown && !sets.iter().any(|set| set.starts_with("data.")) {
        return Err(Error::request(format!(
            "{} does not know the images that it was trained on: name them, for example with --set data.kind=folder \
             --set data.path=photos",
            teacher.path.display()
        )));
    }
    Ok(())
}

/// How the first teacher samples.
fn first_teacher(teacher: &Checkpoint, config: &RunConfig, request: &DistillRequest) -> Result<SampleConfig> {
    let (first, path) = (request.to[0], teacher.path.display());
    // A student is right at its own times only, so that it can teach on no others.
    let own = teacher.config.distill.as_ref().map(|distill| (distill.steps, teacher.config.sample.grid.kind.clone()));
    let chosen = Some(config.sample.grid.kind.clone()).filter(|kind| *kind != GridKind::Auto);
    let grid = request.grid.clone().filter(|kind| *kind != GridKind::Auto).or(chosen);
    let (steps, kind) = match own {
        Some((steps, kind)) => {
            let other = request.from.is_some_and(|from| from != steps) || grid.is_some_and(|grid| grid != kind);
            if other || steps < 2 {
                let advice = if steps < 2 { "there is nothing left to halve" } else { "leave --from and --grid out" };
                let message = format!("{path} is a distilled network of {steps} steps and can only teach with these");
                return Err(Error::request(format!("{message}; {advice}")));
            }
            (steps, kind)
        }
        None => (request.from.unwrap_or(2 * first), grid.unwrap_or(GridKind::Images)),
    };
    let guidance = request.guidance.unwrap_or(config.sample.guidance);
    let sample = SampleConfig {
        steps,
        grid: Grid { kind, final_t: None },
        guidance,
        class: SampleConfig::default().class,
        ..config.sample.clone()
    };
    // A list of times has a number of its own.
    let found = sample.times(&config.process)?.len() - 1;
    let sample = SampleConfig { steps: found, ..sample };
    if found < 2 * first || !found.is_multiple_of(first) {
        return Err(Error::request(format!(
            "{path}: {found} steps cannot be distilled into {first}: the teacher's steps must be a multiple of the student's, \
             for example {}",
            2 * first
        )));
    }
    if guidance != 1.0 && (config.network.classes() == 0 || teacher.config.train.label_dropout == 0.0) {
        let why = if config.network.classes() == 0 { "without classes" } else { "with train.label_dropout = 0" };
        return Err(Error::request(format!(
            "{path} was trained {why}, so that there is nothing to guide it by: leave the guidance out"
        )));
    }
    Ok(sample)
}

/// The stages: each student has every n-th time of its teacher, and is the teacher of the next.
fn stages(config: &RunConfig, first: &SampleConfig, to: &[usize]) -> Result<Vec<Stage>> {
    let process = &config.process;
    let (mut teacher, mut stages) = (first.clone(), vec![]);
    for &steps in to {
        let times = teacher.times(process)?;
        let stride = (times.len() - 1) / steps;
        let times: Vec<f64> = times.into_iter().step_by(stride).collect();
        let whole = SampleConfig::default();
        let sample = SampleConfig {
            steps,
            guidance: whole.guidance,
            guidance_interval: whole.guidance_interval,
            ..teacher.clone()
        };
        // Grids that halve keep their name; of the others the times are listed.
        let sample = if sample.times(process).is_ok_and(|own| own == times) {
            sample
        } else {
            let times = times[..times.len() - 1].to_vec();
            SampleConfig { grid: Grid { kind: GridKind::Explicit { times }, final_t: None }, ..sample }
        };
        let class = config.sample.class.clone();
        stages.push(Stage { steps, sample: SampleConfig { class, ..sample.clone() }, teacher });
        teacher = sample;
    }
    Ok(stages)
}

/// Some weightings of the two heads are infinite at t = 1, where the first step of every student is trained.
fn check_weights(config: &RunConfig, stage: &Stage) -> Result<()> {
    let Some(adm) = config.process.adm().filter(|_| config.loss.weighting != Weighting::Adaptive) else {
        return Ok(());
    };
    let finite = |t: &f64| {
        let (phi, eps) = config.loss.weighting.lambda(adm, 1.0, *t, adm.t_min);
        phi.is_finite() && eps.is_finite()
    };
    let times = stage.sample.times(&config.process)?;
    if times[..times.len() - 1].iter().all(finite) {
        return Ok(());
    }
    let name = config.loss.weighting.name();
    Err(Error::request(format!(
        "loss.weighting = \"{name}\" is infinite at a time of the student; use \"adaptive\", or \"reference\" for networks with \
         the scalings of an older release"
    )))
}
