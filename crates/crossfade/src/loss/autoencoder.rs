//! The losses of an autoencoder: reconstruction, KL divergence and an adversarial term from a discriminator (§5).
use crate::engine::{Tensor, to_host};
use crate::loss::Perceptual;
use crate::nn::lpips::FeatureNet;
use crate::nn::{Autoencoder, PatchGan, Statistics};
use burn::module::Module;
use burn::tensor::{Gradients, activation};
use crossfade_kernels::sum_sq;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Upper limit of the adaptive weight of the adversarial term, before `disc_weight`.
const MAX_ADAPTIVE_WEIGHT: f64 = 1e4;

/// The training objective of an autoencoder; the `[loss]` section of its configuration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AutoencoderLoss {
    /// Weight of the KL divergence of latents from the standard normal distribution.
    pub kl_weight: f64,
    /// Weight of the perceptual distance (LPIPS); 0 for none.
    pub perceptual: f64,
    /// The perceptual network.
    pub perceptual_net: FeatureNet,
    /// The file of its weights. Without it, training prints a note and uses the other terms only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub perceptual_weights: Option<PathBuf>,
    /// Weight of the adversarial term, multiplied by the adaptive weight.
    pub disc_weight: f64,
    /// The first step, from 0, in which the discriminator is trained and used.
    pub disc_start: u64,
    /// Filters of the discriminator's first layer.
    pub disc_width: usize,
    /// The number of its strided layers, each of which halves the resolution; `n_layers` in the reference.
    pub disc_depth: usize,
}

impl Default for AutoencoderLoss {
    fn default() -> Self {
        Self {
            kl_weight: 1e-6,
            perceptual: 1.0,
            perceptual_net: FeatureNet::Vgg,
            perceptual_weights: None,
            disc_weight: 0.5,
            disc_start: 20_001,
            disc_width: 64,
            disc_depth: 3,
        }
    }
}

/// Gradients and loss of the encoder and the decoder for one batch.
pub struct GeneratorStep {
    /// Gradients of all their weights.
    pub gradients: Gradients,
    /// The reconstructions, `[B, C, H, W]`, without gradients.
    pub x_hat: Tensor<4>,
    /// The terms of the loss.
    pub terms: GeneratorTerms,
    /// Batch statistics of the discriminator's normalisations, if it was used.
    pub seen: Option<Statistics>,
}

/// The terms of the autoencoder's loss.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct GeneratorTerms {
    /// The weighted sum of the terms.
    pub total: f64,
    /// Reconstruction loss, summed over an image and averaged over the batch.
    pub nll: f64,
    /// KL divergence, reduced in the same way, without its weight.
    pub kl: f64,
    /// The adversarial term −mean(D(x̂)); 0 until the discriminator is used.
    pub verdict: f64,
    /// The weight of the adversarial term.
    pub verdict_weight: f64,
}

/// Gradients and loss of the discriminator for one batch.
pub struct DiscriminatorStep {
    /// Gradients of its weights.
    pub gradients: Gradients,
    /// The hinge loss.
    pub loss: f64,
    /// The mean logits of images and of reconstructions.
    pub verdicts: [f64; 2],
    /// Batch statistics of its normalisations for both.
    pub seen: Statistics,
}

/// The hinge loss ½(mean relu(1 − D(x)) + mean relu(1 + D(x̂))).
///
/// # Shapes
/// Logits of patches, `[B, 1, H, W]`.
pub fn hinge(real: Tensor<4>, fake: Tensor<4>) -> Tensor<1> {
    (activation::relu(-real + 1.0).mean() + activation::relu(fake + 1.0).mean()) * 0.5
}

impl AutoencoderLoss {
    /// Σ(|x − x̂| + (x − x̂)² + w·LPIPS(x, x̂)) over an image, averaged over the batch. LPIPS is one number per image;
    /// as in the reference it is broadcast before the sum, so that it counts once per pixel and channel.
    ///
    /// # Shapes
    /// `[B, C, H, W]` twice.
    pub fn reconstruction(&self, x: Tensor<4>, x_hat: Tensor<4>, perceptual: Option<Perceptual>) -> Tensor<1> {
        let size = x.dims()[1..].iter().product::<usize>();
        let difference = x_hat.clone() - x.clone();
        let pixels = (difference.clone().abs() + difference.square()).flatten::<2>(1, 3).sum_dim(1);
        let sum = match perceptual.filter(|_| self.perceptual > 0.0) {
            Some(distance) => pixels + distance(x, x_hat) * (self.perceptual * size as f64),
            None => pixels,
        };
        sum.mean()
    }

