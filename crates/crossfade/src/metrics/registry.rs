//! The registered metrics, one line each.
use super::metric::MetricSpec;
use super::{edges, features, nll, none, pairs, regions, saliency};
use crate::error::{Error, Result};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::ops::Deref;

/// Every metric, in the order in which help lists them.
const SPECS: &[&MetricSpec] = &[
    &features::fid::SPEC,
    &features::kid::SPEC,
    &features::inception_score::SPEC,
    &features::precision_recall::SPEC,
    &features::pixel_frechet::SPEC,
    &features::random_frechet::SPEC,
    &pairs::psnr::SPEC,
    &pairs::ssim::SPEC,
    &pairs::ms_ssim::SPEC,
    &pairs::lpips::SPEC,
    &saliency::SPEC,
    &edges::SPEC,
    &regions::SPEC,
    &nll::SPEC,
    &none::SPEC,
];

/// The names of all metrics, in that order.
pub const METRIC_NAMES: [&str; SPECS.len()] = {
    let mut names = [""; SPECS.len()];
    let mut i = 0;
    while i < SPECS.len() {
        names[i] = SPECS[i].name;
        i += 1;
    }
    names
};

/// A metric of the registry; in files it is its name.
#[derive(Clone, Copy)]
pub struct RegisteredMetric(&'static MetricSpec);

impl RegisteredMetric {
    /// Every metric.
    pub fn all() -> impl Iterator<Item = Self> {
        SPECS.iter().map(|spec| Self(spec))
    }

    /// The metric called `name`.
    pub fn parse(name: &str) -> Result<Self> {
        Self::all().find(|metric| metric.name == name).ok_or_else(|| {
            let known = METRIC_NAMES.join(", ");
            Error::request(format!("unknown metric `{name}`; known: {known}"))
        })
    }

    /// The metric that has a value of this name, for users who write a value such as `MAE` as a metric.
    pub(crate) fn with_value(name: &str) -> Option<Self> {
        Self::all().find(|metric| metric.value(Some(name)).is_some())
    }
}

impl Default for RegisteredMetric {
    fn default() -> Self {
        Self(&features::fid::SPEC)
    }
}

impl Deref for RegisteredMetric {
    type Target = MetricSpec;

    fn deref(&self) -> &MetricSpec {
        self.0
    }
}

impl PartialEq for RegisteredMetric {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for RegisteredMetric {}

impl fmt::Debug for RegisteredMetric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl Serialize for RegisteredMetric {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name)
    }
}

impl<'de> Deserialize<'de> for RegisteredMetric {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        Self::parse(&name).map_err(|_| match Self::with_value(&name) {
            Some(metric) => {
                let (metric, advice) = (metric.name, "write both");
                D::Error::custom(format!(
                    "`{name}` is a value of `{metric}`: {advice}, metric = \"{metric}\" and value = \"{name}\""
                ))
            }
            // The same error as for an enum: the reader of configurations extracts the names from it to suggest the
            // nearest one.
            None => D::Error::unknown_variant(&name, &METRIC_NAMES),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::{Better, Compared};

    /// Results of studies are stored under these names: two metrics or values of one name would be mixed up.
    #[test]
    fn names_are_unique_and_metrics_are_found_by_them() {
        for (i, metric) in RegisteredMetric::all().enumerate() {
            assert!(!METRIC_NAMES[..i].contains(&metric.name), "{} is registered twice", metric.name);
            assert_eq!(RegisteredMetric::parse(metric.name).ok(), Some(metric));
            assert!(metric.revision > 0 && !metric.about.is_empty(), "{}", metric.name);
            for (k, value) in metric.values.iter().enumerate() {
                assert_eq!(metric.value(Some(&value.name.to_uppercase())), Some(&metric.values[k]), "{}", metric.name);
            }
            assert_eq!(metric.values.is_empty(), metric.name == "none", "{}", metric.name);
        }
        assert!(RegisteredMetric::parse("fod").is_err_and(|e| e.to_string().contains("pixel-frechet")));
    }

    #[test]
    fn errors_improve_downwards_and_similarities_upwards() {
        let better = |metric: &str, value: Option<&str>| {
            RegisteredMetric::parse(metric).ok().and_then(|metric| metric.value(value)).map(|value| value.better)
        };
        for (metric, value) in
            [("fid", None), ("kid", None), ("pixel-frechet", None), ("lpips", None), ("saliency", Some("mae"))]
        {
            assert_eq!(better(metric, value), Some(Better::Lower), "{metric}");
        }
        for (metric, value) in [
            ("is", None),
            ("pr", None),
            ("pr", Some("recall")),
            ("psnr", None),
            ("ssim", None),
            ("ms-ssim", None),
            ("saliency", Some("max-f")),
            ("saliency", Some("S")),
            ("saliency", Some("mean e")),
            ("edges", None),
            ("edges", Some("ap")),
        ] {
            assert_eq!(better(metric, value), Some(Better::Higher), "{metric}");
        }
        assert_eq!(better("saliency", Some("ods")), None);
        assert_eq!(RegisteredMetric::with_value("ods").map(|metric| metric.name), Some("edges"));
        assert_eq!(RegisteredMetric::with_value("MAE").map(|metric| metric.compared), Some(Compared::Map));
    }
}
