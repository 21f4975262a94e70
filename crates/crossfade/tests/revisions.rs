//! Samplers and metrics whose numbers have changed must have a new revision, because studies keep results under it.
//!
//! `testdata/revisions.json` holds the revision of each beside a number that it computes from fixed input. After a change
//! that is meant, raise the revision and run this test with `CROSSFADE_UPDATE_REVISIONS=1`, which writes the file.
#![allow(clippy::unwrap_used)]
use crossfade::data::{Dataset, Image};
use crossfade::engine::Device;
use crossfade::lab::{LabConfig, processes, run};
use crossfade::metrics::{Compared, MetricOptions, Reference, ReferenceWork, RegisteredMetric, Sample};
use crossfade::sample::Sampler;
use serde_json::Value;
use std::path::Path;

/// Relative difference that is rounding: the functions of the platform's mathematics library differ in their last digits.
const ROUNDING: f64 = 1e-9;

/// The distance between what a sampler makes and the data, summed over all processes and grids of the laboratory.
fn samplers() -> Vec<(String, u32, f64)> {
    let config = LabConfig { dim: 2, components: 2, samples: 20, evaluations: vec![6], ..LabConfig::default() };
    let config = LabConfig { processes: processes(config.noise), ..config };
    let report = run(&config, &mut |_, _| ()).unwrap();
    let one = |sampler: &Sampler| {
        let curves = report.curves.iter().filter(|curve| curve.sampler == *sampler);
        let number = curves.flat_map(|curve| &curve.cells).map(|cell| cell.w2).sum();
        (format!("sampler {}", sampler.name()), sampler.revision(), number)
    };
    Sampler::ALL.iter().map(one).collect()
}

/// An image of smooth noise.
fn image(seed: u32, side: usize, channels: usize) -> Image {
    let (mut state, mut level) = (seed.wrapping_mul(2_654_435_761), 128i32);
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        level = (level + (state >> 24) as i32 % 41 - 20).clamp(0, 255);
        level as u8
    };
    Image::new(side, side, channels, (0..side * side * channels).map(|_| next()).collect())
}

struct Images(Vec<Image>);

impl Dataset for Images {
    fn len(&self) -> usize {
        self.0.len()
    }
    fn get(&self, index: usize) -> crossfade::Result<Image> {
        Ok(self.0[index].clone())
    }
    fn name(&self, index: usize) -> String {
        index.to_string()
    }
    fn describe(&self) -> String {
        "noise".into()
    }
}

/// The values of every metric that needs no weights; those of Inception and LPIPS are compared with the reference
/// implementations' in `metrics_features.rs` and `metrics_pairs.rs`.
fn metrics() -> Vec<(String, u32, f64)> {
    let device = Device::flex();
    let mut found = vec![];
    for metric in RegisteredMetric::all() {
        let (side, channels, count) = match metric.compared {
            Compared::Target => (176, 3, 2),
            Compared::Map => (48, 1, 3),
            Compared::ImageSet { .. } => (16, 3, 12),
            Compared::Nothing | Compared::Data | Compared::Segmentations => continue,
        };
        if metric.network.is_some() {
            continue;
        }
        let mut opened = (metric.open)(&MetricOptions::new(&device)).unwrap();
        let reference = Images((100..100 + count).map(|k| image(k, side, channels)).collect());
        let mut work = ReferenceWork { store: None, stop: &|| false, progress: &mut |_, _| () };
        opened.prepare(&Reference::Images(&reference), &mut work).unwrap();
        let mut accumulator = opened.accumulator();
        let sample = |k: u32| Sample {
            name: k.to_string(),
            origin: k.to_string().into(),
            output: image(k, side, channels).into(),
            target: metric.needs_targets().then(|| image(100 + k, side, channels).into()),
            class: None,
        };
        accumulator.add((0..count).map(sample).collect()).unwrap();
        let values = accumulator.finish().unwrap().report.values;
        // Weights, so that two values that change places are noticed.
        let number = values.iter().enumerate().map(|(i, (_, value))| (i + 1) as f64 * value).sum();
        found.push((format!("metric {}", metric.name), metric.revision, number));
    }
    found
}

#[test]
fn changed_numbers_have_a_new_revision() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/revisions.json");
    let found: Vec<_> = samplers().into_iter().chain(metrics()).collect();
    if std::env::var_os("CROSSFADE_UPDATE_REVISIONS").is_some() {
        let lines: Vec<String> =
            found.iter().map(|(name, n, number)| format!("  \"{name}\": [{n}, {number:?}]")).collect();
        std::fs::write(&path, format!("{{\n{}\n}}\n", lines.join(",\n"))).unwrap();
    }
    let stored: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    let advice = "raise its revision if the change is meant, then run with CROSSFADE_UPDATE_REVISIONS=1";
    for (name, revision, number) in &found {
        let Some([known, value]) = stored[name].as_array().map(Vec::as_slice) else {
            panic!("{name} is not in testdata/revisions.json; run with CROSSFADE_UPDATE_REVISIONS=1");
        };
        let value = value.as_f64().unwrap();
        assert_eq!(known, revision, "{name}: the file has another revision; {advice}");
        let same = (number - value).abs() <= ROUNDING * value.abs();
        assert!(same, "{name}: {number}, but revision {revision} gave {value}; {advice}");
    }
    assert_eq!(stored.as_object().unwrap().len(), found.len(), "the file has entries that are not registered");
}
