//! Sampling settings of a request, which replace those of a checkpoint: the options of the command line, the fields of the
//! server.
use super::{RunConfig, SampleConfig};
use crate::error::{Error, Result};
use crate::nn::Precision;
use crate::sample::{Guidance, Sampler};
use crossfade_math::{Blend, GridKind, Process};
use serde::{Deserialize, Serialize};

/// `sample.class` for images without a class.
const NO_CLASS: &str = "none";

/// The settings that a request gives; the others are those of the checkpoint.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SampleOptions {
    /// As [`SampleConfig::steps`].
    pub steps: Option<usize>,
    /// As [`SampleConfig::sampler`].
    pub sampler: Option<Sampler>,
    /// The time grid.
    pub grid: Option<GridKind>,
    /// The exponent of the grids karras and power.
    pub rho: Option<f64>,
    /// As [`SampleConfig::eta`].
    pub eta: Option<f64>,
    /// The amount of churn.
    pub churn: Option<f64>,
    /// As [`SampleConfig::blend`].
    pub blend: Option<Blend>,
    /// As [`SampleConfig::clip`]: 0 for no clamping.
    pub clip: Option<f64>,
    /// As [`SampleConfig::free_first_step`].
    pub free_first_step: Option<bool>,
    /// As [`SampleConfig::precision`].
    pub precision: Option<Precision>,
    /// As [`SampleConfig::class`].
    pub class: Option<String>,
    /// As [`SampleConfig::guidance`].
    pub guidance: Option<f64>,
    /// As [`SampleConfig::guidance_interval`].
    pub guidance_interval: Option<[f64; 2]>,
}

impl SampleOptions {
    /// The options that give these resolved settings on a checkpoint of the run, without those that would have no effect.
    pub fn of(sample: &SampleConfig, run: &RunConfig) -> Self {
        let (own, process) = (&run.sample, &run.process);
        let guided = sample.guidance != 1.0;
        // A measured table has no name that could be given: then it is the checkpoint's own.
        let named = process.blends(&sample.blend) && !matches!(sample.blend, Blend::Table(_));
        Self {
            steps: (!matches!(sample.grid.kind, GridKind::Explicit { .. })).then_some(sample.steps),
            sampler: Some(sample.sampler),
            grid: Some(sample.grid.kind.clone()),
            rho: None,
            eta: (sample.sampler == Sampler::Ddim).then_some(sample.eta),
            churn: (sample.sampler == Sampler::HeunChurn).then_some(sample.churn.amount),
            blend: named.then(|| sample.blend.clone()),
            clip: process.estimates_x0().then_some(sample.clip),
            free_first_step: (sample.free_first_step || own.free_first_step).then_some(sample.free_first_step),
            precision: (sample.precision != own.precision).then_some(sample.precision),
            class: (sample.class != own.class).then(|| sample.class.clone()),
            guidance: (guided || own.guidance != 1.0).then_some(sample.guidance),
            guidance_interval: guided.then_some(sample.guidance_interval),
        }
    }

    /// The settings of a checkpoint with these, resolved. An option that would have no effect is an error, because a user
    /// who gives it expects one; `name` writes the name of an option as the user does.
    pub fn applied(&self, run: &RunConfig, name: fn(&str) -> String) -> Result<SampleConfig> {
        let (mut config, process) = (run.sample.clone(), &run.process);
        config.steps = self.steps.unwrap_or(config.steps);
        config.sampler = self.sampler.map_or(config.sampler, |sampler| run.sampler_for(sampler));
        if let Some(kind) = &self.grid {
            config.grid.kind = run.grid_for(kind.clone());
        }
        config.free_first_step = self.free_first_step.unwrap_or(config.free_first_step);
        config.precision = self.precision.unwrap_or(config.precision);
        config.eta = self.eta.unwrap_or(config.eta);
        config.churn.amount = self.churn.unwrap_or(config.churn.amount);
        config.blend = self.blend.clone().unwrap_or(config.blend);
        if let Some(class) = &self.class {
            config.class.clone_from(class);
        }
        // Guidance moves away from the prediction without a class, which pictures without a class have themselves.
        let own = if config.class == NO_CLASS { Guidance::NONE.scale } else { config.guidance };
        config.guidance = self.guidance.unwrap_or(own);
        // The interval of the checkpoint belongs to its guidance, which is off now.
        let own = if config.guidance == 1.0 { Guidance::NONE.interval } else { config.guidance_interval };
        config.guidance_interval = self.guidance_interval.unwrap_or(own);
        config.clip = self.clip.unwrap_or(config.clip);
        let mut config = config.resolved(process)?;
        self.check(&config, process, name)?;
        if let Some(wanted) = self.rho {
            match &mut config.grid.kind {
                GridKind::Karras { rho, .. } | GridKind::Power { rho, .. } => *rho = wanted,
                other => {
                    let problem = format!("{} needs the grid karras or power, not {}", name("rho"), other.name());
                    return Err(Error::request(problem));
                }
            }
        }
        Ok(config)
    }

    fn check(&self, config: &SampleConfig, process: &Process, name: fn(&str) -> String) -> Result<()> {
        let without_effect = [
            (self.eta.is_some() && config.sampler != Sampler::Ddim, "eta", "needs the sampler ddim"),
            (self.churn.is_some() && config.sampler != Sampler::HeunChurn, "churn", "needs the sampler heun-churn"),
            (
                self.blend.is_some() && !process.blends(&config.blend),
                "blend",
                "needs the process adm; phi and eps also work with ddpm-x0",
            ),
            (
                self.clip.is_some() && !process.estimates_x0(),
                "clip",
                "does not apply to cld, which has no estimate of x_0 to clip",
            ),
            (
                self.guidance_interval.is_some() && config.guidance == 1.0,
                "guidance-interval",
                "needs guidance: give a weight of guidance, for example 1.5",
            ),
            (
                self.steps.is_some() && matches!(config.grid.kind, GridKind::Explicit { .. }),
                "steps",
                "does not apply to a grid of explicit times",
            ),
        ];
        match without_effect.iter().find(|(applies, ..)| *applies) {
            Some((_, option, problem)) => Err(Error::request(format!("{} {problem}", name(option)))),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn guidance_of_a_checkpoint_can_be_switched_off_and_is_off_without_a_class() {
        let own = SampleConfig { guidance: 2.5, guidance_interval: [0.4, 1.0], ..SampleConfig::default() };
        let run = RunConfig { sample: own, ..RunConfig::default() };
        let guided = |options: SampleOptions| {
            let found = options.applied(&run, str::to_string)?;
            // What was resolved gives the same again.
            assert_eq!(SampleOptions::of(&found, &run).applied(&run, str::to_string)?, found);
            Ok::<_, Error>((found.guidance, found.guidance_interval))
        };
        let given = |guidance| SampleOptions { guidance, ..SampleOptions::default() };
        let no_class = SampleOptions { class: Some(NO_CLASS.into()), ..SampleOptions::default() };
        assert_eq!(guided(given(None)).unwrap(), (2.5, [0.4, 1.0]));
        assert_eq!(guided(given(Some(3.0))).unwrap(), (3.0, [0.4, 1.0]));
        assert_eq!(guided(given(Some(1.0))).unwrap(), (1.0, [0.0, 1.0]));
        assert_eq!(guided(no_class.clone()).unwrap(), (1.0, [0.0, 1.0]));
        let refused = guided(SampleOptions { guidance_interval: Some([0.2, 0.8]), ..no_class });
        assert!(refused.unwrap_err().to_string().contains("needs guidance"));
    }
}
