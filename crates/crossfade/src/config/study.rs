//! The configuration of a study: models, samplers, seeds and a metric in one file.
use super::evaluate::Evaluate;
use super::read::Finding;
use super::validate::Checks;
use super::{Checked, finish, override_as, parse_as, read_text};
use crate::error::{Result, Shown};
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::path::{Path, PathBuf};

/// Every option of a study.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Study {
    /// The title of the report.
    pub title: String,
    /// The run configuration that all models start from, relative to the study's file.
    pub base: PathBuf,
    /// Assignments `section.key=value` for all models.
    pub set: Vec<String>,
    /// Seeds of training: each model is trained once with each of them; none for the seed of its configuration.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub train_seeds: Vec<u64>,
    /// The models.
    pub model: Vec<StudyModel>,
    /// How images are made.
    pub sample: Axes,
    /// How images are evaluated.
    pub evaluate: Evaluate,
}

/// One model of a study; a `[[model]]` section.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StudyModel {
    /// Its name in tables.
    pub name: String,
    /// Assignments on top of the base.
    pub set: Vec<String>,
    /// Weights that exist already (a checkpoint or a run's directory, relative to the study's file); none to train it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<PathBuf>,
    /// Its seeds of training, in place of the study's.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub train_seeds: Vec<u64>,
    /// Its samplers, in place of the study's.
    pub samplers: Vec<String>,
    /// Its grids of times, in place of the study's.
    pub grids: Vec<String>,
    /// Its blends of the two heads, in place of the study's.
    pub blends: Vec<String>,
    /// Its weights of guidance, in place of the study's.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub guidance: Vec<f64>,
    /// Its intervals of guided times, in place of the study's.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub guidance_intervals: Vec<[f64; 2]>,
    /// The weaker network that guides it (a checkpoint or a run's directory, relative to the study's file); none for its
    /// own prediction without a class. Rows with a guidance of 1 are not guided.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guide: Option<PathBuf>,
}

/// How images are made; the `[sample]` section. Every combination of the lists is measured; an empty list stands for the
/// value in the model's configuration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Axes {
    /// Samplers by name.
    pub samplers: Vec<String>,
    /// Grids of times: a name, which options may follow as in `log-snr:kappa_min=0.1`, or `explicit:1,0.6,0.2`. A list of
    /// times is measured in the column of its number of evaluations only.
    pub grids: Vec<String>,
    /// Blends of the two heads by name.
    pub blends: Vec<String>,
    /// Weights of guidance; 1 for none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub guidance: Vec<f64>,
    /// Intervals of times in which steps are guided; those outside take one evaluation and not two.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub guidance_intervals: Vec<[f64; 2]>,
    /// Steps of the sampler: the columns of the table.
    pub steps: Vec<usize>,
    /// Network evaluations instead of steps: a sampler with two evaluations per step makes half as many steps. A metric
    /// that measures the network on data evaluates it so often on each image.
    pub evaluations: Vec<usize>,
    /// The seeds of sampling; each measurement is repeated with every one of them.
    pub seeds: Vec<u64>,
    /// Images per measurement: those that are made, or those of the data that the network is measured on.
    pub count: u64,
}

impl Default for Axes {
    fn default() -> Self {
        Self {
            samplers: vec![],
            grids: vec![],
            blends: vec![],
            guidance: vec![],
            guidance_intervals: vec![],
            steps: vec![],
            evaluations: vec![],
            seeds: vec![0, 1, 2],
            count: 5000,
        }
    }
}

impl Axes {
    /// The columns of the table.
    pub fn columns(&self) -> &[usize] {
        if self.evaluations.is_empty() { &self.steps } else { &self.evaluations }
    }

    /// The unit of the columns.
    pub fn columns_are(&self) -> &'static str {
        if self.evaluations.is_empty() { "steps" } else { "evaluations" }
    }
}

/// One training of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Training {
    /// The index of the model.
    pub model: usize,
    /// The seed of the training; none for that of the model's configuration.
    pub seed: Option<u64>,
    /// Its name in messages and lists of models.
    pub name: String,
    /// Its name in files. The first training of a model has that of the model.
    pub slug: String,
}

