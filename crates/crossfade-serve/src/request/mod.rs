//! What a request asks for: its fields, checked against the model and the limits, become a [`JobSpec`].
mod checks;
mod fields;

pub use fields::{FIELDS, Fields, ResponseFormat, belongs, form_value, wanted};

use crate::api::ApiError;
use crate::config::Limits;
use crate::job::{JobSpec, Kind};
use crate::models::{Library, Model};
use crate::prompt;
use checks::{check_size, check_tiles, find_model, name_of};
use crossfade::config::{RunConfig, SampleOptions};
use crossfade::math::{Blend, GridKind};
use crossfade::sample::Sampler;

/// A request with the pictures that came with it.
#[derive(Default)]
pub struct Request {
    /// Its fields; pictures are taken out.
    pub fields: Fields,
    /// The names of the fields that were given.
    pub given: Vec<String>,
    /// The picture.
    pub image: Option<Vec<u8>>,
    /// The mask.
    pub mask: Option<Vec<u8>>,
}

/// A request that can be accepted.
pub struct Prepared {
    /// What is to be made.
    pub spec: JobSpec,
    /// What was sent with it.
    pub inputs: Vec<(&'static str, Vec<u8>)>,
}

/// Seeds that are drawn are below this: short enough to be written down, and exact in JavaScript.
const DRAWN_SEEDS: u64 = 1 << 32;
/// The strength of variations that give none.
const STRENGTH: f64 = 0.6;

impl Request {
    /// Checks everything, and resolves the settings. It may load the model, and blocks.
    pub fn prepare(self, kind: Kind, library: &Library, limits: &Limits) -> Result<Prepared, ApiError> {
        let fields = &self.fields;
        if let Some(field) = self.given.iter().find(|field| !belongs(field, kind)) {
            let problem = format!("the field `{field}` does not belong to {}", kind.with_article());
            return Err(ApiError::invalid(field, problem));
        }
        if fields.stream == Some(true) {
            let problem = "`stream` must be false: send `async` and read the events of the job, /v1/jobs/{id}/events";
            return Err(ApiError::invalid("stream", problem));
        }
        let task = match kind {
            Kind::Edit => Some("inpaint".to_string()),
            Kind::Task => {
                Some(fields.task.clone().ok_or_else(|| ApiError::invalid("task", "the field `task` is missing"))?)
            }
            _ => None,
        };
        let model = find_model(fields.model.as_deref(), kind, task.as_deref(), library)?;
        let n = fields.n.unwrap_or(1);
        if n == 0 || n > limits.max_count {
            return Err(ApiError::invalid("n", format!("`n` must be from 1 to {}, not {n}", limits.max_count)));
        }
        if fields.response_format == Some(ResponseFormat::Png) && n != 1 {
            return Err(ApiError::invalid("response_format", "`response_format` png is one file, and n must be 1"));
        }
        let seed = fields.seed.unwrap_or_else(|| crate::random_number() % DRAWN_SEEDS);
        let first = fields.first.unwrap_or(0);
        if first.checked_add(n).is_none() {
            return Err(ApiError::invalid("first", "`first` + `n` must be below 2^64"));
        }
        if fields.user.as_ref().is_some_and(|user| user.len() > 200) {
            return Err(ApiError::invalid("user", "`user` must have at most 200 bytes"));
        }
        let options = self.options(kind, model, limits)?;
        let config = &model.config;
        // A limit below the model's own steps must not refuse requests that name none.
        let steps = model.info().defaults.steps.min(limits.max_steps);
        let base = crossfade::SampleConfig { steps, ..config.sample.clone() };
        let run = RunConfig { sample: base, ..config.clone() };
        let sample = options.applied(&run, |name| name.replace('-', "_")).map_err(|e| ApiError::of_option(&e))?;
        let run = RunConfig { sample: sample.clone(), ..config.clone() };
        run.validate().map_err(|e| ApiError::of_option(&e))?;
        let steps = sample.times(&config.process).map_err(|e| ApiError::of_option(&e))?.len() - 1;
        if steps > limits.max_steps {
            let problem = format!("`steps` must be at most {}, and this grid has {steps}", limits.max_steps);
            return Err(ApiError::invalid("steps", problem));
        }
        let mut spec = JobSpec {
            kind,
            options: SampleOptions::of(&sample, config),
            task: task.clone(),
            model: model.name().into(),
            digest: model.digest().into(),
            seed,
            n,
            first,
            evaluations: sample.evaluations(&config.process).map_err(|e| ApiError::of_option(&e))?,
            steps,
            sample,
            strength: None,
            fit: fields.fit,
            tile: fields.tile.map(|tile| tile as usize),
            overlap: fields.overlap.map(|overlap| overlap as usize),
            flip_test: fields.flip_test.unwrap_or(false),
            threshold: fields.threshold,
            name: name_of(fields.name.as_deref())?,
            previews: fields.previews.unwrap_or(fields.asynchronous == Some(true)),
        };
        let mut size = model.info().width.map(|side| [side; 2]);
        if kind != Kind::Generation {
            let [w, h] = self.check_picture(kind, model, limits)?;
            let scale = config.task.task().scale();
            size = if spec.fit.is_some() { size } else { Some([w * scale, h * scale]) };
            check_tiles(&spec)?;
        }
        check_size(fields.size.as_deref(), size)?;
        // What is left needs the weights, which may push out those of another model: everything else is right by now.
        let loaded = library.load(model).map_err(|e| ApiError::server(&e))?;
        let pipeline = loaded.pipeline.with_sample(&spec.sample).map_err(|e| ApiError::of_option(&e))?;
        if matches!(kind, Kind::Generation | Kind::Variation) {
            pipeline.ready().map_err(|e| ApiError::of_option(&e))?;
        }
        if kind == Kind::Variation {
            pipeline.picture_size().map_err(|e| ApiError::of_option(&e))?;
            let strength = fields.strength.unwrap_or(STRENGTH);
            let run = pipeline.steps_of_strength(strength).map_err(|e| ApiError::invalid("strength", e.to_string()))?;
            (spec.strength, spec.steps) = (Some(strength), run);
        }
        let mut inputs = vec![];
        inputs.extend(self.image.map(|bytes| ("image", bytes)));
        inputs.extend(self.mask.map(|bytes| ("mask", bytes)));
        Ok(Prepared { spec, inputs })
    }

