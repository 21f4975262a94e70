//! The Inception Score (Salimans et al. 2016).
use super::super::metric::{Accumulator, Compared, FeatureNetwork, Metric, MetricSpec, Value, Verb};
use super::kept::KeptFeatures;
use super::{CLASSES, Extractor, FEATURES, Features, Protocol, RandomState, SEED, Spread};
use crate::error::{Error, Result};

pub(in crate::metrics) const SPEC: MetricSpec = MetricSpec {
    name: "is",
    about: "Inception Score of an image set; needs weights with the classifier",
    values: &[Value::higher("is", "Inception Score")],
    compared: Compared::Nothing,
    network: Some(FeatureNetwork::Inception),
    protocols: Protocol::NAMES,
    min_images: 2 * SPLITS as u64,
    revision: 1,
    verb: Verb::Own,
    open: |options| {
        let extractor = Extractor::open(options, SPEC.name)?;
        // Weights without a classifier are refused now instead of after hours of sampling.
        extractor.network().logits(&[0.0; FEATURES])?;
        Ok(Box::new(InceptionScore(extractor)))
    },
};

/// Default number of parts that are scored separately; `crossfade eval is` can change it.
const SPLITS: usize = 10;

struct InceptionScore(Extractor);

impl Metric for InceptionScore {
    fn accumulator(&self) -> Box<dyn Accumulator + '_> {
        let finish = |logits: Features| {
            let score = inception_score(&logits, SPLITS, SEED)?;
            let report = self.0.report(SPEC.name).value(SPEC.values[0].name, score.mean);
            Ok(report.value("is std of splits", score.std))
        };
        let row = Box::new(|row: &[f32]| self.0.network().logits(row));
        Box::new(KeptFeatures::new(&self.0, CLASSES, row, finish))
    }
}

/// exp(E KL(p(y|x) ‖ p(y))): mean and standard deviation over `splits` parts of the shuffled images.
///
/// # Shapes
/// `logits` [images, classes].
pub fn inception_score(logits: &Features, splits: usize, seed: u32) -> Result<Spread> {
    logits.check(SPEC.name)?;
    let n = logits.len();
    // The score of one image is 1, whatever it shows.
    if splits == 0 || n / 2 < splits {
        let problem = format!("{n} images cannot be split into {splits} parts of two or more");
        return Err(Error::request(format!("{problem}; lower --splits")));
    }
    // Shuffled because sets are often sorted by class, which would lower the score of every part.
    let order = RandomState::new(seed).permutation(n);
    let scores: Vec<f64> = (0..splits).map(|i| score(logits, &order[i * n / splits..(i + 1) * n / splits])).collect();
    Ok(Spread::of(&scores))
}

fn score(logits: &Features, rows: &[usize]) -> f64 {
    let logs: Vec<Vec<f64>> = rows.iter().map(|&i| log_softmax(logits.row(i))).collect();
    let n = rows.len() as f64;
    let mut marginal = vec![0.0; logits.dim];
    for log in &logs {
        marginal.iter_mut().zip(log).for_each(|(q, l)| *q += l.exp() / n);
    }
    let divergence = |log: &Vec<f64>| log.iter().zip(&marginal).map(|(l, q)| l.exp() * (l - q.ln())).sum::<f64>();
    (logs.iter().map(divergence).sum::<f64>() / n).exp()
}

fn log_softmax(x: &[f32]) -> Vec<f64> {
    // Subtracting the maximum keeps the exponentials from overflowing.
    let largest = x.iter().fold(f64::NEG_INFINITY, |a, &b| a.max(f64::from(b)));
    let total = x.iter().map(|&v| (f64::from(v) - largest).exp()).sum::<f64>().ln() + largest;
    x.iter().map(|&v| f64::from(v) - total).collect()
}
