//! The U-Net: one encoder, and one or two decoders behind a bottleneck (§4.2). The image of a task, if there is one, is
//! concatenated to x_t.
use burn::module::{Module, Param};
use burn::tensor::{Device, Tensor, activation};

use super::backbone::{Backbone, Context, NetworkPorts};
use super::block::Block;
use super::config::{BlockPlan, Decoders, UNetConfig};
use super::dropout::DropoutKey;
use super::embed::sinusoids;
use super::functional::{concat, pixel_shuffle, pixel_unshuffle, silu};
use super::gate::Decouple;
use super::init::{Init, MIXING, Scope};
use super::layers::{Conv, Dense, GroupNorm2d, groups};
use super::mode::Mode;
use super::named::Stages;

/// The outputs F of a network, before preconditioning.
#[derive(Clone, Debug)]
pub struct RawHeads {
    /// F of the phi head, `[B, phi_parts·C, H, W]`.
    pub phi: Tensor<4>,
    /// F of the eps head, `[B, C, H, W]`; none if there is a single decoder.
    pub eps: Option<Tensor<4>>,
}

impl RawHeads {
    /// The mean of both outputs: the prediction of a network with two decoders for a process that has one target.
    pub fn mean(self) -> Tensor<4> {
        match self.eps {
            Some(eps) => (self.phi + eps) * 0.5,
            None => self.phi,
        }
    }
}

/// The unconditional network. The names and the order of its fields are those of the reference's state dict.
#[derive(Module, Debug)]
pub struct UNet {
    map_augment: Option<Dense>,
    map_label: Option<Dense>,
    map_layer0: Dense,
    map_layer1: Dense,
    enc: Stages,
    decouple1: Decouple,
    decouple2: Option<Decouple>,
    dec: Stages,
    out_norm: GroupNorm2d,
    out_conv: Conv,
    dec2: Option<Stages>,
    out_norm2: Option<GroupNorm2d>,
    out_conv2: Option<Conv>,
    branch: Option<Branch>,
    mixing_logit: Option<Param<Tensor<1>>>,
    width: usize,
    levels: usize,
    patch: usize,
    condition_channels: usize,
    skip_scaling: bool,
}

/// The eps output of a single decoder: GN, SiLU, conv, SiLU, conv (§4.4).
#[derive(Module, Debug)]
struct Branch {
    norm: GroupNorm2d,
    conv0: Conv,
    conv1: Conv,
}

impl UNet {
    /// A network whose parameters have names and shapes only, until their first use.
    pub(super) fn new(config: &UNetConfig, ports: NetworkPorts, seed: u64, device: &Device) -> Self {
        let root = Scope::root(seed, device);
        // A pixel of the feature maps stands for a square of the image, whose values are its channels.
        let (m, c, emb) = (config.width, config.channels * config.patch_area(), 4 * config.width);
        let top = m * config.mult[0];
        let bottom = m * config.mult[config.mult.len() - 1];
        let two = config.decoders == Decoders::Two;
        let plan = config.decoder_plan();
        let decoder = |name| Stages { first: None, blocks: blocks(&root.at(name), &plan, emb, config.dropout) };
        let norm = |name| GroupNorm2d::new(&root.at(name), top, groups(top));
        let conv = |name, parts| Conv::last(&root.at(name), top, c * parts, 3);
        Self {
            map_augment: (config.augment_dim > 0)
                .then(|| Dense::without_bias(&root.at("map_augment"), config.augment_dim, m, Init::Zeros)),
            // Without a bias, so that no class is the zero vector.
            map_label: (config.classes > 0)
                .then(|| Dense::without_bias(&root.at("map_label"), config.classes, m, Init::fan_in(config.classes))),
            map_layer0: Dense::new(&root.at("map_layer0"), m, emb),
            map_layer1: Dense::new(&root.at("map_layer1"), emb, emb),
            enc: encoder(
                &root.at("enc"),
                config,
                c * ports.inputs + config.condition_channels * config.patch_area(),
                emb,
            ),
            decouple1: Decouple::new(&root.at("decouple1"), bottom),
            decouple2: two.then(|| Decouple::new(&root.at("decouple2"), bottom)),
            dec: decoder("dec"),
            out_norm: norm("out_norm"),
            out_conv: conv("out_conv", ports.phi_parts),
            dec2: two.then(|| decoder("dec2")),
            out_norm2: two.then(|| norm("out_norm2")),
            out_conv2: two.then(|| conv("out_conv2", 1)),
            branch: (config.decoders == Decoders::Conv).then(|| Branch::new(&root.at("branch"), top, c)),
            mixing_logit: ports.mixed.then(|| root.param("mixing_logit", [config.channels], MIXING)),
            width: m,
            levels: config.mult.len(),
            patch: config.patch,
            condition_channels: config.condition_channels,
            skip_scaling: config.skip_scaling,
        }
    }

