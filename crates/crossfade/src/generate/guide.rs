//! Autoguidance: another, weaker network guides the prediction (§4.8).
use super::Pipeline;
use crate::checkpoint::{Checkpoint, Weights};
use crate::error::{Error, Result};
use crate::latent::Latent;
use crate::nn::{BackboneConfig, Denoiser};
use serde::{Deserialize, Serialize};

/// A network that guides another one.
#[derive(Clone)]
pub(super) struct GuideNetwork {
    /// The network with its process.
    pub net: Denoiser,
    /// Whether it is told the class of an image.
    pub has_classes: bool,
    /// How recipes name it.
    pub recipe: GuideRecipe,
}

/// The guide of an image in its recipe.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GuideRecipe {
    /// The file name of its checkpoint, without its directory.
    pub checkpoint: String,
    /// Checksum of its weights.
    pub checksum: String,
    /// Which weights of the checkpoint were used.
    pub weights: Weights,
}

impl Pipeline {
    /// The same network guided by the network of another checkpoint: an earlier one of the same run, or a smaller network
    /// trained on the same images. It must have the same process, size and latents, and the same classes or none.
    pub fn guided_by(mut self, guide: &Checkpoint, weights: Weights) -> Result<Self> {
        let refuse = |problem: String| Err(Error::file(&guide.path, format!("cannot guide this network: {problem}")));
        let network = &guide.config.network;
        if guide.config.process != self.net.process {
            let (own, other) = (self.net.process.name(), guide.config.process.name());
            let how = if own == other { "with other options".into() } else { format!("{other} and not {own}") };
            return refuse(format!("it was trained for another process, {how}"));
        }
        if network.channels() != self.channels || network.resolution() != self.resolution {
            let side =
                |resolution: Option<usize>| resolution.map_or("any size".into(), |side| format!("{side}x{side}"));
            return refuse(format!(
                "it is for {} with {} channels, not for {} with {}",
                side(network.resolution()),
                network.channels(),
                side(self.resolution),
                self.channels
            ));
        }
        let has_classes = network.classes() > 0;
        if has_classes && guide.class_names != self.class_names {
            return refuse(format!("its classes are {:?}", guide.class_names));
        }
        let fingerprint =
            |latent: &Option<Latent>| latent.as_ref().map(|latent| (latent.fingerprint(), latent.scale()));
        if fingerprint(&Latent::of(guide, &self.device)?) != fingerprint(&self.latent) {
            return refuse("its latents are those of another autoencoder".into());
        }
        let net = guide.denoiser(weights, &self.device)?;
        let checkpoint = guide.path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        let recipe = GuideRecipe { checkpoint, checksum: guide.checksum.clone(), weights };
        self.guide = Some(GuideNetwork { net, has_classes, recipe });
        Ok(self)
    }
}
