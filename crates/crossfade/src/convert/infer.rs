//! Infers the configuration of a network from its state dict when the user does not give one (Appendix B, §4.2).
use crate::error::{Error, Result};
use crate::nn::{BackboneConfig, Decoders, UNetConfig};
use crate::torchfile::Source;
use serde::Serialize;

/// Limit of the resolution, and thereby of the number of levels, that a file may claim.
const MAX_RESOLUTION: usize = 1 << 14;

/// The configuration of an unconditional U-Net, as far as names and shapes determine it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct InferredUnet {
    /// The network's options. Dropout and the skip scaling of single-decoder networks cannot be seen in the weights
    /// and have their defaults. Below 64 channels attention has no heads and no weights, so a level that asked for it
    /// is not listed; the network is the same.
    pub config: UNetConfig,
    /// Number of parts of phi that the first head predicts (1 for constant, 2 for linear attenuation).
    pub phi_parts: usize,
}

/// Infers the options of the unconditional U-Net in `source` from its names and shapes.
pub fn infer_unet(source: &Source) -> Result<InferredUnet> {
    let first_layer = "map_layer0.weight";
    let prefix =
        source.tensors.keys().find_map(|n| n.strip_suffix(first_layer).filter(|p| p.is_empty() || p.ends_with('.')));
    let Some(prefix) = prefix else {
        return Err(Error::request(
            "these are not the weights of an unconditional U-Net: there is no map_layer0.weight",
        ));
    };
    let net = Net { source, prefix };

    let [embedding, width] = net.shape(first_layer)?;
    if width == 0 || width.checked_mul(4) != Some(embedding) {
        return Err(Error::request(format!("{first_layer} is [{embedding}, {width}]; expected [4M, M] for a width M")));
    }
    let resolution = net.resolution()?;
    let [_, channels, _, _] = net.shape(&format!("enc.{resolution}x{resolution}_conv.weight"))?;

    let (mut mult, mut attention, mut blocks) = (Vec::new(), Vec::new(), None);
    // Every level halves the resolution; the encoder ends at the first one without blocks.
    for r in (0..).map_while(|level| Some(resolution >> level).filter(|&r| r > 0)) {
        let level = format!("enc.{r}x{r}_block");
        let count = (0..).take_while(|i| net.has(&format!("{level}{i}.conv0.weight"))).count();
        if count == 0 {
            break;
        }
        if *blocks.get_or_insert(count) != count {
            return Err(Error::request(format!("the level {r}x{r} has {count} blocks, the ones before it others")));
        }
        let [c_out, _, _, _] = net.shape(&format!("{level}0.conv0.weight"))?;
        mult.push(exact(c_out, width, "the channels of a level", "width")?);
        if net.has(&format!("{level}0.qkv.weight")) {
            attention.push(r);
        }
    }
    let blocks = blocks.ok_or_else(|| Error::request(format!("the level {resolution}x{resolution} has no blocks")))?;

    let [out_channels, _, _, _] = net.shape("out_conv.weight")?;
    let augment_dim = if net.has("map_augment.weight") { net.shape::<2>("map_augment.weight")?[1] } else { 0 };
    let classes = if net.has("map_label.weight") { net.shape::<2>("map_label.weight")?[1] } else { 0 };
    // Each architecture has a layer that the others lack (§4.2, §4.4, §4.5).
    let decoders = match (net.has("out_conv2.weight"), net.has("branch.conv1.weight")) {
        (true, _) => Decoders::Two,
        (false, true) => Decoders::Conv,
        (false, false) => Decoders::One,
    };
    let phi_parts = exact(out_channels, channels, "the channels of the first head", "image channels")?;
    let options = UNetConfig { resolution, channels, width, mult, blocks, attention, ..UNetConfig::default() };
    let config = UNetConfig { decoders, augment_dim, classes, ..options };
    let problems = config.validate();
    if problems.is_empty() { Ok(InferredUnet { config, phi_parts }) } else { Err(Error::config(&problems)) }
}

/// n / by; an error if that is not a positive integer.
fn exact(n: usize, by: usize, what: &str, unit: &str) -> Result<usize> {
    match n.checked_div(by) {
        Some(quotient) if quotient > 0 && quotient * by == n => Ok(quotient),
        _ => Err(Error::request(format!("{what} ({n}) are no multiple of the {unit} ({by})"))),
    }
}

/// The tensors whose names start with one prefix.
struct Net<'a> {
    source: &'a Source,
    prefix: &'a str,
}

impl Net<'_> {
    fn has(&self, name: &str) -> bool {
        self.source.tensors.contains_key(&format!("{}{name}", self.prefix))
    }

    fn shape<const D: usize>(&self, name: &str) -> Result<[usize; D]> {
        let name = format!("{}{name}", self.prefix);
        let tensor = self.source.tensors.get(&name).ok_or_else(|| Error::request(format!("there is no {name}")))?;
        let shape = tensor.shape.as_slice().try_into();
        shape.map_err(|_| Error::request(format!("{name} has shape {:?}, expected {D} dimensions", tensor.shape)))
    }

    /// R of the only `enc.{R}x{R}_conv.weight`.
    fn resolution(&self) -> Result<usize> {
        let start = format!("{}enc.", self.prefix);
        let mut found = self.source.tensors.keys().filter_map(|name| {
            let (r, other) = name.strip_prefix(&start)?.strip_suffix("_conv.weight")?.split_once('x')?;
            r.parse::<usize>().ok().filter(|n| r == other && (1..=MAX_RESOLUTION).contains(n))
        });
        match (found.next(), found.next()) {
            (Some(r), None) => Ok(r),
            _ => Err(Error::request("the resolution cannot be inferred: there is no single enc.{R}x{R}_conv.weight")),
        }
    }
}
