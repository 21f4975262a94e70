#![allow(clippy::unwrap_used)]
use std::collections::BTreeMap;

use burn::module::Module;
use burn::tensor::Tensor;
use crossfade_math::Adm;

use super::*;
use crate::engine::{Device, Images, from_vec, to_host, vector};
use crate::nn::batch_norm::{BatchNorm2d, BatchNormOptions};
use crate::nn::functional::{self, composed};
use crate::nn::init::{Init, Scope};
use crate::nn::named::is_buffer;
use crate::nn::weights::{apply, collect, gradients};
use crate::nn::{
    BackboneConfig, Decoders, Denoiser, DropoutKey, Mode, NetworkConfig, NetworkPorts, RawHeads, Statistics,
};
use crate::sample::Predict;
use crate::tensorfile::{HostTensor, TensorMap, save_tensors};

pub(super) fn tiny() -> CondUNetConfig {
    CondUNetConfig {
        width: 8,
        mult: vec![1, 2],
        encoder: EncoderConfig::Unet { width: 8, stride: 1 },
        condition_windows: vec![[3, 2], [1, 1]],
        feature_windows: vec![[2, 3], [1, 1]],
        ..CondUNetConfig::default()
    }
}

pub(super) fn picture(shape: [usize; 4], device: &Device) -> Tensor<4> {
    let values = (0..shape.iter().product::<usize>()).map(|i| ((i * i) as f32 * 0.37).sin()).collect();
    from_vec(values, shape, device)
}

fn denoiser(config: &CondUNetConfig) -> Denoiser {
    let config = NetworkConfig::CondUNet(config.clone());
    let network = config.init(NetworkPorts::default(), 1, &Device::flex());
    Denoiser::new(network, &config, Adm::default().into())
}

pub(super) fn near(a: &[f32], b: &[f32], limit: f32) {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).for_each(|(a, b)| assert!((a - b).abs() <= limit * (1.0 + a.abs()), "{a} {b}"));
}

fn train(net: &CondUNet, step: u64, statistics: &Statistics) -> RawHeads {
    let device = net.devices()[0].clone();
    let dropout = DropoutKey { seed: 1, step, samples: vec![4, 7] };
    let mode = Mode::Train { dropout: &dropout, statistics };
    let features = net.encode(picture([2, 3, 9, 7], &device), mode);
    net.forward(picture([2, 3, 6, 8], &device), vector(&[-0.3, -2.0], &device), &features, mode)
}

#[test]
fn presets_are_valid_and_survive_toml() {
    for name in CONDITION_PRESETS {
        let config = condition_preset(name).unwrap();
        assert_eq!(config.validate(), vec![], "{name}");
        assert_eq!(toml::from_str::<CondUNetConfig>(&toml::to_string(&config).unwrap()).unwrap(), config);
    }
    assert_eq!(condition_preset("huge"), None);
    assert!(toml::from_str::<CondUNetConfig>("widht = 3").unwrap_err().to_string().contains("widht"));
    let bad = CondUNetConfig { width: 12, mult: vec![1, 2], decoders: Decoders::Conv, ..CondUNetConfig::default() };
    for word in ["width", "Swin", "condition_windows", "feature_windows", "decoders"] {
        assert!(bad.validate().iter().any(|p| p.to_string().contains(word)), "{word} in {:?}", bad.validate());
    }
}

/// As for the unconditional network: patches are channels of a network at half the size, and the condition is the same.
#[test]
fn patches_are_channels_of_a_network_at_half_the_size() {
    let device = Device::flex();
    let plain = CondUNetConfig { channels: 12, split: Split::Fourier { size: [4, 4] }, ..tiny() };
    let patched = CondUNetConfig { channels: 3, patch: 2, split: Split::Fourier { size: [8, 8] }, ..plain.clone() };
    let ports = NetworkPorts::with_phi_parts(2);
    assert_eq!((patched.validate(), patched.unit()), (vec![], 4));
    assert_eq!(patched.state_shapes(ports), plain.state_shapes(ports));
    assert!(CondUNetConfig { patch: 0, ..tiny() }.validate().iter().any(|problem| problem.key == "patch"));
    let run = |config: &CondUNetConfig, x| {
        let net = config.init(ports, 3, &device);
        let features = net.encode(picture([2, 3, 18, 14], &device), Mode::Eval);
        net.forward(x, vector(&[-0.3, -2.0], &device), &features, Mode::Eval)
    };
    let x = picture([2, 3, 12, 16], &device);
    let (expected, found) = (run(&plain, functional::pixel_unshuffle(x.clone(), 2)), run(&patched, x));
    assert_eq!(found.phi.dims(), [2, 6, 12, 16]);
    for (expected, found) in [(expected.phi, found.phi), (expected.eps.unwrap(), found.eps.unwrap())] {
        assert_eq!(to_host(functional::pixel_shuffle(expected, 2)), to_host(found));
    }
}