    /// The settings of the sampler that were given.
    fn options(&self, kind: Kind, model: &Model, limits: &Limits) -> Result<SampleOptions, ApiError> {
        let fields = &self.fields;
        let parse = |param: &'static str, e: String| ApiError::invalid(param, e);
        let finite = |param: &'static str, value: Option<f64>, least: f64, most: f64| match value {
            Some(value) if !(least..=most).contains(&value) => {
                let most = if most == f64::MAX { String::new() } else { format!(" to {most}") };
                Err(ApiError::invalid(param, format!("`{param}` must be a number from {least}{most}, not {value}")))
            }
            value => Ok(value),
        };
        if let Some(steps) = fields.steps.filter(|steps| *steps == 0 || *steps > limits.max_steps as u64) {
            return Err(ApiError::invalid(
                "steps",
                format!("`steps` must be from 1 to {}, not {steps}", limits.max_steps),
            ));
        }
        let sampler = fields.sampler.as_deref().map(Sampler::parse).transpose();
        let grid = fields.grid.as_deref().map(GridKind::from_argument).transpose();
        let blend = fields.blend.as_deref().map(Blend::parse).transpose();
        if let Some([from, to]) = fields.guidance_interval
            && !(0.0 <= from && from < to && to <= 1.0)
        {
            let problem = "`guidance_interval` must be two times from 0 to 1, the smaller one first";
            return Err(ApiError::invalid("guidance_interval", problem));
        }
        let classes = &model.info().classes;
        let prompted = match fields.prompt.as_deref().map(str::trim).filter(|prompt| !prompt.is_empty()) {
            Some(_) if kind == Kind::Edit || classes.is_empty() => {
                let problem = format!("{} reads no text: leave the prompt empty", model.name());
                return Err(ApiError::invalid("prompt", problem));
            }
            Some(prompt) => Some(prompt::class_of(prompt, classes).map_err(|e| ApiError::unknown_class("prompt", e))?),
            None => None,
        };
        let class = match (fields.class.clone(), prompted) {
            (Some(class), Some(prompted)) if class != prompted => {
                let problem =
                    format!("the prompt names the class {prompted}, the field class {class}; give one of them");
                return Err(ApiError::invalid("class", problem));
            }
            (class, prompted) => class.or(prompted),
        };
        let rho = finite("rho", fields.rho, f64::MIN_POSITIVE, 1e6)?;
        Ok(SampleOptions {
            steps: fields.steps.map(|steps| steps as usize),
            sampler: sampler.map_err(|e| parse("sampler", e.to_string()))?,
            grid: grid.map_err(|e| parse("grid", e))?,
            rho,
            eta: finite("eta", fields.eta, 0.0, 1.0)?,
            churn: finite("churn", fields.churn, 0.0, 1e6)?,
            blend: blend.map_err(|e| parse("blend", e.to_string()))?,
            clip: finite("clip", fields.clip, 0.0, f64::MAX)?,
            free_first_step: fields.free_first_step,
            precision: None,
            class,
            guidance: finite("guidance", fields.guidance, 0.0, 1e3)?,
            guidance_interval: fields.guidance_interval,
        })
    }
}
