//! The same bits whatever the batch, the threads and the shard.
#![allow(clippy::unwrap_used)]
use crossfade::engine::{Device, Tensor, from_host, to_host};
use crossfade::math::Process;
use crossfade::nn::{Context, Denoiser, NetworkConfig, NetworkPorts, UNetConfig, preset};
use crossfade::rng::{Purpose, Stream};

fn net(config: &UNetConfig) -> Denoiser {
    let process = Process::default();
    let config = NetworkConfig::UNet(config.clone());
    let network = config.init(NetworkPorts::with_phi_parts(process.phi_parts()), 7, &Device::flex());
    Denoiser::new(network, &config, process)
}

fn noise(count: usize, side: usize) -> Tensor<4> {
    let size = 3 * side * side;
    let mut values = vec![0.0; count * size];
    for (k, image) in values.chunks_mut(size).enumerate() {
        Stream::new(1, k as u64, 0, Purpose::Start).fill_normal(image);
    }
    from_host(&values, [count, 3, side, side], &Device::flex())
}

#[test]
fn a_network_evaluation_does_not_depend_on_its_batch() {
    let wide = UNetConfig { width: 64, blocks: 1, ..UNetConfig::default() };
    let narrow = UNetConfig { width: 12, ..preset("tiny").unwrap() };
    for (config, count) in [(preset("tiny").unwrap(), 64), (wide, 7), (narrow, 9)] {
        let net = net(&config);
        let side = config.resolution;
        let x = noise(count, side);
        let all = net.heads(x.clone(), &[0.4], &Context::default());
        for (first, size) in [(0, 1), (count - 1, 1), (0, 7.min(count)), (3, 2)] {
            let part = net.heads(x.clone().narrow(0, first, size), &[0.4], &Context::default());
            let same = |a: Tensor<4>, b: Tensor<4>| to_host(a.narrow(0, first, size)) == to_host(b);
            assert!(
                same(all.phi.clone(), part.phi),
                "phi of {size} images from {first} of {count}, width {}",
                config.width
            );
            assert!(
                same(all.eps.clone(), part.eps),
                "eps of {size} images from {first} of {count}, width {}",
                config.width
            );
        }
    }
}

#[test]
fn a_network_evaluation_does_not_depend_on_threads() {
    let net = net(&UNetConfig { blocks: 1, ..UNetConfig::default() });
    let x = noise(3, 32);
    let run = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| to_host(net.heads(x.clone(), &[0.7], &Context::default()).phi))
    };
    assert_eq!(run(1), run(2));
    assert_eq!(run(1), run(3));
}
