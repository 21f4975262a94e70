//! Autoguidance: another, weaker network guides the prediction (§4.8).
use super::Pipeline;
use crate::checkpoint::{Checkpoint, Weights};
use crate::error::{Error, Result};
use crate::latent::Latent;
use crate::nn::{BackboneConfig, Denoiser};
use crossfade_math::Process;
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

fn refusal(guide: &Checkpoint, problem: &str) -> Error {
    Error::file(&guide.path, format!("cannot guide this network: {problem}"))
}

/// An error if a guide has another process or size than the network that it is to guide.
pub(crate) fn check_guide(
    guide: &Checkpoint,
    process: &Process,
    channels: usize,
    resolution: Option<usize>,
) -> Result<()> {
    let network = &guide.config.network;
    if guide.config.process != *process {
        let (own, other) = (process.name(), guide.config.process.name());
        let how = if own == other { "with other options".into() } else { format!("{other} and not {own}") };
        return Err(refusal(guide, &format!("it was trained for another process, {how}")));
    }
    if network.channels() != channels || network.resolution() != resolution {
        let side = |resolution: Option<usize>| resolution.map_or("any size".into(), |side| format!("{side}x{side}"));
        let (own, other) = (side(resolution), side(network.resolution()));
        let problem = format!("it is for {other} with {} channels, not for {own} with {channels}", network.channels());
        return Err(refusal(guide, &problem));
    }
    Ok(())
}

impl Pipeline {
    /// The same network guided by the network of another checkpoint: an earlier one of the same run, or a smaller network
    /// trained on the same images. It must have the same process, size and latents, and the same classes or none.
    pub fn guided_by(mut self, guide: &Checkpoint, weights: Weights) -> Result<Self> {
        let refuse = |problem: String| Err(refusal(guide, &problem));
        check_guide(guide, &self.net.process, self.channels, self.resolution)?;
        let has_classes = guide.config.network.classes() > 0;
        if has_classes && guide.class_names != self.class_names {
            return refuse(format!("its classes are {:?}", guide.class_names));
        }
        let fingerprint =
            |latent: &Option<Latent>| latent.as_ref().map(|latent| (latent.fingerprint(), latent.scale()));
        if fingerprint(&Latent::of(guide, &self.device)?) != fingerprint(&self.latent) {
            return refuse("its latents are those of another autoencoder".into());
        }
        let net = guide.denoiser(weights, &self.device)?.in_precision(self.sample.precision, &self.device)?;
        let checkpoint = guide.path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        let recipe = GuideRecipe { checkpoint, checksum: guide.checksum.clone(), weights };
        self.guide = Some(GuideNetwork { net, has_classes, recipe });
        Ok(self)
    }
}
