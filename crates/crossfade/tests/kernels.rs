//! The fast operations of the CPU against the engine's own: results and all gradients.
#![allow(clippy::unwrap_used)]
use crossfade::engine::{Device, Tensor, from_host, to_host};
use crossfade::nn::dropout::dropout;
use crossfade::nn::functional::{self, composed};
use crossfade::nn::init::Scope;
use crossfade::nn::layers::Conv;
use crossfade::nn::weights::gradients;
use crossfade::nn::{Context, DropoutKey, NetworkPorts, UNetConfig};
use crossfade::rng::{Purpose, Stream};

fn normals(seed: u64, count: usize) -> Vec<f32> {
    let mut values = vec![0.0; count];
    Stream::new(seed, 0, 0, Purpose::Noise).fill_normal(&mut values);
    values
}

fn random<const D: usize>(seed: u64, shape: [usize; D], scale: f32) -> Tensor<D> {
    let values: Vec<f32> = normals(seed, shape.iter().product()).iter().map(|v| scale * v).collect();
    from_host(&values, shape, &Device::flex().autodiff()).require_grad()
}

/// Reads one input's gradient.
type Of<'a> = &'a dyn Fn(&Grads) -> Vec<f32>;
/// An operation on images.
type Op = fn(Tensor<4>) -> Tensor<4>;

/// The result of `f` and, one after the other, the gradients of a weighted sum of it.
fn run<const D: usize>(y: Tensor<D>, inputs: &[Of]) -> Vec<Vec<f32>> {
    let weights = from_host(&normals(99, y.dims().iter().product()), y.dims(), &Device::flex());
    let mut results = vec![to_host(y.clone())];
    let grads = (y * weights).sum().backward();
    results.extend(inputs.iter().map(|input| input(&grads)));
    results
}

type Grads = burn::tensor::Gradients;

fn gradient<const D: usize>(x: &Tensor<D>) -> impl Fn(&Grads) -> Vec<f32> + '_ {
    |grads| to_host(x.grad(grads).unwrap())
}

fn assert_equal(what: &str, fast: &[Vec<f32>], own: &[Vec<f32>], limit: f64) {
    for (i, (fast, own)) in fast.iter().zip(own).enumerate() {
        assert_eq!(fast.len(), own.len());
        let square = |f: &dyn Fn(f64, f64) -> f64| -> f64 {
            fast.iter().zip(own).map(|(&a, &b)| f(f64::from(a), f64::from(b)).powi(2)).sum::<f64>().sqrt()
        };
        let (error, size) = (square(&|a, b| a - b), square(&|_, b| b));
        assert!(error <= limit * size, "{what}, result {i}: relative difference {:.2e}", error / size);
    }
}

#[test]
fn convolutions() {
    for (b, cin, cout, h, w, kernel) in
        [(2, 3, 8, 9, 7, 3), (1, 32, 48, 16, 16, 3), (3, 20, 33, 8, 10, 3), (2, 24, 16, 8, 8, 1), (2, 1, 1, 4, 4, 1)]
    {
        let x = random(1, [b, cin, h, w], 1.0);
        let weight = random(2, [cout, cin, kernel, kernel], 0.1);
        let bias = random(3, [cout], 1.0);
        let inputs: [Of; 3] = [&gradient(&x), &gradient(&weight), &gradient(&bias)];
        let call = |f: fn(Tensor<4>, Tensor<4>, Tensor<1>, usize, usize) -> Tensor<4>| {
            run(f(x.clone(), weight.clone(), bias.clone(), 1, kernel / 2), &inputs)
        };
        assert_equal(&format!("{:?} {kernel}", x.dims()), &call(functional::conv2d), &call(composed::conv2d), 1e-5);
    }
}

