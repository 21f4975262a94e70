//! What PSNR, SSIM and MS-SSIM share: they are functions of the components of two images.
use rayon::prelude::*;

use super::super::Report;
use super::super::metric::{Accumulator, EQUAL_DB, Measurement, Metric, MetricOptions, Sample};
use super::super::raster::{Component, Raster};
use super::protocol::Protocol;
use super::summarise;
use crate::error::Result;

/// The components of output and target, one pair after the other.
pub(super) type Components<'a> = &'a mut dyn ExactSizeIterator<Item = (Component, Component)>;

/// The definition of such a metric.
pub(super) struct Formula {
    /// The metric's name.
    pub name: &'static str,
    /// The smallest side of an image that can be measured.
    pub min_side: fn(&Protocol) -> usize,
    /// Computes the value from the components of output and target.
    pub value: fn(Components, &Protocol) -> f64,
    /// Whether equal images have an infinite value.
    pub unbounded: bool,
    /// Adds to a report what the metric states beyond the protocol.
    pub state: fn(Report, &Protocol) -> Report,
}

impl Formula {
    /// Opens the metric with the protocol of the options, or the one they name.
    pub fn open(&'static self, options: &MetricOptions) -> Result<Box<dyn Metric>> {
        let protocol = match &options.pairs {
            Some(protocol) => protocol.clone(),
            None => {
                let name = options.protocol.unwrap_or(Protocol::NAMES[0]);
                Protocol::named(name, Protocol::leaves_out_border(name).then_some(options.border))?
            }
        };
        Ok(Box::new(PairMetric { formula: self, protocol, finite: options.finite && self.unbounded }))
    }

    /// The value of one pair, or the reason why there is none.
    pub fn of(&self, output: &Raster, target: &Raster, protocol: &Protocol) -> std::result::Result<f64, String> {
        if output.size() != target.size() {
            let (is, should) = (output.describe_size(), target.describe_size());
            return Err(format!("is {is}, but its target is {should}"));
        }
        let (width, height) = output.inner_size(protocol)?;
        let (side, needed) = (width.min(height), (self.min_side)(protocol));
        if side < needed {
            return Err(format!("{} needs sides of {needed} pixels, there are {side} without the border", self.name));
        }
        let pair = |c| (output.component(protocol, c), target.component(protocol, c));
        let value = (self.value)(&mut (0..output.component_count(protocol)).map(pair), protocol);
        if value.is_nan() { Err("the value is not a number".into()) } else { Ok(value) }
    }
}

struct PairMetric {
    formula: &'static Formula,
    protocol: Protocol,
    finite: bool,
}

struct PairAccumulator<'a> {
    metric: &'a PairMetric,
    images: Vec<(String, f64)>,
}

impl Metric for PairMetric {
    fn facts(&self) -> Vec<(String, String)> {
        let stated = (self.formula.state)(self.protocol.state(Report::default()), &self.protocol);
        // The caller that chose the protocol states its name.
        let mut facts: Vec<_> = stated.protocol.into_iter().filter(|(key, _)| key != "protocol").collect();
        if self.finite {
            facts.push(("equal images".into(), format!("count as {EQUAL_DB} dB")));
        }
        facts
    }

    fn accumulator(&self) -> Box<dyn Accumulator + '_> {
        Box::new(PairAccumulator { metric: self, images: vec![] })
    }
}

impl Accumulator for PairAccumulator<'_> {
    fn add(&mut self, samples: Vec<Sample>) -> Result<()> {
        let PairMetric { formula, protocol, finite } = self.metric;
        let one = |sample: &Sample| -> Result<f64> {
            sample.check()?;
            let value = formula.of(&sample.output, sample.target()?, protocol).map_err(|why| sample.error(why))?;
            // A single pair of equal images would otherwise make the mean of a study infinite.
            Ok(if *finite { value.min(EQUAL_DB) } else { value })
        };
        let values: Vec<Result<f64>> = samples.par_iter().map(one).collect();
        for (sample, value) in samples.into_iter().zip(values) {
            self.images.push((sample.name, value?));
        }
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<Measurement> {
        let PairMetric { formula, protocol, .. } = self.metric;
        let report = protocol.state(Report::new(formula.name));
        summarise((formula.state)(report, protocol), self.images)
    }
}
