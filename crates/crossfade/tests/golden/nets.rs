//! The unconditional networks of the golden set.
use crossfade::engine::Device;
use crossfade::math::{Adm, Attenuation, NoiseScale, Precond};
use crossfade::nn::weights::apply;
use crossfade::nn::{BackboneConfig, Decoders, Denoiser, Network, NetworkPorts, UNet, UNetConfig};
use serde_json::Value;

use crate::case::{Case, usizes};
use crate::formula::parameter;

/// The constructor settings of the network of a case.
fn settings(case: &Case) -> &Value {
    let own = &case.json["settings"];
    if own.is_object() { own } else { &case.json["unet_settings"] }
}

/// The constructor settings of a case, in our words.
pub fn config(case: &Case) -> UNetConfig {
    let settings = settings(case);
    let number = |key: &str| settings[key].as_u64().unwrap() as usize;
    let module = module(case);
    assert_eq!(number("channel_mult_emb"), 4, "the embedding is four times as wide as the network");
    UNetConfig {
        resolution: number("img_resolution"),
        channels: number("img_channels"),
        condition_channels: 0,
        width: number("model_channels"),
        mult: usizes(&settings["channel_mult"]),
        blocks: number("num_blocks"),
        attention: usizes(&settings["attn_resolutions"]),
        decoders: if module.starts_with("uncond_unet_sd") { Decoders::One } else { Decoders::Two },
        dropout: settings["dropout"].as_f64().unwrap(),
        augment_dim: number("augment_dim"),
        patch: 1,
        classes: 0,
        skip_scaling: module == "uncond_unet_sd_3",
    }
}

/// The reference's file, e.g. `uncond_unet_sd_2` of `unet.uncond_unet_sd_2.EDMPrecond`.
pub fn module(case: &Case) -> &str {
    let class = case.json["unet"].as_str().or(case.json["module"].as_str()).unwrap();
    class.trim_start_matches("unet.").split('.').next().unwrap()
}

/// Whether a case stems from the older release.
pub fn older(case: &Case) -> bool {
    ["title", "release"].iter().any(|key| case.json[*key].as_str().unwrap_or_default().contains("older release"))
}

/// The network of a case with the formula's weights.
pub fn network(case: &Case, device: &Device) -> UNet {
    let config = config(case);
    let ports = NetworkPorts::with_phi_parts(settings(case)["out_mul"].as_u64().unwrap_or(1) as usize);
    let count = case.json["param_count"].as_u64();
    assert!(count.is_none_or(|n| n as usize == config.parameter_count(ports)), "{count:?} parameters");
    let shapes: std::collections::BTreeMap<_, _> = config.state_shapes(ports).into_iter().collect();
    let source = |name: &str| {
        let shape = shapes.get(name)?;
        Some((shape.clone(), parameter(&format!("{}model.{name}", case.salt), shape)))
    };
    apply(config.lazy(ports, device), &source).unwrap()
}

/// The network of a case with its preconditioning.
pub fn denoiser(case: &Case, device: &Device) -> Denoiser {
    preconditioned(case, network(case, device))
}

/// The preconditioning of a case around a network.
pub fn preconditioned(case: &Case, unet: UNet) -> Denoiser {
    // The files whose name ends in _2 or _3 have σ = t.
    let linear = module(case).ends_with("_2") || module(case).ends_with("_3");
    let noise = if linear { NoiseScale::Linear } else { NoiseScale::Sqrt };
    let precond = if older(case) { Precond::OlderRelease } else { Precond::default() };
    let process = Adm { precond, ..Adm::new(Attenuation::Constant, noise) };
    Denoiser::new(Network::UNet(unet), &config(case).into(), process.into())
}
