//! KID: the squared maximum mean discrepancy with a cubic kernel (Bińkowski et al. 2018), over random subsets.
use super::matrix::matrix;
use super::{Features, RandomState, SEED, Spread};
use crate::error::{Error, Result};
use faer::linalg::matmul::matmul;
use faer::{Accum, Mat, Par};
use rayon::prelude::*;

/// How subsets are drawn; the default is torch-fidelity's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KidConfig {
    /// How many subsets.
    pub subsets: usize,
    /// Images in each.
    pub size: usize,
    /// Seed of the draws.
    pub seed: u32,
}

impl Default for KidConfig {
    fn default() -> Self {
        Self { subsets: 100, size: 1000, seed: SEED }
    }
}

/// Mean and deviation over the subsets.
pub type Kid = Spread;

/// KID of two sets of features.
pub fn kid(a: &Features, b: &Features, config: KidConfig) -> Result<Kid> {
    let KidConfig { subsets, size, seed } = config;
    if a.dim != b.dim || subsets == 0 || size < 2 {
        return Err(Error::request("KID needs features of one length, at least one subset and two images in each"));
    }
    if let Some(n) = [a.len(), b.len()].into_iter().find(|&n| n < size) {
        let message = format!("KID draws subsets of {size} images, but a set has only {n}; lower --subset-size");
        return Err(Error::request(message));
    }
    // As numpy's choice(n, size, replace=False), in turn for the two sets.
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
    let within = |z| kernel_sum(z, z, dim, true);
    (within(x) + within(y)) / (m * (m - 1.0)) - 2.0 * kernel_sum(x, y, dim, false) / (m * m)
}

/// Σ (x·y/d + 1)³, with or without the diagonal.
fn kernel_sum(x: &[f64], y: &[f64], dim: usize, skip_diagonal: bool) -> f64 {
    let (x, y) = (matrix(x, dim), matrix(y, dim));
    let mut gram = Mat::<f64>::zeros(x.nrows(), y.nrows());
    matmul(&mut gram, Accum::Replace, x, y.transpose(), 1.0 / dim as f64, Par::Seq);
    let kernel = |j: usize, i: usize| if skip_diagonal && i == j { 0.0 } else { (gram[(i, j)] + 1.0).powi(3) };
    (0..gram.ncols()).map(|j| (0..gram.nrows()).map(|i| kernel(j, i)).sum::<f64>()).sum()
}