#[test]
fn samples_do_not_mix_and_the_condition_is_seen() {
    for split in [Split::Attention, Split::Fourier { size: [4, 4] }] {
        for decoders in [Decoders::Two, Decoders::One] {
            let net = denoiser(&CondUNetConfig { split, decoders, ..tiny() });
            let device = Device::flex();
            let (x, c) = (Images(picture([2, 3, 6, 8], &device)), Images(picture([2, 3, 9, 7], &device)));
            let predict = |x: &Images, c: &Images| net.conditioned(Some(c.0.clone())).predict(x, 0.4).unwrap();
            let both = predict(&x, &c);
            let second = |x: &Images| Images(x.0.clone().narrow(0, 1, 1));
            let alone = to_host(predict(&second(&x), &second(&c)).phi[0].0.clone());
            near(&alone, &to_host(both.phi[0].0.clone()).split_off(alone.len()), 1e-5);
            let other = predict(&x, &Images(c.0 * 0.5));
            assert_ne!(to_host(other.phi[0].0.clone()), to_host(both.phi[0].0.clone()));
        }
    }
}

#[test]
fn every_size_runs() {
    let net = denoiser(&tiny());
    for (x, c) in [([2, 2], [1, 1]), ([2, 6], [13, 5]), ([10, 4], [64, 3])] {
        let x = Images(picture([1, 3, x[0], x[1]], &Device::flex()));
        let heads = net.conditioned(Some(picture([1, 3, c[0], c[1]], &Device::flex()))).predict(&x, 0.7).unwrap();
        assert_eq!(heads.eps.0.dims(), x.0.dims());
        assert!(to_host(heads.eps.0).iter().all(|v| v.is_finite()));
    }
}

#[test]
fn gradients_reach_all_that_is_trained_and_nothing_else() {
    let device = Device::flex().autodiff();
    for (split, freeze_encoder) in [(Split::Attention, false), (Split::Fourier { size: [8, 8] }, true)] {
        let config = CondUNetConfig { split, freeze_encoder, ..tiny() };
        let net = config.init(NetworkPorts::default(), 3, &device);
        let raw = train(&net, 0, &Statistics::default());
        let loss = raw.phi.square().sum() + raw.eps.unwrap().square().sum();
        let found: Vec<String> = gradients(&net, loss.backward()).into_iter().map(|(name, ..)| name).collect();
        let wanted: Vec<String> = config
            .state_shapes(NetworkPorts::default())
            .into_iter()
            .map(|(name, _)| name)
            .filter(|name| config.is_trained(name))
            .collect();
        assert_eq!(found, wanted);
    }
}

/// What training learns of the data is part of the saved state, and a resumed run goes on to the bit.
#[test]
fn running_statistics_are_saved_and_resumed() {
    let device = Device::flex().autodiff();
    let config = tiny();
    let step = |net: CondUNet, step| {
        let statistics = Statistics::default();
        train(&net, step, &statistics);
        statistics.into_module(net)
    };
    let start = config.init(NetworkPorts::default(), 3, &device);
    let before = collect(&start);
    let once = step(start, 0);
    let saved = collect(&once);
    let changed: Vec<&String> = saved.iter().zip(&before).filter(|(a, b)| a != b).map(|((name, ..), _)| name).collect();
    let all = config.state_shapes(NetworkPorts::default());
    let statistics: Vec<&String> = all.iter().map(|(name, _)| name).filter(|name| is_buffer(name)).collect();
    assert_eq!(changed, statistics);
    let map: TensorMap = saved.into_iter().map(|(name, shape, values)| (name, (shape, values))).collect();
    let resumed = apply(config.lazy(NetworkPorts::default(), &device), &|name| map.get(name).cloned()).unwrap();
    assert_eq!(collect(&step(resumed, 1)), collect(&step(once, 1)));
}

