//! Batch normalisation with running statistics.
use burn::module::{Module, Param};
use burn::tensor::Tensor;

use super::init::{Place, Start};

/// Added to the variance.
const EPSILON: f64 = 1e-5;
/// The share of a new batch in the running statistics.
const MOMENTUM: f64 = 0.1;

/// y = (x − mean)/√(var + 1e-5)·γ + β for each channel.
///
/// The running statistics are buffers: parameters without gradient under the names that PyTorch gives them.
#[derive(Module, Debug)]
pub struct BatchNorm2 {
    weight: Param<Tensor<1>>,
    bias: Param<Tensor<1>>,
    running_mean: Param<Tensor<1>>,
    running_var: Param<Tensor<1>>,
}

/// Mean and unbiased variance of one batch, `[C]` each.
#[derive(Clone, Debug)]
pub struct BatchStatistics {
    mean: Tensor<1>,
    variance: Tensor<1>,
}

impl BatchNorm2 {
    /// Scales start as `weight` says, shifts at zero.
    pub fn new(place: &Place, channels: usize, weight: Start) -> Self {
        Self {
            weight: place.param("weight", [channels], weight),
            bias: place.param("bias", [channels], Start::Zeros),
            running_mean: place.buffer("running_mean", [channels], Start::Zeros),
            running_var: place.buffer("running_var", [channels], Start::Ones),
        }
    }

    /// With the running statistics.
    ///
    /// # Shapes
    /// `[B, C, H, W]` to the same.
    pub fn forward(&self, x: Tensor<4>) -> Tensor<4> {
        let c = x.dims()[1];
        let column = |v: &Param<Tensor<1>>| v.val().reshape([1, c, 1, 1]);
        self.scaled(x - column(&self.running_mean), column(&self.running_var))
    }

    /// With the batch's own mean and (biased) variance, which are returned for [`BatchNorm2::observe`].
    ///
    /// # Shapes
    /// `[B, C, H, W]` to the same.
    pub fn train_forward(&self, x: Tensor<4>) -> (Tensor<4>, BatchStatistics) {
        let [b, c, h, w] = x.dims();
        let count = (b * h * w) as f64;
        let mean = channel_mean(x.clone());
        let x = x - mean.clone();
        let variance = channel_mean(x.clone().square());
        let unbiased = count / (count - 1.0).max(1.0);
        let statistics = BatchStatistics {
            mean: mean.inner().reshape([c]),
            variance: variance.clone().inner().reshape([c]) * unbiased,
        };
        (self.scaled(x, variance), statistics)
    }

    fn scaled(&self, centred: Tensor<4>, variance: Tensor<4>) -> Tensor<4> {
        let c = centred.dims()[1];
        let gain = self.weight.val().reshape([1, c, 1, 1]) / (variance + EPSILON).sqrt();
        centred * gain + self.bias.val().reshape([1, c, 1, 1])
    }

    /// running ← 0.9·running + 0.1·batch.
    pub fn observe(self, batch: &BatchStatistics) -> Self {
        let mixed = |old: Param<Tensor<1>>, new: &Tensor<1>| {
            old.map(|old| {
                let tracks = old.is_autodiff();
                let mixed = old.inner() * (1.0 - MOMENTUM) + new.clone() * MOMENTUM;
                if tracks { mixed.autodiff() } else { mixed }
            })
        };
        Self {
            running_mean: mixed(self.running_mean, &batch.mean),
            running_var: mixed(self.running_var, &batch.variance),
            ..self
        }
    }
}

/// # Shapes
/// `[B, C, H, W]` to `[1, C, 1, 1]`.
fn channel_mean(x: Tensor<4>) -> Tensor<4> {
    let [b, c, h, w] = x.dims();
    x.reshape([b, c, h * w]).mean_dim(2).mean_dim(0).reshape([1, c, 1, 1])
}
