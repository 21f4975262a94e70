//! Names, shapes, order and number of the parameters of full-size networks.
use crossfade::convert::{InferredUnet, infer_unet};
use crossfade::engine::Device;
use crossfade::nn::condition::condition_preset;
use crossfade::nn::named::{is_buffer, shapes};
use crossfade::nn::{
    AutoencoderConfig, BackboneConfig, CondUNetConfig, Decoders, NetworkPorts, PatchGan, UNetConfig, preset,
};
use crossfade::torchfile::{Source, TensorF32, Weights};
use sha2::{Digest, Sha256};
use std::io::Read;
use std::path::Path;

use crate::case::Case;

/// The reference's network, our preset, and the parts of phi.
const NETS: [(&str, &str, usize); 9] = [
    ("two_m192_cifar", "cifar10-two-m192", 1),
    ("two_m192_cifar_linear", "cifar10-two-m192", 2),
    ("two_m160_cifar", "cifar10-two-m160", 1),
    ("sd2_m160_cifar", "cifar10-one-m160", 1),
    ("sd_m192_cifar", "cifar10-one-m192", 1),
    ("two_m128_cifar", "cifar10-two-m128", 1),
    ("two_m96_celeba", "celeba-two-m96", 1),
    ("sd2_m128_celeba", "celeba-one-m128", 1),
    ("two_m128_celeba", "celeba-two-m128", 1),
];

