//! Weights that were trained elsewhere: encoders, and whole networks of the reference.
use std::path::Path;

use burn::tensor::Device;

use super::cond_unet::CondUNet;
use super::config::{CondUNetConfig, EncoderConfig};
use crate::error::{Error, Result, Shown};
use crate::nn::backbone::{BackboneConfig, NetworkPorts};
use crate::nn::named::shapes;
use crate::nn::weights::apply;
use crate::tensorfile::TensorMap;
use crate::torchfile::{TensorF32, Weights, read};

/// The names that a parameter of the encoder may have in files: torchvision's, or those of LPIPS for VGG-16.
fn names_in_files(name: &str, encoder: &EncoderConfig) -> Vec<String> {
    match encoder {
        EncoderConfig::SwinB | EncoderConfig::SwinT => torchvision_swin(name).into_iter().collect(),
        EncoderConfig::Vgg16 { .. } => {
            let Some((layer, part)) = name.strip_prefix("conv.").and_then(|rest| rest.split_once('.')) else {
                return vec![];
            };
            let entry = layer.parse().ok().and_then(|layer: usize| TORCHVISION_VGG16.get(layer));
            let theirs = entry.map(|entry| format!("features.{entry}.{part}"));
            std::iter::once(format!("conv{layer}.{part}")).chain(theirs).collect()
        }
        EncoderConfig::Unet { .. } => vec![],
    }
}

/// Which entries of torchvision's `features` are convolutions; the others are ReLUs and poolings.
const TORCHVISION_VGG16: [usize; 13] = [0, 2, 5, 7, 10, 12, 14, 17, 19, 21, 24, 26, 28];

/// torchvision's name of a parameter of a Swin transformer.
///
/// Its first entry of `features` is the stem, so that the others are one further.
fn torchvision_swin(name: &str) -> Option<String> {
    if let Some(rest) = name.strip_prefix("first_coonv.") {
        return Some(format!("features.0.{rest}"));
    }
    let Some(rest) = name.strip_prefix("features.") else { return Some(name.to_owned()) };
    let (stage, rest) = rest.split_once('.')?;
    Some(format!("features.{}.{rest}", stage.parse::<usize>().ok()? + 1))
}

/// The network with the encoder's weights from a file (`.pth` or safetensors): torchvision's of a Swin transformer or of
/// VGG-16, or those of LPIPS with VGG-16, whose further layers are left alone.
///
/// For a condition of one channel the stem's weights of a Swin transformer are the mean over colours.
pub fn load_encoder(mut net: CondUNet, config: &CondUNetConfig, path: &Path) -> Result<CondUNet> {
    if matches!(config.encoder, EncoderConfig::Unet { .. }) {
        return Err(Error::request(format!(
            "{}: weights from elsewhere are for other encoders; set encoder.kind to 'swin-b', 'swin-t' or 'vgg16' to use them",
            path.shown(),
        )));
    }
    let mut file = read(path, Weights::Model)?.tensors;
    let mut weights = TensorMap::new();
    for (name, shape) in shapes(&net.encoder) {
        let names = names_in_files(&name, &config.encoder);
        let Some(found) = names.iter().find_map(|name| file.remove(name)) else { continue };
        if let Some(bad) = found.data.iter().find(|v| !v.is_finite()) {
            return Err(Error::file(path, format!("{} holds {bad}; the weights are damaged", names[0])));
        }
        let grey = name == "first_coonv.0.weight" && shape[1] == 1 && found.shape.get(1) == Some(&3);
        weights.insert(name, if grey { mean_over_colours(&found) } else { (found.shape, found.data) });
    }
    net.encoder = apply(net.encoder, &|name| weights.get(name).cloned())
        .map_err(|e| Error::file(path, format!("not the weights of this encoder: {e}")))?;
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
