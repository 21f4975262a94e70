//! Benchmarks of single kernels: time, rate, and share of the processor's measured peak.
use super::run::{Work, run};
use super::{Case, Counted, Kind, Limits, limits, median_and_best, network_cases, other_cases};
use crate::error::{Error, Result};
use crate::nn::UNetConfig;
use serde::Serialize;
use std::collections::BTreeMap;

/// The options of the benchmark.
#[derive(Clone, Debug)]
pub struct Options {
    /// Networks whose kernels are measured, by name.
    pub networks: Vec<(String, UNetConfig)>,
    /// Images per batch.
    pub batch: usize,
    /// The least number of measurements of each pass.
    pub repeat: usize,
    /// Only kernels whose name contains one of these; all if there are none.
    pub filters: Vec<String>,
}

/// The measurement of one pass of a kernel: forward, or the gradient by input or by weights.
#[derive(Clone, Debug, Serialize)]
pub struct Pass {
    /// The name of the pass.
    pub pass: &'static str,
    /// Median time in milliseconds.
    pub median_ms: f64,
    /// Best time in milliseconds.
    pub best_ms: f64,
    /// Rate at the median time, in 10^9 operations per second. For convolutions these are the operations of the direct
    /// method, whatever algorithm is used, so that algorithms can be compared.
    pub gflops: Option<f64>,
    /// Rate at the median time, in 10^9 bytes per second, if every element is read or written once.
    pub gbs: Option<f64>,
    /// The rate divided by the measured limit. It is above 1 for Winograd convolutions, which need fewer operations,
    /// and for data that stays in the caches.
    pub share: f64,
}

/// A kernel at one shape.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Kernel and shape.
    pub name: String,
    /// Its group.
    pub kind: Kind,
    /// Whether the convolution is computed by Winograd's method, with a quarter of the direct method's multiplications.
    pub winograd: bool,
    /// Calls in one training step, by network.
    pub uses: BTreeMap<String, usize>,
    /// The measurements.
    pub passes: Vec<Pass>,
}

/// Time of a group of kernels in one network: passes times calls.
#[derive(Clone, Debug, Serialize)]
pub struct Share {
    /// The network.
    pub network: String,
    /// The group.
    pub kind: Kind,
    /// In one evaluation, milliseconds.
    pub forward_ms: f64,
    /// In one training step, milliseconds.
    pub train_ms: f64,
}

/// The results of the benchmark.
#[derive(Clone, Debug, Serialize)]
pub struct KernelReport {
    /// The measured limits of the processor.
    pub limits: Limits,
    /// Images per batch.
    pub batch: usize,
    /// The kernels, in the order of their groups.
    pub rows: Vec<Row>,
    /// The time of each network by group of kernels; empty if a filter excluded some of its kernels.
    pub profile: Vec<Share>,
}

/// Runs the benchmark; `progress` is called with (kernels done, all kernels).
pub fn kernels(options: &Options, progress: &mut dyn FnMut(usize, usize)) -> Result<KernelReport> {
    let mut all: Vec<(Case, BTreeMap<String, usize>)> = vec![];
    let mut collect = |network: Option<&str>, cases: Counted| {
        for (case, uses) in cases.0 {
            let known = all.iter().position(|(known, _)| *known == case).unwrap_or_else(|| {
                all.push((case, BTreeMap::new()));
                all.len() - 1
            });
            all[known].1.extend(network.map(|network| (network.to_string(), uses)));
        }
    };
    for (name, network) in &options.networks {
        collect(Some(name), network_cases(network, options.batch));
    }
    collect(None, other_cases(options.batch));
    let filters: Vec<String> = options.filters.iter().map(|filter| filter.to_lowercase()).collect();
    let unfiltered = filters.is_empty();
    let wanted = |case: &Case| unfiltered || filters.iter().any(|filter| case.name().to_lowercase().contains(filter));
    all.retain(|(case, _)| case.has_kernel() && wanted(case));
    if all.is_empty() {
        let advice = "try for example 'conv 3x3', 'norm', 'attention', 'dense', 'AdamW' or '@32'";
        return Err(Error::request(format!("no kernel's name contains {:?}; {advice}", options.filters)));
    }
    all.sort_by_key(|(case, _)| case.kind());
    let limits = limits();
    let (mut rows, count) = (vec![], all.len());
    for (case, uses) in all {
        rows.push(measure(&case, uses, options.repeat.max(1), &limits));
        progress(rows.len(), count);
    }
    let profile = if unfiltered { profile(&rows, options) } else { vec![] };
    Ok(KernelReport { limits, batch: options.batch, rows, profile })
}

