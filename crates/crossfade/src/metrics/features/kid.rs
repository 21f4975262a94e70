//! KID: the squared maximum mean discrepancy with a cubic kernel (Bińkowski et al. 2018), over random subsets.
use super::super::metric::{
    Accumulator, Compared, FeatureNetwork, Metric, MetricSpec, Reference, ReferenceWork, Value, Verb,
};
use super::fid::unprepared;
use super::kept::KeptFeatures;
use super::matrix::matrix;
use super::{Extractor, FEATURES, Features, Protocol, RandomState, SEED, Spread};
use crate::error::{Error, Result};
use crate::limits::KID_IMAGES;
use faer::linalg::matmul::matmul;
use faer::{Accum, Mat, Par};
use rayon::prelude::*;

pub(in crate::metrics) const SPEC: MetricSpec = MetricSpec {
    name: "kid",
    about: "Kernel Inception distance of two image sets: unbiased, so also for few images",
    values: &[Value::lower("kid", "KID")],
    compared: Compared::ImageSet { statistics: false, classes: false },
    network: Some(FeatureNetwork::Inception),
    protocols: Protocol::NAMES,
    min_images: 2,
    revision: 1,
    verb: Verb::Own,
    open: |options| Ok(Box::new(KidMetric { extractor: Extractor::open(options, SPEC.name)?, reference: None })),
};

struct KidMetric {
    extractor: Extractor,
    reference: Option<Features>,
}

impl Metric for KidMetric {
    fn prepare(&mut self, reference: &Reference, work: &mut ReferenceWork) -> Result<bool> {
        self.reference = self.extractor.features_until(reference.images(SPEC.name)?, work.stop, work.progress)?;
        Ok(self.reference.is_some())
    }

    fn accumulator(&self) -> Box<dyn Accumulator + '_> {
        let finish = |produced: Features| {
            let reference = self.reference.as_ref().ok_or_else(unprepared)?;
            // Subsets cannot be larger than the sets they are drawn from.
            let (smaller, config) = (produced.len().min(reference.len()), KidConfig::default());
            let found = kid(&produced, reference, KidConfig { size: config.size.min(smaller), ..config })?;
            let report = self.extractor.report(SPEC.name).value(SPEC.values[0].name, found.mean);
            Ok(report.value("kid std of subsets", found.std))
        };
        let row = Box::new(|row: &[f32]| Ok(row.to_vec()));
        Box::new(KeptFeatures::new(&self.extractor, FEATURES, row, finish))
    }
}

/// How subsets are drawn; the defaults are torch-fidelity's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KidConfig {
    /// The number of subsets.
    pub subsets: usize,
    /// Number of images in each subset.
    pub size: usize,
    /// Seed of the draws.
    pub seed: u32,
}

impl Default for KidConfig {
    fn default() -> Self {
        Self { subsets: 100, size: 1000, seed: SEED }
    }
}

impl KidConfig {
    /// An error if no sets have a KID of such subsets.
    pub fn check(&self) -> Result<()> {
        let Self { subsets, size, .. } = *self;
        if subsets == 0 || size < 2 {
            return Err(Error::request("KID needs at least one subset and two images in each"));
        }
        let drawn = (subsets as u64).saturating_mul(size as u64);
        KID_IMAGES.check(drawn).map_err(|why| Error::request(format!("{subsets} subsets of {size}: {why}")))
    }
}

/// Mean and standard deviation over the subsets.
pub type Kid = Spread;

/// The KID of two sets of features.
pub fn kid(a: &Features, b: &Features, config: KidConfig) -> Result<Kid> {
    let KidConfig { subsets, size, seed } = config;
    config.check()?;
    a.check(SPEC.name).and_then(|()| b.check(SPEC.name))?;
    if a.dim != b.dim {
        return Err(Error::request(format!("KID of {} and of {} features means nothing", a.dim, b.dim)));
    }
    if let Some(n) = [a.len(), b.len()].into_iter().find(|&n| n < size) {
        let message = format!("KID draws subsets of {size} images, but a set has only {n}; lower --subset-size");
        return Err(Error::request(message));
    }
    // As numpy's `choice(n, size, replace=False)`, alternately for the two sets. All draws come first, because the
    // order of the random numbers must not depend on threads.
    let mut state = RandomState::new(seed);
    let mut draw = |n: usize| state.permutation(n)[..size].to_vec();
    let draws: Vec<_> = (0..subsets).map(|_| (draw(a.len()), draw(b.len()))).collect();
    let values: Vec<f64> = draws.par_iter().map(|(x, y)| discrepancy(&gather(a, x), &gather(b, y), a.dim)).collect();
    Ok(Spread::of(&values))
}