    /// The loss of the autoencoder and its gradients. `noise` is for the draw of the latents; without `disc` there is no
    /// adversarial term.
    ///
    /// The adaptive weight is the ratio of the gradient norms of both losses at the decoder's last convolution. To
    /// avoid a backward pass through the whole network for each loss, both gradients are first computed with respect to
    /// x̂ only. Their weighted sum then goes through decoder and encoder in a single backward pass.
    ///
    /// # Shapes
    /// `x` `[B, C, H, W]`, `noise` `[B, latent, H/f, W/f]`.
    pub fn generator_step(
        &self,
        net: &Autoencoder,
        disc: Option<&PatchGan>,
        x: Tensor<4>,
        noise: Tensor<4>,
        perceptual: Option<Perceptual>,
    ) -> GeneratorStep {
        let posterior = net.encode(x.clone());
        let kl = posterior.kl().mean();
        let features = net.features(posterior.sample(noise));
        let x_hat = net.last(features.clone());
        let x_hat_value = x_hat.clone().inner();
        let (nll, mut x_hat_grad) =
            value_and_grad(x_hat_value.clone(), |x_hat| self.reconstruction(x, x_hat, perceptual));
        let kl_value = number(kl.clone());
        let mut terms = GeneratorTerms {
            total: nll + self.kl_weight * kl_value,
            nll,
            kl: kl_value,
            verdict: 0.0,
            verdict_weight: 0.0,
        };
        let mut seen = None;
        if let Some(disc) = disc {
            // Without gradients of its own weights: only the gradient at x̂ is needed here.
            let disc = disc.valid();
            let (verdict, adversarial_grad) = value_and_grad(x_hat_value.clone(), |x_hat| {
                let statistics = seen.insert(Statistics::default());
                -disc.train_forward(x_hat, statistics).mean()
            });
            let features = features.inner();
            let norm = |grad: &Tensor<4>| last_layer_norm(net, features.clone(), grad.clone());
            // ‖∇nll‖/(‖∇g‖ + 1e-4) at the last convolution (§5).
            let adaptive_weight =
                (norm(&x_hat_grad) / (norm(&adversarial_grad) + 1e-4)).clamp(0.0, MAX_ADAPTIVE_WEIGHT);
            terms.verdict = verdict;
            terms.verdict_weight = adaptive_weight * self.disc_weight;
            terms.total += terms.verdict_weight * verdict;
            x_hat_grad = x_hat_grad + adversarial_grad * terms.verdict_weight;
        }
        // The gradient of Σ x̂·g with respect to the weights is that of a loss whose gradient at x̂ is g.
        let gradients = ((x_hat * x_hat_grad).sum() + kl * self.kl_weight).backward();
        GeneratorStep { gradients, x_hat: x_hat_value, terms, seen }
    }

    /// The hinge loss of the discriminator and its gradients.
    ///
    /// # Shapes
    /// `[B, C, H, W]` twice.
    pub fn discriminator_step(&self, disc: &PatchGan, x: Tensor<4>, x_hat: Tensor<4>) -> DiscriminatorStep {
        let seen = Statistics::default();
        let (real, fake) = (disc.train_forward(x, &seen), disc.train_forward(x_hat, &seen));
        let verdicts = [real.clone(), fake.clone()].map(|logits| number(logits.mean()));
        let loss = hinge(real, fake);
        DiscriminatorStep { loss: number(loss.clone()), gradients: loss.backward(), verdicts, seen }
    }
}

fn number(scalar: Tensor<1>) -> f64 {
    f64::from(scalar.into_scalar::<f32>())
}

/// The value of a loss at x and its gradient with respect to x.
fn value_and_grad(x: Tensor<4>, loss: impl FnOnce(Tensor<4>) -> Tensor<1>) -> (f64, Tensor<4>) {
    let x = x.autodiff().require_grad();
    let loss = loss(x.clone());
    let value = number(loss.clone());
    let gradient = x.grad(&loss.backward()).unwrap_or_else(|| x.zeros_like().inner());
    (value, gradient)
}

/// The gradient norm at the weights of the decoder's last convolution, for a loss whose gradient at x̂ is `x_hat_grad`.
fn last_layer_norm(net: &Autoencoder, features: Tensor<4>, x_hat_grad: Tensor<4>) -> f64 {
    let gradients = (net.last(features) * x_hat_grad).sum().backward();
    net.last_gradient(&gradients).map_or(0.0, |g| sum_sq(&to_host(g)).sqrt())
}
