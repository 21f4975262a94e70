//! A study with the configurations of its models, its rows and its columns.
use crate::checkpoint::{self, Checkpoint};
use crate::config::{RunConfig, SampleConfig, Study, StudyModel, Training};
use crate::error::{Error, Result};
use crate::generate::{check_guide, likelihood_process};
use crate::metrics::Compared;
use crate::models;
use crate::nn::BackboneConfig;
use crossfade_math::GridKind;
use std::path::{Path, PathBuf};

/// One training of a model of a study.
#[derive(Clone, Debug)]
pub struct Model {
    /// The model and the seed.
    pub training: Training,
    /// Its configuration of training and sampling.
    pub config: RunConfig,
    /// Its weights, if they are not trained by the study.
    pub checkpoint: Option<PathBuf>,
    /// The network that guides it, if another one does.
    pub guide: Option<GuideFile>,
}

/// The checkpoint of a network that guides another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuideFile {
    /// The checkpoint.
    pub path: PathBuf,
    /// Checksum of its weights.
    pub checksum: String,
}

/// One row of the table: a model and how it is sampled. A missing value stands for that of the model's configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The index of the model.
    pub model: usize,
    /// The sampler.
    pub sampler: Option<String>,
    /// The grid of times, as [`GridKind::from_argument`] reads it.
    pub grid: Option<String>,
    /// How the heads are blended.
    pub blend: Option<String>,
    /// The weight of guidance.
    pub guidance: Option<String>,
    /// The times in which steps are guided, as `[0.2, 0.8]`.
    pub interval: Option<String>,
    /// The text that distinguishes it from the other rows.
    pub label: String,
}

/// A study whose models and sampling settings have been validated.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The study as in its file.
    pub study: Study,
    /// The trainings of the models, in the order of the study.
    pub models: Vec<Model>,
    /// The configuration that the models start from; it names the images to compare with.
    pub base: RunConfig,
    /// The same with the held-out images of a task in place of the training images.
    pub held_out: RunConfig,
    /// The directory that relative paths of images start from.
    pub data_root: Option<PathBuf>,
}

impl Plan {
    /// Opens the study in `path` with the assignments `sets`; all problems of all models are reported at once.
    pub fn open<S: AsRef<str>>(path: &Path, sets: &[S], data_root: Option<&Path>) -> Result<Self> {
        let study = Study::load(path)?.with_overrides(sets)?;
        Self::new(study, path.parent().unwrap_or(Path::new("")), data_root)
    }

    /// Opens a study whose relative paths start at `dir`.
    pub fn new(study: Study, dir: &Path, data_root: Option<&Path>) -> Result<Self> {
        study.validate()?;
        let rooted = |config: RunConfig| match data_root {
            Some(root) => config.with_data_root(root),
            None => config,
        };
        let base = match study.base.as_os_str().is_empty() {
            true => None,
            false => Some(RunConfig::load(&dir.join(&study.base))?.with_overrides(&study.set)?),
        };
        let (mut configs, mut problems) = (vec![], vec![]);
        for written in &study.model {
            match configured(written, base.as_ref(), dir) {
                // The paths in the configuration of a checkpoint include the data root already.
                Ok(config) => {
                    configs.push((written, if written.checkpoint.is_some() { config } else { rooted(config) }))
                }
                Err(error) => {
                    problems.extend(error.to_string().lines().map(|l| format!("model {}: {l}", written.name)))
                }
            }
        }
        let mut guides = vec![];
        for (StudyModel { name, guide, .. }, config) in &configs {
            if let Err(problem) = check_metric(&study, config) {
                problems.push(format!("model {name}: {problem}"));
            }
            match guide.as_ref().map(|path| guide_of(&dir.join(path), config)).transpose() {
                Ok(guide) => guides.push(guide),
                Err(problem) => problems.push(format!("model {name}: {problem}")),
            }
            if study.evaluate.watches_estimates() && !config.process.estimates_x0() {
                let advice = "leave evaluate.estimate and estimate_metric out";
                problems.push(format!("model {name}: cld has no estimate of x_0: {advice}"));
            }
        }
        let has_classes = configs.iter().any(|(_, config)| config.network.classes() > 0);
        if study.evaluate.per_class && problems.is_empty() && !has_classes {
            problems.push("evaluate.per_class: no model has classes (network.classes); leave it out".into());
        }
        if problems.is_empty() {
            for row in rows(&study) {
                let sampled = study.sample.columns().iter().map(|&n| row.settings(&configs[row.model].1, &study, n));
                let problem = match sampled.collect::<Result<Vec<_>>>() {
                    Ok(found) if found.iter().all(Option::is_none) => {
                        let unit = study.sample.columns_are();
                        Some(format!("the explicit times of '{}' fit no column of {unit}", row.label))
                    }
                    Ok(_) => None,
                    Err(error) => Some(error.to_string()),
                };
                let named = |line: &str| format!("model {}: {line}", study.model[row.model].name);
                problems.extend(problem.iter().flat_map(|text| text.lines()).map(named));
            }
        }
        if !problems.is_empty() {
            return Err(Error::Config(problems));
        }
        let trained = |training: Training| {
            let config = configs[training.model].1.clone();
            let checkpoint = study.model[training.model].checkpoint.as_ref().map(|path| models::relative_to(dir, path));
            let guide = guides[training.model].clone();
            let config = RunConfig { seed: training.seed.unwrap_or(config.seed), ..config };
            Model { config, training, checkpoint, guide }
        };
        let models: Vec<Model> = study.trainings().into_iter().map(trained).collect();
        let Some(first) = models.first() else { return Err(Error::request("a study needs a model")) };
        let held_out = base.as_ref().unwrap_or(&first.config).clone().with_overrides(&study.evaluate.held_out)?;
        let base = base.map_or_else(|| first.config.clone(), rooted);
        let data_root = data_root.map(Path::to_path_buf);
        Ok(Self { models, base, held_out: rooted(held_out), study, data_root })
    }

