//! No metric, for studies that only produce images and count evaluations.
use super::Report;
use super::metric::{Accumulator, Compared, Measurement, Metric, MetricSpec, Sample, Verb};
use crate::error::Result;

pub(super) const SPEC: MetricSpec = MetricSpec {
    name: "none",
    about: "Nothing is measured: images and times only",
    values: &[],
    compared: Compared::Nothing,
    network: None,
    protocols: &[],
    min_images: 2,
    revision: 1,
    verb: Verb::None { reason: "it measures nothing" },
    open: |_| Ok(Box::new(Nothing)),
};

/// Measures nothing of the images that it gets.
pub(super) struct Nothing;

impl Metric for Nothing {
    fn accumulator(&self) -> Box<dyn Accumulator + '_> {
        Box::new(Self)
    }
}

impl Accumulator for Nothing {
    fn add(&mut self, _samples: Vec<Sample>) -> Result<()> {
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<Measurement> {
        Ok(Report::new(SPEC.name).into())
    }
}
