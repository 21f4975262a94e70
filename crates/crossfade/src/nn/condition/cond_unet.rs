//! The conditional U-Net: an encoder of x_t that reads features of the condition on every level, and one or two decoders
//! (§4.6).
use std::f64::consts::TAU;

use burn::module::{Module, Param};
use burn::tensor::{Device, Tensor, activation};

use super::config::{CondUNetConfig, EncoderConfig, Split};
use super::fourier::FourierFilter;
use super::levels::{Down, Up, decode_levels, downs, encode_levels, ups};
use super::linear_attention::FullAttention;
use super::relation::Relation;
use super::resblock::{GROUPS, ResBlock};
use super::resize::{Corners, resize};
use super::swin::{BASE, Swin, TINY};
use super::unet_encoder::UnetEncoder;
use super::vgg::Vgg;
use crate::nn::backbone::{Backbone, BackboneConfig, Context, NetworkPorts};
use crate::nn::config::Decoders;
use crate::nn::functional::{concat, pixel_shuffle, pixel_unshuffle, silu};
use crate::nn::gate::SpatialGate;
use crate::nn::init::{Init, MIXING, Scope};
use crate::nn::layers::{Conv, Dense, GroupNorm2d};
use crate::nn::mode::Mode;
use crate::nn::module_macros::{enum_module, named_module};
use crate::nn::unet::RawHeads;

/// Feature maps of a condition. They do not depend on the time, so that sampling computes them once.
#[derive(Clone, Debug)]
pub struct Features {
    /// The output of the encoder's first stage, which the stem reads; projected where it has many channels (VGG-16).
    first: Tensor<4>,
    /// The output of every stage, projected to the channels of its level.
    levels: Vec<Tensor<4>>,
}

impl Features {
    /// Whether the samples of both can be in one batch.
    pub(in crate::nn) fn joins(&self, other: &Self) -> bool {
        let sizes = |features: &Self| -> Vec<[usize; 3]> {
            let maps = features.levels.iter().chain([&features.first]);
            maps.map(|map| map.dims()).map(|[_, c, h, w]| [c, h, w]).collect()
        };
        sizes(self) == sizes(other)
    }

    /// The features of the samples of all `parts` in their order.
    pub(in crate::nn) fn joined(parts: &[&Self]) -> Self {
        let join = |of: &dyn Fn(&Self) -> Tensor<4>| Tensor::cat(parts.iter().map(|part| of(part)).collect(), 0);
        let levels = (0..parts[0].levels.len()).map(|level| join(&|part| part.levels[level].clone())).collect();
        Self { first: join(&|part| part.first.clone()), levels }
    }
}

