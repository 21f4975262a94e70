//! The unconditional networks of the golden set.
use crossfade::engine::Device;
use crossfade::nn::weights::apply;
use crossfade::nn::{Decoders, UNet, UNetConfig};
use serde_json::Value;

use crate::case::{Case, usizes};
use crate::formula::parameter;

/// The constructor settings of a case, in our words. `module` is the reference's, e.g. `uncond_unet_sd_2.EDMPrecond`.
pub fn config(case: &Case) -> UNetConfig {
    let settings: &Value = &case.json["settings"];
    let number = |key: &str| settings[key].as_u64().unwrap() as usize;
    let module = module(case);
    assert_eq!(number("channel_mult_emb"), 4, "the embedding is four times as wide as the network");
    UNetConfig {
        resolution: number("img_resolution"),
        channels: number("img_channels"),
        width: number("model_channels"),
        mult: usizes(&settings["channel_mult"]),
        blocks: number("num_blocks"),
        attention: usizes(&settings["attn_resolutions"]),
        decoders: if module.starts_with("uncond_unet_sd") { Decoders::One } else { Decoders::Two },
        dropout: settings["dropout"].as_f64().unwrap(),
        augment_dim: number("augment_dim"),
        skip_scaling: module == "uncond_unet_sd_3",
    }
}

/// The reference's file, e.g. `uncond_unet_sd_2`.
pub fn module(case: &Case) -> &str {
    case.json["module"].as_str().unwrap().split('.').next().unwrap()
}

/// The network of a case with the formula's weights.
pub fn network(case: &Case, device: &Device) -> UNet {
    let config = config(case);
    let parts = case.json["settings"]["out_mul"].as_u64().unwrap_or(1) as usize;
    let count = case.json["param_count"].as_u64();
    assert!(count.is_none_or(|n| n as usize == config.parameter_count(parts)), "{count:?} parameters");
    let shapes: std::collections::BTreeMap<_, _> = config.parameter_shapes(parts).into_iter().collect();
    let source = |name: &str| {
        let shape = shapes.get(name)?;
        Some((shape.clone(), parameter(&format!("{}model.{name}", case.salt), shape)))
    };
    apply(config.init(parts, 0, device), &source).unwrap()
}
