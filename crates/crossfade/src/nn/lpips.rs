//! LPIPS 0.1, the learned perceptual distance of two images (Zhang et al. 2018).
//!
//! A metric, and a loss: the value is differentiable in both images, and the weights are constants.
use std::path::{Path, PathBuf};

use burn::tensor::ops::MaxPoolOptions;
use burn::tensor::{Device, Tensor, activation, module};

use super::functional::conv2d;
use super::weights::differences;
use crate::digest::sha256_file;
use crate::engine::from_vec;
use crate::error::{Error, Result};
use crate::tensorfile::TensorFile;

/// The network whose features are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FeatureNet {
    /// AlexNet: fast, the usual choice for reports.
    Alex,
    /// VGG-16: slower, the usual choice for training.
    Vgg,
}

/// VGG-16: channels and number of the convolutions of each block. The picture is halved between blocks.
pub(super) const VGG16: [(usize, usize); 5] = [(64, 2), (128, 2), (256, 3), (512, 3), (512, 3)];

/// One convolution with ReLU: what comes before it, its sizes, and whether its output is compared.
struct Stage {
    /// Side of the max-pooling of stride 2 in front.
    pool: Option<usize>,
    channels: usize,
    kernel: usize,
    stride: usize,
    padding: usize,
    compared: bool,
}

impl FeatureNet {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Alex, Self::Vgg];

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Alex => "alex",
            Self::Vgg => "vgg",
        }
    }

    /// The smallest side of an image whose last features have a pixel.
    pub(crate) fn min_side(self) -> usize {
        match self {
            Self::Alex => 31,
            Self::Vgg => 16,
        }
    }

    fn stages(self) -> Vec<Stage> {
        match self {
            Self::Alex => {
                let stage = |pool, channels, kernel, stride| {
                    let padding = if kernel == 11 { 2 } else { kernel / 2 };
                    Stage { pool, channels, kernel, stride, padding, compared: true }
                };
                vec![
                    stage(None, 64, 11, 4),
                    stage(Some(3), 192, 5, 1),
                    stage(Some(3), 384, 3, 1),
                    stage(None, 256, 3, 1),
                    stage(None, 256, 3, 1),
                ]
            }
            Self::Vgg => {
                let level = |(level, (channels, count)): (usize, (usize, usize))| {
                    (0..count).map(move |i| Stage {
                        pool: (level > 0 && i == 0).then_some(2),
                        channels,
                        kernel: 3,
                        stride: 1,
                        padding: 1,
                        compared: i + 1 == count,
                    })
                };
                VGG16.into_iter().enumerate().flat_map(level).collect()
            }
        }
    }

    /// Names and shapes of the weights in a file: `conv0.weight`, `conv0.bias`, ..., `lin0.weight`, ...
    pub fn parameter_shapes(self) -> Vec<(String, Vec<usize>)> {
        let (mut shapes, mut lins, mut cin) = (vec![], vec![], 3);
        for (i, stage) in self.stages().iter().enumerate() {
            let (c, k) = (stage.channels, stage.kernel);
            shapes.push((format!("conv{i}.weight"), vec![c, cin, k, k]));
            shapes.push((format!("conv{i}.bias"), vec![c]));
            if stage.compared {
                lins.push((format!("lin{}.weight", lins.len()), vec![1, c, 1, 1]));
            }
            cin = c;
        }
        shapes.extend(lins);
        shapes
    }

    /// Whether a file has exactly these weights; if not, the beginning of what is wrong.
    fn check(self, found: &[(String, Vec<usize>)]) -> std::result::Result<(), String> {
        let problems = differences(&self.parameter_shapes(), found);
        if problems.is_empty() {
            return Ok(());
        }
        let what = format!("not the weights of LPIPS with {}", self.name());
        let fits = |other: &&Self| differences(&other.parameter_shapes(), found).is_empty();
        if let Some(other) = Self::ALL.iter().find(fits) {
            return Err(format!("{what}, but those of {}", other.name()));
        }
        let more = problems.len().saturating_sub(5);
        let more = if more > 0 { format!("\n  and {more} more") } else { String::new() };
        Err(format!("{what}:\n  {}{more}", problems[..problems.len().min(5)].join("\n  ")))
    }
}

/// A backbone with its weights.
#[derive(Clone, Debug)]
pub struct Lpips {
    backbone: FeatureNet,
    path: PathBuf,
    sha256: String,
    convs: Vec<(Tensor<4>, Tensor<1>)>,
    lins: Vec<Tensor<4>>,
}