impl StudyModel {
    /// Its trainings in a study with these seeds.
    fn trainings(&self, model: usize, study_seeds: &[u64]) -> Vec<Training> {
        let (name, slug) = (self.name.clone(), slug(&self.name));
        let seeds = if self.train_seeds.is_empty() { study_seeds } else { &self.train_seeds };
        // Weights that exist already are of one training.
        let seeds = if self.checkpoint.is_some() { &[] } else { seeds };
        match seeds {
            [] => vec![Training { model, seed: None, name, slug }],
            [seed] => vec![Training { model, seed: Some(*seed), name, slug }],
            several => (several.iter().enumerate())
                .map(|(i, seed)| Training {
                    model,
                    seed: Some(*seed),
                    name: format!("{name} (training seed {seed})"),
                    slug: if i == 0 { slug.clone() } else { format!("{slug}-seed-{seed}") },
                })
                .collect(),
        }
    }
}

impl Study {
    /// All trainings, in the order of the models.
    pub fn trainings(&self) -> Vec<Training> {
        let each = |(i, model): (usize, &StudyModel)| model.trainings(i, &self.train_seeds);
        self.model.iter().enumerate().flat_map(each).collect()
    }

    /// Reads and validates the study in `path`; all problems are reported at once.
    pub fn load(path: &Path) -> Result<Self> {
        Self::parse(&read_text(path)?, &path.shown())
    }

    /// Reads and validates a study; `origin` is the file that errors name.
    pub fn parse(text: &str, origin: &str) -> Result<Self> {
        parse_as(text, origin)
    }

    /// The study with `section.key=value` assignments applied; all problems are reported at once.
    pub fn with_overrides<S: AsRef<str>>(self, sets: &[S]) -> Result<Self> {
        override_as(self, sets)
    }

    /// Checks that the values are valid, alone and together; all problems are reported at once.
    pub fn validate(&self) -> Result<()> {
        finish((), self.problems(&[]).iter().map(Finding::to_string).collect())
    }
}

impl Checked for Study {
    fn problems(&self, earlier: &[Finding]) -> Vec<Finding> {
        let mut checks = Checks::after(earlier);
        checks.require(!self.title.is_empty(), &["title"], "is missing: what is the report to be called?");
        checks.require(!self.title.contains(char::is_control), &["title"], "must be one line of plain text");
        let trains = self.model.iter().any(|model| model.checkpoint.is_none());
        let based = !self.base.as_os_str().is_empty() || !trains;
        checks.require(based, &["base"], "is missing: the run configuration that the models start from");
        checks.require(!self.model.is_empty(), &["model"], "at least one [[model]] is needed");
        self.check_models(&mut checks);
        self.check_axes(&mut checks);
        let e = &self.evaluate;
        if let Some(name) = &e.against {
            let known = self.model.iter().any(|model| model.name == *name);
            checks.require(known, &["evaluate.against", "model"], format!("no model is called `{name}`"));
        }
        e.check(&mut checks);
        checks.problems
    }
}

impl Study {
    fn check_models(&self, checks: &mut Checks) {
        let mut names = HashSet::new();
        for (i, model) in self.model.iter().enumerate() {
            let key = |name: &str| format!("model.{i}.{name}");
            let slug = slug(&model.name);
            checks.require(!slug.is_empty(), &[&key("name")], "a name with letters or digits is needed");
            checks.require(!model.name.contains(char::is_control), &[&key("name")], "must be one line of plain text");
            // Names become directories, so they must differ after the conversion too.
            let fresh = slug.is_empty()
                || model.trainings(i, &self.train_seeds).into_iter().all(|training| names.insert(training.slug));
            checks.require(
                fresh,
                &[&key("name")],
                format!("another model has the name `{}`, or one with the same letters and digits", model.name),
            );
            checks.seeds(&model.train_seeds, &key("train_seeds"));
            let trained = model.checkpoint.is_none() || model.train_seeds.is_empty();
            checks.require(trained, &[&key("train_seeds")], "a model with a checkpoint is not trained");
            for (list, name) in [(&model.samplers, "samplers"), (&model.grids, "grids"), (&model.blends, "blends")] {
                checks.require(distinct(list), &[&key(name)], "must be distinct");
            }
            checks.guidance(&model.guidance, &model.guidance_intervals, &key);
            if self.evaluate.metric.measures_network() {
                let lists = [("samplers", model.samplers.is_empty()), ("grids", model.grids.is_empty())];
                checks.unsampled(&lists, &key);
                checks.unguided(&model.guidance, model.guide.is_some(), &key);
            }
            let foreign = model.set.iter().find(|set| model.checkpoint.is_some() && !set.starts_with("sample."));
            let message = "with a checkpoint only sample.* can be set: the rest is as it was trained";
            checks.require(foreign.is_none(), &[&key("set")], message);
        }
    }