    /// F(x; c_noise, context). `x` is already multiplied by c_in; dropout acts only where a key is given.
    ///
    /// # Shapes
    /// `x` `[B, C, H, W]` with H and W multiples of patch·2^(levels−1), `c_noise` `[B]`, the image of the context
    /// `[B, condition_channels, H, W]`. Inside, feature maps have the side H/patch.
    pub fn forward(
        &self,
        x: Tensor<4>,
        c_noise: Tensor<1>,
        context: &Context,
        dropout: Option<&DropoutKey>,
    ) -> RawHeads {
        let [_, _, h, w] = x.dims();
        let unit = self.patch << (self.levels - 1);
        assert!(h % unit == 0 && w % unit == 0, "an image of {h}x{w} needs sides that are multiples of {unit}");
        let emb = self.embedding(c_noise, context);
        let x = match &context.image {
            Some(image) => concat(x, image.clone()),
            None => x,
        };
        let skips = self.encoder_outputs(pixel_unshuffle(x, self.patch), &emb, dropout);
        let bottom = skips[skips.len() - 1].clone();
        // The last decoder takes the skips by value, so that each is freed as soon as it has been read.
        let second = self.dec2.is_some().then(|| (bottom.clone(), skips.clone()));
        let y = self.decode(&self.dec, self.decouple1.forward(bottom), skips, &emb, dropout);
        let branch = self.branch.as_ref().map(|branch| branch.forward(y.clone()));
        let phi = self.out_conv.forward(self.out_norm.silu(y, None));
        let eps = match (&self.decouple2, &self.dec2, &self.out_norm2, &self.out_conv2, second) {
            (Some(decouple2), Some(dec2), Some(norm), Some(conv), Some((bottom, skips))) => {
                let y = self.decode(dec2, decouple2.forward(bottom), skips, &emb, dropout);
                Some(conv.forward(norm.silu(y, None)))
            }
            _ => branch,
        };
        let shuffle = |raw| pixel_shuffle(raw, self.patch);
        RawHeads { phi: shuffle(phi), eps: eps.map(shuffle) }
    }

    /// The embedding of the noise level, of the class and of the augmentation (§4.2, §4.8).
    ///
    /// # Shapes
    /// `c_noise` `[B]`, labels `[B, augment_dim]`, classes `[B, classes]` to `[B, 4·width]`.
    fn embedding(&self, c_noise: Tensor<1>, context: &Context) -> Tensor<2> {
        let mut e = sinusoids(c_noise, self.width);
        if let Some(classes) = &context.classes {
            let map = self.map_label.as_ref().expect("classes are for networks with classes > 0");
            // As EDM: √N makes the entries of a class's vector as large as the sinusoids, whatever N is.
            let gain = (classes.dims()[1] as f64).sqrt();
            e = e + map.forward(classes.clone() * gain);
        }
        if let Some(labels) = &context.labels {
            let map = self.map_augment.as_ref();
            e = e + map.expect("labels are for networks with augment_dim > 0").forward(labels.clone());
        }
        silu(self.map_layer1.forward(silu(self.map_layer0.forward(e))))
    }

