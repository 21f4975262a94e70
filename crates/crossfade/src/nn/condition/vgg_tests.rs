#![allow(clippy::unwrap_used)]
use std::collections::BTreeMap;
use std::path::Path;

use burn::tensor::Tensor;

use super::tests::{formula, near, picture, tiny};
use super::*;
use crate::engine::{Device, Images, from_vec, to_host, vector};
use crate::nn::functional::pixel_unshuffle;
use crate::nn::weights::{collect, gradients};
use crate::nn::{BackboneConfig, Denoiser, Mode, NetworkConfig, NetworkPorts};
use crate::sample::Predict;
use crate::tensorfile::{HostTensor, save_tensors};
use crossfade_math::Adm;

fn vgg(layers: &[&str]) -> EncoderConfig {
    EncoderConfig::Vgg16 { layers: layers.iter().map(|name| VggLevel::try_from((*name).to_owned()).unwrap()).collect() }
}

/// A network with one level for each of `layers`.
fn network(layers: &[&str]) -> CondUNetConfig {
    let windows = vec![[1, 1]; layers.len()];
    CondUNetConfig {
        mult: vec![1; layers.len()],
        encoder: vgg(layers),
        condition_windows: windows.clone(),
        feature_windows: windows,
        ..tiny()
    }
}

/// Writes the encoder's weights by the value formula, under the names that `rename` makes of `conv0.weight`, ….
fn write_weights(config: &CondUNetConfig, path: &Path, rename: &dyn Fn(usize, &str) -> String) {
    let all = config.state_shapes(NetworkPorts::default()).into_iter();
    let tensors: Vec<HostTensor> = all
        .filter_map(|(name, shape)| {
            let (layer, part) = name.strip_prefix("init_conv_mask.conv.")?.split_once('.')?;
            let values = formula(&format!("conv{layer}.{part}"), &shape, "");
            Some((rename(layer.parse().unwrap(), part), shape, values))
        })
        .collect();
    save_tensors(path, &tensors, &BTreeMap::new()).unwrap();
}

fn lpips_name(layer: usize, part: &str) -> String {
    format!("conv{layer}.{part}")
}

/// The kernels without gradients and the operations with them against numpy (`tools/vgg_reference.py`), with weights under the
/// names of LPIPS and of torchvision.
#[test]
fn features_are_those_of_numpy() {
    let text = include_str!("../../../../../testdata/vgg16.json");
    let expected: serde_json::Value = serde_json::from_str(text).unwrap();
    let names = ["conv1_2", "conv2_2", "conv3_3", "conv4_1"];
    let rms = [1.35, 2.4, 3.6, 4.1f32];
    let config = network(&names);
    let parameters: usize = (config.state_shapes(NetworkPorts::default()).iter())
        .filter(|(name, _)| name.starts_with("init_conv_mask."))
        .map(|(_, shape)| shape.iter().product::<usize>())
        .sum();
    assert_eq!(parameters, 2_915_648, "the convolutions up to conv4_1 and no others");
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("vgg16.safetensors");
    let torchvision = |layer: usize, part: &str| {
        let entry = [0, 2, 5, 7, 10, 12, 14, 17, 19, 21, 24, 26, 28][layer];
        format!("features.{entry}.{part}")
    };
    type Naming<'a> = &'a dyn Fn(usize, &str) -> String;
    let cases: [(Naming, Device); 2] = [(&lpips_name, Device::flex()), (&torchvision, Device::flex().autodiff())];
    for (rename, device) in cases {
        write_weights(&config, &path, rename);
        let net = load_encoder(config.lazy(NetworkPorts::default(), &device), &config, &path).unwrap();
        let values = formula("cond", &[3 * 45 * 70], "").into_iter().map(|v| v * 10.0).collect();
        let stages = net.stages(from_vec(values, [1, 3, 45, 70], &device), Mode::Eval);
        assert_eq!(stages[0].is_autodiff(), device.is_autodiff());
        for ((stage, name), rms) in stages.into_iter().zip(names).zip(rms) {
            let want = &expected["layers"][name];
            let shape: Vec<usize> =
                want["shape"].as_array().unwrap().iter().map(|v| v.as_u64().unwrap() as usize).collect();
            assert_eq!(stage.dims()[1..], shape);
            let got: Vec<f32> = to_host(stage).into_iter().map(|v| v * rms).collect();
            let sum = |power| got.iter().map(|v| f64::from(*v).powi(power)).sum::<f64>();
            let close = |a: f64, b: &serde_json::Value| (a / b.as_f64().unwrap() - 1.0).abs() < 1e-5;
            assert!(close(sum(2).sqrt(), &want["l2"]) && close(sum(1), &want["sum"]), "{name}: {} {want}", sum(1));
            let last: Vec<f32> = want["last"].as_array().unwrap().iter().map(|v| v.as_f64().unwrap() as f32).collect();
            near(&got[got.len() - 8..], &last, 2e-5);
        }
    }
    let deeper = network(&["conv1_2", "conv2_2", "conv3_3", "conv4_2"]);
    let error = load_encoder(deeper.lazy(NetworkPorts::default(), &Device::flex()), &deeper, &path).unwrap_err();
    assert!(error.to_string().contains("missing: conv.8.weight"), "{error}");
}

