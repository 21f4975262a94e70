//! The configuration of a comparison: models, ways of sampling, seeds and a metric in one file.
use super::read::Problem;
use super::validate::Checks;
use super::{Checked, finish, override_as, parse_as, read_text};
use crate::error::Result;
use crate::metrics::features::Protocol;
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::path::{Path, PathBuf};

/// Every option of a study.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Study {
    /// What the report is called.
    pub title: String,
    /// The run configuration that all models start from, relative to the study's file.
    pub base: PathBuf,
    /// Assignments `section.key=value` for all models.
    pub set: Vec<String>,
    /// The models.
    pub model: Vec<StudyModel>,
    /// How images are made.
    pub sample: Axes,
    /// How they are judged.
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
    /// Its samplers, in place of the study's.
    pub samplers: Vec<String>,
    /// Its grids of times, in place of the study's.
    pub grids: Vec<String>,
    /// Its ways to blend the heads, in place of the study's.
    pub blends: Vec<String>,
}

/// How images are made; the `[sample]` section. Every combination is measured; an empty list means the model's own value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Axes {
    /// Samplers by name.
    pub samplers: Vec<String>,
    /// Grids of times by name.
    pub grids: Vec<String>,
    /// Ways to blend the two heads, by name.
    pub blends: Vec<String>,
    /// Steps of the sampler: the columns of the table.
    pub steps: Vec<usize>,
    /// Network evaluations instead of steps: a sampler that needs two a step makes half as many steps.
    pub evaluations: Vec<usize>,
    /// Each measurement is repeated with these seeds.
    pub seeds: Vec<u64>,
    /// Images a measurement.
    pub count: u64,
}

impl Default for Axes {
    fn default() -> Self {
        Self {
            samplers: vec![],
            grids: vec![],
            blends: vec![],
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

    /// What the columns count.
    pub fn columns_are(&self) -> &'static str {
        if self.evaluations.is_empty() { "steps" } else { "evaluations" }
    }
}

/// What is measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Metric {
    /// Fréchet Inception distance.
    #[default]
    Fid,
    /// Kernel Inception distance.
    Kid,
    /// Inception Score.
    Is,
    /// Precision and recall.
    Pr,
    /// Fréchet distance of the images reduced to 8x8 pixels: needs no weights, sees colours and layout only.
    PixelFrechet,
    /// PSNR of a task's outputs on held-out images.
    Psnr,
    /// Nothing: only images and times.
    None,
}

impl Metric {
    /// All of them.
    pub const ALL: [Self; 7] = [Self::Fid, Self::Kid, Self::Is, Self::Pr, Self::PixelFrechet, Self::Psnr, Self::None];

    /// Its name in configurations.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fid => "fid",
            Self::Kid => "kid",
            Self::Is => "is",
            Self::Pr => "pr",
            Self::PixelFrechet => "pixel-frechet",
            Self::Psnr => "psnr",
            Self::None => "none",
        }
    }

    /// What its first value is called in tables.
    pub fn title(self) -> &'static str {
        match self {
            Self::Fid => "FID",
            Self::Kid => "KID",
            Self::Is => "Inception Score",
            Self::Pr => "precision",
            Self::PixelFrechet => "pixel Fréchet distance",
            Self::Psnr => "PSNR, dB",
            Self::None => "nothing measured",
        }
    }

    /// Whether large values are good.
    pub fn higher_is_better(self) -> bool {
        matches!(self, Self::Is | Self::Pr | Self::Psnr)
    }

    /// Whether images go through Inception.
    pub fn needs_inception(self) -> bool {
        matches!(self, Self::Fid | Self::Kid | Self::Is | Self::Pr)
    }
}

/// How images are judged; the `[evaluate]` section.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Evaluate {
    /// What is measured.
    pub metric: Metric,
    /// How pictures are resized for Inception.
    pub protocol: Protocol,
    /// What generated images are compared with: `train` for the images of the base, or what `crossfade eval fid` takes.
    pub reference: String,
    /// Assignments that make the held-out images of a task from the base's, such as `data.path=bsds500/images/test`.
    pub held_out: Vec<String>,
    /// The model whose rows the others are tested against, each column's best one of its rows; none for the best row.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub against: Option<String>,
    /// Also measure how the estimate of x_0 approaches the final one over t.
    pub estimate: bool,
}

impl Default for Evaluate {
    fn default() -> Self {
        Self {
            metric: Metric::Fid,
            protocol: Protocol::default(),
            reference: "train".into(),
            held_out: vec![],
            against: None,
            estimate: false,
        }
    }
}

impl Study {
    /// Reads and validates the study in `path`; all problems are reported at once.
    pub fn load(path: &Path) -> Result<Self> {
        Self::parse(&read_text(path)?, &path.display().to_string())
    }

    /// Reads and validates a study; `origin` is the file that errors name.
    pub fn parse(text: &str, origin: &str) -> Result<Self> {
        parse_as(text, origin)
    }

    /// The study with `section.key=value` assignments applied; all problems are reported at once.
    pub fn with_overrides<S: AsRef<str>>(self, sets: &[S]) -> Result<Self> {
        override_as(self, sets)
    }

    /// An error that lists all that is wrong with it.
    pub fn validate(&self) -> Result<()> {
        finish((), self.problems(&[]).iter().map(Problem::to_string).collect())
    }
}

impl Checked for Study {
    fn problems(&self, earlier: &[Problem]) -> Vec<Problem> {
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
        let held_out = e.metric == Metric::Psnr || e.held_out.is_empty();
        checks.require(held_out, &["evaluate.held_out", "evaluate.metric"], "is for the metric psnr only");
        let tried = e.metric != Metric::Psnr || !e.held_out.is_empty();
        let message = "is missing: the metric psnr would measure the images that were trained on";
        checks.require(tried, &["evaluate.held_out", "evaluate.metric"], message);
        let estimate = e.metric != Metric::Psnr || !e.estimate;
        checks.require(estimate, &["evaluate.estimate", "evaluate.metric"], "is for unconditional models only");
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
            let fresh = slug.is_empty() || names.insert(slug);
            checks.require(fresh, &[&key("name")], format!("another model is called like `{}`", model.name));
            for (list, name) in [(&model.samplers, "samplers"), (&model.grids, "grids"), (&model.blends, "blends")] {
                checks.require(distinct(list), &[&key(name)], "must be distinct");
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
        checks.require(!s.seeds.is_empty() && distinct(&s.seeds), &["sample.seeds"], "must be distinct, at least one");
        let seeds = s.seeds.iter().all(|&seed| i64::try_from(seed).is_ok());
        checks.require(seeds, &["sample.seeds"], format!("must be at most {}", i64::MAX));
        // Precision needs a third neighbour, the Inception Score ten parts.
        let least = match self.evaluate.metric {
            Metric::Pr => 4,
            Metric::Is => 10,
            _ => 2,
        };
        checks.require(s.count >= least, &["sample.count"], format!("must be at least {least}"));
        for (list, key) in [(&s.samplers, "samplers"), (&s.grids, "grids"), (&s.blends, "blends")] {
            checks.require(distinct(list), &[&format!("sample.{key}")], "must be distinct");
        }
    }
}

fn distinct<T: std::hash::Hash + Eq>(list: &[T]) -> bool {
    list.iter().collect::<HashSet<_>>().len() == list.len()
}

/// A name as a directory: letters, digits and single hyphens.
pub(crate) fn slug(name: &str) -> String {
    let plain = name.to_lowercase().replace(|c: char| !c.is_ascii_alphanumeric(), "-");
    plain.split('-').filter(|part| !part.is_empty()).collect::<Vec<_>>().join("-")
}