    /// The rows of the table.
    pub fn rows(&self) -> Vec<Row> {
        rows(&self.study)
    }

    /// The configuration of the model of a row, with the seed of its first training.
    pub(super) fn config_of(&self, row: &Row) -> &RunConfig {
        // Every model has a training.
        self.models.iter().find(|model| model.training.model == row.model).map_or(&self.base, |model| &model.config)
    }

    /// The number of measurements: one for each row, column, training and sampling seed.
    pub fn measurements(&self) -> usize {
        let trainings = |row: &Row| self.models.iter().filter(|model| model.training.model == row.model).count();
        let axes = &self.study.sample;
        self.rows().iter().map(trainings).sum::<usize>() * axes.columns().len() * axes.seeds.len()
    }
}

/// Checks that the outputs of a model can be measured by the study's metric; the error is the reason if not.
fn check_metric(study: &Study, config: &RunConfig) -> std::result::Result<(), String> {
    let (evaluate, metric) = (&study.evaluate, study.evaluate.metric);
    let task = config.task.task();
    if metric.measures_network() {
        return likelihood_process(&config.process, &config.task, config.latent.is_some()).map(|_| ());
    }
    if config.task.is_unconditional() {
        return match (metric.needs_targets(), evaluate.held_out.is_empty()) {
            (true, _) => Err(format!("the metric {} compares with targets, and generation has none", metric.name)),
            (false, false) => Err("evaluate.held_out is for tasks with a condition only".into()),
            (false, true) => Ok(()),
        };
    }
    if evaluate.held_out.is_empty() {
        let advice = "set evaluate.held_out (--held-out of `crossfade compare`)";
        return Err(format!("the metric {} would measure the images that were trained on: {advice}", metric.name));
    }
    if metric.compared == Compared::Map && task.target_channels() != Some(1) {
        return Err(format!(
            "the metric {} is for maps, and the task {} makes images",
            metric.name,
            config.task.name()
        ));
    }
    Ok(())
}

/// The configuration of a model: that of its checkpoint, or the base, with its assignments.
fn configured(model: &StudyModel, base: Option<&RunConfig>, dir: &Path) -> Result<RunConfig> {
    match (&model.checkpoint, base) {
        (Some(path), _) => {
            let path = checkpoint::newest(&models::relative_to(dir, path))?;
            Checkpoint::open(&path)?.config.with_overrides(&model.set)
        }
        (None, Some(base)) => base.clone().with_overrides(&model.set),
        (None, None) => Err(Error::request("neither a base nor a checkpoint")),
    }
}

/// The guide of a model; an error if it cannot guide it.
fn guide_of(path: &Path, config: &RunConfig) -> Result<GuideFile> {
    let found = Checkpoint::open(&checkpoint::newest(path)?)?;
    let network = &config.network;
    check_guide(&found, &config.process, network.channels(), network.resolution())?;
    Ok(GuideFile { path: found.path, checksum: found.checksum })
}

