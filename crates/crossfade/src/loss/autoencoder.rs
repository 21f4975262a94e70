//! What an autoencoder minimises: reconstruction, KL and the verdicts of a discriminator (§5).
use crate::engine::{Tensor, to_host};
use crate::loss::Perceptual;
use crate::nn::lpips::Backbone;
use crate::nn::{Autoencoder, PatchGan, Statistics};
use burn::module::Module;
use burn::tensor::{Gradients, activation};
use crossfade_kernels::sum_sq;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Largest weight of the discriminator's verdicts, before `disc_weight`.
const MOST: f64 = 1e4;

/// The training objective of an autoencoder; the `[loss]` section of its configuration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AutoencoderLoss {
    /// Weight of the KL divergence of latents from the standard normal distribution.
    pub kl_weight: f64,
    /// Weight of the perceptual distance (LPIPS); 0 for none.
    pub perceptual: f64,
    /// The perceptual network.
    pub perceptual_net: Backbone,
    /// Its weights; without them training says so and goes on with the other terms.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub perceptual_weights: Option<PathBuf>,
    /// Weight of the discriminator's verdicts, on top of the balance of gradients.
    pub disc_weight: f64,
    /// The first step, from 0, in which the discriminator plays.
    pub disc_start: u64,
    /// Filters of the discriminator's first layer.
    pub disc_width: usize,
    /// How often it halves the image, less one.
    pub disc_depth: usize,
}

impl Default for AutoencoderLoss {
    fn default() -> Self {
        Self {
            kl_weight: 1e-6,
            perceptual: 1.0,
            perceptual_net: Backbone::Vgg,
            perceptual_weights: None,
            disc_weight: 0.5,
            disc_start: 20_001,
            disc_width: 64,
            disc_depth: 3,
        }
    }
}

/// What a batch says to encoder and decoder.
pub struct GeneratorStep {
    /// Gradients of all their weights.
    pub gradients: Gradients,
    /// The reconstructions, `[B, C, H, W]`, without gradients.
    pub x_hat: Tensor<4>,
    /// The terms of the loss.
    pub terms: GeneratorTerms,
    /// What the discriminator's normalisations saw, if it played.
    pub seen: Option<Statistics>,
}

/// The terms of the autoencoder's loss.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct GeneratorTerms {
    /// All of it.
    pub total: f64,
    /// Reconstruction: summed over an image, averaged over the batch.
    pub nll: f64,
    /// KL divergence, likewise, not weighted.
    pub kl: f64,
    /// −mean(D(x̂)), if the discriminator plays.
    pub verdict: f64,
    /// The weight of that.
    pub verdict_weight: f64,
}

/// What a batch says to the discriminator.
pub struct DiscriminatorStep {
    /// Gradients of its weights.
    pub gradients: Gradients,
    /// The hinge loss.
    pub loss: f64,
    /// Its mean verdicts on images and on reconstructions.
    pub verdicts: [f64; 2],
    /// What its normalisations saw of both.
    pub seen: Statistics,
}

/// ½(mean relu(1 − D(x)) + mean relu(1 + D(x̂))).
///
/// # Shapes
/// Verdicts `[B, 1, H, W]`.
pub fn hinge(real: Tensor<4>, fake: Tensor<4>) -> Tensor<1> {
    (activation::relu(-real + 1.0).mean() + activation::relu(fake + 1.0).mean()) * 0.5
}

impl AutoencoderLoss {
    /// Σ(|x − x̂| + (x − x̂)² + w·LPIPS(x, x̂)) over an image, averaged over the batch. The distance of a pair counts at
    /// every one of its numbers.
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

    /// The loss of the autoencoder and its gradients; `noise` draws the latents, without `disc` nobody judges.
    ///
    /// Both losses are first followed back to x̂ alone. There they are balanced, each with the gradient that it has at the
    /// decoder's last convolution, and one pass through decoder and encoder carries their sum.
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
        let seen_here = x_hat.clone().inner();
        let (nll, mut pull) = slope(seen_here.clone(), |x_hat| self.reconstruction(x, x_hat, perceptual));
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
            let disc = disc.valid();
            let (verdict, push) = slope(seen_here.clone(), |x_hat| {
                let statistics = seen.insert(Statistics::default());
                -disc.train_forward(x_hat, statistics).mean()
            });
            let features = features.inner();
            let norm = |pull: &Tensor<4>| last_norm(net, features.clone(), pull.clone());
            // ‖∇nll‖/(‖∇g‖ + 1e-4) at the last convolution.
            let balance = (norm(&pull) / (norm(&push) + 1e-4)).clamp(0.0, MOST);
            terms.verdict = verdict;
            terms.verdict_weight = balance * self.disc_weight;
            terms.total += terms.verdict_weight * verdict;
            pull = pull + push * terms.verdict_weight;
        }
        let gradients = ((x_hat * pull).sum() + kl * self.kl_weight).backward();
        GeneratorStep { gradients, x_hat: seen_here, terms, seen }
    }

    /// The hinge loss of the discriminator and its gradients.
    ///
    /// # Shapes
    /// `[B, C, H, W]` twice.
    pub fn discriminator_step(&self, disc: &PatchGan, x: Tensor<4>, x_hat: Tensor<4>) -> DiscriminatorStep {
        let seen = Statistics::default();
        let (real, fake) = (disc.train_forward(x, &seen), disc.train_forward(x_hat, &seen));
        let verdicts = [real.clone(), fake.clone()].map(|verdicts| number(verdicts.mean()));
        let loss = hinge(real, fake);
        DiscriminatorStep { loss: number(loss.clone()), gradients: loss.backward(), verdicts, seen }
    }
}

fn number(scalar: Tensor<1>) -> f64 {
    f64::from(scalar.into_scalar::<f32>())
}

/// The value of a loss of x and its gradient there.
fn slope(x: Tensor<4>, loss: impl FnOnce(Tensor<4>) -> Tensor<1>) -> (f64, Tensor<4>) {
    let x = x.autodiff().require_grad();
    let loss = loss(x.clone());
    let value = number(loss.clone());
    let gradient = x.grad(&loss.backward()).unwrap_or_else(|| x.zeros_like().inner());
    (value, gradient)
}

/// ‖∇‖ at the weights of the decoder's last convolution, of a loss with gradient `pull` at its output.
fn last_norm(net: &Autoencoder, features: Tensor<4>, pull: Tensor<4>) -> f64 {
    let gradients = (net.last(features) * pull).sum().backward();
    net.last_gradient(&gradients).map_or(0.0, |g| sum_sq(&to_host(g)).sqrt())
}
