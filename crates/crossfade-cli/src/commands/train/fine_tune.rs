//! `crossfade train --from MODEL` without a configuration: the model's own settings on other images.
use crate::cli::Overrides;
use crate::context::Context;
use anyhow::{Context as _, Result};
use crossfade::config::RunConfig;
use crossfade::latent::{Latent, image_size};
use crossfade::nn::BackboneConfig;
use crossfade::train::{FineTuning, fine_tuning_of, with_classes_of};
use std::path::Path;

/// The configuration of a fine-tuning of the model `from`, with the overrides applied. Unless they say otherwise, the kind of
/// the images follows from their path, and the number of classes from the images.
pub fn config(from: &Path, overrides: &Overrides, context: &Context) -> Result<RunConfig> {
    let config = fine_tuning_of(from)?;
    let value = |key: &str| {
        let mut sets = overrides.sets.iter().rev().filter_map(|set| set.split_once('='));
        sets.find(|(found, _)| found.trim() == key).map(|(_, value)| value.trim().trim_matches('"'))
    };
    let mut sets = overrides.sets.clone();
    if let (Some(path), None, true) = (value("data.path"), value("data.kind"), !config.task.task().needs_labels()) {
        let path = overrides.data_root.as_deref().unwrap_or(Path::new("")).join(path);
        let kind = if path.extension().is_some_and(|e| e == "zip") { "zip" } else { "folder" };
        let same = config.data.clone().paths_mut().first().is_some_and(|(_, own)| own.extension() == path.extension());
        sets.extend((path.is_dir() || !same).then(|| format!("data.kind={kind}")));
    }
    let known = config.network.classes();
    let config = Overrides { sets, data_root: overrides.data_root.clone() }.apply(config)?;
    if known == 0 || value("network.classes").is_some() {
        return Ok(config);
    }
    let start = FineTuning::open(from, &config)?;
    let latent = Latent::of(&start.checkpoint, &context.device)?;
    let (side, channels) = image_size(&config, latent.as_ref());
    let images = config.data.open(side, channels).context("opening the images (--set data.path=…)")?;
    Ok(with_classes_of(config, &*images)?)
}