/// The reference's conditional network, and ours.
fn conditional() -> [(&'static str, CondUNetConfig); 6] {
    let preset = |name| condition_preset(name).unwrap();
    let one = |name| CondUNetConfig { decoders: Decoders::One, ..preset(name) };
    [
        ("cond_two_d96_inpainting", preset("inpainting")),
        ("cond_two_d128_sr", preset("super-resolution")),
        ("cond_two_d128_1ch", preset("saliency-pixels")),
        ("cond_sd_d96", one("inpainting")),
        ("cond_sd_d128", one("saliency")),
        // Its constructor freezes the encoder where the configuration does not say otherwise.
        ("diffusion_edge_d128", CondUNetConfig { freeze_encoder: true, ..preset("diffusion-edge") }),
    ]
}

/// The autoencoders with their discriminators: channels, levels and latent channels.
const AUTOENCODERS: [(&str, usize, &[usize], usize); 3] =
    [("ae_f4_rgb_z3", 3, &[1, 2, 4], 3), ("ae_f4_gray_z3", 1, &[1, 2, 4], 3), ("ae_f8_gray_z4", 1, &[1, 2, 4, 4], 4)];

/// The discriminators alone and their channels.
const DISCRIMINATORS: [(&str, usize); 2] = [("patchgan_3ch", 3), ("patchgan_1ch", 1)];

pub fn check(case: &Case) -> Vec<String> {
    let nets = case.json["nets"].as_object().unwrap();
    let unets = NETS.iter().map(|(name, preset_name, parts)| (*name, facts(&preset(preset_name).unwrap(), *parts)));
    let autoencoders = AUTOENCODERS.iter().map(|(name, channels, mult, latent)| {
        let sizes = AutoencoderConfig {
            channels: *channels,
            mult: mult.to_vec(),
            bottleneck: *latent,
            latent: *latent,
            ..Default::default()
        };
        (*name, listed(&with_loss(&sizes)))
    });
    let discriminators = DISCRIMINATORS.iter().map(|(name, channels)| (*name, listed(&discriminator(*channels, ""))));
    let mut failures = Vec::new();
    let mut compare = |name: &str, want: &serde_json::Value, facts: &[(&str, String)]| {
        for (key, got) in facts {
            let expected = want[key].as_str().map_or_else(|| want[key].to_string(), str::to_owned);
            if *got != expected {
                failures.push(format!("{name}: {key} is {got}, expected {expected}"));
            }
        }
    };
    for (name, got) in unets.chain(autoencoders).chain(discriminators) {
        if let Some(want) = nets.get(name) {
            compare(name, want, &got);
        }
    }
    for (name, config) in conditional() {
        if let Some(want) = nets.get(name) {
            compare(name, want, &conditional_facts(&config));
        }
    }
    failures.extend(inference(case));
    failures
}

/// Networks told by their lists of names and shapes; those that are no unconditional U-Net are refused.
fn inference(case: &Case) -> Vec<String> {
    let paths = std::fs::read_dir(&case.dir).unwrap().map(|entry| entry.unwrap().path());
    let mut failures = Vec::new();
    for path in paths.filter(|path| path.extension().is_some_and(|ext| ext == "gz")) {
        let name = path.file_name().unwrap().to_str().unwrap().trim_end_matches(".txt.gz");
        let known = NETS.iter().find(|(known, ..)| *known == name);
        let expected = known.map(|(_, preset_name, phi_parts)| InferredUnet {
            // The probability leaves no trace in the weights.
            config: UNetConfig { dropout: UNetConfig::default().dropout, ..preset(preset_name).unwrap() },
            phi_parts: *phi_parts,
        });
        let inferred = infer_unet(&shapes_only(&path)).ok();
        if inferred != expected {
            failures.push(format!("{name}: found {inferred:?}, expected {expected:?}"));
        }
    }
    failures
}

/// Names and shapes of a full-size net, without values.
fn shapes_only(path: &Path) -> Source {
    let mut text = String::new();
    flate2::read::GzDecoder::new(std::fs::File::open(path).unwrap()).read_to_string(&mut text).unwrap();
    let tensor = |line: &str| {
        let (name, shape) = line.split_once(' ').unwrap();
        let shape: Vec<usize> = serde_json::from_str(shape).unwrap();
        (name.to_string(), TensorF32 { shape, data: Vec::new(), dtype: "f32" })
    };
    Source { tensors: text.lines().map(tensor).collect(), step: None, weights: Weights::Model }
}

pub fn skips(case: &Case) -> Vec<String> {
    let nets = case.json["nets"].as_object().unwrap().keys();
    let ours = |name: &String| {
        NETS.iter().any(|(known, ..)| known == name)
            || AUTOENCODERS.iter().any(|(known, ..)| known == name)
            || conditional().iter().any(|(known, _)| known == name)
            || DISCRIMINATORS.iter().any(|(known, _)| known == name)
    };
    nets.filter(|name| !ours(name)).cloned().collect()
}

type Entries = Vec<(String, Vec<usize>)>;

/// The state dict of a discriminator; PyTorch also counts the batches that a normalisation has seen.
fn discriminator(channels: usize, prefix: &str) -> Entries {
    let mut entries = vec![];
    for (name, shape) in shapes(&PatchGan::new(channels, 64, 3, 0, &Device::flex())) {
        let counter = name.strip_suffix("running_var").map(|layer| format!("{prefix}{layer}num_batches_tracked"));
        entries.push((format!("{prefix}{name}"), shape));
        entries.extend(counter.map(|name| (name, vec![])));
    }
    entries
}

/// The state dict of an autoencoder in training: its loss is registered before the 1x1 convolutions.
fn with_loss(config: &AutoencoderConfig) -> Entries {
    let mut entries = config.parameter_shapes();
    let at = entries.iter().position(|(name, _)| name.starts_with("quant_conv")).unwrap();
    let mut loss = vec![("loss.logvar".to_string(), vec![])];
    loss.extend(discriminator(config.channels, "loss.discriminator."));
    entries.splice(at..at, loss);
    entries
}

/// The facts of a state dict in the order of registration.
fn listed(state: &Entries) -> [(&'static str, String); 6] {
    let is_parameter = |name: &str| !is_buffer(name) && !name.ends_with("num_batches_tracked");
    let parameters: Entries = state.iter().filter(|(name, _)| is_parameter(name)).cloned().collect();
    let count: usize = parameters.iter().map(|(_, shape)| shape.iter().product::<usize>()).sum();
    let order: String = state.iter().map(|(name, _)| format!("{name}\n")).collect();
    [
        ("param_count", count.to_string()),
        ("entries", state.len().to_string()),
        ("param_entries", parameters.len().to_string()),
        ("sha256", listing(state)),
        ("params_sha256", listing(&parameters)),
        ("order_sha256", sha256(&order)),
    ]
}

fn facts(config: &UNetConfig, parts: usize) -> [(&'static str, String); 6] {
    let parameters: Vec<_> = (config.state_shapes(NetworkPorts::with_phi_parts(parts)).into_iter())
        .map(|(name, shape)| (format!("model.{name}"), shape))
        .collect();
    let buffers: Vec<String> = config.buffer_names().iter().map(|name| format!("model.{name}")).collect();
    // The state dict: a layer's buffer follows its parameters; a skip that only resamples has nothing but its buffer.
    let mut state = Vec::new();
    for entry in &parameters {
        state.push(entry.clone());
        let buffer =
            entry.0.replace("conv0.bias", "conv0.resample_filter").replace("conv1.bias", "skip.resample_filter");
        if buffers.contains(&buffer) {
            state.push((buffer, vec![1, 1, 2, 2]));
        }
    }
    let order: String = state.iter().map(|(name, _)| format!("{name}\n")).collect();
    [
        ("param_count", config.parameter_count(NetworkPorts::with_phi_parts(parts)).to_string()),
        ("entries", (parameters.len() + buffers.len()).to_string()),
        ("param_entries", parameters.len().to_string()),
        ("sha256", listing(&state)),
        ("params_sha256", listing(&parameters)),
        ("order_sha256", sha256(&order)),
    ]
}

fn conditional_facts(config: &CondUNetConfig) -> [(&'static str, String); 7] {
    let state = config.state_shapes(NetworkPorts::default());
    let buffers = config.ignored_buffers();
    // The state dict: integer buffers follow the last float of their layer.
    let mut whole = Vec::new();
    for entry in &state {
        whole.push(entry.clone());
        let buffer =
            entry.0.replace("position_bias_table", "position_index").replace("running_var", "num_batches_tracked");
        whole.extend(buffers.iter().filter(|(name, _)| *name == buffer).cloned());
    }
    let order: String = whole.iter().map(|(name, _)| format!("{name}\n")).collect();
    let parameters: Vec<_> = state.into_iter().filter(|(name, _)| !is_buffer(name)).collect();
    let size = |shape: &[usize]| shape.iter().product::<usize>();
    // An encoder's classifier could be trained, but nothing depends on it.
    let classifier = |name: &str| {
        !config.freeze_encoder
            && ["norm.", "head."].iter().any(|part| name.starts_with(&format!("init_conv_mask.{part}")))
    };
    let trained = parameters.iter().filter(|(name, _)| config.is_trained(name) || classifier(name));
    [
        ("param_count", config.parameter_count(NetworkPorts::default()).to_string()),
        ("trainable_param_count", trained.map(|(_, shape)| size(shape)).sum::<usize>().to_string()),
        ("entries", whole.len().to_string()),
        ("param_entries", parameters.len().to_string()),
        ("sha256", listing(&whole)),
        ("params_sha256", listing(&parameters)),
        ("order_sha256", sha256(&order)),
    ]
}

fn listing(entries: &[(String, Vec<usize>)]) -> String {
    let mut lines: Vec<String> =
        entries.iter().map(|(name, shape)| format!("{name} {}\n", format!("{shape:?}").replace(' ', ""))).collect();
    lines.sort();
    sha256(&lines.concat())
}

fn sha256(text: &str) -> String {
    Sha256::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}
