//! The discriminator of autoencoder training: one verdict for each patch of an image (§5).
use burn::module::{Content, Devices, Module, ModuleDisplay, ModuleDisplayDefault, ModuleMapper, ModuleVisitor, Param};
use burn::tensor::{Device, Tensor, activation};

use super::batch_norm::{BatchNorm2, BatchStatistics};
use super::init::{Place, Start};
use super::layers::conv2d;

/// Slope of the rectifier for negative values.
const SLOPE: f64 = 0.2;
/// Standard deviation of the starting weights.
const STD: f64 = 0.02;

/// A convolution of 4x4 pixels, padded by 1; all but the first and the last have no bias.
#[derive(Module, Debug)]
pub struct PatchConv {
    weight: Param<Tensor<4>>,
    bias: Option<Param<Tensor<1>>>,
    stride: usize,
}

impl PatchConv {
    fn new(place: &Place, [cin, cout, stride]: [usize; 3], bias: bool) -> Self {
        let bound = 1.0 / ((cin * 16) as f64).sqrt();
        Self {
            weight: place.param("weight", [cout, cin, 4, 4], Start::Normal { mean: 0.0, std: STD }),
            bias: bias.then(|| place.param("bias", [cout], Start::Uniform(bound))),
            stride,
        }
    }

    fn forward(&self, x: Tensor<4>) -> Tensor<4> {
        let weight = self.weight.val();
        let bias = match &self.bias {
            Some(bias) => bias.val(),
            None => Tensor::zeros([weight.dims()[0]], &x.device().without_autodiff()),
        };
        conv2d(x, weight, bias, self.stride, 1)
    }
}

/// A place in the sequence of layers, which the reference numbers.
///
/// Written by hand because a derived enum would put the variant's name into the names of the parameters.
#[derive(Clone, Debug)]
enum Layer {
    Conv(PatchConv),
    Norm(BatchNorm2),
    Rectify,
}

impl Layer {
    fn each(self, conv: impl FnOnce(PatchConv) -> PatchConv, norm: impl FnOnce(BatchNorm2) -> BatchNorm2) -> Self {
        match self {
            Self::Conv(m) => Self::Conv(conv(m)),
            Self::Norm(m) => Self::Norm(norm(m)),
            Self::Rectify => Self::Rectify,
        }
    }
}

impl Module for Layer {
    fn visit<V: ModuleVisitor>(&self, visitor: &mut V) {
        match self {
            Self::Conv(m) => m.visit(visitor),
            Self::Norm(m) => m.visit(visitor),
            Self::Rectify => (),
        }
    }
    fn map<P: ModuleMapper>(self, mapper: &mut P) -> Self {
        match self {
            Self::Conv(m) => Self::Conv(m.map(mapper)),
            Self::Norm(m) => Self::Norm(m.map(mapper)),
            Self::Rectify => Self::Rectify,
        }
    }
    fn collect_devices(&self, devices: Devices) -> Devices {
        match self {
            Self::Conv(m) => m.collect_devices(devices),
            Self::Norm(m) => m.collect_devices(devices),
            Self::Rectify => devices,
        }
    }
    fn fork(self, device: &Device) -> Self {
        self.each(|m| m.fork(device), |m| m.fork(device))
    }
    fn to_device(self, device: &Device) -> Self {
        self.each(|m| m.to_device(device), |m| m.to_device(device))
    }
    fn valid(&self) -> Self {
        self.clone().each(|m| m.valid(), |m| m.valid())
    }
    fn train(self) -> Self {
        self.each(Module::train, Module::train)
    }
    fn materialize(self) -> Self {
        self.each(Module::materialize, Module::materialize)
    }
}

impl ModuleDisplayDefault for Layer {
    fn content(&self, content: Content) -> Option<Content> {
        match self {
            Self::Conv(m) => content.add("conv", m),
            Self::Norm(m) => content.add("norm", m),
            Self::Rectify => content,
        }
        .optional()
    }
}
impl ModuleDisplay for Layer {}

/// PatchGAN: convolutions that halve the image, batch normalisation, leaky rectifiers.
#[derive(Module, Debug)]
pub struct PatchGan {
    main: Vec<Layer>,
}

impl PatchGan {
    /// For images of `channels` channels; `width` filters at first, `depth` halvings (the reference: 64 and 3).
    pub fn new(channels: usize, width: usize, depth: usize, seed: u64, device: &Device) -> Self {
        let root = Place::root(seed, device).at("loss.discriminator.main");
        let mut main = vec![];
        let filters = |level: usize| width * (1 << level).min(8);
        let conv = |main: &mut Vec<Layer>, sizes: [usize; 3], bias: bool| {
            let layer = PatchConv::new(&root.at(&main.len().to_string()), sizes, bias);
            main.push(Layer::Conv(layer));
        };
        conv(&mut main, [channels, width, 2], true);
        main.push(Layer::Rectify);
        for level in 1..=depth {
            let stride = if level < depth { 2 } else { 1 };
            conv(&mut main, [filters(level - 1), filters(level), stride], false);
            let start = Start::Normal { mean: 1.0, std: STD };
            let norm = BatchNorm2::new(&root.at(&main.len().to_string()), filters(level), start);
            main.extend([Layer::Norm(norm), Layer::Rectify]);
        }
        conv(&mut main, [filters(depth), 1, 1], true);
        Self { main }
    }

    /// Verdicts with the running statistics; positive means real.
    ///
    /// # Shapes
    /// `[B, C, H, W]` to `[B, 1, H', W']`.
    pub fn forward(&self, x: Tensor<4>) -> Tensor<4> {
        self.main.iter().fold(x, |x, layer| match layer {
            Layer::Conv(conv) => conv.forward(x),
            Layer::Norm(norm) => norm.forward(x),
            Layer::Rectify => activation::leaky_relu(x, SLOPE),
        })
    }

    /// Verdicts with the statistics of the batch, which are returned for [`PatchGan::observe`].
    ///
    /// # Shapes
    /// As [`PatchGan::forward`].
    pub fn train_forward(&self, x: Tensor<4>) -> (Tensor<4>, Vec<BatchStatistics>) {
        let mut seen = vec![];
        let verdicts = self.main.iter().fold(x, |x, layer| match layer {
            Layer::Conv(conv) => conv.forward(x),
            Layer::Norm(norm) => {
                let (x, statistics) = norm.train_forward(x);
                seen.push(statistics);
                x
            }
            Layer::Rectify => activation::leaky_relu(x, SLOPE),
        });
        (verdicts, seen)
    }

    /// The network with running statistics that include a batch.
    pub fn observe(self, batch: &[BatchStatistics]) -> Self {
        let mut batch = batch.iter();
        let main = self.main.into_iter().map(|layer| match layer {
            Layer::Norm(norm) => Layer::Norm(match batch.next() {
                Some(statistics) => norm.observe(statistics),
                None => norm,
            }),
            other => other,
        });
        Self { main: main.collect() }
    }

    /// Smallest side of an image for which there is a verdict.
    pub fn least_side(depth: usize) -> usize {
        // Two convolutions at the last resolution take one pixel each.
        3 << depth
    }
}