/// Is called with named intermediate results, for comparison with the reference's.
pub type Tap<'a> = &'a mut dyn FnMut(&'static str, &Tensor<4>);

/// The conditional network. Names and order of its parts are those of the reference's state dict.
#[derive(Clone, Debug)]
pub struct CondUNet {
    pub(super) encoder: Encoder,
    stem: Conv,
    stem_norm: GroupNorm2d,
    projects: Vec<Conv>,
    frequencies: Param<Tensor<1>>,
    time1: Dense,
    time3: Dense,
    downs: Vec<Down>,
    ups: Vec<Up>,
    relations_down: Vec<Relation>,
    relations_up: Vec<Relation>,
    ups2: Option<Vec<Up>>,
    relations_up2: Option<Vec<Relation>>,
    mid_block1: ResBlock,
    mid_attn: FullAttention,
    mid_block2: ResBlock,
    decouple1: Decouple,
    decouple2: Option<Decouple>,
    final_block: ResBlock,
    final_conv: Conv,
    final_block2: Option<ResBlock>,
    final_conv2: Option<Conv>,
    mixing_logit: Option<Param<Tensor<1>>>,
    frozen: bool,
    projects_first: bool,
    unit: usize,
    patch: usize,
}

named_module!(CondUNet {
    encoder: "init_conv_mask",
    stem: "init_conv.0",
    stem_norm: "init_conv.1",
    projects: "projects",
    frequencies: "time_mlp.0.W",
    time1: "time_mlp.1",
    time3: "time_mlp.3",
    downs: "downs",
    ups: "ups",
    relations_down: "relation_layers_down",
    relations_up: "relation_layers_up",
    ups2: "ups2",
    relations_up2: "relation_layers_up2",
    mid_block1: "mid_block1",
    mid_attn: "mid_attn",
    mid_block2: "mid_block2",
    decouple1: "decouple1",
    decouple2: "decouple2",
    final_block: "final_res_block",
    final_conv: "final_conv",
    final_block2: "final_res_block2",
    final_conv2: "final_conv2",
    mixing_logit: "mixing_logit",
} keep frozen, projects_first, unit, patch);

/// The encoder of the condition.
#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant, reason = "a network has few of these, and its weights are on the heap")]
pub(super) enum Encoder {
    /// A Swin transformer.
    Swin(Swin),
    /// A small U-Net.
    Unet(UnetEncoder),
    /// The first convolutions of VGG-16.
    Vgg(Vgg),
}

enum_module!(Encoder { Swin, Unet, Vgg });

/// The layers in front of one decoder; their output is added to that of the bottleneck.
#[derive(Clone, Debug)]
struct Decouple {
    norm: GroupNorm2d,
    conv: Conv,
    filter: DecoupleFilter,
}

named_module!(Decouple { norm: "0", conv: "1", filter: "2" });

/// The last layer of a [`Decouple`].
#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant, reason = "a network has few of these, and its weights are on the heap")]
enum DecoupleFilter {
    Attention(SpatialGate),
    Fourier(FourierFilter),
}

enum_module!(DecoupleFilter { Attention, Fourier });

impl CondUNet {
    /// A network whose parameters have names and shapes only, until their first use.
    pub(super) fn new(config: &CondUNetConfig, ports: NetworkPorts, seed: u64, device: &Device) -> Self {
        let root = Scope::root(seed, device);
        let at = |name: &str| root.at(name);
        let (dim, dims, emb) = (config.width, config.dims(), 4 * config.width);
        let bottom = dims[dims.len() - 1];
        let stages = config.encoder.channels(config.mult.len(), config.patch);
        let first = if config.encoder.projects_first() { dim } else { stages[0] };
        let two = config.decoders == Decoders::Two;
        let project = |(i, &c): (usize, &usize)| Conv::new(&at("projects").at(&i.to_string()), c, dims[i], 1);
        let decouple = |name| Decouple::new(&at(name), bottom, config);
        let block = |name, cin, cout| ResBlock::new(&at(name), cin, cout, Some(emb));
        // A pixel of the feature maps stands for a square of x_t, whose values are its channels.
        let channels = config.channels * config.patch * config.patch;
        let last = |name, parts| Conv::new(&at(name), dim, channels * parts, 1);
        let (ups1, relations_up) = ups(&at("ups"), &at("relation_layers_up"), config);
        let second = two.then(|| ups(&at("ups2"), &at("relation_layers_up2"), config)).unzip();
        let (downs, relations_down) = downs(&at("downs"), &at("relation_layers_down"), config);
        Self {
            encoder: Encoder::new(&at("init_conv_mask"), config),
            stem: Conv::new(&at("init_conv.0"), channels * ports.inputs + first, dim, 7),
            stem_norm: GroupNorm2d::new(&at("init_conv.1"), dim, GROUPS.min(dim / 4)),
            projects: stages.iter().enumerate().map(project).collect(),
            frequencies: at("time_mlp.0").param("W", [dim / 2], Init::Normal { mean: 0.0, std: config.fourier_scale }),
            time1: Dense::new(&at("time_mlp.1"), dim, emb),
            time3: Dense::new(&at("time_mlp.3"), emb, emb),
            downs,
            ups: ups1,
            relations_down,
            relations_up,
            ups2: second.0,
            relations_up2: second.1,
            mid_block1: block("mid_block1", bottom, bottom),
            mid_attn: FullAttention::new(&at("mid_attn"), bottom, config.heads),
            mid_block2: block("mid_block2", bottom, bottom),
            decouple1: decouple("decouple1"),
            decouple2: two.then(|| decouple("decouple2")),
            final_block: block("final_res_block", 2 * dim, dim),
            final_conv: last("final_conv", ports.phi_parts),
            final_block2: two.then(|| block("final_res_block2", 2 * dim, dim)),
            final_conv2: two.then(|| last("final_conv2", 1)),
            mixing_logit: ports.mixed.then(|| root.param("mixing_logit", [config.channels], MIXING)),
            frozen: config.freeze_encoder,
            projects_first: config.encoder.projects_first(),
            unit: config.unit(),
            patch: config.patch,
        }
    }

    /// The outputs of the encoder's stages, finest first. A frozen encoder is evaluated without recording gradients, which
    /// saves its share of the backward pass.
    ///
    /// # Shapes
    /// `condition` `[B, condition_channels, H, W]` in \[−1, 1\]; each output `[B, c_s, h_s, w_s]`.
    pub fn stages(&self, condition: Tensor<4>, mode: Mode) -> Vec<Tensor<4>> {
        if !self.frozen {
            return self.encoder.forward(condition, mode);
        }
        let encoder =
            if self.time1.devices().iter().any(Device::is_autodiff) { &self.encoder.valid() } else { &self.encoder };
        let condition = if condition.is_autodiff() { condition.inner() } else { condition };
        encoder.forward(condition, Mode::Eval)
    }

    /// The feature maps that [`CondUNet::forward`] reads.
    ///
    /// # Shapes
    /// `condition` `[B, condition_channels, H, W]` in \[−1, 1\], of any size.
    pub fn encode(&self, condition: Tensor<4>, mode: Mode) -> Features {
        let stages = self.stages(condition, mode);
        let first = stages[0].clone();
        let levels: Vec<_> = self.projects.iter().zip(stages).map(|(project, stage)| project.forward(stage)).collect();
        Features { first: if self.projects_first { levels[0].clone() } else { first }, levels }
    }

    /// F(x; c_noise, condition); `x` is already multiplied by c_in.
    ///
    /// # Shapes
    /// `x` `[B, C, H, W]` with H and W multiples of [`CondUNetConfig::unit`], `c_noise` `[B]`. Inside, feature maps have the
    /// side H/patch.
    pub fn forward(&self, x: Tensor<4>, c_noise: Tensor<1>, features: &Features, mode: Mode) -> RawHeads {
        self.observed(x, c_noise, features, mode, &mut |_, _| ())
    }

    /// As [`CondUNet::forward`]; calls `tap` with `time_embedding` (as an image of one pixel), `stem`, `relation0`, `mid` and
    /// `decouple1`.
    ///
    /// # Shapes
    /// As [`CondUNet::forward`].
    pub fn observed(&self, x: Tensor<4>, c_noise: Tensor<1>, features: &Features, mode: Mode, tap: Tap) -> RawHeads {
        let [b, _, h, w] = x.dims();
        let unit = self.unit;
        assert!(h % unit == 0 && w % unit == 0, "an image of {h}x{w} needs sides that are multiples of {unit}");
        let emb = self.embedding(c_noise);
        let size = emb.dims()[1];
        tap("time_embedding", &emb.clone().reshape([b, size, 1, 1]));
        let emb = silu(emb);
        let first = resize(features.first.clone(), [h / self.patch, w / self.patch], Corners::HalfPixel);
        let x = pixel_unshuffle(x, self.patch);
        let stem = self.stem_norm.forward(self.stem.forward(concat(x, first)));
        tap("stem", &stem);
        let (x, skips) =
            encode_levels(&self.downs, &self.relations_down, stem.clone(), &features.levels, &emb, mode, &mut *tap);
        let x = self.mid_attn.forward(self.mid_block1.forward(x, Some(&emb)));
        let x = self.mid_block2.forward(x, Some(&emb));
        tap("mid", &x);
        let decode = |split: Tensor<4>, ups: &[Up], relations: &[Relation], block: &ResBlock, last: &Conv| {
            let y = decode_levels(ups, relations, x.clone() + split, &skips, &features.levels, &emb, mode);
            let y = last.forward(block.forward(concat(y, stem.clone()), Some(&emb)));
            pixel_shuffle(y, self.patch)
        };
        let split = self.decouple1.forward(x.clone());
        tap("decouple1", &split);
        let phi = decode(split, &self.ups, &self.relations_up, &self.final_block, &self.final_conv);
        let second = (&self.decouple2, &self.ups2, &self.relations_up2, &self.final_block2, &self.final_conv2);
        let eps = match second {
            (Some(decouple), Some(ups), Some(relations), Some(block), Some(last)) => {
                Some(decode(decouple.forward(x.clone()), ups, relations, block, last))
            }
            _ => None,
        };
        RawHeads { phi, eps }
    }

    /// MLP([sin p, cos p]) with p = 2π·W·c_noise.
    ///
    /// # Shapes
    /// `[B]` to `[B, 4·width]`.
    fn embedding(&self, c_noise: Tensor<1>) -> Tensor<2> {
        let (b, n) = (c_noise.dims()[0], self.frequencies.lazy_shape()[0]);
        let p = c_noise.reshape([b, 1]) * self.frequencies.val().detach().reshape([1, n]) * TAU;
        let waves = Tensor::cat(vec![p.clone().sin(), p.cos()], 1);
        self.time3.forward(activation::gelu(self.time1.forward(waves)))
    }
}

impl Backbone for CondUNet {
    fn encode(&self, condition: Option<Tensor<4>>, mode: Mode) -> Context {
        let condition = condition.expect("the conditional U-Net needs a condition");
        Context { features: Some(Self::encode(self, condition, mode)), ..Context::default() }
    }
    fn forward(&self, x: Tensor<4>, c_noise: Tensor<1>, context: &Context, mode: Mode) -> RawHeads {
        let labels = context.labels.is_some() || context.classes.is_some();
        assert!(!labels, "the conditional U-Net has no use for augmentation labels and classes");
        let features = context.features.as_ref().expect("a context of this network's `encode`");
        Self::forward(self, x, c_noise, features, mode)
    }
    fn mixing(&self) -> Option<Tensor<1>> {
        self.mixing_logit.as_ref().map(|logit| activation::sigmoid(logit.val()))
    }
}

impl Encoder {
    fn new(scope: &Scope, config: &CondUNetConfig) -> Self {
        let (channels, levels) = (config.condition_channels, config.mult.len());
        match &config.encoder {
            EncoderConfig::SwinB => Self::Swin(Swin::new(scope, channels, &BASE)),
            EncoderConfig::SwinT => Self::Swin(Swin::new(scope, channels, &TINY)),
            EncoderConfig::Unet { width, stride } => {
                Self::Unet(UnetEncoder::new(scope, channels, *width, levels, *stride))
            }
            EncoderConfig::Vgg16 { layers } => Self::Vgg(Vgg::new(scope, layers, config.patch)),
        }
    }

    fn forward(&self, condition: Tensor<4>, mode: Mode) -> Vec<Tensor<4>> {
        match self {
            Self::Swin(swin) => swin.forward(condition, mode),
            Self::Unet(unet) => unet.forward(condition),
            Self::Vgg(vgg) => vgg.forward(condition),
        }
    }
}

impl Decouple {
    fn new(scope: &Scope, channels: usize, config: &CondUNetConfig) -> Self {
        let last = scope.at("2");
        let filter = match config.split {
            Split::Attention => DecoupleFilter::Attention(SpatialGate::new(&last, channels)),
            Split::Fourier { size } => {
                DecoupleFilter::Fourier(FourierFilter::new(&last, channels, size.map(|side| side / config.unit())))
            }
        };
        Self {
            norm: GroupNorm2d::new(&scope.at("0"), channels, GROUPS),
            conv: Conv::new(&scope.at("1"), channels, channels, 3),
            filter,
        }
    }

    /// # Shapes
    /// `[B, C, H, W]` to the same.
    fn forward(&self, x: Tensor<4>) -> Tensor<4> {
        let y = self.conv.forward(self.norm.forward(x));
        match &self.filter {
            DecoupleFilter::Attention(gate) => gate.forward(y),
            DecoupleFilter::Fourier(filter) => filter.forward(y),
        }
    }
}