impl Lpips {
    /// Reads the weights of `backbone` from a safetensors file that has exactly those.
    pub fn load(path: &Path, backbone: FeatureNet, device: &Device) -> Result<Self> {
        let file = TensorFile::open(path)?;
        backbone.check(&file.shapes()).map_err(|message| Error::file(path, message))?;
        let device = device.clone().without_autodiff();
        let read = |name: String| -> Result<(Vec<usize>, Vec<f32>)> {
            let (shape, values) = file.read(&name)?;
            match values.iter().find(|v| !v.is_finite()) {
                Some(bad) => Err(Error::file(path, format!("{name} holds {bad}; the weights are damaged"))),
                None => Ok((shape, values)),
            }
        };
        let tensor = |name: String| -> Result<Tensor<4>> {
            let (shape, values) = read(name)?;
            Ok(from_vec(values, std::array::from_fn(|i| shape[i]), &device))
        };
        let (mut convs, mut lins) = (vec![], vec![]);
        for (i, stage) in backbone.stages().iter().enumerate() {
            let bias = from_vec(read(format!("conv{i}.bias"))?.1, [stage.channels], &device);
            convs.push((tensor(format!("conv{i}.weight"))?, bias));
            if stage.compared {
                lins.push(tensor(format!("lin{}.weight", lins.len()))?);
            }
        }
        Ok(Self { backbone, path: path.to_path_buf(), sha256: sha256_file(path)?, convs, lins })
    }

    /// The network whose features are compared.
    pub fn backbone(&self) -> FeatureNet {
        self.backbone
    }

    /// The file that the weights came from.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The SHA-256 of that file.
    pub fn sha256(&self) -> &str {
        &self.sha256
    }

    /// Σ_l mean over pixels of Σ_c w_lc (â_lc − b̂_lc)², where â_l are the features of layer l at unit length.
    ///
    /// # Shapes
    /// `a` and `b` `[B, 1 or 3, H, W]` from −1 to 1, sides at least `FeatureNet::min_side`; to `[B]`.
    pub fn forward(&self, a: Tensor<4>, b: Tensor<4>) -> Tensor<1> {
        let (mut a, mut b) = (imagenet_scaled(a), imagenet_scaled(b));
        let mut total: Option<Tensor<1>> = None;
        let mut lins = self.lins.iter();
        for (stage, (weight, bias)) in self.backbone.stages().iter().zip(&self.convs) {
            let layer = |x: Tensor<4>| {
                let x = match stage.pool {
                    Some(side) => module::max_pool2d(x, MaxPoolOptions::new([side, side]).with_stride([2, 2])),
                    None => x,
                };
                activation::relu(conv2d(x, weight.clone(), bias.clone(), stage.stride, stage.padding))
            };
            (a, b) = (layer(a), layer(b));
            if stage.compared
                && let Some(lin) = lins.next()
            {
                let distance = distance(a.clone(), b.clone(), lin.clone());
                total = Some(match total {
                    Some(total) => total + distance,
                    None => distance,
                });
            }
        }
        total.expect("every backbone has layers to compare")
    }
}

/// The statistics of ImageNet, for images from −1 to 1; grey images become RGB.
///
/// # Shapes
/// `[B, 1 or 3, H, W]` to `[B, 3, H, W]`.
pub(super) fn imagenet_scaled(x: Tensor<4>) -> Tensor<4> {
    let device = x.device().without_autodiff();
    let row = |values: [f32; 3]| from_vec(values.to_vec(), [1, 3, 1, 1], &device);
    (x - row([-0.030, -0.088, -0.188])) / row([0.458, 0.448, 0.450])
}

/// # Shapes
/// Features `[B, C, H, W]`, `lin` `[1, C, 1, 1]` to `[B]`.
fn distance(a: Tensor<4>, b: Tensor<4>, lin: Tensor<4>) -> Tensor<1> {
    let [n, _, h, w] = a.dims();
    let difference = (unit(a) - unit(b)).square() * lin;
    difference.sum_dim(1).reshape([n, h * w]).mean_dim(1).reshape([n])
}

/// x/√(Σ_c x² + 1e-20): the package's x/(√Σ_c x² + 1e-10), but with a gradient where all features are 0.
fn unit(x: Tensor<4>) -> Tensor<4> {
    let length = (x.clone().square().sum_dim(1) + 1e-20).sqrt();
    x / length
}
