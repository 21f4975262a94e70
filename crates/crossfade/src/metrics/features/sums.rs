//! Sums of features and of their products, from which mean and covariance follow. The sums of shards can be added.
use super::matrix::{matrix, product};
use crate::error::{Error, Result};

/// Number of vectors whose products are added by one matrix product. Sums of complete blocks can be stored and
/// continued later with exactly the rounding of an uninterrupted run.
pub(super) const BLOCK: usize = 64;

/// n, Σ x and Σ x xᵀ of features, in f64.
///
/// Products of two f32 are exact in f64, and a sum of n of them has a relative error of about √n·10⁻¹⁶. Plain sums
/// are therefore as accurate here as centred ones, and unlike those they can be merged by addition.
#[derive(Clone, Debug, PartialEq)]
pub struct FeatureSums {
    dim: usize,
    n: u64,
    sum: Vec<f64>,
    outer: Vec<f64>,
    /// Vectors already in `sum` but not yet in `outer`.
    pending: Vec<f64>,
}

impl FeatureSums {
    /// Empty sums of vectors of length `dim`.
    pub fn new(dim: usize) -> Self {
        Self { dim, n: 0, sum: vec![0.0; dim], outer: vec![0.0; dim * dim], pending: Vec::new() }
    }

    /// Restores stored sums.
    pub(super) fn from_sums(n: u64, sum: Vec<f64>, outer: Vec<f64>) -> Self {
        assert_eq!(outer.len(), sum.len() * sum.len(), "a square matrix of products");
        Self { dim: sum.len(), n, sum, outer, pending: Vec::new() }
    }

    /// Adds one vector.
    pub fn push(&mut self, x: &[f32]) {
        assert_eq!(x.len(), self.dim, "length of a feature vector");
        self.n += 1;
        self.sum.iter_mut().zip(x).for_each(|(sum, &x)| *sum += f64::from(x));
        self.pending.extend(x.iter().map(|&x| f64::from(x)));
        if self.pending.len() >= BLOCK * self.dim {
            self.flush();
        }
    }

    fn flush(&mut self) {
        if !self.pending.is_empty() {
            let x = matrix(&self.pending, self.dim);
            product(x.transpose(), x, &mut self.outer, true);
            self.pending.clear();
        }
    }

    /// Adds the sums of `other`.
    pub fn merge(&mut self, mut other: Self) -> Result<()> {
        if other.dim != self.dim {
            let message = format!("statistics of {} and of {} features cannot be merged", self.dim, other.dim);
            return Err(Error::request(message));
        }
        self.flush();
        other.flush();
        self.n += other.n;
        self.sum.iter_mut().zip(&other.sum).for_each(|(a, b)| *a += b);
        self.outer.iter_mut().zip(&other.outer).for_each(|(a, b)| *a += b);
        Ok(())
    }

    /// The sums without those of `part`, which must be contained.
    pub(super) fn without(&self, part: &Self) -> Self {
        let difference = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a - b).collect();
        // Products of pending vectors are not in `outer` yet, so a difference would miss them.
        debug_assert!(self.pending.is_empty() && part.pending.is_empty(), "sums are complete");
        Self::from_sums(self.n - part.n, difference(&self.sum, &part.sum), difference(&self.outer, &part.outer))
    }

    /// Adds the products of the last, incomplete block.
    pub(super) fn complete(mut self) -> Self {
        self.flush();
        self
    }

    /// The number of vectors.
    pub fn count(&self) -> u64 {
        self.n
    }

    /// The length of a vector.
    pub fn dim(&self) -> usize {
        self.dim
    }

    /// n, Σ x and Σ x xᵀ, of complete sums.
    pub(super) fn sums(&self) -> (u64, &[f64], &[f64]) {
        (self.n, &self.sum, &self.outer)
    }

    /// The mean.
    pub fn mean(&self) -> Vec<f64> {
        self.sum.iter().map(|sum| sum / self.n as f64).collect()
    }

    /// The unbiased covariance in row-major order; an error for fewer than two vectors.
    pub fn covariance(&mut self) -> Result<Vec<f64>> {
        if self.n < 2 {
            return Err(Error::request(format!(
                "{} image has no covariance; a Fréchet distance needs two or more",
                self.n
            )));
        }
        self.flush();
        let (mean, n) = (self.mean(), self.n as f64);
        let mut covariance = self.outer.clone();
        for (i, row) in covariance.chunks_exact_mut(self.dim).enumerate() {
            for (value, mean) in row.iter_mut().zip(&mean) {
                // Σ (x − μ)(x − μ)ᵀ = Σ x xᵀ − n μ μᵀ.
                *value = (*value - self.sum[i] * mean) / (n - 1.0);
            }
        }
        Ok(covariance)
    }
}
