//! The discriminator of autoencoder training: one verdict for each patch of an image (§5).
use burn::module::{Module, Param};
use burn::tensor::{Device, Tensor, activation};

use super::batch_norm::{BatchNorm2, BatchStatistics};
use super::init::{Place, Start};
use super::layers::conv2d;
use super::module_macros::enum_module;

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

/// One of the layers in sequence, which the reference numbers.
#[derive(Clone, Debug)]
enum Layer {
    Conv(PatchConv),
    Norm(BatchNorm2),
    Rectify,
}

enum_module!(Layer { Conv, Norm } empty Rectify);

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
