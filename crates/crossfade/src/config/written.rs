//! A configuration as it is written: what has no effect is left out.
use super::{LatentConfig, OptimConfig, RunConfig, SampleConfig, TrainConfig};
use crate::data::DataConfig;
use crate::loss::Objective;
use crate::nn::{CondUNetConfig, UNetConfig};
use crate::task::TaskConfig;
use crossfade_math::path::Baseline;
use crossfade_math::{Precond, Process};
use serde::{Serialize, Serializer};

#[derive(Serialize)]
struct Written<'a> {
    seed: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    task: Option<&'a TaskConfig>,
    process: &'a Process,
    #[serde(skip_serializing_if = "Option::is_none")]
    baseline: Option<&'a Baseline>,
    precond: &'a Precond,
    #[serde(skip_serializing_if = "Option::is_none")]
    network: Option<&'a UNetConfig>,
    #[serde(skip_serializing_if = "Option::is_none")]
    condition: Option<&'a CondUNetConfig>,
    data: &'a DataConfig,
    loss: &'a Objective,
    optim: &'a OptimConfig,
    train: &'a TrainConfig,
    sample: &'a SampleConfig,
    #[serde(skip_serializing_if = "Option::is_none")]
    latent: Option<&'a LatentConfig>,
}

impl Serialize for RunConfig {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self {
            seed,
            task,
            process,
            baseline,
            precond,
            network,
            condition,
            data,
            loss,
            optim,
            train,
            sample,
            latent,
        } = self;
        let written = Written {
            seed: *seed,
            task: Some(task).filter(|task| **task != TaskConfig::default()),
            process,
            baseline: baseline.as_ref(),
            precond,
            // A network with a condition takes the place of the other.
            network: condition.is_none().then_some(network),
            condition: condition.as_ref(),
            data,
            loss,
            optim,
            train,
            sample,
            latent: latent.as_ref(),
        };
        written.serialize(serializer)
    }
}
