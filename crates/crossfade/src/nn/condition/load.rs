//! Weights that were trained elsewhere: torchvision's encoders, and whole networks of the reference.
use std::path::Path;

use burn::tensor::Device;

use super::cond_unet::CondUNet;
use super::config::CondUNetConfig;
use crate::error::{Error, Result};
use crate::nn::backbone::{BackboneConfig, NetworkPorts};
use crate::nn::named::shapes;
use crate::nn::weights::apply;
use crate::tensorfile::TensorMap;
use crate::torchfile::{TensorF32, Weights, read};

/// torchvision's name of a parameter of the encoder.
///
/// Its first entry of `features` is the stem, so that the others are one further.
fn torchvision(name: &str) -> Option<String> {
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
pub fn load_encoder(mut net: CondUNet, config: &CondUNetConfig, path: &Path) -> Result<CondUNet> {
    if config.encoder.swin().is_none() {
        return Err(Error::request(format!(
            "{}: these are weights of a Swin transformer; set encoder.kind to 'swin-b' or 'swin-t' to use them",
            path.display(),
        )));
    }
    let mut file = read(path, Weights::Model)?.tensors;
    let mut weights = TensorMap::new();
    for (name, shape) in shapes(&net.encoder) {
        let Some(found) = torchvision(&name).and_then(|name| file.remove(&name)) else { continue };
        let grey = name == "first_coonv.0.weight" && shape[1] == 1 && found.shape.get(1) == Some(&3);
        weights.insert(name, if grey { mean_over_colours(&found) } else { (found.shape, found.data) });
    }
    net.encoder = apply(net.encoder, &|name| weights.get(name).cloned())
        .map_err(|e| Error::file(path, format!("not torchvision's weights of this encoder: {e}")))?;
    Ok(net)
}

fn mean_over_colours(tensor: &TensorF32) -> (Vec<usize>, Vec<f32>) {
    let mut shape = tensor.shape.clone();
    let plane: usize = shape[2..].iter().product();
    shape[1] = 1;
    let mean = |filter: &[f32]| -> Vec<f32> {
        (0..plane).map(|i| (filter[i] + filter[i + plane] + filter[i + 2 * plane]) / 3.0).collect()
    };
    (shape, tensor.data.chunks_exact(3 * plane).flat_map(mean).collect())
}

/// A parameter that every conditional network of the reference has; what precedes this name is the file's prefix.
const LANDMARK: &str = "init_conv.0.weight";

impl CondUNetConfig {
    /// The network with the weights of a reference checkpoint or state dict (`.pt` or safetensors), by exact names.
    ///
    /// Names may have a common prefix such as `model.`; what is beside the network, such as an autoencoder, is left alone.
    pub fn load(&self, ports: NetworkPorts, path: &Path, which: Weights, device: &Device) -> Result<CondUNet> {
        let problems = self.validate();
        if !problems.is_empty() {
            return Err(Error::config(&problems));
        }
        let mut file = read(path, which)?.tensors;
        let prefix = file.keys().find_map(|name| name.strip_suffix(LANDMARK)).map(str::to_owned).ok_or_else(|| {
            Error::file(path, format!("no weights of a conditional network: nothing is named {LANDMARK}"))
        })?;
        let mut weights = TensorMap::new();
        for (name, _) in self.state_shapes(ports) {
            if let Some(found) = file.remove(&format!("{prefix}{name}")) {
                weights.insert(name, (found.shape, found.data));
            }
        }
        let ignored = self.ignored_buffers();
        let left = file.keys().filter_map(|name| name.strip_prefix(&prefix));
        // Without a prefix one cannot tell what lies beside the network from what should be a part of it.
        let left = left.filter(|name| !prefix.is_empty() && ignored.iter().all(|(known, _)| known != name));
        let left: Vec<&str> = left.take(5).collect();
        if !left.is_empty() {
            return Err(Error::file(path, format!("weights that this network does not have: {}…", left.join(", "))));
        }
        apply(self.lazy(ports, device), &|name| weights.get(name).cloned())
            .map_err(|e| Error::file(path, e.to_string()))
    }
}
