//! Jobs: what is to be made, as it is stored, and as the interface shows it.
use crate::request::belongs;
use crossfade::config::{SampleConfig, SampleOptions};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use utoipa::ToSchema;

/// What kind of pictures a job makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// From noise.
    Generation,
    /// From a noised picture.
    Variation,
    /// The hole of a picture filled.
    Edit,
    /// A task on a picture.
    Task,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 4] = [Self::Generation, Self::Variation, Self::Edit, Self::Task];

    /// Its name in the interface.
    pub fn name(self) -> &'static str {
        match self {
            Self::Generation => "generation",
            Self::Variation => "variation",
            Self::Edit => "edit",
            Self::Task => "task",
        }
    }

    /// Its name in a sentence.
    pub fn with_article(self) -> &'static str {
        match self {
            Self::Generation => "a generation",
            Self::Variation => "a variation",
            Self::Edit => "an edit",
            Self::Task => "a task",
        }
    }

    /// The kind with this name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// How far a job is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum JobState {
    /// It waits.
    Queued,
    /// A server works at it.
    Running,
    /// All pictures are there.
    Done,
    /// It could not be done.
    Failed,
    /// It was stopped.
    Cancelled,
}

impl JobState {
    /// All states.
    pub const ALL: [Self; 5] = [Self::Queued, Self::Running, Self::Done, Self::Failed, Self::Cancelled];

    /// Its name in the interface and in the store.
    pub fn name(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    /// The state with this name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.name() == name)
    }

    /// Whether nothing more will happen.
    pub fn is_over(self) -> bool {
        !matches!(self, Self::Queued | Self::Running)
    }
}

/// How a picture becomes square.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum FitHow {
    /// The largest centred square.
    Crop,
    /// The complete picture.
    Stretch,
}

/// Everything that the pictures of a job depend on, beside what was sent with it. Two servers make the same bytes of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobSpec {
    /// The kind.
    pub kind: Kind,
    /// The task, as in `/v1/tasks/{task}`.
    pub task: Option<String>,
    /// The name of the model.
    pub model: String,
    /// Identifies its weights.
    pub digest: String,
    /// The seed.
    pub seed: u64,
    /// The number of pictures.
    pub n: u64,
    /// The first picture of the seed.
    pub first: u64,
    /// The settings of the sampler, resolved.
    pub sample: SampleConfig,
    /// The same as options of a request, without those that have no effect on this model.
    pub options: SampleOptions,
    /// Network evaluations for each picture.
    pub evaluations: usize,
    /// Steps of the sampler for each picture.
    pub steps: usize,
    /// The strength of a variation.
    pub strength: Option<f64>,
    /// How the picture of a variation becomes square.
    pub fit: Option<FitHow>,
    /// The side of a tile.
    pub tile: Option<usize>,
    /// The least overlap of tiles.
    pub overlap: Option<usize>,
    /// Whether the mirrored picture is processed too.
    pub flip_test: bool,
    /// The threshold of a map.
    pub threshold: Option<f64>,
    /// The name that determines the noise of a task; never a path.
    pub name: String,
    /// Whether events carry pictures.
    pub previews: bool,
}

/// A picture of a job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Picture {
    /// Its number in the job, from 0.
    pub index: u64,
    /// The image of the seed, or the number of the variation.
    pub image: u64,
    /// Its seed.
    pub seed: u64,
    /// Its class, if the network has classes.
    pub class: Option<String>,
    /// Columns.
    pub width: usize,
    /// Rows.
    pub height: usize,
    /// Bytes of the PNG.
    pub bytes: usize,
    /// SHA-256 of the PNG.
    pub sha256: String,
}

/// A job as it is in the store.
#[derive(Clone, Debug)]
pub struct Job {
    /// Its name.
    pub id: String,
    /// Who asked for it.
    pub client: String,
    /// The label within the client.
    pub user: String,
    /// What is to be made.
    pub spec: JobSpec,
    /// How far it is.
    pub state: JobState,
    /// When it was accepted, in seconds since 1970.
    pub created: f64,
    /// When a server first started it.
    pub started: Option<f64>,
    /// When it ended.
    pub finished: Option<f64>,
    /// When it will be forgotten.
    pub expires: Option<f64>,
    /// Whether somebody asked to stop it.
    pub cancel: bool,
    /// Why it failed.
    pub error: Option<String>,
    /// Its finished pictures, by their number.
    pub pictures: Vec<Picture>,
    /// The names of what was sent with it.
    pub inputs: Vec<String>,
    /// Jobs that were accepted before it and wait, if it waits.
    pub position: Option<u64>,
}

