//! The teacher of a distillation (§2.9): it replaces the x_0 and the eps of a training batch by those with which one step of the
//! student equals several of its own.
use super::batch::Prepared;
use crate::checkpoint::Checkpoint;
use crate::config::{DistillConfig, SampleConfig};
use crate::engine::{Device, Images};
use crate::error::{Error, Result};
use crate::generate::estimates_at;
use crate::loss::Noised;
use crate::nn::{Denoiser, Guide, Weak};
use crate::sample::student_target;
use crossfade_math::{Coef, DrawnTime, Gaussian};

/// The largest weight of a sample: where a network predicts eps and next to nothing is left of the image, the errors of single
/// samples would dominate a step.
const LARGEST_WEIGHT: f64 = 100.0;

/// A network that teaches another one to take fewer steps.
pub(super) struct Teacher<'a> {
    /// Its checkpoint, from which the student starts.
    pub checkpoint: &'a Checkpoint,
    net: Denoiser,
    process: Gaussian,
    sample: SampleConfig,
    /// Its times between one time of the student and the next, both included.
    paths: Vec<Vec<f64>>,
}

impl<'a> Teacher<'a> {
    /// The teacher in `checkpoint`, which teaches as `distill` says.
    pub fn open(checkpoint: &'a Checkpoint, distill: &DistillConfig, device: &Device) -> Result<Self> {
        let process = checkpoint.config.process;
        let paths = distill.paths(&process)?;
        let no_form = || Error::request(format!("the process {} cannot be distilled", process.name()));
        let process = process.gaussian().ok_or_else(no_form)?;
        let net = checkpoint.denoiser(distill.weights, device)?;
        Ok(Self { checkpoint, net, process, sample: distill.sample.clone(), paths })
    }

    /// A time of the student from a uniform number, all of them equally likely. The weight turns the squared error of the raw
    /// output into that of the velocity v = eps − x_0; the heads of attenuation are scaled so that it is one already.
    pub fn time(&self, uniform: f64) -> DrawnTime {
        let at = (uniform * self.paths.len() as f64) as usize;
        let t = self.paths[at.min(self.paths.len() - 1)][0];
        let weight = match self.process.process().adm() {
            Some(_) => 1.0,
            None => self.process.velocity_factor(t).powi(2).min(LARGEST_WEIGHT),
        };
        DrawnTime { t, weight }
    }

    /// `batch`, whose times are those of [`Teacher::time`], with the targets of the student.
    pub fn teach(&self, batch: Prepared) -> Result<Prepared> {
        let guidance = self.sample.guidance();
        let guide = (guidance.scale != 1.0).then_some(Guide { guidance, weak: Weak::NoClass });
        let net = self.net.conditioned(batch.condition.clone()).of_labels(batch.labels.clone());
        let net = net.of_classes(batch.classes.clone()).guided(guide);
        let noised = batch.noised;
        // Every time was drawn from the paths.
        let path = |t: &f64| self.paths.iter().find(|path| path[0] == *t).unwrap_or(&self.paths[0]);
        let paths: Vec<&Vec<f64>> = noised.t.iter().map(path).collect();
        let steps: Vec<Coef> =
            (0..self.paths[0].len()).map(|i| Coef::Each(paths.iter().map(|path| path[i]).collect())).collect();
        let mut teacher = |x: &Images, t: &Coef| {
            let times = if let Coef::Each(times) = t { times.clone() } else { vec![t.same()] };
            let x0 = estimates_at(&net, &self.sample, self.process, x, &times)?;
            Ok(self.process.prediction_of_x0(x, x0, t.clone()))
        };
        let target = student_target(&self.process, &noised.x_t, &steps, &mut teacher)?;
        let phi = self.process.process().adm().map_or_else(Vec::new, |adm| adm.phi(&target.x0, &[]));
        Ok(Prepared { noised: Noised { x0: target.x0, eps: target.eps, phi, ..noised }, ..batch })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
