//! Statistics of repeated runs: mean, standard deviation, confidence intervals, Welch's t-test, bootstrap.
use std::path::Path;

use rayon::prelude::*;
use serde::Serialize;
use serde_json::Value;

use super::Report;
use crate::error::{Error, Result};
use crate::limits;
use crate::rng::{Purpose, Stream};

/// Mean and standard deviation of repeated measurements.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// The number of measurements.
    pub n: usize,
    /// Their mean.
    pub mean: f64,
    /// Their standard deviation, with n − 1.
    pub std: f64,
    /// The 95 % confidence interval of the mean: mean ± t_{0.975, n−1} std/√n.
    pub interval: [f64; 2],
}

impl Summary {
    /// Summarises at least two finite numbers.
    pub fn of(values: &[f64]) -> Result<Self> {
        if let Some(bad) = values.iter().find(|v| !v.is_finite()) {
            return Err(Error::request(format!("{bad} is among the values; only finite numbers can be averaged")));
        }
        if values.len() < 2 {
            return Err(Error::request(format!("{} value: a spread needs at least two", values.len())));
        }
        let n = values.len() as f64;
        let mean = values.iter().sum::<f64>() / n;
        let std = (values.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / (n - 1.0)).sqrt();
        // Student's t and not 1.96: with three to five runs the normal interval is far too narrow.
        let half = t_quantile(0.05, n - 1.0) * std / n.sqrt();
        Ok(Self { n: values.len(), mean, std, interval: [mean - half, mean + half] })
    }

    /// The squared standard error of the mean.
    fn error(&self) -> f64 {
        self.std * self.std / self.n as f64
    }

    /// The report of `crossfade eval`.
    pub fn report(&self) -> Report {
        Report::new("summary")
            .with("interval", format!("95 %, Student's t with {} degrees of freedom", self.n - 1))
            .with("values", self.n)
            .value("mean", self.mean)
            .value("standard deviation", self.std)
            .value("interval low", self.interval[0])
            .value("interval high", self.interval[1])
    }
}

/// The result of Welch's test of equal means; the variances may differ.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Welch {
    /// The first sample.
    pub a: Summary,
    /// The second sample.
    pub b: Summary,
    /// (mean_a − mean_b)/√(s_a²/n_a + s_b²/n_b)
    pub t: f64,
    /// Degrees of freedom by Welch and Satterthwaite.
    pub df: f64,
    /// Probability of a |t| this large if the means are equal.
    pub p: f64,
    /// The 95 % confidence interval of mean_a − mean_b.
    pub interval: [f64; 2],
}

impl Welch {
    /// Compares two samples of at least two numbers each.
    pub fn test(a: &[f64], b: &[f64]) -> Result<Self> {
        let (a, b) = (Summary::of(a)?, Summary::of(b)?);
        let (ea, eb) = (a.error(), b.error());
        // The standard deviation of equal values may be a few rounding errors instead of zero.
        if (ea + eb).sqrt() <= 1e-12 * a.mean.abs().max(b.mean.abs()) {
            return Err(Error::request("all values of each sample are equal; without spread there is no t-test"));
        }
        let (error, difference) = ((ea + eb).sqrt(), a.mean - b.mean);
        let t = difference / error;
        let df = (ea + eb) * (ea + eb) / (ea * ea / (a.n - 1) as f64 + eb * eb / (b.n - 1) as f64);
        let half = t_quantile(0.05, df) * error;
        let interval = [difference - half, difference + half];
        Ok(Self { a, b, t, df, p: t_two_sided(t, df), interval })
    }

