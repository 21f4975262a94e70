//! A trained checkpoint as a model that ships: the averaged weights in half the space, and what sampling needs besides.
use super::{Checkpoint, MEAN_X0, class_names_entry, metadata_of};
use crate::config::RunConfig;
use crate::digest::sha256_file;
use crate::error::{Error, Result};
use crate::nn::BackboneConfig;
use crate::tensorfile::{Element, HostTensor, save_tensors_as};
use crate::torchfile::Weights;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// A packed model: its file, and what rounding has changed.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Packed {
    /// The file.
    #[serde(serialize_with = "crate::error::serialize_path")]
    pub file: PathBuf,
    /// The task of the model.
    pub task: &'static str,
    /// The size of the file.
    pub bytes: u64,
    /// SHA-256 of the file, in hexadecimal.
    pub sha256: String,
    /// The type of the numbers of matrices and convolutions.
    pub dtype: &'static str,
    /// What rounding has changed.
    pub rounding: Rounding,
}

/// The differences between numbers and their rounded ones.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize)]
pub struct Rounding {
    /// How many numbers there are.
    pub numbers: u64,
    /// The largest difference.
    pub largest: f64,
    /// The tensor with the largest difference.
    pub largest_in: String,
    /// The root mean square of the differences.
    pub rms: f64,
    /// The same, relative to the root mean square of the numbers.
    pub relative_rms: f64,
}

impl Checkpoint {
    /// Writes the chosen weights, rounded to `element`, with the configuration, the class names, the mean image, the fitted
    /// times and the autoencoder. The state of the optimiser is left out, and so are directories. Equal checkpoints give equal
    /// bytes. `sets` are assignments of the section `[sample]`, which become the defaults of the model.
    pub fn pack(&self, out: &Path, weights: Weights, element: Element, sets: &[String]) -> Result<Packed> {
        if let Some(set) = sets.iter().find(|set| !set.trim_start().starts_with("sample.")) {
            let problem = format!("--set {set}: of a trained model, only the section [sample] can be changed");
            return Err(Error::request(problem));
        }
        let config = without_directories(self.config.clone()).with_overrides(sets)?;
        let mut read = self.weights(weights)?;
        let mut tensors: Vec<HostTensor> = vec![];
        for (name, _) in self.config.network.state_shapes(self.config.ports()) {
            let missing = || Error::file(&self.path, format!("has no tensor {name}"));
            let (shape, values) = read.remove(&name).ok_or_else(missing)?;
            tensors.push((name, shape, values));
        }
        let (fixed, mut metadata) = self.fixed_parts()?;
        tensors.extend(fixed);
        let kept: BTreeMap<String, Element> =
            tensors.iter().map(|tensor| (tensor.0.clone(), stored_as(tensor, element))).collect();
        let stored = |name: &str| kept.get(name).copied().unwrap_or_default();
        let rounding = rounding(&tensors, &stored).map_err(|problem| Error::file(&self.path, problem))?;
        metadata.extend(metadata_of(config.to_toml()?, self.step));
        metadata.extend(class_names_entry(&self.class_names));
        save_tensors_as(out, &tensors, &metadata, &stored)?;
        let bytes = std::fs::metadata(out).map_err(Error::io(out))?.len();
        let (file, sha256) = (out.to_path_buf(), sha256_file(out)?);
        Ok(Packed { file, task: config.task.name(), bytes, sha256, dtype: element.name(), rounding })
    }
}

/// The type that a tensor is stored in. Vectors stay exact: they are a hundredth of a network, and variances among them may
/// be out of the range of f16. So does the mean image, from which a sampling step is computed.
fn stored_as((name, shape, _): &HostTensor, element: Element) -> Element {
    if shape.len() < 2 || name == MEAN_X0 { Element::F32 } else { element }
}

/// What rounding changes; an error for numbers that are not finite before or after it.
fn rounding(tensors: &[HostTensor], stored: &dyn Fn(&str) -> Element) -> std::result::Result<Rounding, String> {
    let (mut result, mut errors, mut squares) = (Rounding::default(), 0.0, 0.0);
    for (name, _, values) in tensors {
        let element = stored(name);
        for &value in values {
            let rounded = element.rounded(value);
            if !value.is_finite() {
                return Err(format!("the tensor {name} holds {value}; has the training diverged?"));
            }
            if !rounded.is_finite() {
                let kind = element.name();
                return Err(format!("the tensor {name} holds {value}, too large for {kind}; use --dtype bf16 or f32"));
            }
            let error = (f64::from(value) - f64::from(rounded)).abs();
            if error > result.largest {
                (result.largest, result.largest_in) = (error, name.clone());
            }
            errors += error * error;
            squares += f64::from(value).powi(2);
        }
        result.numbers += values.len() as u64;
    }
    result.rms = (errors / result.numbers.max(1) as f64).sqrt();
    result.relative_rms = if squares > 0.0 { (errors / squares).sqrt() } else { 0.0 };
    Ok(result)
}

/// The configuration without the directories of the machine that trained it, which nobody else has.
fn without_directories(mut config: RunConfig) -> RunConfig {
    let name_only = |path: &mut PathBuf| *path = path.file_name().map(PathBuf::from).unwrap_or_default();
    config.data.paths_mut().into_iter().for_each(|(_, path)| name_only(path));
    if let Some(latent) = &mut config.latent {
        name_only(&mut latent.autoencoder);
        latent.cache = None;
    }
    config.train.from.iter_mut().for_each(name_only);
    // The weights of a pretrained encoder are in the checkpoint.
    config.network = config.network.without_pretrained();
    config
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn tensor(values: &[f32]) -> Vec<HostTensor> {
        vec![("w".into(), vec![1, values.len()], values.to_vec())]
    }

    #[test]
    fn rounding_is_measured_and_overflow_refused() {
        let half = |_: &str| Element::F16;
        let exact = rounding(&tensor(&[1.0, -2.5, 0.0]), &half).unwrap();
        assert_eq!((exact.numbers, exact.largest, exact.rms), (3, 0.0, 0.0));
        // 1 + 2^-12 lies between 1 and 1 + 2^-10.
        let found = rounding(&tensor(&[1.0 + 0.5f32.powi(12), 1.0]), &half).unwrap();
        assert_eq!((found.largest, found.largest_in.as_str()), (0.5f64.powi(12), "w"));
        assert!((found.rms - 0.5f64.powi(12) / 2f64.sqrt()).abs() < 1e-12);
        let error = rounding(&tensor(&[1.0, 70_000.0]), &half).unwrap_err();
        assert!(error.contains("too large for f16") && error.contains("bf16"), "{error}");
        assert!(rounding(&tensor(&[70_000.0]), &|_| Element::Bf16).is_ok());
        assert!(rounding(&tensor(&[f32::NAN]), &half).unwrap_err().contains("diverged"));
    }

    #[test]
    fn vectors_and_the_mean_stay_exact() {
        let stored = |name: &str, shape: &[usize]| stored_as(&(name.into(), shape.to_vec(), vec![]), Element::F16);
        assert_eq!(stored("conv.weight", &[8, 3, 3, 3]), Element::F16);
        assert_eq!(stored("norm.weight", &[8]), Element::F32);
        assert_eq!(stored("scale_factor", &[]), Element::F32);
        assert_eq!(stored(MEAN_X0, &[3, 8, 8]), Element::F32);
    }
}
