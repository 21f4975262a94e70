//! VGG-16's convolutions (Simonyan and Zisserman 2015) as an encoder of the condition: features of ImageNet, which no small
//! encoder learns from a few hundred pictures.
use burn::tensor::ops::MaxPoolOptions;
use burn::tensor::{Tensor, activation, module};
use crossfade_math::Problem;
use serde::{Deserialize, Serialize};

use super::swin_block::pad;
use super::vgg_forward::ForwardOnly;
use crate::engine::has_kernels;
use crate::nn::functional::pixel_unshuffle;
use crate::nn::init::{Init, Scope};
use crate::nn::layers::{Conv, ConvOptions};
use crate::nn::lpips::{VGG16, imagenet_scaled};
use crate::nn::module_macros::named_module;

/// The root mean square of every layer after its ReLU, over 16 pictures each of ECSSD and BSDS with ImageNet weights
/// (`tools/vgg_reference.py`). Features are divided by it, so that those of all layers are of the size of x_t.
const RMS: [f32; 13] = [0.65, 1.35, 1.8, 2.4, 3.5, 3.9, 3.6, 4.1, 3.3, 1.9, 2.5, 1.9, 0.9];

/// The most pixels along a side of a layer that are read as one pixel of a level.
const MAX_RATIO: usize = 4;

/// A convolution of VGG-16, counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Layer(usize);

impl Layer {
    /// All of them, each with its block and its number in the block, both from 0.
    fn all() -> impl Iterator<Item = (Self, [usize; 2])> {
        let places = VGG16.iter().enumerate().flat_map(|(block, &(_, count))| (0..count).map(move |i| [block, i]));
        places.enumerate().map(|(at, place)| (Self(at), place))
    }

    fn place(self) -> [usize; 2] {
        Self::all().nth(self.0).map_or([0, 0], |(_, place)| place)
    }

    fn name(self) -> String {
        let [block, i] = self.place();
        format!("conv{}_{}", block + 1, i + 1)
    }

    fn channels(self) -> usize {
        VGG16[self.place()[0]].0
    }

    /// Pixels of the picture, along a side, to one of this layer.
    fn stride(self) -> usize {
        1 << self.place()[0]
    }

    /// How many pixels of this layer, along a side, make one of a level with `stride`.
    fn ratio(self, stride: usize) -> usize {
        if stride.is_multiple_of(self.stride()) { stride / self.stride() } else { 1 }
    }
}

/// What one level of the U-Net reads of VGG-16: the output of a convolution after its ReLU, `conv1_1` to `conv5_3`, or of
/// several, as in `conv1_2+conv3_3`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct VggLevel(Vec<Layer>);

impl TryFrom<String> for VggLevel {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        let layer = |name: &str| {
            let found = Layer::all().find(|(layer, _)| layer.name() == name.trim());
            found.map(|(layer, _)| layer).ok_or_else(|| {
                format!(
                    "'{name}' is no convolution of VGG-16; name conv1_1 to conv5_3, or several as in conv1_2+conv3_3"
                )
            })
        };
        // In the order of the network, in which they are computed.
        let mut layers: Vec<Layer> = text.split('+').map(layer).collect::<Result<_, _>>()?;
        layers.sort_unstable();
        layers.dedup();
        Ok(Self(layers))
    }
}

impl From<VggLevel> for String {
    fn from(level: VggLevel) -> Self {
        level.0.iter().map(|layer| layer.name()).collect::<Vec<_>>().join("+")
    }
}

/// A layer as a part of a level.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    /// Which convolution.
    pub layer: usize,
    /// Squares of this side become one pixel of the level, their values channels.
    pub ratio: usize,
    /// What the features are multiplied with.
    pub scale: f32,
}

/// The parts of every level. Level k is at 1/(patch·2^k) of the picture.
fn plan(levels: &[VggLevel], patch: usize) -> Vec<Vec<Part>> {
    let part = |k: usize, layer: &Layer| Part {
        layer: layer.0,
        ratio: layer.ratio(stride(patch, k)),
        scale: 1.0 / RMS[layer.0],
    };
    levels.iter().enumerate().map(|(k, level)| level.0.iter().map(|layer| part(k, layer)).collect()).collect()
}

/// Pixels of the picture, along a side, to one of level `k`.
fn stride(patch: usize, k: usize) -> usize {
    patch << k
}

/// Channels of each level: those of its layers, with a square of pixels counted as channels.
pub(super) fn channels(levels: &[VggLevel], patch: usize) -> Vec<usize> {
    let part = |part: &Part| Layer(part.layer).channels() * part.ratio * part.ratio;
    plan(levels, patch).iter().map(|parts| parts.iter().map(part).sum()).collect()
}

