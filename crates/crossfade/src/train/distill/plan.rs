//! The plan of a distillation: the configuration of the students, their times, and what cannot work.
use super::{DistillRequest, Stage};
use crate::checkpoint::Checkpoint;
use crate::config::{DISTILLED_SAMPLER, RunConfig, SampleConfig};
use crate::error::{Error, Result, Shown};
use crate::loss::Objective;
use crate::nn::{BackboneConfig, NetworkConfig};
use crossfade_math::{Grid, GridKind, Weighting};

/// The default of `optim.ema_sigma` for students: stages are short, and the ramp of long trainings would average too much.
const EMA_SIGMA: f64 = 0.1;
/// The part of a stage that warms up at most.
const WARMUP: u64 = 20;
/// The part of the teacher's training that a stage takes by default.
const SHARE: u64 = 4;

/// The teacher's configuration with defaults that suit a student, which `--set` may change.
pub(super) fn student_config(teacher: &RunConfig, steps: Option<u64>) -> RunConfig {
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

pub(super) fn check_process(teacher: &Checkpoint) -> Result<()> {
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
        teacher.path.shown()
    )))
}

/// The numbers of steps halve.
pub(super) fn check_steps(to: &[usize]) -> Result<()> {
    let small = !to.is_empty() && to.iter().all(|steps| (1..=500_000).contains(steps));
    if small && to.windows(2).all(|pair| pair[0] == 2 * pair[1]) {
        return Ok(());
    }
    let list: Vec<_> = to.iter().map(ToString::to_string).collect();
    Err(Error::request(format!(
        "the students' steps are {}: each number must be half of the one before, for example 4,2,1",
        list.join(",")
    )))
}

/// The student is the teacher's network on the teacher's process, and learns on images that are known.
pub(super) fn check_changes(teacher: &Checkpoint, config: &RunConfig, sets: &[String]) -> Result<()> {
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
        let message =
            "a student has the network, the process and the task of its teacher; only network.dropout may change";
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
            teacher.path.shown()
        )));
    }
    Ok(())
}

/// How the first teacher samples.
pub(super) fn first_teacher(
    teacher: &Checkpoint,
    config: &RunConfig,
    request: &DistillRequest,
) -> Result<SampleConfig> {
    let (first, path) = (request.to[0], teacher.path.shown());
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
    // Twice the most that a student may have; their times are listed below.
    if steps > 1_000_000 {
        return Err(Error::request(format!("{steps} steps of the teacher: at most 1,000,000, see --from")));
    }
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
pub(super) fn stages(config: &RunConfig, first: &SampleConfig, to: &[usize]) -> Result<Vec<Stage>> {
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
pub(super) fn check_weights(config: &RunConfig, stage: &Stage) -> Result<()> {
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
