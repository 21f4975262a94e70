//! What holds for every metric, whatever it measures. The tests go through the registry, so that a new metric is tested too;
//! what is particular to one is in `metric_properties.rs`.
#![allow(clippy::unwrap_used, clippy::print_stderr)]
#[path = "common/shared.rs"]
mod shared;

use crossfade::data::{Dataset, Image};
use crossfade::engine::Device;
use crossfade::metrics::{
    Better, Compared, FeatureNetwork, FloatImage, Metric, MetricOptions, Raster, Reference, ReferenceWork,
    RegisteredMetric, Report, Sample,
};
use crossfade::nn::lpips::FeatureNet;
use crossfade::tensorfile::save_tensors;
use std::path::PathBuf;

/// Metrics that produced images do not reach, and where they are tested.
const ELSEWHERE: [(&str, &str); 3] = [
    ("regions", "measures files alone: metric_properties.rs, metrics_maps.rs and eval_refusals.rs of crossfade-cli"),
    ("nll", "measures a network alone: generate/likelihood.rs, runs.rs and eval_refusals.rs of crossfade-cli"),
    ("none", "measures nothing"),
];

struct Set(Vec<Image>);

impl Dataset for Set {
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
        "a set".into()
    }
}

/// Blocks of brightness that change from image to image, with some noise.
fn picture(seed: usize, side: usize, channels: usize) -> Image {
    let mut state = 2 * seed as u64 + 1;
    let mut noise = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as usize % 24
    };
    let mut pixels = Vec::with_capacity(side * side * channels);
    for at in 0..side * side {
        let (x, y) = (at % side / 8 + seed, at / side / 8 + 2 * seed);
        pixels.extend((0..channels).map(|c| ((x * 37 + y * 23 + c * 60 + seed * 11) % 200 + noise()) as u8));
    }
    Image::new(side, side, channels, pixels)
}

/// White above a line, black below.
fn map(seed: usize, side: usize) -> Image {
    let line = side / 4 + seed % (side / 2);
    Image::new(side, side, 1, (0..side * side).map(|at| if at / side <= line { 255 } else { 0 }).collect())
}

/// Weights of the network that a metric needs: the published ones of Inception, or small numbers for LPIPS.
fn weights(network: FeatureNetwork, dir: &tempfile::TempDir) -> Option<PathBuf> {
    match network {
        FeatureNetwork::Inception => shared::shared("data/weights/inception_fid_2015-12-05_fp32.safetensors"),
        FeatureNetwork::Lpips => {
            let path = dir.path().join("lpips.safetensors");
            let numbers = |n: usize| (0..n).map(|i| (i * 31 % 17) as f32 / 170.0 - 0.03).collect::<Vec<_>>();
            let tensor = |(name, shape): (String, Vec<usize>)| {
                // The weights of the sum are positive, as in every trained LPIPS.
                let values = numbers(shape.iter().product()).into_iter();
                let values = values.map(|v| if name.starts_with("lin") { v.abs() } else { v }).collect();
                (name, shape, values)
            };
            let tensors: Vec<_> = FeatureNet::ALL[0].parameter_shapes().into_iter().map(tensor).collect();
            save_tensors(&path, &tensors, &[].into()).unwrap();
            Some(path)
        }
    }
}

/// A metric of produced images, with what it compares them with.
struct Case {
    metric: RegisteredMetric,
    opened: Box<dyn Metric>,
    good: Vec<Sample>,
    bad: Vec<Sample>,
}

fn sample(k: usize, output: Image, target: Option<Image>) -> Sample {
    let target = target.map(Raster::from);
    Sample { name: k.to_string(), origin: format!("{k}.png").into(), output: output.into(), target, class: None }
}

