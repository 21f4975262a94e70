//! The conditional networks of the golden set.
use crossfade::engine::{Device, Tensor, from_host};
use crossfade::math::{Adm, Attenuation, NoiseScale, Precond};
use crossfade::nn::condition::{EncoderConfig, Split};
use crossfade::nn::weights::apply;
use crossfade::nn::{BackboneConfig, CondUNet, CondUNetConfig, Decoders, Denoiser, Network, NetworkPorts};
use serde_json::Value;
use std::collections::BTreeMap;

use crate::case::{Case, cases, usizes};
use crate::formula::parameter;

fn pairs(value: &Value) -> Vec<[usize; 2]> {
    value.as_array().unwrap().iter().map(|pair| usizes(pair).try_into().unwrap()).collect()
}

fn module(case: &Case) -> &str {
    case.json["module"].as_str().unwrap()
}

fn diffusion_edge(case: &Case) -> bool {
    module(case).starts_with("mask_cond_unet")
}

/// The constructor settings of a case, in our words.
pub fn config(case: &Case) -> CondUNetConfig {
    let settings = &case.json["settings"];
    let number = |key: &str| settings[key].as_u64().unwrap() as usize;
    assert_eq!(settings["cond_net"], "swin", "the encoder of the golden nets");
    assert!(!settings["cond_pe"].as_bool().unwrap_or(false), "no configuration of the reference asks for it");
    CondUNetConfig {
        channels: number("channels"),
        condition_channels: case.shape("cond")[1],
        width: number("dim"),
        mult: usizes(&settings["dim_mults"]),
        encoder: EncoderConfig::SwinB,
        decoders: if module(case).contains("_sd") { Decoders::One } else { Decoders::Two },
        split: match settings["input_size"].as_array() {
            Some(_) => Split::Fourier { size: usizes(&settings["input_size"]).try_into().unwrap() },
            None => Split::Attention,
        },
        condition_windows: pairs(&settings["window_sizes1"]),
        feature_windows: pairs(&settings["window_sizes2"]),
        ..CondUNetConfig::default()
    }
}

/// A network with the formula's weights.
pub fn filled(case: &Case, config: &CondUNetConfig, device: &Device) -> CondUNet {
    assert_eq!(config.validate(), vec![]);
    let shapes: BTreeMap<_, _> = config.state_shapes(NetworkPorts::default()).into_iter().collect();
    let source = |name: &str| {
        let shape = shapes.get(name)?;
        Some((shape.clone(), parameter(&format!("{}{name}", case.salt), shape)))
    };
    apply(config.lazy(NetworkPorts::default(), device), &source).unwrap()
}

/// The network of a case with its preconditioning.
pub fn denoiser(case: &Case, device: &Device) -> Denoiser {
    let config = config(case);
    let count = case.json["param_count"].as_u64().unwrap() as usize;
    assert_eq!(config.parameter_count(NetworkPorts::default()), count, "parameters");
    let precond = match (diffusion_edge(case), case.json["settings"]["precondition"].as_bool()) {
        (true, _) => Precond::DiffusionEdge,
        (false, Some(false)) => Precond::None,
        (false, _) => Precond::Conditional,
    };
    let process = Adm { precond, ..Adm::new(Attenuation::Constant, NoiseScale::Sqrt) };
    let network = Network::CondUNet(filled(case, &config, device));
    Denoiser::new(network, &config.into(), process.into())
}

/// The condition of a case.
pub fn condition(case: &Case, device: &Device) -> Tensor<4> {
    let shape: [usize; 4] = case.shape("cond").try_into().unwrap();
    from_host(&case.input("cond", &shape), shape, device)
}

/// The case of the same set whose network and condition another case means by "as edge_forward".
pub fn edge_forward() -> Case {
    cases().into_iter().find(|case| case.name == "edge_forward").expect("a set with edge cases has edge_forward")
}
