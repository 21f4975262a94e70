//! Whether values make sense, alone and together.
use super::read::Problem;
use super::{OptimConfig, RunConfig, TrainConfig};
use crate::augment::LABELS;
use crate::data::DataConfig;
use crate::nn::{BackboneConfig, Decoders};
use crate::sample::gaussian::Churn;
use crossfade_math::{Attenuation, Blend, Precond};

/// Collects problems unless a key that they rest on is itself in doubt.
pub(super) struct Checks {
    doubtful: Vec<String>,
    pub problems: Vec<Problem>,
}

impl Checks {
    /// What follows from `earlier` problems is not reported again.
    pub fn after(earlier: &[Problem]) -> Self {
        let doubtful = earlier.iter().flat_map(|p| p.doubtful.clone()).collect();
        Self { doubtful, problems: Vec::new() }
    }

    /// `keys`: what the requirement rests on, first the one to report.
    pub fn require(&mut self, ok: bool, keys: &[&str], message: impl Into<String>) {
        let near = |key: &str, doubtful: &str| {
            let within = |inner: &str, outer: &str| {
                inner.strip_prefix(outer).is_some_and(|r| r.is_empty() || r.starts_with('.'))
            };
            within(key, doubtful) || within(doubtful, key)
        };
        if !ok && !keys.iter().any(|key| self.doubtful.iter().any(|d| near(key, d))) {
            let path = keys[0].to_string();
            self.problems.push(Problem { path, message: message.into(), missing: false, doubtful: Vec::new() });
        }
    }

    /// What a type found wrong with its own options, which are those of `section`.
    pub fn report(&mut self, section: &str, problems: Vec<crossfade_math::Problem>) {
        for problem in problems {
            let problem = problem.within(section);
            self.require(false, &[&problem.key], problem.message);
        }
    }

    fn at_least_one(&mut self, value: u64, key: &str) {
        self.require(value > 0, &[key], "must be at least 1");
    }

    fn positive(&mut self, value: f64, key: &str) {
        self.require(value > 0.0 && value.is_finite(), &[key], format!("must be positive, not {value}"));
    }

    pub fn not_negative(&mut self, value: f64, key: &str) {
        self.require(value >= 0.0 && value.is_finite(), &[key], format!("must not be negative, not {value}"));
    }

    fn share(&mut self, value: f64, key: &str) {
        self.require((0.0..1.0).contains(&value), &[key], format!("must be at least 0 and below 1, not {value}"));
    }

    /// The `[data]` section.
    pub fn data(&mut self, data: &DataConfig) {
        if let DataConfig::Procedural { len, .. } = data {
            self.at_least_one(*len as u64, "data.len");
        }
        for (key, path) in data.clone().paths_mut() {
            self.require(!path.as_os_str().is_empty(), &[&format!("data.{key}")], "must not be empty");
        }
    }

    /// The `[optim]` section.
    pub fn optim(&mut self, o: &OptimConfig) {
        self.positive(o.lr, "optim.lr");
        let floor = (0.0..=o.lr).contains(&o.lr_floor) || o.lr <= 0.0 || o.lr.is_nan();
        self.require(floor, &["optim.lr_floor", "optim.lr"], format!("must be from 0 to optim.lr = {}", o.lr));
        self.not_negative(o.lr_exponent, "optim.lr_exponent");
        self.not_negative(o.weight_decay, "optim.weight_decay");
        self.share(o.beta1, "optim.beta1");
        self.share(o.beta2, "optim.beta2");
        self.positive(o.adam_eps, "optim.adam_eps");
        self.not_negative(o.clip, "optim.clip");
        self.share(o.ema_beta, "optim.ema_beta");
        self.at_least_one(o.ema_every, "optim.ema_every");
    }

    /// What the `[train]` section of every run needs.
    pub fn train(&mut self, t: &TrainConfig) {
        self.at_least_one(t.steps, "train.steps");
        self.at_least_one(t.batch as u64, "train.batch");
        self.at_least_one(t.accumulate as u64, "train.accumulate");
        self.at_least_one(t.loader_threads as u64, "train.loader_threads");
        self.at_least_one(t.log_every, "train.log_every");
        self.at_least_one(t.checkpoint_every, "train.checkpoint_every");
        self.at_least_one(t.keep as u64, "train.keep");
        let p = t.augment;
        self.require((0.0..=1.0).contains(&p), &["train.augment"], format!("must be from 0 to 1, not {p}"));
    }
}

