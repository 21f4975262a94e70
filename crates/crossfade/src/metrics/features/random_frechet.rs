//! The Fréchet distance of features of a small fixed network with random filters. It needs no weights, and unlike
//! `pixel-frechet` it sees texture and sharpness.
use super::super::Report;
use super::super::metric::{Compared, MetricSpec, Value, Verb};
use super::Gaussian;
use super::set_distance::{SetDistance, SetFeatures};
use crate::data::{Dataset, Filter, Image, PassOrder, Planes, resize};
use crate::error::{Error, Result};
use crate::limits::{FILTER_PIXELS, need, sharing};
use crate::rng::{Purpose, Stream};
use rayon::prelude::*;
use std::ops::Range;

pub(in crate::metrics) const SPEC: MetricSpec = MetricSpec {
    name: "random-frechet",
    about: "Fréchet distance of two image sets by fixed random filters at three scales: needs no weights, sees texture",
    values: &[Value::lower("random-frechet", "random-feature Fréchet distance")],
    compared: Compared::ImageSet { statistics: false, classes: true },
    network: None,
    protocols: &[],
    min_images: 2,
    revision: 1,
    verb: Verb::Common {
        examples: "Example:
  crossfade eval random-frechet samples cifar10:train",
    },
    open: |_| Ok(Box::new(SetDistance::new(Network::new()))),
};

/// Filters of each layer.
const FILTERS: usize = 8;
/// The scales: the image, and two and four times smaller.
const SCALES: usize = 3;
/// Side of the coarse picture whose colours are features too: the filters do not see constant areas.
const COARSE: usize = 2;
/// Features: mean and deviation of each filter of both layers at each scale, and the coarse colours.
const DIM: usize = SCALES * 2 * 2 * FILTERS + 3 * COARSE * COARSE;
/// Images whose features are computed at once, in parallel.
const CHUNK: usize = 256;
/// What the planes of a pixel take, before and after a layer.
const BYTES: u64 = 4 * (3 + 3 * FILTERS as u64);

impl SetFeatures for Network {
    const NAME: &'static str = SPEC.name;
    const DIM: usize = DIM;

    fn each(
        &self,
        images: &dyn Dataset,
        range: Range<usize>,
        sink: &mut dyn FnMut(&[f32]) -> Result<()>,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<()> {
        for start in range.clone().step_by(CHUNK) {
            let end = (start + CHUNK).min(range.end);
            let features: Result<Vec<_>> =
                (start..end).into_par_iter().map(|k| sharing(|| self.features_of(images, k))).collect();
            // Passed on in the order of the images, so that the result does not depend on the threads.
            features?.iter().try_for_each(|features| sink(features))?;
            progress(end, images.len());
        }
        Ok(())
    }

    /// The deviations over the reference: without them the colours, which vary most, would hide everything else. A feature
    /// that is the same in all images is left in its own unit.
    fn units(&self, reference: &Gaussian) -> Option<Vec<f64>> {
        let deviation = |variance: &f64| if *variance > 0.0 { variance.sqrt() } else { 1.0 };
        Some(reference.covariance.iter().step_by(DIM + 1).map(deviation).collect())
    }

    fn report(&self) -> Report {
        let features = "mean and deviation of 8 + 8 random 3x3 filters with ReLU at three scales, colours at 2x2; each in \
                        units of its deviation over the reference";
        Report::new(SPEC.name).with("features", features)
    }
}

/// Two layers of random 3x3 filters, the same in every run and on every machine.
struct Network {
    /// Weights in the order output, input, row, column.
    layers: [Vec<f32>; 2],
}

impl Network {
    fn new() -> Self {
        let layer = |index: u64, inputs: usize| {
            let mut weights = vec![0.0; FILTERS * inputs * 9];
            Stream::new(0, index, 0, Purpose::RandomFilters).fill_normal(&mut weights);
            // He's scale keeps the size of the values through a ReLU.
            let scale = (2.0 / (9 * inputs) as f32).sqrt();
            weights.iter_mut().for_each(|w| *w *= scale);
            weights
        };
        let mut first = layer(0, 3);
        for filter in first.chunks_exact_mut(9) {
            // Filters without a mean see edges and texture, whatever the brightness is.
            let mean = filter.iter().sum::<f32>() / 9.0;
            filter.iter_mut().for_each(|w| *w -= mean);
        }
        Self { layers: [first, layer(1, FILTERS)] }
    }

    fn features_of(&self, images: &dyn Dataset, k: usize) -> Result<Vec<f32>> {
        let image = images.get(k)?;
        let pixels = (image.width * image.height) as u64;
        FILTER_PIXELS.check(pixels).map_err(|why| Error::file(images.name(k), why))?;
        need(pixels * BYTES);
        Ok(self.features(image))
    }

