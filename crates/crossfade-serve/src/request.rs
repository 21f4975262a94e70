//! What a request asks for: its fields, checked against the model and the limits, become a [`JobSpec`].
use crate::api::ApiError;
use crate::config::Limits;
use crate::job::{FitHow, JobSpec, Kind};
use crate::models::{Library, Loaded, Model};
use crate::prompt;
use crate::run::mask_of;
use crossfade::config::{RunConfig, SampleOptions};
use crossfade::data::{Image16, dimensions};
use crossfade::math::{Blend, GridKind};
use crossfade::sample::Sampler;
use crossfade::task::TaskConfig;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use utoipa::ToSchema;

/// The fields of requests of every kind; [`FIELDS`] says which belong to which.
#[derive(Clone, Debug, Default, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Fields {
    /// Names a class of the model, for example `a picture of a cat`.
    #[schema(max_length = 1000)]
    pub prompt: Option<String>,
    /// The name or the digest of a model; the first that fits by default.
    pub model: Option<String>,
    /// The number of pictures.
    #[schema(minimum = 1)]
    pub n: Option<u64>,
    /// The seed; drawn and told in the answer by default.
    #[schema(minimum = 0)]
    pub seed: Option<u64>,
    /// Steps of the sampler.
    #[schema(minimum = 1)]
    pub steps: Option<u64>,
    /// The sampler.
    pub sampler: Option<String>,
    /// The time grid.
    pub grid: Option<String>,
    /// Exponent of the grids karras and power.
    pub rho: Option<f64>,
    /// Noise of the sampler ddim.
    #[schema(minimum = 0, maximum = 1)]
    pub eta: Option<f64>,
    /// Noise of the sampler heun-churn.
    pub churn: Option<f64>,
    /// How two heads are combined.
    pub blend: Option<String>,
    /// The estimate of x_0 is clamped to this; 0 for no clamping.
    #[schema(minimum = 0)]
    pub clip: Option<f64>,
    /// Whether the evaluation at t = 1 is saved.
    pub free_first_step: Option<bool>,
    /// The class: a name or number, several with commas, `all`, `random` or `none`.
    pub class: Option<String>,
    /// The weight of guidance.
    #[schema(minimum = 0)]
    pub guidance: Option<f64>,
    /// Times between which steps are guided.
    pub guidance_interval: Option<[f64; 2]>,
    /// The first picture of the seed.
    #[schema(minimum = 0)]
    pub first: Option<u64>,
    /// A PNG, JPEG or WebP: base64 in JSON, a file in a form.
    pub image: Option<String>,
    /// Where to fill: transparent or black pixels.
    pub mask: Option<String>,
    /// Share of the steps that are run on a picture.
    #[schema(minimum = 0, maximum = 1)]
    pub strength: Option<f64>,
    /// How a picture becomes square.
    pub fit: Option<FitHow>,
    /// The task.
    pub task: Option<String>,
    /// Side of a tile in pixels.
    #[schema(minimum = 1, maximum = 65536)]
    pub tile: Option<u64>,
    /// Least overlap of tiles.
    #[schema(minimum = 0)]
    pub overlap: Option<u64>,
    /// Whether the mirrored picture is processed too and both results are averaged.
    pub flip_test: Option<bool>,
    /// Makes a map black and white.
    #[schema(minimum = 0, maximum = 1)]
    pub threshold: Option<f64>,
    /// The noise of a task is a function of this name.
    #[schema(max_length = 255)]
    pub name: Option<String>,
    /// `b64_json`, `url` or `png`.
    pub response_format: Option<ResponseFormat>,
    /// Answer at once with the job.
    #[serde(rename = "async")]
    pub asynchronous: Option<bool>,
    /// Whether events carry pictures.
    pub previews: Option<bool>,
    /// A label; those of one client are served in turn.
    #[schema(max_length = 200)]
    pub user: Option<String>,
    /// The kind of a job.
    pub kind: Option<Kind>,
    /// `auto` or the size that the result has.
    pub size: Option<String>,
    /// For clients that send it.
    pub quality: Option<Quality>,
    /// For clients that send it.
    pub background: Option<Background>,
    /// For clients that send it.
    pub output_format: Option<OutputFormat>,
    /// For clients that send it.
    pub moderation: Option<Moderation>,
    /// For clients that send it; only false.
    pub stream: Option<bool>,
}

/// How pictures are answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ResponseFormat {
    /// Base64 in JSON.
    #[default]
    B64Json,
    /// The address of each picture.
    Url,
    /// The file itself.
    Png,
}