/// All that is wrong with the layers of `levels` for a network of `count` levels.
pub(super) fn problems(levels: &[VggLevel], count: usize, patch: usize, condition_channels: usize) -> Vec<Problem> {
    let mut problems = vec![];
    let mut require = |ok, key, message: String| Problem::require(&mut problems, ok, key, message);
    let message =
        format!("must name layers of VGG-16 for each of the {count} levels of `mult`, not for {}", levels.len());
    require(levels.len() == count, "encoder.layers", message);
    for (k, layers) in levels.iter().take(8).enumerate() {
        let stride = stride(patch.clamp(1, 16), k);
        for layer in &layers.0 {
            let (name, own) = (layer.name(), layer.stride());
            let message = format!("level {k} is at 1/{stride} of the picture, {name} at 1/{own}: name a later layer");
            require(layer.ratio(stride) <= MAX_RATIO, "encoder.layers", message);
            let joined =
                layers.0.len() == 1 || layer.ratio(stride) * own == layers.0[0].ratio(stride) * layers.0[0].stride();
            let message = format!(
                "level {k} is at 1/{stride} of the picture, {name} at 1/{own}: it cannot be joined with others"
            );
            require(joined, "encoder.layers", message);
        }
    }
    let message =
        "must be 1 or 3: VGG-16 reads pictures, grey or in colour; for a condition with a mask use encoder.kind = \
                   \"unet\" or a Swin encoder"
            .to_owned();
    require([1, 3].contains(&condition_channels), "condition_channels", message);
    problems
}

/// The encoder: VGG-16 up to the last convolution that a level reads.
#[derive(Clone, Debug)]
pub struct Vgg {
    convs: Vec<Conv>,
    levels: Vec<Vec<Part>>,
    forward_only: ForwardOnly,
}

named_module!(Vgg { convs: "conv" } keep levels, forward_only);

impl Vgg {
    /// An encoder for a network with this `patch` that reads these layers.
    pub fn new(scope: &Scope, levels: &[VggLevel], patch: usize) -> Self {
        let levels = plan(levels, patch);
        let last = levels.iter().flatten().map(|part| part.layer).max().unwrap_or(0);
        let at = scope.at("conv");
        let conv = |i: usize| {
            let cin = if i == 0 { 3 } else { Layer(i - 1).channels() };
            // As torchvision's: √(2/fan_in) keeps the size of features through ReLUs.
            let weight = Init::Normal { mean: 0.0, std: (2.0 / (9 * cin) as f64).sqrt() };
            let options = ConvOptions::same(cin, Layer(i).channels(), 3);
            Conv::with(&at.at(&i.to_string()), ConvOptions { weight, bias: Some(Init::Zeros), ..options })
        };
        Self { convs: (0..=last).map(conv).collect(), levels, forward_only: ForwardOnly::default() }
    }

    /// The features of all levels, finest first.
    ///
    /// Pictures are padded on the right and below with zeros (the mean colour of ImageNet, and what the convolutions see
    /// beyond every border), so that any size can be pooled.
    ///
    /// # Shapes
    /// `x` `[B, 1 or 3, H, W]` in \[−1, 1\] to `[B, c_k, H'/(patch·2^k), W'/(patch·2^k)]`, H' and W' rounded up to whole
    /// pixels of all levels; a level whose layers are coarser than it has their size.
    pub fn forward(&self, x: Tensor<4>) -> Vec<Tensor<4>> {
        let x = imagenet_scaled(x);
        let [_, _, h, w] = x.dims();
        let unit = self.levels.iter().flatten().map(|part| part.ratio * Layer(part.layer).stride()).fold(1, lcm);
        let size = [h, w].map(|side| side.next_multiple_of(unit));
        let x = pad(x.permute([0, 2, 3, 1]), size).permute([0, 3, 1, 2]);
        let recorded = x.is_autodiff() || self.convs.iter().any(|conv| conv.weight().is_autodiff());
        if has_kernels(&x) && !recorded {
            return self.forward_only.run(&self.convs, &self.levels, x);
        }
        self.composed(x)
    }

    /// The same by operations that have gradients.
    fn composed(&self, mut x: Tensor<4>) -> Vec<Tensor<4>> {
        let mut layers = Vec::with_capacity(self.convs.len());
        for (i, conv) in self.convs.iter().enumerate() {
            if pools(i) {
                x = module::max_pool2d(x, MaxPoolOptions::new([2, 2]).with_stride([2, 2]));
            }
            x = activation::relu(conv.forward(x));
            layers.push(x.clone());
        }
        let part = |part: &Part| pixel_unshuffle(layers[part.layer].clone(), part.ratio) * part.scale;
        let level = |parts: &Vec<Part>| Tensor::cat(parts.iter().map(part).collect(), 1);
        self.levels.iter().map(level).collect()
    }
}

/// Whether the picture is halved before this layer.
pub(super) fn pools(layer: usize) -> bool {
    let [block, i] = Layer(layer).place();
    block > 0 && i == 0
}

fn lcm(a: usize, b: usize) -> usize {
    let (mut x, mut y) = (a, b);
    while y > 0 {
        (x, y) = (y, x % y);
    }
    a / x * b
}
