//! Whether a task, its network and its data fit together.
use super::validate::Checks;
use super::{Baseline, RunConfig};
use crate::nn::Decoders;
use crossfade_math::Attenuation;

/// Reports problems that begin with the name of an option of `section`.
fn report(checks: &mut Checks, section: &str, problems: Vec<String>) {
    for problem in problems {
        let word = problem.split([' ', ':']).next().unwrap_or("");
        let known = word.chars().all(|c| c.is_ascii_lowercase() || c == '_' || c == '.') && word.len() > 1;
        let (key, message) = if known { (word, problem[word.len()..].trim_start()) } else { ("", problem.as_str()) };
        let key = if key.is_empty() { section.to_string() } else { format!("{section}.{key}") };
        checks.require(false, &[&key], message);
    }
}

impl RunConfig {
    pub(super) fn check_task(&self, checks: &mut Checks) {
        let task = self.task.task();
        report(checks, "task", task.validate());
        if let Some(Baseline::Ddpm(ddpm)) = &self.baseline {
            let steps = (1..=100_000).contains(&ddpm.timesteps);
            checks.require(steps, &["baseline.timesteps"], "must be from 1 to 100,000");
            for (beta, key) in [(ddpm.beta_first, "baseline.beta_first"), (ddpm.beta_last, "baseline.beta_last")] {
                checks.require(beta > 0.0 && beta < 1.0, &[key], format!("must be between 0 and 1, not {beta}"));
            }
            let fits = self.condition.is_some();
            checks.require(fits, &["baseline", "condition"], "needs a task with a [condition] to compare on");
        }
        let Some(network) = &self.condition else {
            let message =
                format!("the task {} needs a network with a condition: add a [condition] section", task.name());
            return checks.require(self.task.is_unconditional(), &["task.kind", "condition"], message);
        };
        if self.task.is_unconditional() {
            let message = "a network with a condition needs a task: add a [task] section";
            return checks.require(false, &["condition", "task.kind"], message);
        }
        report(checks, "condition", network.validate());
        let (have, want) = (network.condition_channels, task.condition_channels());
        let message = format!("must be {want} for the task {}, not {have}", task.name());
        checks.require(have == want, &["condition.condition_channels", "task"], message);
        if let (Some(want), None) = (task.target_channels(), &self.latent) {
            let message = format!("must be {want} for the task {} on pixels, not {}", task.name(), network.channels);
            checks.require(network.channels == want, &["condition.channels", "task"], message);
            let (unit, sides) = (network.unit().max(1), task.size().unwrap_or_default());
            let fits = sides.iter().all(|side| side.is_multiple_of(unit));
            checks.require(
                fits,
                &["task.size", "condition.mult"],
                format!("must be a multiple of {unit}, not {sides:?}"),
            );
        }
        let single = network.decoders == Decoders::One && self.process.attenuation != Attenuation::Constant;
        let message =
            "a single decoder needs process.attenuation = \"constant\": eps follows from one part of phi only";
        checks.require(!single, &["condition.decoders", "process.attenuation"], message);
        let encodable = task.makes_images() || self.latent.is_none();
        checks.require(encodable, &["task.residual", "latent"], "must be 0 on latents: an autoencoder is of images");
        let augment = self.train.augment == 0.0;
        checks.require(augment, &["train.augment", "condition"], "must be 0: a condition would have to follow");
        let cached = self.latent.as_ref().is_some_and(|latent| latent.cache.is_some());
        checks.require(
            !cached,
            &["latent.cache", "task"],
            "is for generation only: a task cuts its images anew each time",
        );
    }
}