/// Defines enums of values that are accepted and change nothing.
macro_rules! accepted {
    ($($Name:ident { $($Value:ident),* })*) => {
        $(
            #[doc = concat!("Values of `", stringify!($Name), "` that change nothing.")]
            #[derive(Clone, Copy, Debug, Deserialize, Serialize, ToSchema)]
            #[serde(rename_all = "lowercase")]
            #[allow(missing_docs)]
            pub enum $Name { $($Value),* }
        )*
    };
}
accepted! { Quality { Auto, Standard } Background { Auto, Opaque } OutputFormat { Png } Moderation { Auto, Low } }

/// Which kinds a field belongs to: g(eneration), v(ariation), e(dit), t(ask).
pub const FIELDS: &[(&str, &str)] = &[
    ("prompt", "gve"),
    ("model", "gvet"),
    ("n", "gvet"),
    ("seed", "gvet"),
    ("steps", "gvet"),
    ("sampler", "gvet"),
    ("grid", "gvet"),
    ("rho", "gvet"),
    ("eta", "gvet"),
    ("churn", "gvet"),
    ("blend", "gvet"),
    ("clip", "gvet"),
    ("free_first_step", "gv"),
    ("class", "gv"),
    ("guidance", "gv"),
    ("guidance_interval", "gv"),
    ("first", "g"),
    ("image", "vet"),
    ("mask", "et"),
    ("strength", "v"),
    ("fit", "v"),
    ("task", "t"),
    ("tile", "et"),
    ("overlap", "et"),
    ("flip_test", "et"),
    ("threshold", "t"),
    ("name", "vet"),
    ("response_format", "gvet"),
    ("async", "gvet"),
    ("previews", "gvet"),
    ("user", "gvet"),
    ("kind", "gvet"),
    ("size", "gve"),
    ("quality", "gve"),
    ("background", "gve"),
    ("output_format", "gve"),
    ("moderation", "gve"),
    ("stream", "gve"),
];

/// Whether a field belongs to a kind.
pub fn belongs(field: &str, kind: Kind) -> bool {
    let letter = &kind.name()[..1];
    FIELDS.iter().any(|(name, kinds)| *name == field && kinds.contains(letter))
}

/// The fields of a form that are numbers or booleans, and not texts.
const NUMBERS: &[&str] = &[
    "n",
    "seed",
    "steps",
    "rho",
    "eta",
    "churn",
    "clip",
    "guidance",
    "first",
    "strength",
    "tile",
    "overlap",
    "threshold",
];
const SWITCHES: &[&str] = &["free_first_step", "flip_test", "async", "previews", "stream"];

/// The JSON value of a text in a form. A text that is no number stays one, and is refused by its type later.
pub fn form_value(field: &str, text: String) -> serde_json::Value {
    let number = |text: &str| text.trim().parse::<serde_json::Number>().ok();
    if NUMBERS.contains(&field) {
        return number(&text).map_or(text.into(), Into::into);
    }
    if SWITCHES.contains(&field) {
        return text.trim().parse::<bool>().map_or(text.into(), Into::into);
    }
    if field == "guidance_interval" {
        let numbers: Option<Vec<_>> = text.split(',').map(number).collect();
        return numbers.map_or(text.into(), Into::into);
    }
    text.into()
}

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

/// The largest seed that JavaScript can read, and the bound of those that are drawn.
const DRAWN_SEEDS: u64 = 1 << 32;
/// The strength of variations that give none.
const STRENGTH: f64 = 0.6;