/// A level reads squares of the pixels of finer layers as channels, and several layers side by side.
#[test]
fn finer_layers_become_channels_of_a_level() {
    let device = Device::flex();
    let (plain, patched) = (network(&["conv1_2", "conv2_1"]), network(&["conv2_1+conv1_2", "conv2_1"]));
    let patched = CondUNetConfig { patch: 2, ..patched };
    assert_eq!((patched.validate(), patched.encoder.channels(2, 2)), (vec![], vec![4 * 64 + 128, 4 * 128]));
    let nets = [&plain, &patched].map(|config| config.init(NetworkPorts::default(), 3, &device));
    let [a, b] = nets.map(|net| net.stages(picture([2, 3, 9, 14], &device), Mode::Eval));
    assert_eq!(a[0].dims(), [2, 64, 10, 14]);
    // A level at a quarter of the picture needs sides that are multiples of 4.
    assert_eq!(b[0].dims(), [2, 384, 6, 8]);
    let [a, b] = [&plain, &patched].map(|config| {
        config.init(NetworkPorts::default(), 3, &device).stages(picture([2, 3, 12, 16], &device), Mode::Eval)
    });
    let want = Tensor::cat(vec![pixel_unshuffle(a[0].clone(), 2), a[1].clone()], 1);
    assert_eq!(to_host(b[0].clone()), to_host(want));
    assert_eq!(to_host(b[1].clone()), to_host(pixel_unshuffle(a[1].clone(), 2)));
}

/// Without gradients an encoder is another program; both must agree also with patches and grey pictures, and in any batch.
#[test]
fn both_ways_to_run_agree() {
    let layers = ["conv1_1+conv2_2", "conv3_1", "conv2_1"];
    let config = CondUNetConfig { patch: 2, condition_channels: 1, ..network(&layers) };
    let run = |device: &Device| {
        let net = config.init(NetworkPorts::default(), 3, device);
        net.stages(picture([3, 1, 36, 23], device), Mode::Eval)
    };
    let (fast, composed) = (run(&Device::flex()), run(&Device::flex().autodiff()));
    for (a, b) in fast.iter().zip(&composed) {
        assert_eq!(a.dims(), b.dims());
        near(&to_host(a.clone()), &to_host(b.clone().inner()), 2e-5);
    }
    let net = config.init(NetworkPorts::default(), 3, &Device::flex());
    let last = net.stages(picture([3, 1, 36, 23], &Device::flex()).narrow(0, 2, 1), Mode::Eval);
    last.into_iter().zip(fast).for_each(|(one, all)| assert_eq!(to_host(one), to_host(all.narrow(0, 2, 1))));
}

