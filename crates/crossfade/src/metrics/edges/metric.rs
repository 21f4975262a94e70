//! The BSDS edge benchmark as a metric of maps that a network produced.
use super::super::maps::Map;
use super::super::metric::{
    Accumulator, Compared, Measurement, Metric, MetricOptions, MetricSpec, Sample, Value, Verb,
};
use super::counts::{Counts, count};
use super::ground_truth::Detection;
use super::summary::summarise;
use super::{EdgesConfig, Protocol, must_have_boundaries, protocol_facts, report};
use crate::error::{Error, Result};

pub(in crate::metrics) const SPEC: MetricSpec = MetricSpec {
    name: "edges",
    about: "Edge maps against what people drew: ODS, OIS, AP and R50 of the BSDS benchmark",
    values: &[
        Value::higher("ODS", "ODS"),
        Value::higher("OIS", "OIS"),
        Value::higher("AP", "AP"),
        Value::higher("R50", "R50"),
        Value::higher("ODS recall", "recall at ODS"),
        Value::higher("ODS precision", "precision at ODS"),
    ],
    compared: Compared::Map,
    network: None,
    protocols: &["s", "c", "as-is"],
    min_images: 2,
    revision: 1,
    verb: Verb::Own,
    open: |options| Ok(Box::new(EdgesMetric(config(options)?))),
};

fn config(options: &MetricOptions) -> Result<EdgesConfig> {
    let protocol = match options.protocol {
        None | Some("s") => Protocol::S,
        Some("c") => Protocol::C,
        Some("as-is") => Protocol::AsIs,
        Some(name) => return Err(Error::request(format!("edges has no protocol `{name}`; known: s, c, as-is"))),
    };
    Ok(EdgesConfig { protocol, ..EdgesConfig::default() })
}

struct EdgesMetric(EdgesConfig);

struct EdgesAccumulator<'a> {
    config: &'a EdgesConfig,
    counts: Vec<Vec<Counts>>,
}

impl Metric for EdgesMetric {
    fn facts(&self) -> Vec<(String, String)> {
        // The caller that chose the protocol states its name.
        let facts = protocol_facts(&self.0, false, self.0.thresholds).into_iter();
        let truth = ("ground truth".into(), "one map an image, cut at 0.5".into());
        facts.filter(|(key, _)| key != "protocol").chain([truth]).collect()
    }

    fn accumulator(&self) -> Box<dyn Accumulator + '_> {
        Box::new(EdgesAccumulator { config: &self.0, counts: vec![] })
    }
}

impl Accumulator for EdgesAccumulator<'_> {
    fn add(&mut self, samples: Vec<Sample>) -> Result<()> {
        for sample in samples {
            sample.check()?;
            let truth = Map::of(&sample.target()?.clone().into_image()).at_least(0.5);
            let detection = Detection::Soft(Map::of(&sample.output.into_image()));
            // Images are processed one by one because `count` is parallel over the thresholds.
            self.counts.push(count(detection, &[truth], self.config, &sample.origin)?);
        }
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<Measurement> {
        must_have_boundaries(&self.counts)?;
        let (levels, images) = (self.config.levels(), self.counts.len());
        let summary = summarise(&levels, &self.counts);
        Ok(report(&summary, self.config, false, (images, images, levels.len())).into())
    }
}