impl Request {
    /// Checks everything, and resolves the settings. It may load the model, and blocks.
    pub fn prepare(self, kind: Kind, library: &Library, limits: &Limits) -> Result<Prepared, ApiError> {
        let fields = &self.fields;
        if let Some(field) = self.given.iter().find(|field| !belongs(field, kind)) {
            let problem = format!("the field `{field}` does not belong to a {}", kind.name());
            return Err(ApiError::invalid(field, problem));
        }
        if fields.stream == Some(true) {
            let problem = "streams are events of a job: send `async` and read /v1/jobs/{id}/events";
            return Err(ApiError::invalid("stream", problem));
        }
        let task = match kind {
            Kind::Edit => Some("inpaint".to_string()),
            Kind::Task => Some(fields.task.clone().ok_or_else(|| ApiError::invalid("task", "name a task"))?),
            _ => None,
        };
        let model = find_model(fields.model.as_deref(), kind, task.as_deref(), library)?;
        let n = fields.n.unwrap_or(1);
        if n == 0 || n > limits.max_count {
            return Err(ApiError::invalid("n", format!("must be from 1 to {}, not {n}", limits.max_count)));
        }
        if fields.response_format == Some(ResponseFormat::Png) && n != 1 {
            return Err(ApiError::invalid("response_format", "png is one file: n must be 1"));
        }
        let seed = fields.seed.unwrap_or_else(|| crate::random_number() % DRAWN_SEEDS);
        let first = fields.first.unwrap_or(0);
        if first.checked_add(n).is_none() {
            return Err(ApiError::invalid("first", "image indices must be below 2^64"));
        }
        if fields.user.as_ref().is_some_and(|user| user.len() > 200) {
            return Err(ApiError::invalid("user", "at most 200 bytes"));
        }
        let loaded = library.load(model).map_err(|e| ApiError::server(&e))?;
        let options = self.options(kind, model, limits)?;
        let config = &loaded.checkpoint.config;
        // A limit below the model's own steps must not refuse requests that name none.
        let steps = model.info().defaults.steps.min(limits.max_steps);
        let base = crossfade::SampleConfig { steps, ..config.sample.clone() };
        let run = RunConfig { sample: base, ..config.clone() };
        let sample = options.applied(&run, str::to_string).map_err(|e| ApiError::of_option(&e))?;
        let run = RunConfig { sample: sample.clone(), ..config.clone() };
        run.validate().map_err(|e| ApiError::of_option(&e))?;
        let steps = sample.times(&config.process).map_err(|e| ApiError::of_option(&e))?.len() - 1;
        if steps > limits.max_steps {
            return Err(ApiError::invalid("steps", format!("at most {}, not {steps}", limits.max_steps)));
        }
        let pipeline = loaded.pipeline.with_sample(&sample).map_err(|e| ApiError::of_option(&e))?;
        let mut spec = JobSpec {
            kind,
            task: task.clone(),
            model: model.name().into(),
            digest: model.digest().into(),
            seed,
            n,
            first,
            evaluations: pipeline.evaluations().map_err(|e| ApiError::of_option(&e))?,
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
        if matches!(kind, Kind::Generation | Kind::Variation) {
            pipeline.ready().map_err(|e| ApiError::of_option(&e))?;
        }
        let mut size = model.info().width.map(|side| [side; 2]);
        if kind == Kind::Variation {
            pipeline.picture_size().map_err(|e| ApiError::of_option(&e))?;
            let strength = fields.strength.unwrap_or(STRENGTH);
            let run = pipeline.steps_of_strength(strength).map_err(|e| ApiError::invalid("strength", e.to_string()))?;
            (spec.strength, spec.steps) = (Some(strength), run);
        }
        if kind != Kind::Generation {
            let [w, h] = self.check_picture(kind, model, &loaded, limits)?;
            let scale = config.task.task().scale();
            size = if spec.fit.is_some() { size } else { Some([w * scale, h * scale]) };
            check_tiles(&spec)?;
        }
        check_size(fields.size.as_deref(), size)?;
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
                Err(ApiError::invalid(param, format!("must be a number from {least}{most}, not {value}")))
            }
            value => Ok(value),
        };
        if let Some(steps) = fields.steps.filter(|steps| *steps == 0 || *steps > limits.max_steps as u64) {
            return Err(ApiError::invalid("steps", format!("must be from 1 to {}, not {steps}", limits.max_steps)));
        }
        let sampler = fields.sampler.as_deref().map(Sampler::parse).transpose();
        let grid = fields.grid.as_deref().map(GridKind::from_argument).transpose();
        let blend = fields.blend.as_deref().map(Blend::parse).transpose();
        if let Some([from, to]) = fields.guidance_interval
            && !(0.0 <= from && from < to && to <= 1.0)
        {
            let problem = "must be two times from 0 to 1, the smaller one first";
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
            class,
            guidance: finite("guidance", fields.guidance, 0.0, 1e3)?,
            guidance_interval: fields.guidance_interval,
        })
    }

    /// Decodes what was sent, so that nothing is accepted that cannot be done; the size of the picture.
    fn check_picture(
        &self,
        kind: Kind,
        model: &Model,
        loaded: &Arc<Loaded>,
        limits: &Limits,
    ) -> Result<[usize; 2], ApiError> {
        let missing = |param: &'static str| ApiError::invalid(param, format!("a picture is missing: send `{param}`"));
        let bytes = self.image.as_deref().ok_or_else(|| missing("image"))?;
        let task = &loaded.checkpoint.config.task;
        let scale = task.task().scale();
        let decode = |param: &'static str, bytes: &[u8], scale: usize| {
            let (width, height) = dimensions(bytes, param).map_err(|e| ApiError::invalid(param, e.to_string()))?;
            if width.saturating_mul(height).saturating_mul(scale * scale) > limits.max_pixels {
                let (most, result) = (limits.max_pixels, if scale > 1 { " in the result" } else { "" });
                let problem = format!("{width}x{height} pixels: at most {most} pixels{result} are allowed");
                return Err(ApiError::invalid(param, problem));
            }
            Image16::decode(bytes, param).map_err(|e| ApiError::invalid(param, e.to_string()))
        };
        let picture = decode("image", bytes, scale)?;
        if kind == Kind::Variation && self.fields.fit.is_none() {
            let side = model.info().width.unwrap_or(1);
            if picture.width.min(picture.height) < side && (picture.width, picture.height) != (side, side) {
                let (w, h) = (picture.width, picture.height);
                let problem = format!("{w}x{h} pixels, the network {side}x{side}: give `fit` crop or stretch");
                return Err(ApiError::invalid("image", problem));
            }
        }
        match (task, &self.mask) {
            (TaskConfig::Inpainting(_), mask) => {
                if let Some(mask) = mask {
                    decode("mask", mask, 1)?;
                }
                mask_of(&picture, mask.as_deref()).map_err(|e| ApiError::invalid("mask", e.to_string()))?;
            }
            (_, Some(_)) => return Err(ApiError::invalid("mask", "only inpainting has a mask")),
            _ => (),
        }
        Ok([picture.width, picture.height])
    }
}