impl RunConfig {
    /// All problems but those that follow from `earlier` ones.
    pub(super) fn semantic_problems(&self, earlier: &[Problem]) -> Vec<Problem> {
        let mut checks = Checks::after(earlier);
        self.check_process(&mut checks);
        self.check_task(&mut checks);
        if self.condition.is_none() {
            self.check_network(&mut checks);
        }
        checks.data(&self.data);
        checks.optim(&self.optim);
        self.check_train(&mut checks);
        self.check_loss(&mut checks);
        self.check_sample(&mut checks);
        self.check_latent(&mut checks);
        checks.problems
    }

    fn check_process(&self, checks: &mut Checks) {
        let fits_toml = i64::try_from(self.seed).is_ok();
        checks.require(fits_toml, &["seed"], format!("must be at most {}", i64::MAX));
        if let Precond::Optimal { sigma_data } = self.precond {
            checks.positive(sigma_data, "precond.sigma_data");
        }
        let t_min = self.loss.t_min;
        checks.require(t_min > 0.0 && t_min < 1.0, &["loss.t_min"], format!("must be between 0 and 1, not {t_min}"));
    }

    fn check_network(&self, checks: &mut Checks) {
        let n = &self.network;
        let fits = matches!(n.channels, 1 | 3) || self.latent.is_some();
        checks.require(fits, &["network.channels"], format!("images have 1 or 3 channels, not {}", n.channels));
        let other = self.process.attenuation != Attenuation::Constant && self.baseline.is_none();
        let single = n.decoders == Decoders::One && other;
        checks.require(
            !single,
            &["network.decoders", "process.attenuation"],
            format!(
                "a single decoder needs process.attenuation = \"constant\", not \"{}\": eps follows from one part of phi only",
                self.process.attenuation.name()
            ),
        );
        checks.report("network", n.validate());
    }

    fn check_latent(&self, checks: &mut Checks) {
        let Some(latent) = &self.latent else { return };
        checks.require(!latent.autoencoder.as_os_str().is_empty(), &["latent.autoencoder"], "must not be empty");
        if let Some(scale) = latent.scale {
            checks.positive(scale, "latent.scale");
        }
        let clip = self.sample.clip;
        checks.require(clip == 0.0, &["sample.clip", "latent"], "must be 0: latents have no limits as pixels have");
        let augment = self.train.augment;
        checks.require(
            augment == 0.0,
            &["train.augment", "latent"],
            "must be 0: the pipe augments pixels, not latents",
        );
    }

    fn check_train(&self, checks: &mut Checks) {
        checks.train(&self.train);
        let p = self.train.augment;
        let labels = self.network.augment_dim;
        checks.require(
            labels == 0 || labels == LABELS,
            &["network.augment_dim"],
            format!("must be 0, or {LABELS} for the labels of the augmentation pipe, not {labels}"),
        );
        checks.require(
            p == 0.0 || labels == LABELS,
            &["train.augment", "network.augment_dim"],
            format!("needs network.augment_dim = {LABELS}, so that the network is told what was done to an image"),
        );
    }

    fn check_loss(&self, checks: &mut Checks) {
        let measured = self.loss.auxiliary.is_none_or(|aux| aux.l1.is_some());
        checks.require(measured, &["loss.auxiliary.l1"], "must be \"mean\" or \"sum\": without it the term is nothing");
    }

    fn check_sample(&self, checks: &mut Checks) {
        let s = &self.sample;
        checks.at_least_one(s.steps as u64, "sample.steps");
        checks.require(s.steps <= 1_000_000, &["sample.steps"], "must be at most 1,000,000");
        checks.not_negative(s.clip, "sample.clip");
        checks.require((0.0..=1.0).contains(&s.eta), &["sample.eta"], format!("must be from 0 to 1, not {}", s.eta));
        let Churn { amount, min, max, noise } = s.churn;
        for (value, key) in [(amount, "amount"), (min, "min"), (max, "max"), (noise, "noise")] {
            checks.not_negative(value, &format!("sample.churn.{key}"));
        }
        if let Blend::Table(shares) = &s.blend {
            let inside = !shares.is_empty() && shares.iter().all(|share| (0.0..=1.0).contains(share));
            checks.require(inside, &["sample.blend"], "a table needs numbers from 0 to 1");
        }
        let message = format!(
            "the blend {} does nothing for the process {}: its network has no two heads to blend so; use \"heads\"",
            s.blend.name(),
            self.law().name()
        );
        checks.require(self.law().blends(&s.blend), &["sample.blend", "baseline"], message);
        if (1..=1_000_000).contains(&s.steps) {
            match s.resolved(&self.law()) {
                Err(error) => checks.require(false, &["sample.sampler", "baseline", "process"], error.to_string()),
                Ok(sample) => {
                    if let Err(error) = sample.times(&self.law()) {
                        checks.require(false, &["sample.grid", "sample.steps"], error.to_string());
                    }
                }
            }
        }
    }
}
