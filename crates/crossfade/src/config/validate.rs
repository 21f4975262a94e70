//! Checks that the values of a configuration are valid, alone and together.
use super::read::Finding;
use super::sections::LABEL_DROPOUT;
use super::{OptimConfig, RANDOM_CLASS, RunConfig, SampleConfig, TrainConfig};
use crate::augment::LABELS;
use crate::data::DataConfig;
use crate::error::{Error, Result};
use crate::limits::{self, Limit};
use crate::loss::Supervise;
use crate::nn::{BackboneConfig, Decoders};
use crate::sample::Guidance;
use crate::sample::gaussian::Churn;
use crossfade_math::process::Outputs;
use crossfade_math::{Blend, Grid, PowerProfile, Precond, ProcessFn, Weighting};

/// Collects problems. A check that depends on a key with an earlier problem is skipped, because its message would mislead.
pub(super) struct Checks {
    doubtful: Vec<String>,
    pub problems: Vec<Finding>,
}

impl Checks {
    /// No problems yet; consequences of `earlier` problems will not be reported again.
    pub fn after(earlier: &[Finding]) -> Self {
        let doubtful = earlier.iter().flat_map(|p| p.doubtful.clone()).collect();
        Self { doubtful, problems: Vec::new() }
    }

    /// Adds a problem unless `ok`. `keys` are all keys that the requirement depends on; the first one is reported.
    pub fn require(&mut self, ok: bool, keys: &[&str], message: impl Into<String>) {
        let related = |key: &str, doubtful: &str| {
            let within = |inner: &str, outer: &str| {
                inner.strip_prefix(outer).is_some_and(|r| r.is_empty() || r.starts_with('.'))
            };
            within(key, doubtful) || within(doubtful, key)
        };
        if !ok && !keys.iter().any(|key| self.doubtful.iter().any(|d| related(key, d))) {
            let path = keys[0].to_string();
            self.problems.push(Finding { path, message: message.into(), missing: false, doubtful: Vec::new() });
        }
    }

    /// Adds the problems that a type found in its own options, which are those of `section`.
    pub fn report(&mut self, section: &str, problems: Vec<crossfade_math::Problem>) {
        for problem in problems {
            let problem = problem.within(section);
            self.require(false, &[&problem.key], problem.message);
        }
    }

    /// Adds a problem if a number is above its limit: it would decide how much memory is asked for.
    pub(super) fn within(&mut self, limit: &Limit, value: u64, keys: &[&str]) {
        let why = limit.check(value).err();
        self.require(why.is_none(), keys, why.unwrap_or_default());
    }

    fn at_least_one(&mut self, value: u64, key: &str) {
        self.require(value > 0, &[key], "must be at least 1");
    }

    fn positive(&mut self, value: f64, key: &str) {
        self.require(value > 0.0 && value.is_finite(), &[key], format!("must be positive, not {value}"));
    }

    pub(crate) fn not_negative(&mut self, value: f64, key: &str) {
        self.require(value >= 0.0 && value.is_finite(), &[key], format!("must be at least 0, not {value}"));
    }

    fn fraction(&mut self, value: f64, key: &str) {
        self.require((0.0..1.0).contains(&value), &[key], format!("must be at least 0 and below 1, not {value}"));
    }

    /// Checks the `[data]` section.
    pub fn data(&mut self, data: &DataConfig) {
        if let DataConfig::Procedural { len, .. } = data {
            self.at_least_one(*len as u64, "data.len");
            self.within(&limits::SET_IMAGES, *len as u64, &["data.len"]);
        }
        for (key, path) in data.clone().paths_mut() {
            self.require(!path.as_os_str().is_empty(), &[&format!("data.{key}")], "must not be empty");
        }
    }

    /// Checks the `[optim]` section.
    pub fn optim(&mut self, o: &OptimConfig) {
        self.positive(o.lr, "optim.lr");
        let floor = (0.0..=o.lr).contains(&o.lr_floor) || o.lr <= 0.0 || o.lr.is_nan();
        self.require(floor, &["optim.lr_floor", "optim.lr"], format!("must be from 0 to optim.lr = {}", o.lr));
        self.not_negative(o.lr_exponent, "optim.lr_exponent");
        self.not_negative(o.weight_decay, "optim.weight_decay");
        self.fraction(o.beta1, "optim.beta1");
        self.fraction(o.beta2, "optim.beta2");
        self.positive(o.adam_eps, "optim.adam_eps");
        self.not_negative(o.clip, "optim.clip");
        self.fraction(o.ema_beta, "optim.ema_beta");
        self.at_least_one(o.ema_every, "optim.ema_every");
        let widths = format!("a relative width must be {}", PowerProfile::RANGE);
        let fits = |sigma: &f64| PowerProfile::new(*sigma).is_some();
        self.require(o.ema_sigma.iter().all(fits), &["optim.ema_sigma"], widths.clone());
        self.require(o.ema_profiles.iter().all(fits), &["optim.ema_profiles"], widths);
        let ascend = o.ema_profiles.is_sorted_by(|a, b| a < b);
        self.require(ascend, &["optim.ema_profiles"], "must be distinct, the smallest first");
    }

