//! Checks that a task, its network and its data fit together.
use super::RunConfig;
use super::validate::Checks;
use crate::nn::BackboneConfig;

impl RunConfig {
    pub(super) fn check_task(&self, checks: &mut Checks) {
        let (task, network) = (self.task.task(), &self.network);
        checks.report("task", task.validate());
        let Some(condition_channels) = network.condition_channels() else {
            let fits = matches!(network.channels(), 1 | 3) || self.latent.is_some();
            let message = format!("images have 1 or 3 channels, not {}", network.channels());
            checks.require(fits, &["network.channels"], message);
            let message = format!(
                "the task {} needs a network with a condition: network.kind = \"cond-unet\", or a U-Net with network.condition_channels",
                self.task.name()
            );
            return checks.require(self.task.is_unconditional(), &["task.kind", "network.kind"], message);
        };
        if self.task.is_unconditional() {
            let message = "a network with a condition needs a task: add a [task] section";
            return checks.require(false, &["network.kind", "task.kind"], message);
        }
        if let Some(unet) = network.as_unet() {
            let (have, want) = (unet.resolution, task.size().unwrap_or_default());
            let message = format!("must be the size of the task, {want:?}, not {have}");
            checks.require(want == [have; 2], &["network.resolution", "task.size"], message);
            let message = "a U-Net reads its condition beside x_t, pixel by pixel: use network.kind = \"cond-unet\" on \
                           latents";
            checks.require(self.latent.is_none(), &["network.kind", "latent"], message);
            let message = "a U-Net reads its condition beside x_t, pixel by pixel: set task.low = \"enlarged\"";
            checks.require(task.condition_has_target_size(), &["task.low", "network.kind"], message);
        }
        let (have, want) = (condition_channels, task.condition_channels());
        let message = format!("must be {want} for the task {}, not {have}", self.task.name());
        checks.require(have == want, &["network.condition_channels", "task"], message);
        if let (Some(want), None) = (task.target_channels(), &self.latent) {
            let have = network.channels();
            let message = format!("must be {want} for the task {} on pixels, not {have}", self.task.name());
            checks.require(have == want, &["network.channels", "task"], message);
            // On latents the unit also depends on the autoencoder, which is not opened here; `train::images` checks it.
            let (unit, sides) = (network.unit().max(1), task.size().unwrap_or_default());
            let fits = sides.iter().all(|side| side.is_multiple_of(unit));
            let message = format!("must be a multiple of {unit}, not {sides:?}");
            checks.require(fits, &["task.size", "network.mult"], message);
        }
        let encodable = task.makes_images() || self.latent.is_none();
        checks.require(
            encodable,
            &["task.residual", "latent"],
            "must be 0 on latents: the autoencoder encodes images, not residuals",
        );
        let augment = self.train.augment == 0.0;
        let message = "must be 0: the augmentation does not transform the condition";
        checks.require(augment, &["train.augment", "network.kind"], message);
        let cached = self.latent.as_ref().is_some_and(|latent| latent.cache.is_some());
        let message = "is for unconditional generation only: a task crops its images at random in every step";
        checks.require(!cached, &["latent.cache", "task"], message);
    }
}
