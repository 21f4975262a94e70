//! The measurements of the laboratory: distances between point sets and orders of convergence.
use super::points::Points;
use crate::rng::{Purpose, Stream};

/// Root mean square over points of the distance between corresponding points, divided by √dim.
pub fn rms(a: &Points, b: &Points) -> f64 {
    let sum: f64 = a.data.iter().zip(&b.data).map(|(x, y)| (x - y).powi(2)).sum();
    (sum / a.data.len() as f64).sqrt()
}

/// Median over points of the distance between corresponding points, divided by √dim. It is robust against the few
/// points near a boundary between two modes, where a small error leads to another mode.
pub fn median(a: &Points, b: &Points) -> f64 {
    let mut errors: Vec<f64> = (a.iter().zip(b.iter()))
        .map(|(x, y)| (x.iter().zip(y).map(|(x, y)| (x - y).powi(2)).sum::<f64>() / a.dim as f64).sqrt())
        .collect();
    errors.sort_by(f64::total_cmp);
    errors[errors.len() / 2]
}

/// Sliced 2-Wasserstein distance over 64 fixed random directions. Both sets must have the same size, because in one
/// dimension the optimal coupling then pairs the sorted points.
pub fn sliced_w2(a: &Points, b: &Points) -> f64 {
    const DIRECTIONS: u64 = 64;
    let projected = |points: &Points, direction: &[f64]| {
        let mut p: Vec<f64> = points.iter().map(|x| x.iter().zip(direction).map(|(x, d)| x * d).sum()).collect();
        p.sort_by(f64::total_cmp);
        p
    };
    let total: f64 = (0..DIRECTIONS)
        .map(|k| {
            let mut stream = Stream::new(0, k, 0, Purpose::Lab);
            let mut direction: Vec<f64> = (0..a.dim).map(|_| stream.normal()).collect();
            let norm = direction.iter().map(|d| d * d).sum::<f64>().sqrt();
            direction.iter_mut().for_each(|d| *d /= norm);
            let (p, q) = (projected(a, &direction), projected(b, &direction));
            p.iter().zip(&q).map(|(x, y)| (x - y).powi(2)).sum::<f64>() / p.len() as f64
        })
        .sum();
    (total / DIRECTIONS as f64).sqrt()
}

/// The observed orders of convergence: slopes of log error over log steps between neighbouring (steps, error).
pub fn slopes(rows: &[(usize, f64)]) -> Vec<f64> {
    rows.windows(2)
        .filter(|w| w[0].0 != w[1].0)
        .map(|w| (w[0].1 / w[1].1).ln() / (w[1].0 as f64 / w[0].0 as f64).ln())
        .collect()
}