impl Case {
    /// None for metrics whose weights are not here.
    fn new(metric: RegisteredMetric) -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let device = Device::flex();
        let weights = match metric.network {
            Some(network) => Some(weights(network, &dir)?),
            None => None,
        };
        let options = MetricOptions { weights: weights.as_deref(), ..MetricOptions::new(&device) };
        let mut opened = match (metric.open)(&options) {
            // The Inception Score needs the last layer, which not every file of weights has.
            Err(error) if error.to_string().contains("no classifier") => {
                eprintln!("skipped {}: {error}", metric.name);
                return None;
            }
            opened => opened.unwrap(),
        };
        let count = metric.min_images.max(4) as usize;
        // MS-SSIM needs 161 pixels.
        let side = if metric.needs_targets() { 164 } else { 24 };
        let (good, bad) = match metric.compared {
            Compared::ImageSet { .. } => {
                let reference = Set((0..count).map(|k| picture(k, side, 3)).collect());
                let mut work = ReferenceWork { store: None, stop: &|| false, progress: &mut |_, _| () };
                assert!(opened.prepare(&Reference::Images(&reference), &mut work).unwrap());
                let other = (0..count).map(|k| sample(k, map(k, side), None)).collect();
                (reference.0.into_iter().enumerate().map(|(k, image)| sample(k, image, None)).collect(), other)
            }
            Compared::Nothing => ((0..count).map(|k| sample(k, picture(k, side, 3), None)).collect(), vec![]),
            compared => {
                let target = |k: usize| if compared == Compared::Map { map(k, side) } else { picture(k, side, 3) };
                let pair = |k: usize, by: usize| sample(k, target(k + by), Some(target(k)));
                ((0..count).map(|k| pair(k, 0)).collect(), (0..count).map(|k| pair(k, 3)).collect())
            }
        };
        Some(Self { metric, opened, good, bad })
    }

    /// The report of these samples, added in batches.
    fn measured(&self, samples: &[Sample], batch: usize) -> crossfade::Result<Report> {
        let mut accumulator = self.opened.accumulator();
        samples.chunks(batch).try_for_each(|batch| accumulator.add(batch.to_vec()))?;
        Ok(accumulator.finish()?.report)
    }

    fn refused(&self, samples: &[Sample], what: &str) {
        assert!(self.measured(samples, 64).is_err(), "{} of {what} has a value", self.metric.name);
    }
}

#[test]
fn every_metric_keeps_the_rules() {
    let mut tested = 0;
    for metric in RegisteredMetric::all() {
        if ELSEWHERE.iter().any(|(name, _)| *name == metric.name) {
            continue;
        }
        let Some(case) = Case::new(metric) else { continue };
        tested += 1;
        let name = metric.name;
        let good = case.measured(&case.good, 64).unwrap();
        // Every value that a table can show is in the report; R50 is absent where precision stays below one half.
        for value in metric.values.iter().filter(|value| value.name != "R50") {
            let found = good.get(value.name).or(good.get(&value.name.to_lowercase()));
            assert!(found.is_some_and(|v| !v.is_nan()), "{name}: {} is not in {good}", value.name);
        }
        // It does not matter how images are cut into batches.
        for batch in [1, 3] {
            assert_eq!(case.measured(&case.good, batch).unwrap().values, good.values, "{name}, batches of {batch}");
        }
        // What equals the reference has the best value.
        if !case.bad.is_empty() {
            let bad = case.measured(&case.bad, 64).unwrap();
            let (good, bad) = (good.values[0].1, bad.values[0].1);
            let better = match metric.values[0].better {
                Better::Lower => good < bad,
                Better::Higher => good > bad,
            };
            assert!(better, "{name}: {good} of equal images, {bad} of others");
        }
        case.refused(&[], "nothing");
        let mut broken = case.good.clone();
        let (width, height, channels) = broken[1].output.size();
        let values = vec![f64::NAN; width * height * channels];
        broken[1].output = Raster::Floats(FloatImage { width, height, channels, values });
        case.refused(&broken, "NaN");
        if metric.needs_targets() {
            let mut alone = case.good.clone();
            alone[1].target = None;
            case.refused(&alone, "images without targets");
            let mut other = case.good.clone();
            other[1].output = picture(1, 170, other[1].output.size().2).into();
            case.refused(&other, "images of other sizes than their targets");
        } else if metric.min_images > 1 {
            case.refused(&case.good[..1], "one image");
        }
    }
    let without_weights = RegisteredMetric::all().filter(|metric| metric.network != Some(FeatureNetwork::Inception));
    assert!(tested >= without_weights.count() - ELSEWHERE.len(), "{tested} metrics were tested");
}

/// A metric that is tested elsewhere exists, and cannot be fed with images.
#[test]
fn exceptions_are_exceptions() {
    let device = Device::flex();
    for (name, reason) in ELSEWHERE {
        let metric = RegisteredMetric::parse(name).unwrap();
        let reached = matches!(metric.compared, Compared::Target | Compared::Map | Compared::ImageSet { .. });
        assert!(!reached && !reason.is_empty(), "{name}");
        let opened = (metric.open)(&MetricOptions::new(&device));
        assert!(opened.is_err() || metric.compared == Compared::Data || metric.values.is_empty(), "{name}");
    }
}
