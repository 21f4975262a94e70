//! The Inception Score (Salimans et al. 2016).
use super::{Features, RandomState, Spread};
use crate::error::{Error, Result};

/// exp(E KL(p(y|x) ‖ p(y))) over `splits` parts of the shuffled images: mean and deviation.
///
/// # Shapes
/// `logits` [images, classes].
pub fn inception_score(logits: &Features, splits: usize, seed: u32) -> Result<Spread> {
    let n = logits.len();
    if splits == 0 || n < splits {
        return Err(Error::request(format!("{n} images cannot be split into {splits} parts; lower --splits")));
    }
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
    let largest = x.iter().fold(f64::NEG_INFINITY, |a, &b| a.max(f64::from(b)));
    let total = x.iter().map(|&v| (f64::from(v) - largest).exp()).sum::<f64>().ln() + largest;
    x.iter().map(|&v| f64::from(v) - total).collect()
}
