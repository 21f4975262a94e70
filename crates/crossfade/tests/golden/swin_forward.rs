//! The Swin encoder alone, on images of any shape.
use crossfade::engine::Device;
use crossfade::nn::condition::EncoderConfig;
use crossfade::nn::{BackboneConfig, CondUNetConfig, Mode, NetworkPorts};

use crate::case::Case;
use crate::{cond_nets, cond_unet_forward};

pub fn check(case: &Case) -> Vec<String> {
    let device = Device::flex();
    let encoder = match case.json["module"].as_str().unwrap() {
        module if module.ends_with("swin_t") => EncoderConfig::SwinT,
        _ => EncoderConfig::SwinB,
    };
    // The smallest network around the encoder.
    let config = CondUNetConfig {
        width: 8,
        mult: vec![1; 4],
        encoder,
        condition_channels: case.shape("cond")[1],
        ..CondUNetConfig::default()
    };
    let count = case.json["param_count"].as_u64().unwrap() as usize;
    let ours = config
        .state_shapes(NetworkPorts::default())
        .into_iter()
        .filter(|(name, _)| name.starts_with("init_conv_mask."));
    assert_eq!(ours.map(|(_, shape)| shape.iter().product::<usize>()).sum::<usize>(), count, "parameters");
    let net = cond_nets::filled(case, &config, &device);
    cond_unet_forward::stages(case, &net.stages(cond_nets::condition(case, &device), Mode::Eval))
}