    /// The outputs of all stages of the encoder, from the first convolution to the bottleneck.
    fn encoder_outputs(&self, x: Tensor<4>, emb: &Tensor<2>, dropout: Option<&DropoutKey>) -> Vec<Tensor<4>> {
        let x = self.enc.first.iter().fold(x, |x, (_, conv)| conv.forward(x));
        let mut skips = vec![x.clone()];
        self.enc.blocks.iter().fold(x, |x, (_, block)| {
            let x = block.forward(x, emb, dropout);
            skips.push(x.clone());
            x
        });
        skips
    }

    /// Runs one decoder. A block that expects more channels than its predecessor has reads the last unread skip connection.
    fn decode(
        &self,
        decoder: &Stages,
        x: Tensor<4>,
        mut skips: Vec<Tensor<4>>,
        emb: &Tensor<2>,
        dropout: Option<&DropoutKey>,
    ) -> Tensor<4> {
        let last = skips.len() - 1;
        decoder.blocks.iter().fold(x, |x, (_, block)| {
            if x.dims()[1] == block.channels_in() {
                return block.forward(x, emb, dropout);
            }
            let skip = skips.pop().expect("the plan pairs every such block with a skip");
            let read = (last - skips.len()) as f64 / last.max(1) as f64;
            let skip = if self.skip_scaling { skip * (0.5 + 0.5 * read) } else { skip };
            block.forward(concat(x, skip), emb, dropout)
        })
    }
}

impl Backbone for UNet {
    fn encode(&self, condition: Option<Tensor<4>>, _mode: Mode) -> Context {
        let channels = condition.as_ref().map_or(0, |condition| condition.dims()[1]);
        assert_eq!(channels, self.condition_channels, "channels of the condition");
        Context { image: condition, ..Context::default() }
    }
    fn forward(&self, x: Tensor<4>, c_noise: Tensor<1>, context: &Context, mode: Mode) -> RawHeads {
        Self::forward(self, x, c_noise, context, mode.dropout())
    }
    fn mixing(&self) -> Option<Tensor<1>> {
        self.mixing_logit.as_ref().map(|logit| activation::sigmoid(logit.val()))
    }
}

impl Branch {
    fn new(scope: &Scope, width: usize, channels: usize) -> Self {
        Self {
            norm: GroupNorm2d::new(&scope.at("norm"), width, groups(width)),
            conv0: Conv::new(&scope.at("conv0"), width, width, 3),
            conv1: Conv::zero(&scope.at("conv1"), width, channels, 3),
        }
    }

    /// # Shapes
    /// `[B, width, H, W]` to `[B, C, H, W]`.
    fn forward(&self, x: Tensor<4>) -> Tensor<4> {
        self.conv1.forward(silu(self.conv0.forward(self.norm.silu(x, None))))
    }
}

fn encoder(scope: &Scope, config: &UNetConfig, inputs: usize, emb: usize) -> Stages {
    let r = config.side();
    let name = format!("{r}x{r}_conv");
    let conv = Conv::new(&scope.at(&name), inputs, config.width * config.mult[0], 3);
    Stages { first: Some((name, conv)), blocks: blocks(scope, &config.encoder_plan(), emb, config.dropout) }
}