    /// The paper's significance marks: `**` below 0.01, `*` below 0.05, nothing above.
    pub fn marks(&self) -> &'static str {
        match self.p {
            p if p < 0.01 => "**",
            p if p < 0.05 => "*",
            _ => "",
        }
    }

    /// The report of `crossfade eval`.
    pub fn report(&self) -> Report {
        let marks = if self.marks().is_empty() { "none" } else { self.marks() };
        Report::new("ttest")
            .with("test", "Welch's t-test, two-sided, variances may differ")
            .with("values", format!("{} and {}", self.a.n, self.b.n))
            .with("marks", format!("{marks} (p = {:.2e}; ** for p < 0.01, * for p < 0.05)", self.p))
            .value("mean of A", self.a.mean)
            .value("standard deviation of A", self.a.std)
            .value("mean of B", self.b.mean)
            .value("standard deviation of B", self.b.std)
            .value("A - B", self.a.mean - self.b.mean)
            .value("A - B, 95 % low", self.interval[0])
            .value("A - B, 95 % high", self.interval[1])
            .value("t", self.t)
            .value("degrees of freedom", self.df)
            .value("p", self.p)
    }
}

/// P(|T| ≥ |t|) of Student's distribution: I_x(df/2, 1/2) with x = df/(df + t²).
pub(crate) fn t_two_sided(t: f64, df: f64) -> f64 {
    incomplete_beta(df / 2.0, 0.5, df / (df + t * t))
}

/// The quantile t with P(|T| ≥ t) = `p`, for `p` in (0, 1).
pub fn t_quantile(p: f64, df: f64) -> f64 {
    let (mut low, mut high) = (0.0, 1.0);
    while t_two_sided(high, df) > p && high < 1e300 {
        (low, high) = (high, 2.0 * high);
    }
    // Bisection ends when there is no f64 between both ends.
    loop {
        let middle = 0.5 * (low + high);
        if middle <= low || middle >= high {
            return middle;
        }
        if t_two_sided(middle, df) > p {
            low = middle;
        } else {
            high = middle;
        }
    }
}

/// The regularised incomplete beta function I_x(a, b), by its continued fraction (Abramowitz and Stegun 26.5.8).
pub fn incomplete_beta(a: f64, b: f64, x: f64) -> f64 {
    if x <= 0.0 || x >= 1.0 {
        return if x <= 0.0 { 0.0 } else { 1.0 };
    }
    // The continued fraction converges fast only below the mean; above it, symmetry helps.
    if x > (a + 1.0) / (a + b + 2.0) {
        return 1.0 - incomplete_beta(b, a, 1.0 - x);
    }
    let log_front = libm::lgamma(a + b) - libm::lgamma(a) - libm::lgamma(b) + a * libm::log(x) + b * libm::log1p(-x);
    libm::exp(log_front) * beta_fraction(a, b, x) / a
}

/// 1/(1 + d_1/(1 + d_2/(1 + ...))) by Lentz's method.
fn beta_fraction(a: f64, b: f64, x: f64) -> f64 {
    // Lentz's method divides by its terms; zeros are replaced by this number.
    const TINY: f64 = 1e-300;
    let nonzero = |v: f64| if v.abs() < TINY { TINY } else { v };
    let (mut c, mut d) = (1.0, 1.0 / nonzero(1.0 - (a + b) * x / (a + 1.0)));
    let mut fraction = d;
    for m in 1..10_000 {
        let m = f64::from(m);
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        let mut change = 1.0;
        for term in [even, odd] {
            d = 1.0 / nonzero(1.0 + term * d);
            c = nonzero(1.0 + term / c);
            change = c * d;
            fraction *= change;
        }
        if (change - 1.0).abs() < 1e-16 {
            break;
        }
    }
    fraction
}

