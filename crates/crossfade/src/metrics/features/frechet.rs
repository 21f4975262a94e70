//! FID: the Fréchet distance of two normal distributions (Heusel et al. 2017, equation 6).
use super::matrix::{matrix, product};
use super::sums::FeatureSums;
use crate::error::{Error, Result};
use faer::{Mat, MatRef, Side};

/// Below this number of images FID is mostly bias.
pub const FEW: u64 = 10_000;

/// Errors of a covariance in relation to its largest variance that count as rounding; some programs store 32 bits.
const ROUNDING: f64 = 1e-4;

/// A normal distribution.
#[derive(Clone, Debug, PartialEq)]
pub struct Gaussian {
    /// The mean.
    pub mean: Vec<f64>,
    /// The covariance matrix in row-major order.
    pub covariance: Vec<f64>,
}

impl Gaussian {
    /// The normal distribution with the mean and covariance of the summed features.
    pub fn of(sums: &FeatureSums) -> Result<Self> {
        let mut sums = sums.clone();
        Ok(Self { covariance: sums.covariance()?, mean: sums.mean() })
    }

    /// The reason why these are no mean and covariance: the formula would give a number all the same, one that means nothing.
    pub(super) fn check(&self) -> std::result::Result<(), String> {
        let (dim, sigma) = (self.mean.len(), &self.covariance);
        if !sigma.iter().chain(&self.mean).all(|v| v.is_finite()) {
            return Err("it has values that are not finite".into());
        }
        let largest = sigma.iter().step_by(dim + 1).copied().fold(0.0, f64::max);
        let rounding = ROUNDING * largest;
        for row in 0..dim {
            for column in 0..row {
                let (a, b) = (sigma[row * dim + column], sigma[column * dim + row]);
                if (a - b).abs() > rounding {
                    return Err(format!("it is not symmetric: {a} and {b} at ({row}, {column})"));
                }
            }
        }
        // A Cholesky factor exists only without negative eigenvalues; those by rounding are lifted above zero.
        let lift = rounding.max(f64::MIN_POSITIVE.sqrt());
        let given = matrix(sigma, dim);
        let lifted = Mat::from_fn(dim, dim, |r, c| given[(r, c)] + if r == c { lift } else { 0.0 });
        lifted.llt(Side::Lower).map(|_| ()).map_err(|_| "it has negative eigenvalues".into())
    }

    /// Whether both are the same but for rounding.
    pub(super) fn is_near(&self, other: &Self) -> bool {
        let largest = |values: &[f64]| values.iter().fold(0.0, |a: f64, b| a.max(b.abs()));
        let near = |a: &[f64], b: &[f64]| {
            let most = ROUNDING * largest(a).max(largest(b));
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| (a - b).abs() <= most)
        };
        near(&self.mean, &other.mean) && near(&self.covariance, &other.covariance)
    }

    fn trace(&self) -> f64 {
        self.covariance.iter().step_by(self.mean.len() + 1).sum()
    }
}

/// The Fréchet distance to a fixed distribution. The expensive factorisation of its covariance is computed once.
pub struct Frechet {
    reference: Gaussian,
    /// F in Σ = F Fᵀ, where Σ is the covariance of the reference.
    factor: Mat<f64>,
}

fn not_solved(_: impl std::fmt::Debug) -> Error {
    Error::Run(
        "the eigenvalues of a covariance were not found; do the statistics hold numbers that are not finite?".into(),
    )
}

impl Frechet {
    /// Prepares distances to `reference`.
    pub fn to(reference: Gaussian) -> Result<Self> {
        let dim = reference.mean.len();
        reference.check().map_err(|why| Error::Run(format!("statistics whose covariance is none: {why}")))?;
        let eigen = matrix(&reference.covariance, dim).self_adjoint_eigen(Side::Lower).map_err(not_solved)?;
        let (values, vectors) = (eigen.S().column_vector(), eigen.U());
        // With fewer images than features the covariance is singular, and rounding makes some of its zero eigenvalues
        // negative: they count as zeros.
        let positive: Vec<usize> = (0..dim).filter(|&i| values[i] > 0.0).collect();
        let factor = Mat::from_fn(dim, positive.len(), |r, c| vectors[(r, positive[c])] * values[positive[c]].sqrt());
        Ok(Self { reference, factor })
    }