#[test]
fn group_norms() {
    for (b, c, h, w, groups) in [(2, 8, 5, 7, 2), (3, 64, 8, 8, 16), (1, 32, 16, 16, 8)] {
        let x = random(1, [b, c, h, w], 2.0);
        let (gamma, beta) = (random(2, [c], 1.0), random(3, [c], 1.0));
        let modulation = random(4, [b, 2 * c], 0.5);
        let plain: [Of; 3] = [&gradient(&x), &gradient(&gamma), &gradient(&beta)];
        let (x1, g1, b1) = (|| x.clone(), || gamma.clone(), || beta.clone());
        let fast = run(functional::group_norm(x1(), g1(), b1(), groups), &plain);
        let own = run(composed::group_norm(x1(), g1(), b1(), groups), &plain);
        assert_equal("norm", &fast, &own, 2e-6);
        let fast = run(functional::group_norm_silu(x1(), g1(), b1(), groups, None), &plain);
        let own = run(composed::group_norm_silu(x1(), g1(), b1(), groups, None), &plain);
        assert_equal("norm and SiLU", &fast, &own, 2e-6);
        let all = [plain[0], plain[1], plain[2], &gradient(&modulation)];
        let fast = run(functional::group_norm_silu(x1(), g1(), b1(), groups, Some(modulation.clone())), &all);
        let own = run(composed::group_norm_silu(x1(), g1(), b1(), groups, Some(modulation.clone())), &all);
        assert_equal("modulated norm and SiLU", &fast, &own, 2e-6);
    }
}

#[test]
fn attention() {
    for (b, heads, d, h, w) in [(2, 2, 8, 4, 6), (1, 1, 64, 16, 16), (3, 2, 16, 3, 3)] {
        let qkv = random(1, [b, 3 * heads * d, h, w], 1.0);
        let inputs: [Of; 1] = [&gradient(&qkv)];
        let fast = run(functional::self_attention(qkv.clone(), heads), &inputs);
        let own = run(composed::self_attention(qkv.clone(), heads), &inputs);
        assert_equal("attention", &fast, &own, 2e-6);
    }
}

#[test]
fn sizes_and_silu() {
    for shape in [[2, 3, 4, 6], [1, 8, 16, 16]] {
        let x = random(1, shape, 3.0);
        let inputs: [Of; 1] = [&gradient(&x)];
        let pairs: [(&str, Op, Op); 3] = [
            ("avg_pool2x2", functional::avg_pool2x2, composed::avg_pool2x2),
            ("upsample2x", functional::upsample2x, composed::upsample2x),
            ("silu", functional::silu, burn::tensor::activation::silu),
        ];
        for (name, fast, own) in pairs {
            assert_equal(name, &run(fast(x.clone()), &inputs), &run(own(x.clone()), &inputs), 1e-6);
        }
    }
}

#[test]
fn dense_layers() {
    for (b, cin, cout) in [(1, 64, 10), (5, 256, 77), (3, 9, 16)] {
        let (x, weight, bias) = (random(1, [b, cin], 1.0), random(2, [cout, cin], 1.0), random(3, [cout], 1.0));
        let all: [Of; 3] = [&gradient(&x), &gradient(&weight), &gradient(&bias)];
        for bias in [Some(bias.clone()), None] {
            let inputs = if bias.is_some() { &all[..] } else { &all[..2] };
            let fast = run(functional::linear(x.clone(), weight.clone(), bias.clone()), inputs);
            let own = run(composed::linear(x.clone(), weight.clone(), bias), inputs);
            assert_equal("dense", &fast, &own, 2e-6);
        }
    }
}

#[test]
fn channels_side_by_side() {
    let (a, b) = (random(1, [3, 4, 2, 5], 1.0), random(2, [3, 1, 2, 5], 1.0));
    let inputs: [Of; 2] = [&gradient(&a), &gradient(&b)];
    let fast = run(functional::concat(a.clone(), b.clone()), &inputs);
    assert_eq!(fast, run(Tensor::cat(vec![a.clone(), b.clone()], 1), &inputs));
}

#[test]
fn dropout_passes_gradients_where_it_passed_values() {
    let x = random(1, [3, 5, 7, 9], 1.0);
    let key = DropoutKey { seed: 1, step: 2, samples: vec![4, 5, 6] };
    let inputs: [Of; 1] = [&gradient(&x)];
    let [y, dx] = run(dropout(x.clone(), 0.3, 7, &key), &inputs).try_into().unwrap();
    let zeros = y.iter().filter(|&&v| v == 0.0).count();
    assert!((200..400).contains(&zeros), "{zeros} of 945");
    for ((y, dx), (x, w)) in y.iter().zip(&dx).zip(to_host(x.clone()).iter().zip(normals(99, 945))) {
        assert!((y * w - dx * x).abs() < 1e-5 && (*y == 0.0) == (*dx == 0.0));
    }
}