/// The rows of a study, in its order.
pub(super) fn rows(study: &Study) -> Vec<Row> {
    let choices = |own: &[String], all: &[String]| -> Vec<Option<String>> {
        let list = if own.is_empty() { all } else { own };
        if list.is_empty() { vec![None] } else { list.iter().cloned().map(Some).collect() }
    };
    let written = |weights: &[f64]| weights.iter().map(|w| format!("{w:?}")).collect::<Vec<_>>();
    let pairs = |intervals: &[[f64; 2]]| intervals.iter().map(|i| format!("{i:?}")).collect::<Vec<_>>();
    let (axes, mut rows) = (&study.sample, vec![]);
    for (model, of) in study.model.iter().enumerate() {
        for sampler in choices(&of.samplers, &axes.samplers) {
            for grid in choices(&of.grids, &axes.grids) {
                for blend in choices(&of.blends, &axes.blends) {
                    for guidance in choices(&written(&of.guidance), &written(&axes.guidance)) {
                        let mut intervals = choices(&pairs(&of.guidance_intervals), &pairs(&axes.guidance_intervals));
                        // Without guidance there is nothing that an interval could limit.
                        if guidance.as_deref() == Some("1.0") {
                            intervals = vec![None];
                        }
                        for interval in intervals {
                            let (sampler, grid, blend) = (sampler.clone(), grid.clone(), blend.clone());
                            let guidance = guidance.clone();
                            rows.push(Row { model, sampler, grid, blend, guidance, interval, label: String::new() });
                        }
                    }
                }
            }
        }
    }
    // A label names only the settings in which rows differ.
    let varies = |of: fn(&Row) -> &Option<String>| rows.iter().any(|row| of(row) != of(&rows[0]));
    let shown = [
        varies(|r| &r.sampler),
        varies(|r| &r.grid),
        varies(|r| &r.blend),
        varies(|r| &r.guidance),
        varies(|r| &r.interval),
    ];
    for row in &mut rows {
        let guidance = row.guidance.as_ref().map(|w| format!("guidance {}", w.trim_end_matches(".0")));
        let interval = row.interval.as_ref().map(|times| format!("guided in {times}"));
        let parts = [&row.sampler, &row.grid, &row.blend, &guidance, &interval];
        let parts = parts.into_iter().zip(shown).filter(|(_, shown)| *shown).filter_map(|(part, _)| part.clone());
        let name = study.model[row.model].name.clone();
        row.label = std::iter::once(name).chain(parts).collect::<Vec<_>>().join(", ");
    }
    rows
}

impl Row {
    /// The settings of `config` that a cell in a column of the study depends on: those of [`Self::sampling`], but where the
    /// metric measures the network the column is the number of noise levels of each image and takes the place of the steps.
    pub(super) fn settings(&self, config: &RunConfig, study: &Study, column: usize) -> Result<Option<SampleConfig>> {
        if !study.evaluate.metric.measures_network() {
            return self.sampling(config, study, column);
        }
        let config = self.applied(config)?;
        Ok(Some(SampleConfig { steps: column, ..config.sample }.resolved(&config.process)?))
    }

    /// The configuration with the settings of this row.
    fn applied(&self, config: &RunConfig) -> Result<RunConfig> {
        let mut config = config.clone();
        if let Some(grid) = &self.grid {
            config.sample.grid.kind = config.grid_for(GridKind::from_argument(grid).map_err(Error::Request)?);
        }
        // `auto` is the own sampler of a distilled network.
        let own = self.sampler.as_deref() == Some("auto") && config.distill.is_some();
        let sampler = self.sampler.clone().filter(|_| !own);
        let mut sets = vec![];
        let settings = [
            ("sampler", &sampler),
            ("blend", &self.blend),
            ("guidance", &self.guidance),
            ("guidance_interval", &self.interval),
        ];
        for (key, value) in settings {
            sets.extend(value.iter().map(|value| format!("sample.{key}={value}")));
        }
        config.with_overrides(&sets)
    }

    /// The sampling settings of `config` in a column of the study, which is a number of steps or the largest number of
    /// evaluations; none if the grid is a list of times that does not have the column's number.
    pub fn sampling(&self, config: &RunConfig, study: &Study, column: usize) -> Result<Option<SampleConfig>> {
        let config = self.applied(config)?;
        // Known before anything is trained: the pipeline would refuse it afterwards.
        let has_guide = study.model.get(self.model).is_some_and(|model| model.guide.is_some());
        let guided = has_guide || config.network.classes() > 0 && config.train.label_dropout > 0.0;
        if config.sample.guidance != 1.0 && !guided {
            let message = "guidance needs a network with classes (network.classes) and train.label_dropout above 0, or a \
                           guide";
            return Err(Error::request(message));
        }
        let process = config.process;
        // `auto` may stand for times that were fitted to a number of steps, so it is resolved for the steps of the column.
        let with = |steps: usize| SampleConfig { steps, ..config.sample.clone() }.resolved(&process);
        if matches!(config.sample.grid.kind, GridKind::Explicit { .. }) {
            let steps = config.sample.times(&process)?.len() - 1;
            let sample = with(steps)?;
            let own = if study.sample.evaluations.is_empty() { steps } else { sample.evaluations(&process)? };
            return Ok((own == column).then_some(sample));
        }
        if study.sample.evaluations.is_empty() {
            let sample = with(column)?;
            sample.times(&process)?;
            return Ok(Some(sample));
        }
        let general = config.sample.resolved(&process)?;
        let options = general.evaluation_options();
        let sample = with(general.sampler.steps_within(&process, &general.grid, options, column)?)?;
        let least = sample.evaluations(&process)?;
        if least > column {
            let sampler = sample.sampler.name();
            return Err(Error::request(format!("{sampler} takes {least} evaluations at least, not {column}")));
        }
        Ok(Some(sample))
    }
}
