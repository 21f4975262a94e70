//! The saliency measures as a metric of maps that a network produced.
use rayon::prelude::*;

use super::super::metric::{
    Accumulator, Compared, Measurement, Metric, MetricOptions, MetricSpec, Sample, Value, Verb,
};
use super::{Measured, SaliencyConfig, measure_images, protocol_facts, summarise};
use crate::error::{Error, Result};

/// All measures come from one pass over the maps, so they are the values of one metric.
pub(in crate::metrics) const SPEC: MetricSpec = MetricSpec {
    name: "saliency",
    about: "Saliency maps against masks: MAE, F, weighted F, S and E measures",
    values: &[
        Value::lower("MAE", "MAE"),
        Value::higher("max F", "max F"),
        Value::higher("mean F", "mean F"),
        Value::higher("adaptive F", "adaptive F"),
        Value::higher("max F, image mean", "max F of the images' mean curve"),
        Value::higher("mean F, image mean", "mean F of the images' mean curve"),
        Value::higher("weighted F", "weighted F"),
        Value::higher("S", "S measure"),
        Value::higher("max E", "max E"),
        Value::higher("mean E", "mean E"),
        Value::higher("adaptive E", "adaptive E"),
    ],
    compared: Compared::Map,
    network: None,
    protocols: &["standard", "adm"],
    min_images: 2,
    revision: 1,
    verb: Verb::Own,
    open: |options| Ok(Box::new(SaliencyMetric(config(options)?))),
};

fn config(options: &MetricOptions) -> Result<SaliencyConfig> {
    match options.protocol {
        None | Some("standard") => Ok(SaliencyConfig::default()),
        Some("adm") => Ok(SaliencyConfig::adm()),
        Some(name) => Err(Error::request(format!("saliency has no protocol `{name}`; known: standard, adm"))),
    }
}

struct SaliencyMetric(SaliencyConfig);

struct SaliencyAccumulator<'a> {
    config: &'a SaliencyConfig,
    measured: Vec<Measured>,
}

impl Metric for SaliencyMetric {
    fn facts(&self) -> Vec<(String, String)> {
        protocol_facts(&self.0)
    }

    fn accumulator(&self) -> Box<dyn Accumulator + '_> {
        Box::new(SaliencyAccumulator { config: &self.0, measured: vec![] })
    }
}

impl Accumulator for SaliencyAccumulator<'_> {
    fn add(&mut self, samples: Vec<Sample>) -> Result<()> {
        let one = |sample: &Sample| {
            sample.check()?;
            let (map, mask) = (sample.output.clone().into_image(), sample.target()?.clone().into_image());
            measure_images(&sample.name, map, mask, self.config).map_err(|why| sample.error(why))
        };
        let measured: Vec<Result<Measured>> = samples.par_iter().map(one).collect();
        for measured in measured {
            self.measured.push(measured?);
        }
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<Measurement> {
        Ok(summarise(self.measured, self.config)?.report.into())
    }
}
