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
        if rank == 0 {
            // The reference has no spread at all, as equal images do.
            return Ok(0.0);
        }
        let factor: MatRef<f64> = self.factor.as_ref();
        let mut half = vec![0.0; rank * dim];
        product(factor.transpose(), matrix(a, dim), &mut half, false);
        let mut inner = vec![0.0; rank * rank];
        product(matrix(&half, dim), factor, &mut inner, false);
        let values = matrix(&inner, rank).self_adjoint_eigenvalues(Side::Lower).map_err(not_solved)?;
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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn gaussian(mean: [f64; 2], covariance: [f64; 4]) -> Gaussian {
        Gaussian { mean: mean.to_vec(), covariance: covariance.to_vec() }
    }

    /// Sets of equal images have a covariance of zeros: the distance is that of the means and the trace of the other one.
    #[test]
    fn without_spread_means_and_traces_are_left() {
        let (point, other) = (gaussian([1.0, 2.0], [0.0; 4]), gaussian([1.0, 5.0], [4.0, 1.0, 1.0, 3.0]));
        for (a, b, distance) in [(&point, &point, 0.0), (&point, &other, 16.0), (&other, &point, 16.0)] {
            assert_eq!(Frechet::to(a.clone()).unwrap().distance(b).unwrap(), distance);
        }
    }

    #[test]
    fn what_is_no_covariance_is_told() {
        let why = |covariance| gaussian([0.0; 2], covariance).check();
        why([2.0, 1.0, 1.0, 2.0]).unwrap();
        // Rounding of a singular one, up to a part in ten thousand of the largest variance.
        why([1.0, 1.0, 1.00009, 1.0]).unwrap();
        assert!(why([1.0, 0.5, 0.5002, 1.0]).unwrap_err().contains("not symmetric: 0.5002 and 0.5 at (1, 0)"));
        assert!(why([1.0, 1.1, 1.1, 1.0]).unwrap_err().contains("negative eigenvalues"));
        assert!(why([-1.0, 0.0, 0.0, 1.0]).unwrap_err().contains("negative eigenvalues"));
        assert!(why([f64::NAN, 0.0, 0.0, 1.0]).unwrap_err().contains("not finite"));
        let infinite = gaussian([f64::INFINITY, 0.0], [1.0, 0.0, 0.0, 1.0]);
        assert!(infinite.check().unwrap_err().contains("not finite"));
        assert!(Frechet::to(infinite.clone()).is_err());
        assert!(Frechet::to(gaussian([0.0; 2], [1.0, 0.0, 0.0, 1.0])).unwrap().distance(&infinite).is_err());
        let short = Gaussian { mean: vec![0.0], covariance: vec![1.0] };
        let error = Frechet::to(short).unwrap().distance(&gaussian([0.0; 2], [1.0, 0.0, 0.0, 1.0])).unwrap_err();
        assert!(error.to_string().contains("statistics of 2 and of 1 features"));
    }

    #[test]
    fn near_is_a_part_in_ten_thousand_of_the_largest_number() {
        let one = gaussian([100.0, 0.0], [100.0, 0.0, 0.0, 1.0]);
        assert!(one.is_near(&gaussian([100.0, 0.009], [100.0, 0.0, 0.0, 1.009])));
        assert!(!one.is_near(&gaussian([100.0, 0.011], [100.0, 0.0, 0.0, 1.0])));
        assert!(!one.is_near(&gaussian([100.0, 0.0], [100.0, 0.0, 0.0, 1.011])));
        assert!(!one.is_near(&Gaussian { mean: vec![100.0], covariance: one.covariance.clone() }));
        assert_eq!(one.trace(), 101.0);
    }

    #[test]
    fn groups_together_are_the_set_and_their_interval_is_the_jackknifes() {
        let row = |i: usize| [(i as f32 * 0.7).sin(), (i as f32 * 1.3).cos()];
        let reference = Frechet::to(gaussian([0.1, 0.0], [1.0, 0.2, 0.2, 1.0])).unwrap();
        let of = |keep: &dyn Fn(usize) -> bool| {
            let mut sums = FeatureSums::new(2);
            (0..43).filter(|i| keep(*i)).for_each(|i| sums.push(&row(i)));
            reference.distance(&Gaussian::of(&sums).unwrap()).unwrap()
        };
        let mut grouped = GroupedSums::new(2);
        (0..43).for_each(|i| grouped.push(&row(i)));
        assert_eq!(grouped.total().unwrap().count(), 43);
        let mut told = vec![];
        let found = grouped.interval(&reference, &mut |done, all| told.push((done, all))).unwrap();
        assert_eq!(told, (0..10).map(|k| (k, 10)).collect::<Vec<_>>());
        let left_out: Vec<f64> = (0..10).map(|group| of(&|i| i % 10 != group)).collect();
        let mean = left_out.iter().sum::<f64>() / 10.0;
        let error = (0.9 * left_out.iter().map(|d| (d - mean) * (d - mean)).sum::<f64>()).sqrt();
        let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-9, "{a} {b}");
        near(found.error, error);
        near(found.low, of(&|_| true) - GroupedSums::T * error);
        near(found.high, of(&|_| true) + GroupedSums::T * error);
        near(found.infinity, 10.0 * of(&|_| true) - 9.0 * mean);
        let mut few = GroupedSums::new(2);
        (0..19).for_each(|i| few.push(&row(i)));
        assert!(few.interval(&reference, &mut |_, _| ()).unwrap_err().to_string().contains("needs 20 images"));
    }
}