/// PyTorch: running = 0.97·running + 0.03·batch, with the unbiased variance.
#[test]
fn batch_statistics_are_those_of_pytorch() {
    let options = BatchNormOptions { epsilon: 1e-3, momentum: 0.03, weight: Init::Ones };
    let norm = BatchNorm2d::new(&Scope::root(0, &Device::flex()), 1, options);
    let x = from_vec(vec![1.0, 2.0, 3.0, 6.0], [2, 1, 1, 2], &Device::flex());
    let statistics = Statistics::default();
    let y = norm.forward_batch(x, &statistics);
    let deviation = (3.5f32 + 1e-3).sqrt();
    near(&to_host(y), &[-2.0, -1.0, 0.0, 3.0].map(|v| v / deviation), 1e-6);
    let state = collect(&statistics.into_module(norm));
    near(&state[2].2, &[0.09], 1e-6);
    near(&state[3].2, &[0.97 + 0.03 * 14.0 / 3.0], 1e-6);
}

/// The fast operations against the engine's own: results and all gradients.
#[test]
fn fast_layers_equal_the_engines_own() {
    let random = |seed: u64, shape: [usize; 4]| {
        let mut values = vec![0.0; shape.iter().product()];
        crate::rng::Stream::new(seed, 0, 0, crate::rng::Purpose::Noise).fill_normal(&mut values);
        from_vec(values, shape, &Device::flex().autodiff()).require_grad()
    };
    let compare = |x: Tensor<4>, gain: Tensor<4>, pair: [&dyn Fn(Tensor<4>, Tensor<4>) -> Tensor<4>; 2]| {
        let [fast, own] = pair.map(|f| {
            let y = f(x.clone(), gain.clone());
            let grads = (y.clone() * random(9, y.dims()).detach()).sum().backward();
            let gradient = |x: &Tensor<4>| x.grad(&grads).map(to_host).unwrap_or_default();
            [to_host(y), gradient(&x), gradient(&gain)]
        });
        for (fast, own) in fast.iter().zip(&own) {
            let size = own.iter().fold(0.0f32, |a, b| a.max(b.abs()));
            near(
                &fast.iter().map(|v| v / size).collect::<Vec<_>>(),
                &own.iter().map(|v| v / size).collect::<Vec<_>>(),
                2e-5,
            );
        }
    };
    let vector = |gain: Tensor<4>| gain.clone().reshape([gain.dims()[1]]);
    let (x, gain) = (random(1, [2, 192, 5, 7]), random(2, [1, 192, 1, 1]));
    compare(x.clone(), gain.clone(), [&functional::channel_norm, &composed::channel_norm]);
    compare(
        x.clone(),
        gain.clone(),
        [&|x, g| crate::engine::condition::batch_norm(x, vector(g.clone()), vector(g), 1e-3).0, &|x, g| {
            composed::batch_norm(x, vector(g.clone()), vector(g), 1e-3).0
        }],
    );
    let linear = |f: fn(Tensor<4>, usize) -> Tensor<4>| move |x: Tensor<4>, g: Tensor<4>| f(x * g, 2);
    let (fast, own) = (crate::engine::condition::linear_attention, composed::linear_attention);
    compare(x, gain, [&linear(fast), &linear(own)]);
}

#[test]
fn training_drops_by_key() {
    let net = tiny().init(NetworkPorts::default(), 3, &Device::flex());
    let run = |step| to_host(train(&net, step, &Statistics::default()).phi);
    assert_eq!(run(0), run(0));
    assert_ne!(run(0), run(1));
}

