//! Weights of encoders that were trained elsewhere.
use std::path::Path;

use super::cond_unet::CondUNet;
use super::config::CondUNetConfig;
use crate::checkpoint::Weights;
use crate::convert::{TensorF32, read};
use crate::error::{Error, Result};
use crate::nn::named::shapes;
use crate::nn::weights::{apply, collect};
use crate::tensorfile::TensorMap;

/// The name that torchvision has for a part of the encoder.
///
/// Its first entry of `features` is the stem, so that the others are one further.
fn torchvision(name: &str) -> Option<String> {
    let name = name.strip_prefix("init_conv_mask.")?;
    if let Some(rest) = name.strip_prefix("first_coonv.") {
        return Some(format!("features.0.{rest}"));
    }
    let Some(rest) = name.strip_prefix("features.") else { return Some(name.to_owned()) };
    let (stage, rest) = rest.split_once('.')?;
    Some(format!("features.{}.{rest}", stage.parse::<usize>().ok()? + 1))
}

/// The network with the encoder's weights from a file of torchvision's Swin transformer (`.pth` or safetensors).
///
/// For a condition of one channel the stem's weights are the mean over colours.
pub fn load_encoder(net: CondUNet, config: &CondUNetConfig, path: &Path) -> Result<CondUNet> {
    if config.encoder.swin().is_none() {
        return Err(Error::request(format!(
            "{}: these are weights of a Swin transformer, and the network's encoder is {:?}; choose 'swin-b' or 'swin-t'",
            path.display(),
            config.encoder
        )));
    }
    let file = read(path, Weights::Model)?.tensors;
    let mut weights: TensorMap =
        collect(&net).into_iter().map(|(name, shape, values)| (name, (shape, values))).collect();
    for (name, shape) in shapes(&net) {
        let Some(theirs) = torchvision(&name) else { continue };
        let Some(found) = file.get(&theirs) else { continue };
        let grey = theirs == "features.0.0.weight" && shape[1] == 1 && found.shape.get(1) == Some(&3);
        let tensor = if grey { mean_over_colours(found) } else { (found.shape.clone(), found.data.clone()) };
        weights.insert(name, tensor);
    }
    let missing: Vec<String> =
        shapes(&net).iter().filter_map(|(name, _)| torchvision(name)).filter(|name| !file.contains_key(name)).collect();
    if !missing.is_empty() {
        let first: Vec<_> = missing.iter().take(5).map(String::as_str).collect();
        let message = format!(
            "not torchvision's weights of this encoder: {} names are missing ({}…)",
            missing.len(),
            first.join(", ")
        );
        return Err(Error::file(path, message));
    }
    apply(net, &|name| weights.get(name).cloned()).map_err(|e| Error::file(path, e.to_string()))
}

fn mean_over_colours(tensor: &TensorF32) -> (Vec<usize>, Vec<f32>) {
    let mut shape = tensor.shape.clone();
    let plane: usize = shape[2..].iter().product();
    shape[1] = 1;
    let mean = |filter: &[f32]| {
        (0..plane).map(|i| (filter[i] + filter[i + plane] + filter[i + 2 * plane]) / 3.0).collect::<Vec<_>>()
    };
    (shape, tensor.data.chunks_exact(3 * plane).flat_map(mean).collect())
}