fn check_size(wanted: Option<&str>, size: Option<[usize; 2]>) -> Result<(), ApiError> {
    let Some(wanted) = wanted.filter(|wanted| *wanted != "auto") else { return Ok(()) };
    let own = size.map(|[w, h]| format!("{w}x{h}"));
    match own {
        Some(own) if own == wanted => Ok(()),
        Some(own) => {
            Err(ApiError::invalid("size", format!("the pictures of this model have {own} pixels, not {wanted}")))
        }
        None => Err(ApiError::invalid("size", "this model has no size of its own; leave it out")),
    }
}

fn check_tiles(spec: &JobSpec) -> Result<(), ApiError> {
    if spec.threshold.is_some_and(|x| !(0.0..=1.0).contains(&x)) {
        return Err(ApiError::invalid("threshold", "must be from 0 to 1"));
    }
    let maps = ["saliency", "edge"];
    if spec.threshold.is_some() && !spec.task.as_deref().is_some_and(|task| maps.contains(&task)) {
        return Err(ApiError::invalid("threshold", "belongs to saliency and edge"));
    }
    if spec.tile.is_some_and(|tile| !(1..=65536).contains(&tile)) {
        return Err(ApiError::invalid("tile", "must be from 1 to 65536"));
    }
    match (spec.tile, spec.overlap) {
        (Some(tile), Some(overlap)) if overlap >= tile => {
            Err(ApiError::invalid("overlap", format!("tiles of {tile} pixels cannot share {overlap}")))
        }
        (None, Some(_)) => Err(ApiError::invalid("overlap", "needs `tile`")),
        _ => Ok(()),
    }
}

/// The name that determines the noise of a task.
fn name_of(given: Option<&str>) -> Result<String, ApiError> {
    let name = given.unwrap_or("picture.png");
    let fine = (1..=255).contains(&name.len()) && !name.chars().any(char::is_control);
    if fine { Ok(name.into()) } else { Err(ApiError::invalid("name", "must have 1 to 255 plain characters")) }
}

/// The model of a request: the one it names, or the first that can do it.
fn find_model<'a>(
    wanted: Option<&str>,
    kind: Kind,
    task: Option<&str>,
    library: &'a Library,
) -> Result<&'a Arc<Model>, ApiError> {
    let able = |model: &Arc<Model>| {
        let info = model.info();
        let does = info.kinds.contains(&kind.name());
        does && (kind != Kind::Task || task.is_some_and(|task| info.tasks.iter().any(|own| own == task)))
    };
    let names = |models: &mut dyn Iterator<Item = &Arc<Model>>| {
        let names: Vec<&str> = models.map(|model| model.name()).collect();
        if names.is_empty() { "none".into() } else { names.join(", ") }
    };
    let what = task.filter(|_| kind == Kind::Task).unwrap_or(kind.name());
    let listed = names(&mut library.models().iter().filter(|model| able(model)));
    match wanted {
        None => library
            .models()
            .iter()
            .find(|model| able(model))
            .ok_or_else(|| ApiError::invalid("model", format!("no model of this server can do this ({what})"))),
        Some(name) => {
            let Some(model) = library.find(name) else {
                let all = names(&mut library.models().iter());
                return Err(ApiError::no_model(name, &all));
            };
            if able(model) {
                return Ok(model);
            }
            let problem = format!("the model {name} cannot do this ({what}); models that can: {listed}");
            Err(ApiError::invalid("model", problem))
        }
    }
}