/// Weights in the layout of the kernels are kept; other weights and sizes must not get them.
#[test]
fn packed_weights_follow_the_weights() {
    let config = network(&["conv1_1", "conv2_1"]);
    let net = config.init(NetworkPorts::default(), 3, &Device::flex());
    let run =
        |net: &CondUNet, side| to_host(net.stages(picture([1, 3, side, 8], &Device::flex()), Mode::Eval)[1].clone());
    let before = run(&net, 8);
    let changed = |name: &str, v: Vec<f32>| if name.ends_with("conv.0.bias") { vec![0.5; v.len()] } else { v };
    let source: BTreeMap<_, _> =
        collect(&net).into_iter().map(|(name, shape, v)| (name.clone(), (shape, changed(&name, v)))).collect();
    let other = crate::nn::weights::apply(net.clone(), &|name| source.get(name).cloned()).unwrap();
    assert_ne!(run(&other, 8), before);
    assert_eq!((run(&net, 8), run(&net, 32).len()), (before.clone(), 4 * before.len()));
    assert_eq!(run(&net, 8), before);
}

#[test]
fn every_size_runs_and_the_condition_is_seen() {
    // The second level is coarser than it needs to be.
    let config = NetworkConfig::CondUNet(network(&["conv1_2", "conv3_1"]));
    let network = config.init(NetworkPorts::default(), 1, &Device::flex());
    let net = Denoiser::new(network, &config, Adm::default().into());
    for (x, c) in [([2, 2], [1, 1]), ([2, 6], [13, 5]), ([10, 4], [64, 3])] {
        let x = Images(picture([1, 3, x[0], x[1]], &Device::flex()));
        let c = picture([1, 3, c[0], c[1]], &Device::flex());
        let heads = |c: Tensor<4>| to_host(net.conditioned(Some(c)).predict(&x, 0.7).unwrap().eps.0);
        let made = heads(c.clone());
        assert!(made.len() == to_host(x.0.clone()).len() && made.iter().all(|v| v.is_finite()));
        assert_ne!(made, heads(c * 0.5));
    }
}

#[test]
fn gradients_reach_the_encoder_unless_it_is_frozen() {
    let device = Device::flex().autodiff();
    for freeze_encoder in [false, true] {
        let config = CondUNetConfig { freeze_encoder, ..network(&["conv1_2", "conv2_1"]) };
        let net = config.init(NetworkPorts::default(), 3, &device);
        let features = net.encode(picture([2, 3, 9, 7], &device), Mode::Eval);
        let raw = net.forward(picture([2, 3, 6, 8], &device), vector(&[-0.3, -2.0], &device), &features, Mode::Eval);
        let loss = raw.phi.square().sum() + raw.eps.unwrap().square().sum();
        let found: Vec<String> = gradients(&net, loss.backward()).into_iter().map(|(name, ..)| name).collect();
        let all = config.state_shapes(NetworkPorts::default()).into_iter().map(|(name, _)| name);
        assert_eq!(found, all.filter(|name| config.is_trained(name)).collect::<Vec<_>>());
        assert_eq!(found.iter().any(|name| name == "init_conv_mask.conv.0.weight"), !freeze_encoder);
    }
}

#[test]
fn layers_are_read_and_checked() {
    let text = "mult = [1, 2]\nencoder = { kind = \"vgg16\", layers = [\"conv3_3 + conv1_2\", \"conv4_1\"] }";
    let config: CondUNetConfig = toml::from_str(text).unwrap();
    assert_eq!(config.encoder, vgg(&["conv1_2+conv3_3", "conv4_1"]));
    assert_eq!(toml::from_str::<CondUNetConfig>(&toml::to_string(&config).unwrap()).unwrap(), config);
    let error = toml::from_str::<CondUNetConfig>(&text.replace("conv4_1", "conv4_4")).unwrap_err().to_string();
    assert!(error.contains("'conv4_4'") && error.contains("conv5_3"), "{error}");
    let problems = |config: CondUNetConfig| -> String {
        config.validate().iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
    };
    assert_eq!(problems(network(&["conv1_2", "conv4_1"])), "");
    assert!(problems(CondUNetConfig { mult: vec![1], ..network(&["conv1_2", "conv4_1"]) }).contains("encoder.layers"));
    assert!(problems(CondUNetConfig { patch: 8, ..network(&["conv1_2"]) }).contains("later layer"));
    assert!(problems(network(&["conv1_2+conv4_1"])).contains("joined"));
    assert!(problems(CondUNetConfig { condition_channels: 4, ..network(&["conv1_2"]) }).contains("mask"));
}