impl JobSpec {
    /// The settings as a request would give them, so that they can be sent again to the same route.
    pub fn settings(&self) -> Map<String, Value> {
        let (sample, options) = (&self.sample, &self.options);
        let guided = sample.guidance != 1.0;
        let all = [
            ("kind", Some(json!(self.kind))),
            ("model", Some(json!(self.model))),
            ("seed", Some(json!(self.seed))),
            ("n", Some(json!(self.n))),
            ("first", Some(json!(self.first))),
            ("class", Some(json!(sample.class))),
            ("guidance", Some(json!(sample.guidance))),
            ("guidance_interval", guided.then(|| json!(sample.guidance_interval))),
            // A grid of explicit times has its number of steps.
            ("steps", options.steps.map(|x| json!(x))),
            ("sampler", options.sampler.map(|sampler| json!(sampler.name()))),
            ("grid", options.grid.as_ref().map(|grid| json!(grid.argument()))),
            ("eta", options.eta.map(|x| json!(x))),
            ("churn", options.churn.map(|x| json!(x))),
            ("blend", options.blend.as_ref().map(|blend| json!(blend.name()))),
            ("clip", options.clip.map(|x| json!(x))),
            ("free_first_step", options.free_first_step.map(|x| json!(x))),
            ("task", self.task.as_ref().map(|task| json!(task))),
            ("strength", self.strength.map(|x| json!(x))),
            ("fit", self.fit.map(|fit| json!(fit))),
            ("tile", self.tile.map(|x| json!(x))),
            ("overlap", self.overlap.map(|x| json!(x))),
            ("threshold", self.threshold.map(|x| json!(x))),
            ("flip_test", self.flip_test.then_some(json!(true))),
            ("name", Some(json!(self.name))),
        ];
        let own = all.into_iter().filter(|(name, _)| belongs(name, self.kind));
        own.filter_map(|(name, value)| Some((name.to_string(), value?))).collect()
    }

    /// The command that makes the same pictures; `model` stands where the checkpoint is to be.
    pub fn command(&self, model: &str) -> String {
        let given = &self.options;
        let mut options = vec![];
        options.extend(given.steps.map(|steps| format!("--steps {steps}")));
        options.extend(given.sampler.map(|sampler| format!("--sampler {}", sampler.name())));
        options.extend(given.grid.as_ref().map(|grid| format!("--grid {}", quoted(&grid.argument()))));
        options.extend(given.eta.map(|x| format!("--eta {x}")));
        options.extend(given.churn.map(|x| format!("--churn {x}")));
        options.extend(given.blend.as_ref().map(|blend| format!("--blend {}", blend.name())));
        options.extend(given.clip.map(|x| if x > 0.0 { format!("--clip {x}") } else { "--no-clip".into() }));
        options.extend(given.free_first_step.map(|x| format!("--free-first-step {x}")));
        options.push(format!("--seed {}", self.seed));
        let model = quoted(model);
        if matches!(self.kind, Kind::Generation | Kind::Variation) {
            options.extend(given.class.as_ref().map(|class| format!("--class {}", quoted(class))));
            options.extend(given.guidance.map(|x| format!("--guidance {x}")));
            options.extend(given.guidance_interval.map(|[from, to]| format!("--guidance-interval {from},{to}")));
        }
        let common = |options: &[String]| options.join(" ");
        match self.kind {
            Kind::Generation => {
                let first = if self.first > 0 { format!(" --first {}", self.first) } else { String::new() };
                format!("crossfade sample {model} --count {}{first} {} --out pictures", self.n, common(&options))
            }
            Kind::Variation => {
                let fit = match self.fit {
                    Some(FitHow::Crop) => " --fit crop",
                    Some(FitHow::Stretch) => " --fit stretch",
                    None => "",
                };
                let out = if self.n > 1 { format!("pictures --count {}", self.n) } else { "out.png".into() };
                let strength = self.strength.unwrap_or(1.0);
                let name = quoted(&self.name);
                format!(
                    "crossfade edit {name} {out} --checkpoint {model} --strength {strength}{fit} {}",
                    common(&options)
                )
            }
            Kind::Edit | Kind::Task => {
                let task = self.task.as_deref().unwrap_or("inpaint");
                let mask = if task == "inpaint" { " --mask mask.png" } else { "" };
                let mut more = String::new();
                more += &self.tile.map(|x| format!(" --tile {x}")).unwrap_or_default();
                more += &self.overlap.map(|x| format!(" --overlap {x}")).unwrap_or_default();
                more += &self.threshold.map(|x| format!(" --threshold {x}")).unwrap_or_default();
                more += if self.flip_test { " --flip-test" } else { "" };
                let name = quoted(&self.name);
                format!("crossfade {task} {name} out.png --checkpoint {model}{mask}{more} {}", common(&options))
            }
        }
    }
}

/// A word of a shell command.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-/:=,+@".contains(c);
    if !word.is_empty() && word.chars().all(plain) { word.into() } else { format!("'{}'", word.replace('\'', "'\\''")) }
}
