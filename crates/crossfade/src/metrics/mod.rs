//! Metrics, each with a stated protocol: values measured in different ways cannot be compared.
//!
//! Each metric is one file and one line of `registry.rs`; the trait they implement is in `metric.rs`. Both `crossfade eval`
//! and studies find metrics there, and every measurement ends in a [`Report`].
use crate::error::{Error, Result, visible};
use serde::Serialize;
use std::fmt;

pub mod edges;
pub mod features;
pub mod maps;
mod metric;
mod nll;
mod none;
mod npy;
pub mod pairs;
mod raster;
pub mod regions;
mod registry;
pub mod saliency;
pub mod statistics;

pub use metric::{
    Accumulator, Better, Compared, EQUAL_DB, FeatureNetwork, Measurement, Metric, MetricOptions, MetricSpec, Reference,
    ReferenceStore, ReferenceWork, Sample, Value, Verb,
};
pub use raster::{FloatImage, Raster};
pub use registry::{METRIC_NAMES, RegisteredMetric};

/// The result of one evaluation: the values, and everything that is needed to reproduce them.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Report {
    /// The metric's name on the command line.
    pub metric: String,
    /// How it was measured: protocol, weights and their hash, counts, resize mode, versions; in the order of display.
    pub protocol: Vec<(String, String)>,
    /// The results, in the order of display.
    pub values: Vec<(String, f64)>,
    /// What a reader must know before using the numbers.
    pub warnings: Vec<String>,
}

impl Report {
    /// An empty report that names the metric and this program's version.
    pub fn new(metric: &str) -> Self {
        let version = format!("crossfade {}", env!("CARGO_PKG_VERSION"));
        Self { metric: metric.into(), ..Self::default() }.with("version", version)
    }

    /// Adds one fact of the protocol.
    #[must_use]
    pub fn with(mut self, key: &str, fact: impl fmt::Display) -> Self {
        self.protocol.push((key.into(), fact.to_string()));
        self
    }

    /// Adds one result.
    #[must_use]
    pub fn value(mut self, name: &str, value: f64) -> Self {
        self.values.push((name.into(), value));
        self
    }

    /// Adds one warning.
    #[must_use]
    pub fn warn(mut self, warning: impl Into<String>) -> Self {
        self.warnings.push(warning.into());
        self
    }

    /// The report, if all values are numbers: others mean nothing, and in a table nobody would see why. Only the PSNR of equal
    /// images is infinite, with a warning.
    pub fn checked(self) -> Result<Self> {
        let means_nothing = |value: f64| value.is_nan() || (value.is_infinite() && self.metric != "psnr");
        match self.values.iter().find(|(_, value)| means_nothing(*value)) {
            Some((name, value)) => {
                let problem = format!("the value `{name}` is {value}, which means nothing");
                Err(Error::Run(format!("{}: {problem}; are the images or the weights damaged?", self.metric)))
            }
            None => Ok(self),
        }
    }

    /// The result called `name`.
    pub fn get(&self, name: &str) -> Option<f64> {
        self.values.iter().find(|(n, _)| n == name).map(|(_, v)| *v)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys = self.values.iter().map(|(n, _)| n).chain(self.protocol.iter().map(|(k, _)| k));
        // Characters and not bytes, because names contain letters such as é.
        let width = keys.map(|k| k.chars().count()).max().unwrap_or(0);
        for (name, value) in &self.values {
            writeln!(f, "{name:width$}  {value:.6}")?;
        }
        writeln!(f)?;
        for (key, fact) in &self.protocol {
            writeln!(f, "{key:width$}  {}", visible(fact))?;
        }
        for warning in &self.warnings {
            writeln!(f, "warning: {}", visible(warning))?;
        }
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_a_table_of_values_facts_and_warnings() {
        let report = Report::default().value("é", 1.5).with("longer", "a\nwarning: forged\u{1b}").warn("take\ncare");
        let lines = "é       1.500000\n\nlonger  a\\nwarning: forged\\u{1b}\nwarning: take\\ncare\n";
        assert_eq!(report.to_string(), lines);
        assert_eq!((report.get("é"), report.get("longer")), (Some(1.5), None));
        let named = Report::new("fid");
        assert_eq!((named.metric.as_str(), named.protocol[0].0.as_str()), ("fid", "version"));
        assert!(named.protocol[0].1.starts_with("crossfade "));
    }

    #[test]
    fn values_that_are_no_numbers_are_no_report() {
        let of = |metric: &str, value: f64| Report::new(metric).value("a", 1.0).value("b", value).checked();
        of("fid", 2.0).unwrap();
        of("psnr", f64::INFINITY).unwrap();
        for (metric, value) in
            [("fid", f64::INFINITY), ("fid", f64::NAN), ("psnr", f64::NAN), ("ssim", f64::NEG_INFINITY)]
        {
            let message = of(metric, value).unwrap_err().to_string();
            assert!(message.starts_with(metric) && message.contains("the value `b` is"), "{message}");
        }
    }
}