fn gather(features: &Features, rows: &[usize]) -> Vec<f64> {
    rows.iter().flat_map(|&i| features.row(i)).map(|&v| f64::from(v)).collect()
}

/// The unbiased estimator (equation 4), for two sets of the same size m.
fn discrepancy(x: &[f64], y: &[f64], dim: usize) -> f64 {
    let m = (x.len() / dim) as f64;
    let own_sum = |z| kernel_sum(z, z, dim, true);
    (own_sum(x) + own_sum(y)) / (m * (m - 1.0)) - 2.0 * kernel_sum(x, y, dim, false) / (m * m)
}

/// Σ (x·y/d + 1)³, without the diagonal if `skip_diagonal` is set.
fn kernel_sum(x: &[f64], y: &[f64], dim: usize, skip_diagonal: bool) -> f64 {
    let (x, y) = (matrix(x, dim), matrix(y, dim));
    let mut gram = Mat::<f64>::zeros(x.nrows(), y.nrows());
    // Sequential, because the subsets run in parallel already.
    matmul(&mut gram, Accum::Replace, x, y.transpose(), 1.0 / dim as f64, Par::Seq);
    let kernel = |j: usize, i: usize| if skip_diagonal && i == j { 0.0 } else { (gram[(i, j)] + 1.0).powi(3) };
    (0..gram.ncols()).map(|j| (0..gram.nrows()).map(|i| kernel(j, i)).sum::<f64>()).sum()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// The estimator as the paper writes it, over all pairs.
    #[test]
    fn the_discrepancy_is_a_sum_over_pairs() {
        let (x, y) = ([1.0, 0.5, -0.25, 2.0, 0.0, 1.5], [0.5, 0.5, 1.0, -1.0, 2.0, 0.25]);
        let kernel = |a: &[f64], b: &[f64]| ((a[0] * b[0] + a[1] * b[1]) / 2.0 + 1.0).powi(3);
        let row = |z: &[f64; 6], i: usize| [z[2 * i], z[2 * i + 1]];
        let pairs = || (0..3).flat_map(|i| (0..3).map(move |j| (i, j)));
        let own = |z: &[f64; 6]| {
            pairs().filter(|(i, j)| i != j).map(|(i, j)| kernel(&row(z, i), &row(z, j))).sum::<f64>() / 6.0
        };
        let cross = pairs().map(|(i, j)| kernel(&row(&x, i), &row(&y, j))).sum::<f64>() / 9.0;
        assert!((discrepancy(&x, &y, 2) - (own(&x) + own(&y) - 2.0 * cross)).abs() < 1e-12);
    }

    #[test]
    fn subsets_are_drawn_alternately_for_both_sets() {
        let features = |n: usize, by: f32| Features { dim: 1, values: (0..n).map(|i| i as f32 * by).collect() };
        let (a, b) = (features(7, 0.5), features(9, -0.25));
        let found = kid(&a, &b, KidConfig { subsets: 3, size: 4, seed: 5 }).unwrap();
        let mut state = RandomState::new(5);
        let mut values = vec![];
        for _ in 0..3 {
            let (x, y) = (state.permutation(7)[..4].to_vec(), state.permutation(9)[..4].to_vec());
            values.push(discrepancy(&gather(&a, &x), &gather(&b, &y), 1));
        }
        assert_eq!(found, Spread::of(&values));
        let mean = values.iter().sum::<f64>() / 3.0;
        let std = (values.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / 3.0).sqrt();
        assert!((found.mean - mean).abs() < 1e-12 && (found.std - std).abs() < 1e-12);
    }

    #[test]
    fn draws_that_mean_nothing_or_too_many_are_refused() {
        let check = |subsets, size| KidConfig { subsets, size, seed: 0 }.check();
        check(1, 2).unwrap();
        assert!(check(0, 2).is_err() && check(1, 1).is_err());
        assert!(check(1 << 20, 33).unwrap_err().to_string().contains("images that KID draws"));
        check(1 << 20, 32).unwrap();
        assert!(check(usize::MAX, usize::MAX).is_err());
        let of = |n, dim| Features { dim, values: vec![0.5; n * dim] };
        let config = KidConfig { subsets: 1, size: 4, seed: 0 };
        kid(&of(4, 2), &of(4, 2), config).unwrap();
        assert!(kid(&of(4, 2), &of(4, 3), config).unwrap_err().to_string().contains("of 2 and of 3 features"));
        for (a, b) in [(3, 4), (4, 3)] {
            assert!(kid(&of(a, 2), &of(b, 2), config).unwrap_err().to_string().contains("a set has only 3"));
        }
    }
}
