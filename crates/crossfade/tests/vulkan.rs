//! Every operation of the layers on a Vulkan device, which may be a software one, against both ways of the CPU: results
//! and all gradients. `cargo test -p crossfade --features vulkan --test vulkan`; the feature `wgpu` instead for lavapipe of
//! Mesa 22, whose compiler crashes on the engine's SPIR-V.
#![cfg(any(feature = "vulkan", feature = "wgpu"))]
#![allow(clippy::unwrap_used, clippy::print_stderr)]
use burn::tensor::Gradients;
use crossfade::engine::{Device, Tensor, device, from_host, to_host};
use crossfade::nn::dropout::dropout;
use crossfade::nn::functional::{self, composed};
use crossfade::nn::init::Scope;
use crossfade::nn::layers::Conv;
use crossfade::nn::weights::gradients;
use crossfade::nn::{Context, DropoutKey, NetworkPorts, UNetConfig};
use crossfade::rng::{Purpose, Stream};
use std::sync::OnceLock;

/// Largest difference, relative to the size of what is compared.
const LIMIT: f64 = 1e-4;

/// The device, opened once, or none.
fn vulkan() -> Option<Device> {
    static DEVICE: OnceLock<Option<Device>> = OnceLock::new();
    let open = || match device("vulkan") {
        Ok(device) => Some(device),
        Err(error) => {
            eprintln!("skipped: {error}; a software device comes with mesa-vulkan-drivers");
            None
        }
    };
    DEVICE.get_or_init(open).clone()
}

fn normals(seed: u64, count: usize) -> Vec<f32> {
    let mut values = vec![0.0; count];
    Stream::new(seed, 0, 0, Purpose::Noise).fill_normal(&mut values);
    values
}

/// What an operation is computed with: a device with gradients, and whether by the engine's own operations.
struct Way {
    device: Device,
    own: bool,
}

impl Way {
    /// An input that wants a gradient.
    fn input<const D: usize>(&self, seed: u64, shape: [usize; D], scale: f32) -> Tensor<D> {
        let values: Vec<f32> = normals(seed, shape.iter().product()).iter().map(|v| scale * v).collect();
        from_host(&values, shape, &self.device).require_grad()
    }

    /// The result and the gradient of a weighted sum of it by each input.
    fn run<const D: usize>(&self, y: Tensor<D>, inputs: &[&dyn Fn(&Gradients) -> Vec<f32>]) -> Vec<Vec<f32>> {
        let weights = from_host(&normals(99, y.dims().iter().product()), y.dims(), &self.device);
        let mut results = vec![to_host(y.clone())];
        let grads = (y * weights).sum().backward();
        results.extend(inputs.iter().map(|input| input(&grads)));
        results
    }
}

fn gradient<const D: usize>(x: &Tensor<D>) -> impl Fn(&Gradients) -> Vec<f32> + '_ {
    |grads| to_host(x.grad(grads).unwrap())
}

/// Runs `f` on the Vulkan device and in both ways on the CPU, and compares.
fn compare(what: &str, f: impl Fn(&Way) -> Vec<Vec<f32>>) {
    let Some(device) = vulkan() else { return };
    let found = f(&Way { device: device.autodiff(), own: false });
    for own in [false, true] {
        let expected = f(&Way { device: Device::flex().autodiff(), own });
        assert_eq!(found.len(), expected.len());
        for (i, (a, b)) in found.iter().zip(&expected).enumerate() {
            assert_eq!(a.len(), b.len(), "{what}, result {i}");
            let square = |f: &dyn Fn(f64, f64) -> f64| -> f64 {
                a.iter().zip(b).map(|(&a, &b)| f(f64::from(a), f64::from(b)).powi(2)).sum::<f64>().sqrt()
            };
            let (error, size) = (square(&|a, b| a - b), square(&|_, b| b));
            assert!(size > 0.0 && error <= LIMIT * size, "{what}, result {i}, own {own}: {:.2e}", error / size);
        }
    }
}

#[test]
fn convolutions() {
    let shapes = [
        (2, 3, 8, 9, 7, 3, 1),
        (1, 32, 48, 16, 16, 3, 1),
        (2, 24, 16, 8, 8, 1, 1),
        (2, 8, 12, 8, 8, 3, 2),
        (2, 8, 12, 8, 8, 4, 2),
        (1, 3, 8, 12, 12, 7, 1),
    ];
    for (b, cin, cout, h, w, kernel, stride) in shapes {
        let padding = (kernel - 1) / 2;
        compare(&format!("conv {kernel}x{kernel}/{stride} {b}x{cin}→{cout}"), |way| {
            let (x, bias) = (way.input(1, [b, cin, h, w], 1.0), way.input(3, [cout], 1.0));
            let weight = way.input(2, [cout, cin, kernel, kernel], 0.1);
            let f = if way.own { composed::conv2d } else { functional::conv2d };
            let y = f(x.clone(), weight.clone(), bias.clone(), stride, padding);
            way.run(y, &[&gradient(&x), &gradient(&weight), &gradient(&bias)])
        });
    }
    compare("convolution onto something", |way| {
        let conv = Conv::new(&Scope::root(3, &way.device), 6, 8, 3);
        let (x, base) = (way.input(1, [2, 6, 8, 8], 1.0), way.input(2, [2, 8, 8, 8], 1.0));
        let y = conv.forward_onto(base.clone(), x.clone());
        way.run(y, &[&gradient(&x), &gradient(&base)])
    });
}