    /// |μ₁ − μ₂|² + tr Σ₁ + tr Σ₂ − 2 tr(Σ₁Σ₂)^½.
    pub fn distance(&self, other: &Gaussian) -> Result<f64> {
        let (a, b) = (other, &self.reference);
        if a.mean.len() != b.mean.len() {
            let message = format!("statistics of {} and of {} features cannot be compared", a.mean.len(), b.mean.len());
            return Err(Error::request(message));
        }
        a.check().map_err(|why| Error::Run(format!("statistics whose covariance is none: {why}")))?;
        let means: f64 = a.mean.iter().zip(&b.mean).map(|(a, b)| (a - b).powi(2)).sum();
        let distance = means + a.trace() + b.trace() - 2.0 * self.trace_of_root(&a.covariance)?;
        if distance.is_finite() { Ok(distance) } else { Err(not_solved(())) }
    }

    /// tr(ΣA)^½ = Σ √λ(Fᵀ A F) for Σ = F Fᵀ. This matrix is symmetric, so that its eigenvalues are real and accurate.
    /// The usual square root of the non-symmetric ΣA may have imaginary parts.
    fn trace_of_root(&self, a: &[f64]) -> Result<f64> {
        let (dim, rank) = (self.factor.nrows(), self.factor.ncols());
        let factor: MatRef<f64> = self.factor.as_ref();
        let mut half = vec![0.0; rank * dim];
        product(factor.transpose(), matrix(a, dim), &mut half, false);
        let mut inner = vec![0.0; rank * rank];
        product(matrix(&half, dim), factor, &mut inner, false);
        let values = matrix(&inner, rank.max(1)).self_adjoint_eigenvalues(Side::Lower).map_err(not_solved)?;
        Ok(values.iter().map(|v| v.max(0.0).sqrt()).sum())
    }
}

/// Sums in groups, with image i in group i mod `GROUPS`. They give a confidence interval without storing
/// features.
pub struct GroupedSums {
    groups: Vec<FeatureSums>,
    next: usize,
}

/// The uncertainty of a distance, estimated by the jackknife: each group is left out in turn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// Standard error of the distance over draws of these images; the reference is fixed.
    pub error: f64,
    /// Lower end of the 95 % interval.
    pub low: f64,
    /// Upper end of the 95 % interval.
    pub high: f64,
    /// The distance corrected to first order for the bias of few images: an estimate for infinitely many.
    pub infinity: f64,
}

impl GroupedSums {
    /// The number of groups.
    pub(crate) const GROUPS: usize = 10;
    /// Student's t for 95 % and 9 degrees of freedom.
    const T: f64 = 2.262_157_162_740_992;

    /// Empty sums of vectors of length `dim`.
    pub fn new(dim: usize) -> Self {
        Self { groups: vec![FeatureSums::new(dim); Self::GROUPS], next: 0 }
    }

    /// Adds one vector.
    pub fn push(&mut self, x: &[f32]) {
        self.groups[self.next].push(x);
        self.next = (self.next + 1) % Self::GROUPS;
    }

    /// The sums of all groups together.
    pub fn total(&self) -> Result<FeatureSums> {
        let mut total = FeatureSums::new(self.groups[0].dim());
        self.groups.iter().try_for_each(|group| total.merge(group.clone()))?;
        Ok(total)
    }

    /// The uncertainty of the distance to `reference`; calls `progress(done, total)`.
    pub fn interval(&self, reference: &Frechet, progress: &mut dyn FnMut(usize, usize)) -> Result<Interval> {
        let (total, k) = (self.total()?, Self::GROUPS as f64);
        if total.count() < 2 * Self::GROUPS as u64 {
            return Err(Error::request(format!("an interval needs {} images or more", 2 * Self::GROUPS)));
        }
        let all = reference.distance(&Gaussian::of(&total)?)?;
        let mut distances = Vec::with_capacity(Self::GROUPS);
        for group in &self.groups {
            progress(distances.len(), Self::GROUPS);
            let remaining = total.without(&group.clone().complete());
            distances.push(reference.distance(&Gaussian::of(&remaining)?)?);
        }
        let mean = distances.iter().sum::<f64>() / k;
        let error = ((k - 1.0) / k * distances.iter().map(|d| (d - mean).powi(2)).sum::<f64>()).sqrt();
        let (low, high) = (all - Self::T * error, all + Self::T * error);
        Ok(Interval { error, low, high, infinity: k * all - (k - 1.0) * mean })
    }
}