    /// Checks the `[train]` section, as far as it is the same for all runs.
    pub fn train(&mut self, t: &TrainConfig) {
        self.at_least_one(t.steps, "train.steps");
        self.at_least_one(t.batch as u64, "train.batch");
        self.within(&limits::STEPS, t.steps, &["train.steps"]);
        self.within(&limits::BATCH, t.batch as u64, &["train.batch"]);
        let images = (t.batch as u64).saturating_mul(t.accumulate as u64);
        self.within(&limits::STEP_IMAGES, images, &["train.accumulate", "train.batch"]);
        self.within(&limits::LOADER_THREADS, t.loader_threads as u64, &["train.loader_threads"]);
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
    /// Checks what training needs beyond [`RunConfig::validate`]. Converted networks with the scalings of an older
    /// release can be sampled, but not trained with every loss.
    pub fn validate_training(&self) -> Result<()> {
        let memory = self.sizes().train_bytes;
        limits::TRAIN_MEMORY.check(memory).map_err(|why| {
            Error::request(format!(
                "the training would take about {} GB: {why}; lower train.batch",
                memory / 1_000_000_000
            ))
        })?;
        let Some(adm) = self.process.adm() else { return Ok(()) };
        if self.loss.weighting != Weighting::Adaptive {
            return Ok(());
        }
        // The raw targets of the adaptive weighting use c_out² = 1 − c_skip σ_t (§4.1), which the older scalings do not
        // have.
        if matches!(adm.precond, Precond::OlderRelease | Precond::Conditional | Precond::DiffusionEdge) {
            return Err(Error::request(
                "loss.weighting = \"adaptive\" does not fit this process.precond; use process.precond.kind = \"optimal\", or \
                 another weighting such as \"reference\"",
            ));
        }
        // The optimal scalings give both heads of one decoder the same raw target; without scalings they have two.
        if adm.precond == Precond::None && self.network.decoders() == Decoders::One {
            return Err(Error::request(
                "loss.weighting = \"adaptive\" with process.precond.kind = \"none\" asks one decoder for two outputs; use \
                 two decoders, or process.precond.kind = \"optimal\"",
            ));
        }
        Ok(())
    }

    /// All problems, except those that are consequences of `earlier` ones.
    pub(super) fn semantic_problems(&self, earlier: &[Finding]) -> Vec<Finding> {
        let mut checks = Checks::after(earlier);
        self.check_process(&mut checks);
        self.check_network(&mut checks);
        self.check_task(&mut checks);
        checks.data(&self.data);
        checks.optim(&self.optim);
        self.check_train(&mut checks);
        self.check_loss(&mut checks);
        self.check_sample(&mut checks);
        self.check_classes(&mut checks);
        self.check_latent(&mut checks);
        self.check_distill(&mut checks);
        checks.problems
    }

    fn check_process(&self, checks: &mut Checks) {
        // Integers of TOML are signed, and checkpoints store the configuration as TOML.
        let fits_toml = i64::try_from(self.seed).is_ok();
        checks.require(fits_toml, &["seed"], format!("must be at most {}", i64::MAX));
        checks.report("process", self.process.validate());
        let fits = !self.process.needs_latents() || self.latent.is_some();
        let message = format!("{} works on latents: add a [latent] section", self.process.name());
        checks.require(fits, &["process.kind", "latent"], message);
    }

    fn check_network(&self, checks: &mut Checks) {
        let (network, name) = (&self.network, self.process.name());
        checks.report("network", network.validate());
        let decoders = network.decoders();
        let (fits, message) = match self.process.outputs() {
            Outputs::Heads => {
                let single = decoders == Decoders::One && self.process.gaussian().is_none();
                let message = "a single decoder needs process.attenuation = \"constant\": eps can be computed from phi \
                               only if phi has one part";
                (!single, message.into())
            }
            Outputs::TargetAndX0 => {
                let want = if network.condition_channels().is_none() { "\"conv\" or \"two\"" } else { "\"two\"" };
                (decoders != Decoders::One, format!("the process {name} predicts eps and x_0: use {want}"))
            }
            Outputs::Target | Outputs::MixedTarget => {
                let message = format!("the process {name} predicts one thing: use \"one\", or \"two\" for their mean");
                (decoders != Decoders::Conv, message)
            }
        };
        checks.require(fits, &["network.decoders", "process"], message);
    }

    fn check_latent(&self, checks: &mut Checks) {
        let Some(latent) = &self.latent else { return };
        checks.require(!latent.autoencoder.as_os_str().is_empty(), &["latent.autoencoder"], "must not be empty");
        if let Some(scale) = latent.scale {
            checks.positive(scale, "latent.scale");
        }
        let clip = self.sample.clip;
        checks.require(clip == 0.0, &["sample.clip", "latent"], "must be 0: latents are not bounded as pixels are");
        let augment = self.train.augment;
        checks.require(
            augment == 0.0,
            &["train.augment", "latent"],
            "must be 0: the augmentation is for pixels, not for latents",
        );
    }

    fn check_train(&self, checks: &mut Checks) {
        checks.train(&self.train);
        if let Some(side) = self.network.resolution() {
            let sizes = [self.network.channels(), side, side];
            let values = sizes.iter().fold(self.train.batch as u64, |n, &size| n.saturating_mul(size as u64));
            checks.within(&limits::BATCH_VALUES, values, &["train.batch", "network"]);
        }
        let p = self.train.augment;
        let labels = self.network.augment_dim();
        checks.require(
            labels == 0 || labels == LABELS,
            &["network.augment_dim"],
            format!("must be 0, or {LABELS} for the labels of the augmentation pipe, not {labels}"),
        );
        checks.require(
            p == 0.0 || labels == LABELS,
            &["train.augment", "network.augment_dim"],
            format!("needs network.augment_dim = {LABELS}, so that the network receives the transformation as a label"),
        );
    }

    /// Options for classes have no effect on a network that has none.
    fn check_classes(&self, checks: &mut Checks) {
        let (dropout, sample, classes) = (self.train.label_dropout, &self.sample, self.network.classes());
        let valid = (0.0..=1.0).contains(&dropout);
        checks.require(valid, &["train.label_dropout"], format!("must be from 0 to 1, not {dropout}"));
        let several = self.network.classes() != 1;
        checks.require(several, &["network.classes"], "must be 0, or at least 2: there is nothing to tell apart");
        let advice = "needs a network with classes: set network.classes to their number";
        let used = classes > 0 || !valid || dropout == LABEL_DROPOUT;
        checks.require(used, &["train.label_dropout", "network.classes"], advice);
        let used = classes > 0 || sample.class == RANDOM_CLASS;
        checks.require(used, &["sample.class", "network.classes"], advice);
        checks.not_negative(sample.guidance, "sample.guidance");
        let [from, to] = sample.guidance_interval;
        let ascends = 0.0 <= from && from < to && to <= 1.0;
        let message = format!("must be two times from 0 to 1, the smaller one first, not [{from}, {to}]");
        checks.require(ascends, &["sample.guidance_interval"], message);
        let message = "must be [0, 1], its default, without guidance: sample.guidance is 1";
        let used = sample.guidance != 1.0 || sample.guidance_interval == Guidance::NONE.interval;
        checks.require(used, &["sample.guidance_interval", "sample.guidance"], message);
    }

    fn check_loss(&self, checks: &mut Checks) {
        checks.report("loss.times", self.loss.times.validate(&self.process));
        let measured = self.loss.auxiliary.is_none_or(|aux| aux.l1.is_some());
        checks.require(
            measured,
            &["loss.auxiliary.l1"],
            "must be \"mean\" or \"sum\": without it the auxiliary term is empty",
        );
        if self.process.adm().is_none() {
            let plain = self.loss.auxiliary.is_none() && self.loss.supervise == Supervise::Both;
            let message = "auxiliary terms and `supervise` are for the process adm; others have their own loss";
            checks.require(plain, &["loss", "process.kind"], message);
            let own = self.loss.weighting == Weighting::default();
            let message = "is for the process adm; others have their own weights: leave it out";
            checks.require(own, &["loss.weighting", "process.kind"], message);
            return;
        }
        let fits = self.loss.supervise == Supervise::Both || self.network.decoders() == Decoders::One;
        let message = "\"eps\" leaves the phi head without a loss; use a single decoder, from which both follow";
        checks.require(fits, &["loss.supervise", "network.decoders"], message);
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
            "the blend {} has no effect for the process {}: its network does not have the two heads to blend; use \"heads\"",
            s.blend.name(),
            self.process.name()
        );
        checks.require(self.process.blends(&s.blend), &["sample.blend", "process.kind"], message);
        let known = self.process.first_step_is_known() && self.task.is_unconditional();
        let message = "must be false: what the network returns at t = 1 is known from the mean image only without a condition, \
                       for the processes adm (all attenuations but the sine) and flow";
        checks.require(known || !s.free_first_step, &["sample.free_first_step", "process", "task"], message);
        if self.process.validate().is_empty() {
            for times in &s.fitted {
                let own = SampleConfig { steps: times.steps, sampler: times.sampler, ..s.clone() };
                let own = SampleConfig { grid: Grid { kind: times.grid(), final_t: None }, ..own };
                let found = if (1..=1_000_000).contains(&times.steps) {
                    own.times(&self.process).map_err(|e| e.to_string())
                } else {
                    Err("steps must be 1 to 1,000,000".into())
                };
                checks.require(found.is_ok(), &["sample.fitted"], found.err().unwrap_or_default());
            }
        }
        // With invalid options of the process, computing its times would fail too and report the same problem again.
        if (1..=1_000_000).contains(&s.steps) && self.process.validate().is_empty() {
            match s.resolved(&self.process) {
                Err(error) => checks.require(false, &["sample.sampler", "process"], error.to_string()),
                Ok(sample) => {
                    if let Err(error) = sample.times(&self.process) {
                        checks.require(false, &["sample.grid", "sample.steps"], error.to_string());
                    }
                }
            }
        }
    }
}
