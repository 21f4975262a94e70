//! The fields of requests: their types, which kinds they belong to, and how a form writes them.
use crate::job::{FitHow, Kind};
use serde::{Deserialize, Serialize};
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

/// The fields of whole numbers.
const WHOLE: &[&str] = &["n", "seed", "steps", "first", "tile", "overlap"];

/// What a field must be, as the end of a sentence.
pub fn wanted(field: &str) -> &'static str {
    match field {
        _ if WHOLE.contains(&field) => "a whole number from 0 to 2^64 - 1",
        _ if NUMBERS.contains(&field) => "a number",
        _ if SWITCHES.contains(&field) => "true or false",
        "guidance_interval" => "a list of two numbers, in forms two numbers with a comma",
        "fit" => "crop or stretch",
        "response_format" => "b64_json, url or png",
        "kind" => "generation, variation, edit or task",
        "quality" => "auto or standard",
        "background" => "auto or opaque",
        "output_format" => "png",
        "moderation" => "auto or low",
        _ => "a text",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    /// A field that is added is described: nothing but a text is refused as one that is no text.
    #[test]
    fn what_a_field_must_be_is_what_it_takes() {
        for (field, _) in FIELDS {
            let takes = |value: Value| serde_json::from_value::<Fields>(json!({ *field: value })).is_ok();
            let found = match wanted(field) {
                "a whole number from 0 to 2^64 - 1" => {
                    takes(json!(u64::MAX)) && !takes(json!(0.5)) && !takes(json!(-1))
                }
                "a number" => takes(json!(0.5)) && !takes(json!("0.5")),
                "true or false" => takes(json!(true)) && !takes(json!("true")),
                "a text" => takes(json!("any text")) && !takes(json!(1)),
                "a list of two numbers, in forms two numbers with a comma" => {
                    takes(json!([0, 1])) && !takes(json!([0]))
                }
                values => {
                    let values = values.replace(" or ", ", ");
                    values.split(", ").all(|value| takes(json!(value))) && !takes(json!("any text"))
                }
            };
            assert!(found, "{field} is not {}", wanted(field));
        }
    }
}