    /// The features of an image of any size.
    fn features(&self, image: Image) -> Vec<f32> {
        let image = image.with_channels(3);
        let mut features = Vec::with_capacity(DIM);
        let coarse = resize(&image, COARSE, COARSE, Filter::Box, PassOrder::HorizontalFirst);
        features.extend(coarse.pixels.iter().map(|&v| f32::from(v) / 127.5 - 1.0));
        let mut scale = Planes::from_image(&image);
        for k in 0..SCALES {
            if k > 0 {
                scale = halved(&scale);
            }
            let first = filtered(&scale, &self.layers[0]);
            let second = filtered(&first, &self.layers[1]);
            for plane in [&first, &second].into_iter().flat_map(|p| p.values.chunks_exact(p.shape[1] * p.shape[2])) {
                let n = plane.len() as f64;
                let mean = plane.iter().map(|&v| f64::from(v)).sum::<f64>() / n;
                let variance = plane.iter().map(|&v| (f64::from(v) - mean).powi(2)).sum::<f64>() / n;
                features.extend([mean as f32, variance.sqrt() as f32]);
            }
        }
        features
    }
}

/// The means of 2x2 pixels; a last odd row or column is left out.
fn halved(x: &Planes) -> Planes {
    let [c, h, w] = x.shape;
    let (rows, columns) = ((h / 2).max(1), (w / 2).max(1));
    let mut values = Vec::with_capacity(c * rows * columns);
    for plane in x.values.chunks_exact(h * w) {
        for y in 0..rows {
            for column in 0..columns {
                let at = |dy: usize, dx: usize| plane[(2 * y + dy).min(h - 1) * w + (2 * column + dx).min(w - 1)];
                values.push(0.25 * (at(0, 0) + at(0, 1) + at(1, 0) + at(1, 1)));
            }
        }
    }
    Planes::new([c, rows, columns], values)
}

/// The image after 3x3 filters and a ReLU; pixels beyond the edge equal those at the edge.
fn filtered(x: &Planes, weights: &[f32]) -> Planes {
    let [c, h, w] = x.shape;
    let wide = w + 2;
    // With a frame around each plane every tap is a sum over whole rows, which the compiler vectorises.
    let mut framed = Vec::with_capacity(c * (h + 2) * wide);
    for plane in x.values.chunks_exact(h * w) {
        for y in 0..h + 2 {
            let row = &plane[y.saturating_sub(1).min(h - 1) * w..][..w];
            framed.push(row[0]);
            framed.extend_from_slice(row);
            framed.push(row[w - 1]);
        }
    }
    let mut values = vec![0.0f32; FILTERS * h * w];
    for (out, filters) in values.chunks_exact_mut(h * w).zip(weights.chunks_exact(9 * c)) {
        for (plane, filter) in framed.chunks_exact((h + 2) * wide).zip(filters.chunks_exact(9)) {
            for (tap, &weight) in filter.iter().enumerate() {
                for (y, row) in out.chunks_exact_mut(w).enumerate() {
                    let source = &plane[(y + tap / 3) * wide + tap % 3..][..w];
                    row.iter_mut().zip(source).for_each(|(sum, &value)| *sum += weight * value);
                }
            }
        }
        out.iter_mut().for_each(|v| *v = v.max(0.0));
    }
    Planes::new([FILTERS, h, w], values)
}

#[cfg(test)]
mod tests {
    use super::super::super::RegisteredMetric;
    use super::*;
    use crate::data::procedural::Procedural;
    use crate::engine::Device;
    use crate::metrics::{MetricOptions, Reference, ReferenceWork, Sample};

    /// A filter that is one at the centre of one plane copies that plane.
    #[test]
    fn the_filters_are_convolutions() {
        let x = Planes::new([1, 2, 3], vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        let mut weights = vec![0.0; FILTERS * 9];
        (weights[4], weights[9 + 5], weights[18 + 4]) = (1.0, 1.0, -1.0);
        let y = filtered(&x, &weights).values;
        assert_eq!(y[..6], x.values, "the centre tap");
        assert_eq!(y[6..12], [2.0, 3.0, 3.0, 5.0, 6.0, 6.0], "the right neighbour, repeated at the edge");
        assert_eq!(y[12..18], [0.0; 6], "negative values are cut");
        assert_eq!(halved(&x).values, [3.0]);
    }

    /// The distance of a set to itself is 0; it grows with blur and with noise, which 8x8 pixels hardly show.
    #[test]
    fn blur_and_noise_are_seen() {
        let set = Procedural::new(3, 60, 16).unwrap();
        let metric = RegisteredMetric::parse(SPEC.name).unwrap();
        let mut opened = (metric.open)(&MetricOptions::new(&Device::flex())).unwrap();
        let mut work = ReferenceWork { store: None, stop: &|| false, progress: &mut |_, _| () };
        opened.prepare(&Reference::Images(&set), &mut work).unwrap();
        let distance = |change: &dyn Fn(usize, Image) -> Image| {
            let mut accumulator = opened.accumulator();
            let sample = |k: usize| Sample {
                name: k.to_string(),
                origin: k.to_string().into(),
                output: change(k, set.get(k).unwrap()).into(),
                target: None,
                class: None,
            };
            accumulator.add((0..set.len()).map(sample).collect()).unwrap();
            accumulator.finish().unwrap().report.values[0].1
        };
        let blurred = |image: Image| {
            let small = resize(&image, 8, 8, Filter::Box, PassOrder::HorizontalFirst);
            resize(&small, 16, 16, Filter::Bilinear, PassOrder::HorizontalFirst)
        };
        let noisy = |amount: f64| {
            move |k: usize, mut image: Image| {
                let mut stream = Stream::new(5, k as u64, 0, Purpose::Lab);
                let noisy = |v: &u8| (f64::from(*v) + amount * stream.normal()).round().clamp(0.0, 255.0) as u8;
                image.pixels = image.pixels.iter().map(noisy).collect();
                image
            }
        };
        let same = distance(&|_, image| image);
        let (little, much) = (distance(&noisy(4.0)), distance(&noisy(12.0)));
        assert!(same.abs() < 1e-6, "{same}");
        assert!(little > 0.01 && much > 2.0 * little, "{little} {much}");
        assert!(distance(&|_, image| blurred(image)) > 1.0);
    }
}