fn measure(case: &Case, uses: BTreeMap<String, usize>, repeat: usize, limits: &Limits) -> Row {
    let pass = |(pass, times, work): (&'static str, Vec<f64>, Work)| {
        let (median, best) = median_and_best(times);
        let (gflops, gbs) = match work {
            Work::Flops(flops) => (Some(flops / median / 1e9), None),
            Work::Bytes(bytes) => (None, Some(bytes / median / 1e9)),
        };
        let share = gflops.map_or(0.0, |g| g / limits.peak_gflops) + gbs.map_or(0.0, |g| g / limits.triad_gbs);
        Pass { pass, median_ms: median * 1e3, best_ms: best * 1e3, gflops, gbs, share }
    };
    Row {
        name: case.name(),
        kind: case.kind(),
        winograd: case.winograd(),
        uses,
        passes: run(case, repeat).into_iter().map(pass).collect(),
    }
}

fn profile(rows: &[Row], options: &Options) -> Vec<Share> {
    let mut shares = vec![];
    for (network, _) in &options.networks {
        let mut kinds: BTreeMap<Kind, (f64, f64)> = BTreeMap::new();
        for row in rows {
            let uses = row.uses.get(network).copied().unwrap_or(0) as f64;
            let (forward, train) = kinds.entry(row.kind).or_default();
            for pass in &row.passes {
                // Dropout has a forward pass, but only in training.
                let evaluated = pass.pass == "forward" && !row.name.starts_with("dropout");
                *forward += if evaluated { uses * pass.median_ms } else { 0.0 };
                *train += uses * pass.median_ms;
            }
        }
        shares.extend(
            kinds.into_iter().filter(|(_, (_, train))| *train > 0.0).map(|(kind, (forward_ms, train_ms))| Share {
                network: network.clone(),
                kind,
                forward_ms,
                train_ms,
            }),
        );
    }
    shares
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::nn::{BackboneConfig, NetworkPorts};

    fn options(filters: &[&str]) -> Options {
        let network = UNetConfig {
            resolution: 8,
            width: 16,
            mult: vec![1, 4],
            blocks: 1,
            attention: vec![4],
            ..UNetConfig::default()
        };
        let filters = filters.iter().map(|f| f.to_string()).collect();
        Options { networks: vec![("small".into(), network)], batch: 1, repeat: 1, filters }
    }

    /// The convolutions and dense layers that are counted have exactly the network's weights.
    #[test]
    fn cases_are_those_of_the_network() {
        for config in [UNetConfig::default(), options(&[]).networks[0].1.clone()] {
            let weights = |case: &Case| match case {
                Case::Conv(s) => s.weight_len(),
                Case::Linear(s) => s.cin * s.cout,
                _ => 0,
            };
            let counted: usize = network_cases(&config, 1).0.iter().map(|(case, uses)| uses * weights(case)).sum();
            // The gates have two convolutions of one weight each, which are not measured.
            let expected = config
                .state_shapes(NetworkPorts::default())
                .into_iter()
                .map(|(_, shape)| shape)
                .filter(|shape| shape.len() > 1);
            assert_eq!(counted + 4, expected.map(|shape| shape.iter().product::<usize>()).sum::<usize>());
        }
    }

    #[test]
    fn every_kernel_is_measured_and_adds_up() {
        let report = kernels(&options(&[]), &mut |_, _| ()).unwrap();
        for row in &report.rows {
            assert!(!row.passes.is_empty(), "{}", row.name);
            for pass in &row.passes {
                assert!(
                    pass.best_ms > 0.0 && pass.best_ms <= pass.median_ms && pass.share > 0.0,
                    "{} {pass:?}",
                    row.name
                );
            }
        }
        let kinds: Vec<Kind> = report.profile.iter().map(|share| share.kind).collect();
        assert_eq!(kinds.len(), 7, "{kinds:?}");
        assert!(report.profile.iter().all(|share| share.train_ms >= share.forward_ms));
    }

    #[test]
    fn filters_choose_by_name() {
        let report = kernels(&options(&["ATTENTION", "7x7"]), &mut |_, _| ()).unwrap();
        assert_eq!(report.rows.len(), 2);
        assert!(report.profile.is_empty());
        assert!(kernels(&options(&["fft"]), &mut |_, _| ()).unwrap_err().to_string().contains("fft"));
    }
}