/// The percentile interval that contains the share `confidence` (such as 0.95) of a statistic over resamples with
/// replacement.
///
/// `statistic` is called with the indices of one resample, each below `n`. The result depends on the seed and not on
/// the number of threads.
pub fn bootstrap(
    n: usize,
    resamples: usize,
    confidence: f64,
    seed: u64,
    statistic: impl Fn(&[usize]) -> f64 + Sync,
) -> Result<[f64; 2]> {
    if n == 0 || resamples < 2 || !(0.0..1.0).contains(&confidence) {
        let message = format!("a bootstrap of {n} values, {resamples} resamples, confidence {confidence}");
        return Err(Error::request(message));
    }
    let one = |k: usize| {
        // One stream per resample, so that the resamples can run in parallel in any order.
        let mut stream = Stream::new(seed, k as u64, 0, Purpose::Bootstrap);
        let indices: Vec<usize> = (0..n).map(|_| stream.below(n as u64) as usize).collect();
        statistic(&indices)
    };
    let mut found: Vec<f64> = (0..resamples).into_par_iter().map(one).collect();
    if let Some(bad) = found.iter().find(|v| !v.is_finite()) {
        return Err(Error::Run(format!("the statistic of a resample is {bad}; too few values for a bootstrap?")));
    }
    found.sort_by(f64::total_cmp);
    let tail = 0.5 * (1.0 - confidence);
    Ok([percentile(&found, tail), percentile(&found, 1.0 - tail)])
}

/// The percentile of a sorted list, with linear interpolation.
fn percentile(sorted: &[f64], share: f64) -> f64 {
    let position = share * (sorted.len() - 1) as f64;
    let (below, above) = (sorted[position as usize], sorted[(position.ceil() as usize).min(sorted.len() - 1)]);
    below + (above - below) * position.fract()
}

/// One value of a report of `crossfade eval --json`, and the protocol of the report.
#[derive(Clone, Debug, PartialEq)]
pub struct Reported {
    /// The value.
    pub value: f64,
    /// The protocol that the report states.
    pub protocol: Vec<(String, String)>,
}

/// What is read of a report. Everything else in it, such as the values of single images, is passed over and takes no memory.
#[derive(serde::Deserialize)]
struct Document {
    metric: Option<String>,
    #[serde(default)]
    values: Vec<(String, Value)>,
    #[serde(default)]
    protocol: Vec<(String, Value)>,
}

/// Reads the value called `name`, or the one with the name of the report's metric.
pub fn read_report(path: &Path, name: Option<&str>) -> Result<Reported> {
    let bad = |message: String| Error::file(path, message);
    let Document { metric, values, protocol } = serde_json::from_slice(&limits::read(path, &limits::REPORT)?)
        .map_err(|e| bad(format!("neither a number nor a report of `crossfade eval --json`: {e}")))?;
    let name = name.or(metric.as_deref()).ok_or_else(|| bad("not a report of `crossfade eval --json`".into()))?;
    let Some((_, value)) = values.iter().find(|(n, _)| n == name) else {
        let known: Vec<&str> = values.iter().map(|(n, _)| n.as_str()).collect();
        return Err(bad(format!("has no value {name:?}; it has {known:?}, choose with --value")));
    };
    let value = value.as_f64().ok_or_else(|| bad(format!("its value {name:?} is no finite number")))?;
    let protocol = protocol.into_iter().filter_map(|(k, v)| Some((k, v.as_str()?.to_owned()))).collect();
    Ok(Reported { value, protocol })
}

/// The facts of a protocol that must agree for numbers to be comparable.
const FACTS: [&str; 7] = ["protocol", "weights", "resize", "channel", "border left out", "values", "window"];

/// Warnings for reports of different protocols.
pub fn protocol_warnings(reports: &[Reported]) -> Vec<String> {
    let fact = |report: &Reported, key: &str| {
        report.protocol.iter().find(|(k, _)| k == key).map_or("nothing".to_owned(), |(_, v)| v.clone())
    };
    let differs = |key: &&str| {
        let first = fact(reports.first()?, key);
        let other = reports.iter().map(|r| fact(r, key)).find(|f| *f != first)?;
        Some(format!("these numbers are not comparable: {key} is {first:?} in one report and {other:?} in another"))
    };
    FACTS.iter().filter_map(differs).collect()
}
