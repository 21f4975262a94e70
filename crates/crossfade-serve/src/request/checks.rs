//! Checks of single fields against the model and the limits.
use super::Request;
use crate::api::ApiError;
use crate::config::Limits;
use crate::job::{JobSpec, Kind};
use crate::models::{Library, Model};
use crate::run::mask_of;
use crossfade::data::{Image16, dimensions};
use crossfade::task::TaskConfig;
use std::sync::Arc;

impl Request {
    /// Decodes what was sent, so that nothing is accepted that cannot be done; the size of the picture.
    pub(super) fn check_picture(&self, kind: Kind, model: &Model, limits: &Limits) -> Result<[usize; 2], ApiError> {
        let missing =
            |param: &'static str| ApiError::invalid(param, format!("the field `{param}` is missing; send a picture"));
        let bytes = self.image.as_deref().ok_or_else(|| missing("image"))?;
        let task = &model.config.task;
        let scale = task.task().scale();
        let decode = |param: &'static str, bytes: &[u8], scale: usize| {
            let (width, height) = dimensions(bytes, param).map_err(|e| ApiError::invalid(param, e.to_string()))?;
            if width.saturating_mul(height).saturating_mul(scale * scale) > limits.max_pixels {
                let (most, result) = (limits.max_pixels, if scale > 1 { " in the result" } else { "" });
                let problem =
                    format!("`{param}` has {width}x{height} pixels; at most {most} pixels{result} are allowed");
                return Err(ApiError::invalid(param, problem));
            }
            Image16::decode(bytes, param).map_err(|e| ApiError::invalid(param, e.to_string()))
        };
        let picture = decode("image", bytes, scale)?;
        if kind == Kind::Variation && self.fields.fit.is_none() {
            let side = model.info().width.unwrap_or(1);
            if picture.width.min(picture.height) < side && (picture.width, picture.height) != (side, side) {
                let (w, h) = (picture.width, picture.height);
                let problem =
                    format!("`image` has {w}x{h} pixels and the network {side}x{side}; send `fit` crop or stretch");
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
            (_, Some(_)) => return Err(ApiError::invalid("mask", "the field `mask` belongs to inpainting only")),
            _ => (),
        }
        Ok([picture.width, picture.height])
    }
}

/// Whether a wanted size is the one that the pictures have anyway.
pub(super) fn check_size(wanted: Option<&str>, size: Option<[usize; 2]>) -> Result<(), ApiError> {
    let Some(wanted) = wanted.filter(|wanted| *wanted != "auto") else { return Ok(()) };
    let own = size.map(|[w, h]| format!("{w}x{h}"));
    match own {
        Some(own) if own == wanted => Ok(()),
        Some(own) => {
            Err(ApiError::invalid("size", format!("`size` must be {own}, which the pictures have, not {wanted}")))
        }
        None => Err(ApiError::invalid("size", "this model has no size of its own; leave `size` out")),
    }
}

/// Whether the settings of tiles and maps fit each other and the task.
pub(super) fn check_tiles(spec: &JobSpec) -> Result<(), ApiError> {
    if spec.threshold.is_some_and(|x| !(0.0..=1.0).contains(&x)) {
        return Err(ApiError::invalid("threshold", "`threshold` must be from 0 to 1"));
    }
    let maps = ["saliency", "edge"];
    if spec.threshold.is_some() && !spec.task.as_deref().is_some_and(|task| maps.contains(&task)) {
        return Err(ApiError::invalid("threshold", "the field `threshold` belongs to saliency and edge"));
    }
    if spec.tile.is_some_and(|tile| !(1..=65536).contains(&tile)) {
        return Err(ApiError::invalid("tile", "`tile` must be from 1 to 65536"));
    }
    match (spec.tile, spec.overlap) {
        (Some(tile), Some(overlap)) if overlap >= tile => Err(ApiError::invalid(
            "overlap",
            format!("`overlap` must be smaller than `tile`: {overlap} is not below {tile}"),
        )),
        (None, Some(_)) => Err(ApiError::invalid("overlap", "`overlap` needs the field `tile`")),
        _ => Ok(()),
    }
}

/// The name that determines the noise of a task.
pub(super) fn name_of(given: Option<&str>) -> Result<String, ApiError> {
    let name = given.unwrap_or("picture.png");
    let fine = (1..=255).contains(&name.len()) && !name.chars().any(char::is_control);
    if fine { Ok(name.into()) } else { Err(ApiError::invalid("name", "`name` must have 1 to 255 plain characters")) }
}

/// The model of a request: the one it names, or the first that can do it.
pub(super) fn find_model<'a>(
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
    let what = match (kind, task) {
        (Kind::Task, Some(task)) => format!("the task {task}"),
        _ => format!("{}s", kind.name()),
    };
    let listed = names(&mut library.models().iter().filter(|model| able(model)));
    match wanted {
        None => library
            .models()
            .iter()
            .find(|model| able(model))
            .ok_or_else(|| ApiError::invalid("model", format!("no model of this server makes {what}"))),
        Some(name) => {
            let Some(model) = library.find(name) else {
                let all = names(&mut library.models().iter());
                return Err(ApiError::no_model(name, &all));
            };
            if able(model) {
                return Ok(model);
            }
            let problem = format!("the model {name} does not make {what}; models that do: {listed}");
            Err(ApiError::invalid("model", problem))
        }
    }
}
