//! Whether a task, its network and its data fit together.
use super::validate::Checks;
use super::{Baseline, RunConfig};
use crate::loss::{Objective, Supervise};
use crate::nn::{BackboneConfig, Decoders};
use crossfade_math::Attenuation;
use crossfade_math::path::Output;

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
        self.check_baseline(checks);
        let Some(network) = &self.condition else {
            let message =
                format!("the task {} needs a network with a condition: add a [condition] section", self.task.name());
            return checks.require(self.task.is_unconditional(), &["task.kind", "condition"], message);
        };
        if self.task.is_unconditional() {
            let message = "a network with a condition needs a task: add a [task] section";
            return checks.require(false, &["condition", "task.kind"], message);
        }
        checks.report("condition", network.validate());
        let (have, want) = (network.condition_channels, task.condition_channels());
        let message = format!("must be {want} for the task {}, not {have}", self.task.name());
        checks.require(have == want, &["condition.condition_channels", "task"], message);
        if let (Some(want), None) = (task.target_channels(), &self.latent) {
            let message =
                format!("must be {want} for the task {} on pixels, not {}", self.task.name(), network.channels);
            checks.require(network.channels == want, &["condition.channels", "task"], message);
            let (unit, sides) = (network.unit().max(1), task.size().unwrap_or_default());
            let fits = sides.iter().all(|side| side.is_multiple_of(unit));
            checks.require(
                fits,
                &["task.size", "condition.mult"],
                format!("must be a multiple of {unit}, not {sides:?}"),
            );
        }
        let other = self.process.attenuation != Attenuation::Constant && self.baseline.is_none();
        let single = network.decoders == Decoders::One && other;
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

    fn check_baseline(&self, checks: &mut Checks) {
        let section = if self.condition.is_some() { "condition" } else { "network" };
        let key = format!("{section}.decoders");
        let decoders = self.condition.as_ref().map_or(self.network.decoders, |network| network.decoders);
        let Some(baseline) = &self.baseline else {
            let fits = self.loss.supervise == Supervise::Both || decoders == Decoders::One;
            let message = "\"eps\" leaves the phi head untaught; use a single decoder, from which both follow";
            return checks.require(fits, &["loss.supervise", &key], message);
        };
        report(checks, "baseline", baseline.problems());
        let name = baseline.name();
        match baseline.output() {
            Output::WithX0 => {
                let want = if section == "network" { "\"conv\" or \"two\"" } else { "\"two\"" };
                let message = format!("the process {name} predicts eps and x_0: use {want}");
                checks.require(decoders != Decoders::One, &[&key, "baseline.kind"], message);
            }
            _ => {
                let message = format!("the process {name} predicts one thing: use \"one\", or \"two\" for their mean");
                checks.require(decoders != Decoders::Conv, &[&key, "baseline.kind"], message);
            }
        }
        let latent = !matches!(baseline, Baseline::Lsgm(_)) || self.latent.is_some();
        checks.require(latent, &["baseline.kind", "latent"], "lsgm works on latents: add a [latent] section");
        let plain = self.loss.auxiliary.is_none() && self.loss.supervise == Supervise::Both;
        let message = "auxiliary terms and `supervise` are for attenuation; a baseline has its own loss";
        checks.require(plain, &["loss", "baseline.kind"], message);
        let own = Objective::default();
        let silent = self.loss.weighting == own.weighting && self.loss.t_min == own.t_min;
        let message = "loss.weighting and loss.t_min are for attenuation; a baseline has its own: leave them out";
        checks.require(silent, &["loss.weighting", "loss.t_min", "baseline.kind"], message);
    }
}