/// A convolution onto something is a sum, also for what it is added to.
#[test]
fn convolutions_onto_something() {
    let device = Device::flex().autodiff();
    let conv = Conv::new(&Scope::root(3, &device), 6, 8, 3);
    let (x, base) = (random(1, [2, 6, 8, 8], 1.0), random(2, [2, 8, 8, 8], 1.0));
    let inputs: [Of; 2] = [&gradient(&x), &gradient(&base)];
    let fast = run(conv.forward_onto(base.clone(), x.clone()), &inputs);
    assert_equal("onto", &fast, &run(conv.forward(x.clone()) + base.clone(), &inputs), 1e-6);
}

/// Constants keep nothing and get nothing; what depends on a parameter does.
#[test]
fn only_tracked_inputs_get_gradients() {
    let plain = |seed, shape: [usize; 4]| from_host(&normals(seed, shape.iter().product()), shape, &Device::flex());
    let weight = random(2, [4, 3, 3, 3], 0.1);
    let bias = from_host(&[0.0; 4], [4], &Device::flex());
    let x = plain(1, [2, 3, 6, 6]);
    let y = functional::silu(functional::conv2d(x.clone(), weight.clone(), bias.clone(), 1, 1));
    let y = functional::group_norm(y, from_host(&[1.0; 4], [4], &Device::flex()), bias.clone(), 2);
    let w = plain(5, [2, 4, 6, 6]);
    let grads = (y * w.clone()).sum().backward();
    let y = functional::silu(composed::conv2d(x, weight.clone(), bias.clone(), 1, 1));
    let y = composed::group_norm(y, from_host(&[1.0; 4], [4], &Device::flex()), bias, 2);
    let own = (y * w).sum().backward();
    let (fast, own) = (to_host(weight.grad(&grads).unwrap()), to_host(weight.grad(&own).unwrap()));
    assert_equal("weights", &[fast], &[own], 1e-5);
}

/// Prepared weights give the same bits, belong to their tensor, and do not outlive a change.
#[test]
fn repeated_convolutions_are_the_same() {
    let plain = |seed, shape: [usize; 4]| from_host(&normals(seed, shape.iter().product()), shape, &Device::flex());
    let (x, bias) = (plain(1, [2, 32, 12, 12]), from_host(&[0.5; 16], [16], &Device::flex()));
    let weight = plain(2, [16, 32, 3, 3]);
    let run =
        |x: &Tensor<4>, weight: &Tensor<4>| to_host(functional::conv2d(x.clone(), weight.clone(), bias.clone(), 1, 1));
    let first = run(&x, &weight);
    for _ in 0..3 {
        assert_eq!(run(&x, &weight), first);
    }
    assert_eq!(run(&x.clone().narrow(0, 1, 1), &weight), first[first.len() / 2..]);
    for factor in [2.0, 3.0, 4.0] {
        // Each in memory that another may just have left.
        let scaled = weight.clone() * factor;
        let (once, twice) = (run(&x, &scaled), run(&x, &scaled));
        assert_eq!(once, twice);
        let pairs = once.iter().zip(&first);
        pairs.for_each(|(a, b)| assert!((a - 0.5 - factor * (b - 0.5)).abs() < 1e-4 * factor));
    }
    let changed = weight * 2.0;
    assert_ne!(run(&x, &changed), first);
}

/// Gradients of a network have the same bits on any number of threads, and in memory that has been used before.
#[test]
fn gradients_do_not_depend_on_threads_or_old_memory() {
    let device = Device::flex().autodiff();
    let config = UNetConfig { resolution: 8, width: 16, mult: vec![1, 2], blocks: 1, ..UNetConfig::default() };
    let net = config.init(NetworkPorts::default(), 5, &device);
    let side = config.resolution;
    let x = from_host(&normals(1, 8 * 3 * side * side), [8, 3, side, side], &Device::flex());
    let c_noise = from_host(&normals(2, 8), [8], &Device::flex());
    let key = DropoutKey { seed: 1, step: 2, samples: (0..8).collect() };
    let run = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| {
            let raw = net.forward(x.clone(), c_noise.clone(), &Context::default(), Some(&key));
            let loss = raw.phi.square().mean() + raw.eps.unwrap().square().mean();
            gradients(&net, loss.backward())
        })
    };
    let first = run(1);
    for threads in [1, 2, 1, 3] {
        for ((name, _, a), (_, _, b)) in first.iter().zip(run(threads)) {
            assert!(*a == b, "{name} on {threads} threads");
        }
    }
}