/// The value formula of the golden set.
pub(super) fn formula(name: &str, shape: &[usize], salt: &str) -> Vec<f32> {
    let hash = crate::nn::named::fnv1a(&format!("{salt}{name}"));
    let u = |i: u64| {
        let s = hash.wrapping_add(i).wrapping_add(0x9e37_79b9_7f4a_7c15);
        let s = (s ^ (s >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let s = (s ^ (s >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((s ^ (s >> 31)) >> 11) as f64 * 2f64.powi(-53) * 2.0 - 1.0
    };
    let fan_in: usize = shape.iter().skip(1).product();
    let value = |u: f64| match shape.len() {
        2.. => u * (3.0 / fan_in as f64).sqrt(),
        _ if name.ends_with("weight") => 1.0 + 0.1 * u,
        _ => 0.1 * u,
    };
    (0..shape.iter().product::<usize>() as u64).map(|i| value(u(i)) as f32).collect()
}

/// Weights under torchvision's names give torchvision's features (`tools/swin_reference.py`), also for grey pictures.
#[test]
fn torchvision_weights_load() {
    let text = include_str!("../../../../../testdata/swin_t.json");
    let expected: serde_json::Value = serde_json::from_str(text).unwrap();
    let config = CondUNetConfig { width: 8, mult: vec![1; 4], encoder: EncoderConfig::SwinT, ..tiny() };
    let windows = vec![[1, 1]; 4];
    let config = CondUNetConfig { condition_windows: windows.clone(), feature_windows: windows, ..config };
    let theirs = |name: &str| -> Option<String> {
        let name = name.strip_prefix("init_conv_mask.")?;
        let number = |rest: &str| rest[..1].parse::<usize>().unwrap() + 1;
        Some(match (name.strip_prefix("first_coonv."), name.strip_prefix("features.")) {
            (Some(rest), _) => format!("features.0.{rest}"),
            (_, Some(rest)) => format!("features.{}{}", number(rest), &rest[1..]),
            _ => name.to_owned(),
        })
    };
    let tensors: Vec<HostTensor> = (config.state_shapes(NetworkPorts::default()).into_iter())
        .filter_map(|(name, shape)| theirs(&name).map(|name| (name, shape)))
        .map(|(name, shape)| (name.clone(), shape.clone(), formula(&name, &shape, "")))
        .collect();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("swin_t.safetensors");
    save_tensors(&path, &tensors, &BTreeMap::new()).unwrap();
    for (name, condition_channels) in [("rgb", 3), ("grey", 1)] {
        let config = CondUNetConfig { condition_channels, ..config.clone() };
        let net = load_encoder(config.lazy(NetworkPorts::default(), &Device::flex()), &config, &path).unwrap();
        let values = formula("cond", &[9450], "").into_iter().map(|v| v * 10.0).take(condition_channels * 3150);
        let x = from_vec(values.collect(), [1, condition_channels, 45, 70], &Device::flex());
        let wanted = expected[name]["stages"].as_array().unwrap();
        for (stage, want) in net.stages(x, Mode::Eval).into_iter().zip(wanted) {
            let got = to_host(stage);
            let size = got.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>().sqrt();
            assert!((size / want["l2"].as_f64().unwrap() - 1.0).abs() < 1e-5, "{name}: {size}, {}", want["l2"]);
            let first: Vec<f32> =
                want["first"].as_array().unwrap().iter().map(|v| v.as_f64().unwrap() as f32).collect();
            near(&got[..8], &first, 2e-5);
        }
    }
    let other = CondUNetConfig { encoder: EncoderConfig::SwinB, ..config.clone() };
    assert!(
        load_encoder(other.lazy(NetworkPorts::default(), &Device::flex()), &other, &path)
            .unwrap_err()
            .to_string()
            .contains("missing")
    );
    let unet = tiny();
    let error =
        load_encoder(unet.lazy(NetworkPorts::default(), &Device::flex()), &unet, &path).unwrap_err().to_string();
    assert!(error.contains("swin-b"), "{error}");
}

/// A trainer's file: the network under a prefix, with integer buffers, beside an autoencoder.
#[test]
fn reference_weights_load_by_name() {
    let config = CondUNetConfig { split: Split::Fourier { size: [8, 8] }, ..tiny() };
    let net = config.init(NetworkPorts::default(), 5, &Device::flex());
    let mut tensors: Vec<HostTensor> =
        collect(&net).into_iter().map(|(name, shape, values)| (format!("model.{name}"), shape, values)).collect();
    let buffers = config.ignored_buffers();
    assert!(!buffers.is_empty());
    tensors.extend(buffers.into_iter().map(|(name, _)| (format!("model.{name}"), vec![1], vec![0.0])));
    tensors.push(("first_stage_model.quant_conv.weight".into(), vec![1], vec![0.0]));
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("net.safetensors");
    let load = |tensors: &[HostTensor], config: &CondUNetConfig| {
        save_tensors(&path, tensors, &BTreeMap::new()).unwrap();
        config.load(NetworkPorts::default(), &path, crate::torchfile::Weights::Model, &Device::flex())
    };
    assert_eq!(collect(&load(&tensors, &config).unwrap()), collect(&net));
    let one = CondUNetConfig { decoders: Decoders::One, ..config.clone() };
    assert!(load(&tensors, &one).unwrap_err().to_string().contains("does not have"));
    tensors.retain(|(name, ..)| name != "model.mid_attn.fn.norm.g");
    assert!(load(&tensors, &config).unwrap_err().to_string().contains("missing: mid_attn.fn.norm.g"));
    assert!(load(&tensors[tensors.len() - 1..], &config).unwrap_err().to_string().contains("init_conv.0.weight"));
}