fn blocks(scope: &Scope, plan: &[BlockPlan], emb: usize, dropout: f64) -> Vec<(String, Block)> {
    plan.iter().map(|block| (block.name.clone(), Block::new(&scope.at(&block.name), block, emb, dropout))).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::engine::{from_vec, to_host, vector};
    use crate::nn::weights::{apply, collect, gradients};
    use crate::nn::{BackboneConfig, preset};

    fn tiny(decoders: Decoders) -> UNetConfig {
        UNetConfig { decoders, ..preset("tiny").unwrap() }
    }

    /// Weights that are nowhere zero, so that every branch has a part in the outputs.
    fn nonzero(config: &UNetConfig, device: &Device) -> UNet {
        let shapes: std::collections::BTreeMap<_, _> =
            config.state_shapes(NetworkPorts::default()).into_iter().collect();
        let value = |i: usize| ((i * 7919 + 13) % 101) as f32 / 404.0 - 0.125;
        let source = |name: &str| Some((shapes[name].clone(), (0..shapes[name].iter().product()).map(value).collect()));
        apply(UNet::new(config, NetworkPorts::default(), 0, device), &source).unwrap()
    }

    fn images(b: usize, device: &Device) -> Tensor<4> {
        from_vec((0..b * 768).map(|i| (i as f32 * 0.37).sin()).collect(), [b, 3, 16, 16], device)
    }

    #[test]
    fn initial_weights_depend_on_seed_and_name_alone() {
        let device = Device::flex();
        let weights = |decoders, seed| collect(&tiny(decoders).init(NetworkPorts::default(), seed, &device));
        let (two, one) = (weights(Decoders::Two, 3), weights(Decoders::One, 3));
        assert!(one.len() < two.len() && one.iter().all(|tensor| two.contains(tensor)));
        assert_ne!(two, weights(Decoders::Two, 4));
        for (name, shape, values) in &two {
            let zero = [".conv1.", ".proj."].iter().any(|part| name.contains(part));
            let zero = zero
                || name.contains("norm") && name.ends_with("bias")
                || name.starts_with("out_conv") && shape.len() == 1;
            assert_eq!(zero, values.iter().all(|&v| v == 0.0), "{name}");
        }
        let variance = |name: &str| {
            let (_, shape, values) = two.iter().find(|(n, ..)| n == name).unwrap();
            let fan_in = shape[1..].iter().product::<usize>() as f32;
            values.iter().map(|v| v * v).sum::<f32>() / values.len() as f32 * fan_in
        };
        // U(-1, 1)/√fan_in, and for the last layer √3 times that.
        assert!((variance("enc.8x8_block0.conv0.weight") - 1.0 / 3.0).abs() < 0.01);
        assert!((variance("out_conv.weight") - 1.0).abs() < 0.1);
    }

    /// The condition is what further channels of x_t would be, on both heads.
    #[test]
    fn a_condition_is_concatenated_to_x_t() {
        let device = Device::flex();
        let config = UNetConfig { condition_channels: 2, patch: 2, ..tiny(Decoders::Conv) };
        let net = nonzero(&config, &device);
        let (x, c_noise) = (images(2, &device), vector(&[-0.3, -2.0], &device));
        let condition = x.clone().narrow(1, 0, 2) * 0.5 + 0.1;
        let raw = net.forward(x.clone(), c_noise.clone(), &net.encode(Some(condition.clone()), Mode::Eval), None);
        // The same weights in a network whose state has five channels; only its outputs would be others.
        let joint = net.forward(concat(x.clone(), condition.clone()), c_noise.clone(), &Context::default(), None);
        assert_eq!(to_host(raw.phi.clone()), to_host(joint.phi));
        assert_eq!(to_host(raw.eps.unwrap()), to_host(joint.eps.unwrap()));
        let other = net.forward(x, c_noise, &net.encode(Some(condition * 2.0), Mode::Eval), None);
        assert_ne!(to_host(raw.phi), to_host(other.phi));
        assert_eq!(config.condition_channels(), Some(2));
        assert_eq!(config.resolution(), None);
    }

    /// A network with patches is the one with as many channels more, between the two shuffles: outputs of both heads,
    /// gradients and names of all parameters. With two inputs (CLD) and two parts of phi.
    #[test]
    fn patches_are_channels_of_a_network_at_half_the_size() {
        let device = Device::flex().autodiff();
        let ports = NetworkPorts { inputs: 2, phi_parts: 2, mixed: false };
        for decoders in [Decoders::Two, Decoders::One, Decoders::Conv] {
            let plain = UNetConfig { channels: 4, resolution: 8, attention: vec![4], ..tiny(decoders) };
            let patched = UNetConfig { channels: 1, resolution: 16, patch: 2, ..plain.clone() };
            assert_eq!((patched.validate(), patched.unit()), (vec![], 4));
            assert_eq!(patched.state_shapes(ports), plain.state_shapes(ports));
            let [a, b] = [&plain, &patched].map(|config| config.init(ports, 3, &device));
            let values = (0..2 * 2 * 16 * 24).map(|i| (i as f32 * 0.37).sin()).collect();
            let x = from_vec(values, [2, 2, 16, 24], &device).require_grad();
            let c_noise = vector(&[-0.5, -0.1], &device);
            let expected = a.forward(pixel_unshuffle(x.clone(), 2), c_noise.clone(), &Context::default(), None);
            let found = b.forward(x.clone(), c_noise, &Context::default(), None);
            assert_eq!(found.phi.dims(), [2, 2, 16, 24]);
            let pairs = [(Some(expected.phi.clone()), Some(found.phi.clone())), (expected.eps, found.eps)];
            for (expected, found) in pairs {
                let expected = expected.map(|raw| to_host(pixel_shuffle(raw, 2)));
                assert_eq!(expected, found.map(to_host), "{decoders:?}");
            }
            // A loss that weighs every output pixel differently.
            let weigh = |raw: Tensor<4>| (raw.clone() * raw.detach().sin()).sum();
            let [expected, found] = [pixel_shuffle(expected.phi, 2), found.phi].map(|phi| weigh(phi).backward());
            let input = |grads: &_| to_host(x.grad(grads).unwrap());
            assert_eq!(input(&expected), input(&found));
            assert!(input(&found).iter().any(|&g| g != 0.0));
        }
    }

    #[test]
    fn the_branch_starts_silent_and_learns() {
        let device = Device::flex();
        let net = tiny(Decoders::Conv).init(NetworkPorts::default(), 0, &device);
        let raw = net.forward(images(2, &device), vector(&[-1.0, 0.0], &device), &Context::default(), None);
        assert!(to_host(raw.eps.unwrap()).iter().all(|&v| v == 0.0));
        assert!(to_host(raw.phi).iter().any(|&v| v != 0.0));
        assert!(collect(&net).iter().any(|(name, ..)| name == "branch.conv1.weight"));
    }

    #[test]
    fn dropout_belongs_to_the_sample_and_every_parameter_learns() {
        let device = Device::flex().autodiff();
        for decoders in [Decoders::Two, Decoders::One, Decoders::Conv] {
            let config = UNetConfig { skip_scaling: true, ..tiny(decoders) };
            let net = nonzero(&config, &device);
            let run = |x: Tensor<4>, samples: &[u64], step| {
                let key = DropoutKey { seed: 1, step, samples: samples.to_vec() };
                net.forward(x, vector(&vec![-0.5; samples.len()], &device), &Context::default(), Some(&key))
            };
            let x = images(2, &device);
            let both = run(x.clone(), &[8, 9], 0);
            let alone = to_host(run(x.clone().narrow(0, 1, 1), &[9], 0).phi);
            let pairs = alone.iter().zip(to_host(both.phi.clone()).split_off(alone.len()));
            pairs.for_each(|(a, b)| assert!((a - b).abs() < 1e-4 * (1.0 + a.abs()), "{a} {b}"));
            assert_ne!(to_host(both.phi.clone()), to_host(run(x, &[8, 9], 1).phi));
            let loss = both.phi.square().sum() + both.eps.map_or(Tensor::zeros([1], &device), |eps| eps.square().sum());
            assert_eq!(gradients(&net, loss.backward()).len(), config.state_shapes(NetworkPorts::default()).len());
        }
    }
}