    fn check_axes(&self, checks: &mut Checks) {
        let s = &self.sample;
        let keys = ["sample.steps", "sample.evaluations"];
        checks.require(!s.columns().is_empty(), &keys, "steps or evaluations must be given");
        checks.require(s.steps.is_empty() || s.evaluations.is_empty(), &keys, "give steps or evaluations, not both");
        for (list, key) in [(&s.steps, "sample.steps"), (&s.evaluations, "sample.evaluations")] {
            checks.require(list.iter().all(|n| (1..=1_000_000).contains(n)), &[key], "must be 1 to 1,000,000");
            checks.require(distinct(list), &[key], "must be distinct");
        }
        checks.require(!s.seeds.is_empty(), &["sample.seeds"], "at least one is needed");
        checks.seeds(&s.seeds, "sample.seeds");
        checks.seeds(&self.train_seeds, "train_seeds");
        let least = self.evaluate.metric.min_images;
        checks.require(s.count >= least, &["sample.count"], format!("must be at least {least}"));
        for (list, key) in [(&s.samplers, "samplers"), (&s.grids, "grids"), (&s.blends, "blends")] {
            checks.require(distinct(list), &[&format!("sample.{key}")], "must be distinct");
        }
        let key = |name: &str| format!("sample.{name}");
        checks.guidance(&s.guidance, &s.guidance_intervals, &key);
        if self.evaluate.metric.measures_network() {
            let lists =
                [("samplers", s.samplers.is_empty()), ("grids", s.grids.is_empty()), ("steps", s.steps.is_empty())];
            checks.unsampled(&lists, &key);
            checks.unguided(&s.guidance, false, &key);
        }
    }
}

impl Checks {
    fn seeds(&mut self, seeds: &[u64], key: &str) {
        self.require(distinct(seeds), &[key], "must be distinct");
        // Integers of TOML are signed.
        let fit = seeds.iter().all(|&seed| i64::try_from(seed).is_ok());
        self.require(fit, &[key], format!("must be at most {}", i64::MAX));
    }

    fn guidance(&mut self, weights: &[f64], intervals: &[[f64; 2]], key: &dyn Fn(&str) -> String) {
        let bits: Vec<u64> = weights.iter().map(|w| w.to_bits()).collect();
        let valid = distinct(&bits) && weights.iter().all(|w| *w >= 0.0 && w.is_finite());
        self.require(valid, &[&key("guidance")], "must be distinct numbers from 0");
        let bits: Vec<[u64; 2]> = intervals.iter().map(|interval| interval.map(f64::to_bits)).collect();
        let valid = distinct(&bits) && intervals.iter().all(|[from, to]| 0.0 <= *from && from < to && *to <= 1.0);
        let message = "must be distinct pairs of times from 0 to 1, the smaller one first";
        self.require(valid, &[&key("guidance_intervals")], message);
    }

    /// Nothing is sampled, so that these lists must be empty.
    fn unsampled(&mut self, lists: &[(&str, bool)], key: &dyn Fn(&str) -> String) {
        for (name, is_empty) in lists {
            let message = "has no effect: the metric measures the network and samples nothing; give sample.evaluations, the \
                           noise levels of each image";
            self.require(*is_empty, &[&key(name), "evaluate.metric"], message);
        }
    }

    fn unguided(&mut self, weights: &[f64], has_guide: bool, key: &dyn Fn(&str) -> String) {
        let message = "has no effect: the metric measures the network without guidance";
        self.require(weights.is_empty() && !has_guide, &[&key("guidance"), "evaluate.metric"], message);
    }
}

fn distinct<T: std::hash::Hash + Eq>(list: &[T]) -> bool {
    list.iter().collect::<HashSet<_>>().len() == list.len()
}

/// A name as the name of a directory: lower-case letters, digits and single hyphens.
fn slug(name: &str) -> String {
    let plain = name.to_lowercase().replace(|c: char| !c.is_ascii_alphanumeric(), "-");
    plain.split('-').filter(|part| !part.is_empty()).collect::<Vec<_>>().join("-")
}
