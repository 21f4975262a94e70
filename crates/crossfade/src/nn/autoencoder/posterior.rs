//! The distribution of a latent.
use burn::tensor::Tensor;

/// Bounds of the logarithm of a variance, so that its exponential stays finite.
const LOG_VARIANCE: [f32; 2] = [-30.0, 20.0];

/// Independent normal distributions of the numbers of a latent.
///
/// # Shapes
/// Mean and variance `[B, latent, H, W]`.
#[derive(Clone, Debug)]
pub struct Posterior {
    mean: Tensor<4>,
    log_variance: Tensor<4>,
}

impl Posterior {
    /// From the encoder's moments: means first, then logarithms of variances.
    ///
    /// # Shapes
    /// `[B, 2·latent, H, W]`.
    pub fn new(moments: Tensor<4>) -> Self {
        let latent = moments.dims()[1] / 2;
        let [low, high] = LOG_VARIANCE;
        Self {
            mean: moments.clone().narrow(1, 0, latent),
            log_variance: moments.narrow(1, latent, latent).clamp(low, high),
        }
    }

    /// The shape of a latent.
    pub fn dims(&self) -> [usize; 4] {
        self.mean.dims()
    }

    /// The encoder's moments with limited variances.
    ///
    /// # Shapes
    /// `[B, 2·latent, H, W]`.
    pub fn moments(self) -> Tensor<4> {
        Tensor::cat(vec![self.mean, self.log_variance], 1)
    }

    /// The most likely latent.
    pub fn mode(self) -> Tensor<4> {
        self.mean
    }

    /// The standard deviations.
    pub fn std(&self) -> Tensor<4> {
        (self.log_variance.clone() * 0.5).exp()
    }

    /// mean + std·noise, for standard normal `noise`.
    pub fn sample(self, noise: Tensor<4>) -> Tensor<4> {
        let std = self.std();
        self.mean + std * noise
    }

    /// ½ Σ(μ² + σ² − 1 − ln σ²), how far each sample's distribution is from the standard normal one.
    ///
    /// # Shapes
    /// `[B]`.
    pub fn kl(&self) -> Tensor<1> {
        let terms = self.mean.clone().square() + self.log_variance.clone().exp() - 1.0 - self.log_variance.clone();
        let batch = terms.dims()[0];
        (terms.flatten::<2>(1, 3).sum_dim(1) * 0.5).reshape([batch])
    }
}