#[test]
fn group_norms() {
    for (b, c, side, groups) in [(2, 8, 6, 2), (3, 64, 8, 16)] {
        compare("norm", |way| {
            let (x, gamma, beta) =
                (way.input(1, [b, c, side, side], 2.0), way.input(2, [c], 1.0), way.input(3, [c], 1.0));
            let f = if way.own { composed::group_norm } else { functional::group_norm };
            let y = f(x.clone(), gamma.clone(), beta.clone(), groups);
            way.run(y, &[&gradient(&x), &gradient(&gamma), &gradient(&beta)])
        });
        compare("norm, modulation, SiLU", |way| {
            let (x, gamma, beta) =
                (way.input(1, [b, c, side, side], 2.0), way.input(2, [c], 1.0), way.input(3, [c], 1.0));
            let modulation = way.input(4, [b, 2 * c], 0.5);
            let f = if way.own { composed::group_norm_silu } else { functional::group_norm_silu };
            let y = f(x.clone(), gamma.clone(), beta.clone(), groups, Some(modulation.clone()));
            way.run(y, &[&gradient(&x), &gradient(&gamma), &gradient(&beta), &gradient(&modulation)])
        });
    }
}

#[test]
fn attention_and_dense_layers() {
    for (b, heads, d, h, w) in [(2, 2, 8, 4, 6), (1, 1, 64, 8, 8)] {
        compare("attention", |way| {
            let qkv = way.input(1, [b, 3 * heads * d, h, w], 1.0);
            let f = if way.own { composed::self_attention } else { functional::self_attention };
            way.run(f(qkv.clone(), heads), &[&gradient(&qkv)])
        });
    }
    for (b, cin, cout) in [(1, 64, 10), (5, 256, 77)] {
        compare("dense", |way| {
            let (x, weight, bias) =
                (way.input(1, [b, cin], 1.0), way.input(2, [cout, cin], 1.0), way.input(3, [cout], 1.0));
            let f = if way.own { composed::linear } else { functional::linear };
            let y = f(x.clone(), weight.clone(), Some(bias.clone()));
            way.run(y, &[&gradient(&x), &gradient(&weight), &gradient(&bias)])
        });
    }
}

#[test]
fn maps() {
    type Op = fn(Tensor<4>) -> Tensor<4>;
    let pairs: [(&str, Op, Op); 3] = [
        ("avg_pool2x2", functional::avg_pool2x2, composed::avg_pool2x2),
        ("upsample2x", functional::upsample2x, composed::upsample2x),
        ("silu", functional::silu, burn::tensor::activation::silu),
    ];
    for (name, fast, own) in pairs {
        compare(name, |way| {
            let x = way.input(1, [2, 3, 4, 6], 3.0);
            way.run(if way.own { own } else { fast }(x.clone()), &[&gradient(&x)])
        });
    }
    compare("concat", |way| {
        let (a, b) = (way.input(1, [3, 4, 2, 5], 1.0), way.input(2, [3, 1, 2, 5], 1.0));
        way.run(functional::concat(a.clone(), b.clone()), &[&gradient(&a), &gradient(&b)])
    });
    compare("dropout", |way| {
        let x = way.input(1, [3, 5, 7, 9], 1.0);
        let key = DropoutKey { seed: 1, step: 2, samples: vec![4, 5, 6] };
        way.run(dropout(x.clone(), 0.3, 7, &key), &[&gradient(&x)])
    });
}

/// A whole network with both decoders: its outputs and the gradients of all parameters.
#[test]
fn a_network() {
    let config = UNetConfig {
        resolution: 8,
        width: 16,
        mult: vec![1, 4],
        blocks: 1,
        attention: vec![4],
        ..UNetConfig::default()
    };
    compare("network", |way| {
        let net = config.init(NetworkPorts::default(), 5, &way.device);
        let x = from_host(&normals(1, 2 * 3 * 64), [2, 3, 8, 8], &way.device);
        let c_noise = from_host(&normals(2, 2), [2], &way.device);
        let key = DropoutKey { seed: 1, step: 2, samples: vec![0, 1] };
        let raw = net.forward(x, c_noise, &Context::default(), Some(&key));
        let eps = raw.eps.unwrap();
        let mut results = vec![to_host(raw.phi.clone()), to_host(eps.clone())];
        let loss = (raw.phi + 1.0).square().mean() + (eps - 1.0).square().mean();
        // All together: single ones may be zero or nearly so.
        let all = gradients(&net, loss.backward()).into_iter().flat_map(|(_, _, gradient)| gradient).collect();
        results.push(all);
        results
    });
}
