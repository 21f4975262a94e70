//! Precision and recall by nearest neighbours (Kynkäänniemi et al. 2019).
use super::super::metric::{
    Accumulator, Compared, FeatureNetwork, Metric, MetricSpec, Reference, ReferenceWork, Value, Verb,
};
use super::fid::unprepared;
use super::kept::KeptFeatures;
use super::matrix::matrix;
use super::{Extractor, FEATURES, Features, Protocol};
use crate::error::{Error, Result};
use faer::linalg::matmul::matmul;
use faer::{Accum, Mat, Par};
use rayon::prelude::*;

pub(in crate::metrics) const SPEC: MetricSpec = MetricSpec {
    name: "pr",
    about: "Precision and recall of a set against real images, by nearest neighbours",
    values: &[Value::higher("precision", "precision"), Value::higher("recall", "recall")],
    compared: Compared::ImageSet { statistics: false, classes: false },
    network: Some(FeatureNetwork::Inception),
    protocols: Protocol::NAMES,
    // Every image needs a third neighbour beside itself.
    min_images: NEIGHBOUR as u64 + 1,
    revision: 1,
    verb: Verb::Own,
    open: |options| Ok(Box::new(PrMetric { extractor: Extractor::open(options, SPEC.name)?, reference: None })),
};

/// Default for k: the k-th neighbour determines the radius of an image's ball. `crossfade eval pr` can change it.
const NEIGHBOUR: usize = 3;

struct PrMetric {
    extractor: Extractor,
    reference: Option<Features>,
}

impl Metric for PrMetric {
    fn prepare(&mut self, reference: &Reference, work: &mut ReferenceWork) -> Result<bool> {
        self.reference = self.extractor.features_until(reference.images(SPEC.name)?, work.stop, work.progress)?;
        Ok(self.reference.is_some())
    }

    fn accumulator(&self) -> Box<dyn Accumulator + '_> {
        let finish = |produced: Features| {
            let found = precision_recall(&produced, self.reference.as_ref().ok_or_else(unprepared)?, NEIGHBOUR)?;
            let report = self.extractor.report(SPEC.name).value(SPEC.values[0].name, found.precision);
            Ok(report.value(SPEC.values[1].name, found.recall))
        };
        let row = Box::new(|row: &[f32]| Ok(row.to_vec()));
        Box::new(KeptFeatures::new(&self.extractor, FEATURES, row, finish))
    }
}

/// Number of points whose distances are in memory at a time.
const ROWS: usize = 256;

/// The shares of images inside the manifold of the other set.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PrecisionRecall {
    /// Of the generated images, the share inside the real manifold.
    pub precision: f64,
    /// Of the real images, the share inside the generated manifold.
    pub recall: f64,
    /// The harmonic mean of precision and recall.
    pub f_score: f64,
}

/// Precision and recall of `generated` against `real`. An image is inside a manifold if its distance to one of the
/// manifold's images is at most the distance of that image to its k-th neighbour.
pub fn precision_recall(generated: &Features, real: &Features, k: usize) -> Result<PrecisionRecall> {
    generated.check(SPEC.name).and_then(|()| real.check(SPEC.name))?;
    if generated.dim != real.dim || k == 0 {
        return Err(Error::request("precision and recall need features of one length and at least one neighbour"));
    }
    if let Some(n) = [generated.len(), real.len()].into_iter().find(|&n| n <= k) {
        return Err(Error::request(format!("{n} images have no {k} neighbours each; lower --neighbours")));
    }
    let [g, r] = [generated, real].map(Points::new);
    let precision = g.share_inside(&r, &r.radii(k));
    let recall = r.share_inside(&g, &g.radii(k));
    let f_score = 2.0 * precision * recall / (precision + recall).max(1e-5);
    Ok(PrecisionRecall { precision, recall, f_score })
}

/// Features in f64 with their squared norms.
struct Points {
    values: Vec<f64>,
    squares: Vec<f64>,
    dim: usize,
}

impl Points {
    fn new(features: &Features) -> Self {
        let values: Vec<f64> = features.values.iter().map(|&v| f64::from(v)).collect();
        let squares = values.chunks_exact(features.dim).map(|row| row.iter().map(|v| v * v).sum()).collect();
        Self { values, squares, dim: features.dim }
    }

    /// Applies `f` to the squared distances of each point to all points of `other`.
    fn each<T: Send>(&self, other: &Self, f: impl Fn(&mut [f64]) -> T + Sync) -> Vec<T> {
        let targets = matrix(&other.values, self.dim);
        self.values
            .par_chunks(ROWS * self.dim)
            .zip(self.squares.par_chunks(ROWS))
            .flat_map_iter(|(rows, squares)| {
                let rows = matrix(rows, self.dim);
                // One column per point, because columns are contiguous. |x − y|² = |x|² + |y|² − 2 x·y makes this a
                // matrix product.
                let mut products = Mat::<f64>::zeros(targets.nrows(), rows.nrows());
                matmul(&mut products, Accum::Replace, targets, rows.transpose(), -2.0, Par::Seq);
                let mut distances = vec![0.0; targets.nrows()];
                let point = |i: usize| {
                    for (j, distance) in distances.iter_mut().enumerate() {
                        // Rounding can make the distance of equal points slightly negative.
                        *distance = (products[(j, i)] + squares[i] + other.squares[j]).max(0.0);
                    }
                    f(&mut distances)
                };
                (0..rows.nrows()).map(point).collect::<Vec<_>>()
            })
            .collect()
    }

    /// The squared distance of each point to its k-th neighbour. Position 0 of the sorted distances is the point
    /// itself.
    fn radii(&self, k: usize) -> Vec<f64> {
        self.each(self, |distances| *distances.select_nth_unstable_by(k, f64::total_cmp).1)
    }

    /// The share of points inside the balls around the points of `other`.
    fn share_inside(&self, other: &Self, radii: &[f64]) -> f64 {
        let inside = self.each(other, |distances| distances.iter().zip(radii).any(|(d, r)| d <= r));
        inside.iter().filter(|&&inside| inside).count() as f64 / inside.len() as f64
    }
}
