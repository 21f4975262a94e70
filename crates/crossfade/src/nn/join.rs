//! Evaluations of one network for several runs at once, joined to one batch.
//!
//! Every image has its own time, class and condition in a batch, and its outputs have the same bits whatever the others
//! are, so that runs of different samplers, lengths and guidance can share a forward pass.
use burn::tensor::Tensor;

use super::backbone::{Backbone, Context};
use super::mode::Mode;
use super::unet::RawHeads;

/// What a run asks of a network: the arguments of [`Backbone::forward`].
#[derive(Clone, Debug)]
pub struct Evaluation {
    /// c_in·x_t, `[B, inputs·C, H, W]`.
    pub x: Tensor<4>,
    /// c_noise of each sample, `[B]`.
    pub c_noise: Tensor<1>,
    /// What the network knows beside that.
    pub context: Context,
}

impl Evaluation {
    /// The number of samples.
    pub fn samples(&self) -> usize {
        self.x.dims()[0]
    }

    /// Whether both can be part of one batch: samples of the same size, with the same kinds of context.
    pub fn joins(&self, other: &Self) -> bool {
        self.x.dims()[1..] == other.x.dims()[1..] && self.context.joins(&other.context)
    }

    /// Evaluates `network` once for all of `evaluations`, which must join each other. The outputs are in the same order.
    pub fn together(network: &dyn Backbone, mut evaluations: Vec<Self>) -> Vec<RawHeads> {
        let counts: Vec<usize> = evaluations.iter().map(Self::samples).collect();
        if evaluations.len() <= 1 {
            let one = evaluations.pop();
            return one.map(|e| network.forward(e.x, e.c_noise, &e.context, Mode::Eval)).into_iter().collect();
        }
        let x = Tensor::cat(evaluations.iter().map(|e| e.x.clone()).collect(), 0);
        let c_noise = Tensor::cat(evaluations.iter().map(|e| e.c_noise.clone()).collect(), 0);
        let context = Context::joined(&evaluations.iter().map(|e| &e.context).collect::<Vec<_>>());
        drop(evaluations);
        let all = network.forward(x, c_noise, &context, Mode::Eval);
        let mut first = 0;
        let part = |count: usize| {
            let cut = |x: &Tensor<4>| x.clone().narrow(0, first, count);
            let part = RawHeads { phi: cut(&all.phi), eps: all.eps.as_ref().map(cut) };
            first += count;
            part
        };
        counts.into_iter().map(part).collect()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::engine::{Device, from_vec, to_host, vector};
    use crate::nn::condition::EncoderConfig;
    use crate::nn::{CondUNetConfig, Network, NetworkConfig, NetworkPorts, UNetConfig, one_hot, preset};
    use crate::rng::{Purpose, Stream};

    fn noise(key: u64, shape: [usize; 4]) -> Tensor<4> {
        let mut values = vec![0.0; shape.iter().product()];
        Stream::new(11, key, 0, Purpose::Noise).fill_normal(&mut values);
        from_vec(values, shape, &Device::flex())
    }

    fn same(a: &RawHeads, b: &RawHeads) -> bool {
        let bits = |x: &Tensor<4>| to_host(x.clone()).into_iter().map(f32::to_bits).collect::<Vec<_>>();
        bits(&a.phi) == bits(&b.phi) && a.eps.as_ref().map(bits) == b.eps.as_ref().map(bits)
    }

    /// Every evaluation alone, all at once, and in other company: the same bits.
    fn check(network: &Network, evaluations: &[Evaluation]) {
        let alone: Vec<_> = evaluations.iter().map(|e| Evaluation::together(network, vec![e.clone()])).collect();
        for order in [vec![0, 1, 2, 3], vec![3, 2], vec![1, 3, 0], vec![2; 9]] {
            let joined = order.iter().map(|&k| evaluations[k].clone()).collect();
            for (found, &k) in Evaluation::together(network, joined).iter().zip(&order) {
                assert!(same(found, &alone[k][0]), "evaluation {k} in the company of {order:?}");
            }
        }
    }

    #[test]
    fn images_have_the_same_bits_in_any_company_of_times_and_classes() {
        let device = Device::flex();
        let wide = UNetConfig { resolution: 32, width: 64, blocks: 1, ..UNetConfig::default() };
        for config in [preset("tiny").unwrap(), wide] {
            let config = UNetConfig { classes: 5, ..config };
            let side = config.resolution;
            let network = NetworkConfig::UNet(config).init(NetworkPorts::default(), 3, &device);
            let evaluation = |key: u64, times: &[f64]| Evaluation {
                x: noise(key, [times.len(), 3, side, side]),
                c_noise: vector(times, &device),
                context: Context::default().with_classes(Some(one_hot(
                    &(0..times.len())
                        .map(|i| (i % 3 < 2).then_some(((key as usize + i) % 5) as u32))
                        .collect::<Vec<_>>(),
                    5,
                    &device,
                ))),
            };
            let times: [&[f64]; 4] = [&[-0.1], &[-3.0, -0.02, -1.4], &[0.0; 2], &[-0.7, -0.6, -0.5, -9.0, -0.1]];
            let evaluations: Vec<_> = times.iter().enumerate().map(|(k, times)| evaluation(k as u64, times)).collect();
            check(&network, &evaluations);
            let unlike = Evaluation { context: Context::default(), ..evaluations[0].clone() };
            assert!(evaluations[0].joins(&evaluations[3]) && !evaluations[0].joins(&unlike));
        }
    }

    #[test]
    fn windows_with_conditions_have_the_same_bits_in_any_company() {
        let device = Device::flex();
        let config = CondUNetConfig {
            width: 8,
            mult: vec![1, 2],
            encoder: EncoderConfig::Unet { width: 8, stride: 1 },
            condition_windows: vec![[3, 2], [1, 1]],
            feature_windows: vec![[2, 3], [1, 1]],
            ..CondUNetConfig::default()
        };
        let network = NetworkConfig::CondUNet(config).init(NetworkPorts::default(), 3, &device);
        let evaluation = |key: u64, count: usize, side: usize| Evaluation {
            x: noise(key, [count, 3, side, side]),
            c_noise: vector(&(0..count).map(|i| -0.3 * (i + key as usize) as f64).collect::<Vec<_>>(), &device),
            context: network.encode(Some(noise(key + 50, [count, 3, side, side])), Mode::Eval),
        };
        let evaluations: Vec<_> =
            [1, 3, 2, 5].iter().zip(0..).map(|(&count, key)| evaluation(key, count, 16)).collect();
        check(&network, &evaluations);
        assert!(!evaluations[0].joins(&evaluation(0, 1, 24)), "windows of another size");
        let encoded = |x: Tensor<4>| network.encode(Some(x), Mode::Eval);
        let both = noise(9, [4, 3, 16, 16]);
        let apart = Context::joined(&[&encoded(both.clone().narrow(0, 0, 1)), &encoded(both.clone().narrow(0, 1, 3))]);
        let (x, c_noise) = (noise(1, [4, 3, 16, 16]), vector(&[-0.1, -0.2, -0.3, -0.4], &device));
        let one = network.forward(x.clone(), c_noise.clone(), &encoded(both), Mode::Eval);
        assert!(same(&one, &network.forward(x, c_noise, &apart, Mode::Eval)), "conditions encoded apart");
    }
}
