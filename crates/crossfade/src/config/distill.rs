//! The `[distill]` section of a distilled network: who taught it, and how (§2.9). `crossfade distill` writes it.
use super::validate::Checks;
use super::{RunConfig, SampleConfig};
use crate::error::Result;
use crate::sample::Sampler;
use crate::torchfile::Weights;
use crossfade_math::{GridKind, Process, ProcessFn};
use serde::{Deserialize, Serialize};

/// The sampler of teachers and students: the deterministic first-order step of every process of the form α_t x_0 + σ_t eps.
pub(crate) const SAMPLER: Sampler = Sampler::Ddim;

/// How a network was distilled; everything that its weights depend on besides the other sections.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DistillConfig {
    /// Checksum of the teacher's checkpoint.
    pub teacher: String,
    /// Which of the teacher's weights were used.
    pub weights: Weights,
    /// Sampling steps of the student.
    pub steps: usize,
    /// How the teacher samples. The student's times are every second of the teacher's, or every n-th.
    pub sample: SampleConfig,
}

impl DistillConfig {
    /// The teacher's times between one time of the student and the next, both included.
    pub(crate) fn paths(&self, process: &Process) -> Result<Vec<Vec<f64>>> {
        let times = self.sample.times(process)?;
        let stride = ((times.len() - 1) / self.steps.max(1)).max(1);
        Ok((0..times.len() - 1)
            .step_by(stride)
            .map(|i| times[i..=(i + stride).min(times.len() - 1)].to_vec())
            .collect())
    }
}

impl RunConfig {
    /// The sampler that `wanted` stands for: `auto` is the own sampler of a distilled network, which others do not suit.
    pub fn sampler_for(&self, wanted: Sampler) -> Sampler {
        if wanted == Sampler::Auto && self.distill.is_some() { self.sample.sampler } else { wanted }
    }

    /// As [`RunConfig::sampler_for`], for the time grid.
    pub fn grid_for(&self, wanted: GridKind) -> GridKind {
        if wanted == GridKind::Auto && self.distill.is_some() { self.sample.grid.kind.clone() } else { wanted }
    }

    /// Checks the `[distill]` section.
    pub(super) fn check_distill(&self, checks: &mut Checks) {
        let Some(distill) = &self.distill else { return };
        let known = self.process.gaussian().is_some();
        let message = format!("the process {} cannot be distilled", self.process.name());
        checks.require(known, &["distill", "process"], message);
        let message = "must be false: at t = 1 a distilled network does not return the mean image";
        checks.require(!self.sample.free_first_step, &["sample.free_first_step", "distill"], message);
        let in_range = (1..=1_000_000).contains(&distill.sample.steps) && distill.steps > 0;
        checks.require(in_range, &["distill.steps"], "must be 1 to 1,000,000");
        if !known || !in_range || !self.process.validate().is_empty() {
            return;
        }
        match distill.sample.times(&self.process) {
            Err(error) => checks.require(false, &["distill.sample"], error.to_string()),
            Ok(times) => {
                let teacher = times.len() - 1;
                let message = format!("must be a divisor of the {teacher} steps of the teacher, not {}", distill.steps);
                checks.require(teacher.is_multiple_of(distill.steps), &["distill.steps"], message);
            }
        }
    }
}
