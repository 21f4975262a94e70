//! The `[evaluate]` section of a study.
use super::validate::Checks;
use crate::metrics::{Compared, RegisteredMetric, Value};
use crossfade_math::nearest;
use serde::{Deserialize, Serialize};

/// How images are evaluated; the `[evaluate]` section.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Evaluate {
    /// The metric, one of [`crate::metrics::METRIC_NAMES`].
    pub metric: RegisteredMetric,
    /// The value of the metric that tables show and significance tests compare; by default its first one. All values are
    /// stored, so that another one can be shown without measuring again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// The protocol of the metric; by default its own default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
    /// The set that produced images are compared with: `auto` (the images of the base; for a task, the targets of its
    /// held-out images), `train` (the images of the base), or anything that `crossfade eval fid` accepts.
    pub reference: String,
    /// Assignments on top of the base that select the held-out images of a task, such as `data.path=bsds500/images/test`, or
    /// those that a network is measured on by `nll`, such as `data.split=test`.
    pub held_out: Vec<String>,
    /// The model that the others are tested against, by the best of its rows in each column; by default the best row of
    /// all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub against: Option<String>,
    /// Whether to also measure the images of each class against those of the reference. Networks without classes have the
    /// value over all images only.
    #[serde(skip_serializing_if = "is_false")]
    pub per_class: bool,
    /// Whether to also measure how the estimate of x_0 approaches the final one over t (Fig. 2).
    pub estimate: bool,
    /// At how many of the sampler's times the metric of the pictures x̂_0(t) is measured too (Fig. 2), evenly from the
    /// first to the last; 0 for none. Each costs as much as the metric of the final pictures.
    #[serde(skip_serializing_if = "is_zero")]
    pub estimate_metric: usize,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_zero(n: &usize) -> bool {
    *n == 0
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_false(b: &bool) -> bool {
    !b
}

impl Default for Evaluate {
    fn default() -> Self {
        Self {
            metric: RegisteredMetric::default(),
            value: None,
            protocol: None,
            reference: "auto".into(),
            held_out: vec![],
            against: None,
            per_class: false,
            estimate: false,
            estimate_metric: 0,
        }
    }
}

impl Evaluate {
    /// Whether the estimates of x_0 during sampling are measured in any way.
    pub(crate) fn watches_estimates(&self) -> bool {
        self.estimate || self.estimate_metric > 0
    }

    /// The value that tables show; none if nothing is measured.
    pub fn tabled(&self) -> Option<&'static Value> {
        self.metric.value(self.value.as_deref())
    }

    pub(super) fn check(&self, checks: &mut Checks) {
        let metric = self.metric;
        if metric.compared == Compared::Segmentations {
            let message = format!("no task makes segmentations: measure files with `crossfade eval {}`", metric.name);
            checks.require(false, &["evaluate.metric"], message);
        }
        if let Some(name) = &self.value {
            let names: Vec<&str> = metric.values.iter().map(|value| value.name).collect();
            let hint = nearest(name, &names).map_or(String::new(), |near| format!(" (did you mean `{near}`?)"));
            let message = format!("{} has no value `{name}`{hint}; known: {}", metric.name, names.join(", "));
            checks.require(metric.value(Some(name)).is_some(), &["evaluate.value", "evaluate.metric"], message);
        }
        if let Err(error) = metric.protocol(self.protocol.as_deref()) {
            checks.require(false, &["evaluate.protocol", "evaluate.metric"], error.to_string());
        }
        let held_out = !metric.needs_targets() || !self.held_out.is_empty();
        let message = format!("is missing: the metric {} would measure the images that were trained on", metric.name);
        checks.require(held_out, &["evaluate.held_out", "evaluate.metric"], message);
        let points = self.estimate_metric != 1 && self.estimate_metric <= 1000;
        checks.require(points, &["evaluate.estimate_metric"], "must be 0, or 2 to 1000: the first and the last time");
        let measured = self.estimate_metric == 0 || self.tabled().is_some();
        let keys = ["evaluate.estimate_metric", "evaluate.metric"];
        checks.require(measured, &keys, "needs a metric that measures something");
        let estimate = !self.watches_estimates() || self.held_out.is_empty();
        checks.require(estimate, &["evaluate.estimate", "evaluate.held_out"], "is for unconditional models only");
        let sampled = !self.watches_estimates() || !metric.measures_network();
        checks.require(sampled, &["evaluate.estimate", "evaluate.metric"], "needs a metric of sampled images");
        let keys = ["evaluate.per_class", "evaluate.metric"];
        let message = format!("{} has no values of classes; fid, pixel-frechet and random-frechet have", metric.name);
        checks.require(!self.per_class || metric.has_classes(), &keys, message);
        let keys = ["evaluate.per_class", "evaluate.held_out"];
        checks.require(!self.per_class || self.held_out.is_empty(), &keys, "is for networks without a task only");
    }
}
