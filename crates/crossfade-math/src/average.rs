//! Power-function averages of weights, and any of them reconstructed from stored ones (§2.5; Karras et al., "Analyzing and
//! Improving the Training Dynamics of Diffusion Models", 2024, section 3 and appendix C).
//!
//! After step t the average has the profile p(τ) = (γ+1) τ^γ / t^{γ+1} over the training steps τ in \[0, t\]: the weights
//! of step i count with the integral of p from i−1 to i. Its standard deviation is `sigma`·t, so that the average
//! lengthens with the run, which a fixed decay does not.
use crate::EmaAction;

/// The relative width of the uniform average of all steps, 1/√12, where γ = 0.
const WIDEST: f64 = 0.288_675_134_594_812_9;

/// A profile of the power family.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PowerProfile {
    /// Its relative width σ_rel.
    pub sigma: f64,
    /// Its exponent γ.
    pub gamma: f64,
}

impl PowerProfile {
    /// The profile whose standard deviation is `sigma` of the length of the run; none for a width that no profile of
    /// the family with γ ≥ 0 has.
    pub fn new(sigma: f64) -> Option<Self> {
        if !(1e-3..=WIDEST).contains(&sigma) {
            return None;
        }
        // σ_rel = (γ+1)^{1/2} (γ+2)^{−1} (γ+3)^{−1/2} falls from 1/√12 at γ = 0, and is below 1/γ.
        let width = |gamma: f64| (gamma + 1.0).sqrt() / ((gamma + 2.0) * (gamma + 3.0).sqrt());
        let (mut low, mut high) = (0.0, 1.0 / sigma);
        for _ in 0..100 {
            let middle = 0.5 * (low + high);
            if width(middle) > sigma {
                low = middle;
            } else {
                high = middle;
            }
        }
        Some(Self { sigma, gamma: 0.5 * (low + high) })
    }

    /// The range of widths that [`Self::new`] accepts, for messages.
    pub const RANGE: &'static str = "from 0.001 to 0.288";

    /// β_t = (1 − 1/t)^{γ+1}, the decay of the average in the t-th step; 0 in the first.
    pub fn decay(&self, t: u64) -> f64 {
        (1.0 - 1.0 / t.max(1) as f64).powf(self.gamma + 1.0)
    }

    /// What to do with the average at `step`, counted from 0.
    pub fn action(&self, step: u64) -> EmaAction {
        EmaAction::Average(self.decay(step + 1))
    }
}

/// The average of a profile after `step` steps: p(τ) on \[0, step\].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StoredAverage {
    /// Its profile.
    pub profile: PowerProfile,
    /// Training steps done, at least 1.
    pub step: u64,
}

impl StoredAverage {
    /// ∫ p_a p_b dτ = (γ_a+1)(γ_b+1) t_a^{γ_b} / ((γ_a+γ_b+1) t_b^{γ_b+1}) for t_a ≤ t_b.
    fn dot(&self, other: &Self) -> f64 {
        let (a, b) = if self.step <= other.step { (self, other) } else { (other, self) };
        let (gamma_a, gamma_b) = (a.profile.gamma, b.profile.gamma);
        let (t_a, t_b) = (a.step as f64, b.step as f64);
        (gamma_a + 1.0) * (gamma_b + 1.0) * (t_a / t_b).powf(gamma_b) / ((gamma_a + gamma_b + 1.0) * t_b)
    }
}

/// A wanted average as a combination of stored ones.
#[derive(Clone, Debug, PartialEq)]
pub struct Reconstruction {
    /// The coefficient of each stored average, in their order.
    pub coefficients: Vec<f64>,
    /// The distance between the profile of the combination and the wanted one, relative to the latter's norm.
    pub error: f64,
}

/// The part of a squared coefficient that is added to the squared error. Stored averages are rounded to f32, and without
/// this term nearly equal profiles would get huge coefficients of opposite signs, which amplify the rounding.
const RIDGE: f64 = 1e-12;

/// The combination of the profiles `stored` that is nearest to `wanted` in least squares, with coefficients that add up to
/// 1 as those of every average do. Averages are linear in profiles, so the same combination of stored weights is the wanted
/// average. If `wanted` is stored, it is taken as it is.
pub fn reconstruct(stored: &[StoredAverage], wanted: &StoredAverage) -> Reconstruction {
    if let Some(found) = stored.iter().position(|s| s == wanted) {
        let coefficients = (0..stored.len()).map(|i| f64::from(u8::from(i == found))).collect();
        return Reconstruction { coefficients, error: 0.0 };
    }
    // Profiles are scaled to norm 1, so that all have the same part in the regularisation.
    let norms: Vec<f64> = stored.iter().map(|s| s.dot(s).sqrt()).collect();
    let norm = wanted.dot(wanted).sqrt();
    let cosine = |i: usize, j: usize| stored[i].dot(&stored[j]) / (norms[i] * norms[j]);
    let n = stored.len();
    let mut matrix: Vec<Vec<f64>> = (0..n).map(|i| (0..n).map(|j| cosine(i, j)).collect()).collect();
    (0..n).for_each(|i| matrix[i][i] += RIDGE);
    let right: Vec<f64> = stored.iter().zip(&norms).map(|(s, own)| s.dot(wanted) / (own * norm)).collect();
    // With the constraint Σ scale_i x_i = 1 and its multiplier λ: A x = right + λ scale.
    let scale: Vec<f64> = norms.iter().map(|own| norm / own).collect();
    let factor = cholesky(matrix);
    let [free, along] = [&right, &scale].map(|b| solve(&factor, b));
    let sum = |x: &[f64]| x.iter().zip(&scale).map(|(x, scale)| x * scale).sum::<f64>();
    let lambda = (1.0 - sum(&free)) / sum(&along);
    let x: Vec<f64> = free.iter().zip(&along).map(|(free, along)| free + lambda * along).collect();
    // ‖Σ x_i u_i − w‖² for unit profiles u_i and w.
    let of = |i: usize| x[i] * ((0..n).map(|j| x[j] * cosine(i, j)).sum::<f64>() - 2.0 * right[i]);
    let error = (1.0 + (0..n).map(of).sum::<f64>()).max(0.0).sqrt();
    Reconstruction { coefficients: x.iter().zip(&scale).map(|(x, scale)| x * scale).collect(), error }
}

/// Cholesky's decomposition A = L Lᵀ of a symmetric positive definite matrix; L is in the lower half.
fn cholesky(mut a: Vec<Vec<f64>>) -> Vec<Vec<f64>> {
    let n = a.len();
    for j in 0..n {
        for i in j..n {
            let sum: f64 = (0..j).map(|k| a[i][k] * a[j][k]).sum();
            // Rounding may take away what the regularisation added; a pivot is never below it.
            a[i][j] = if i == j { (a[i][i] - sum).max(RIDGE).sqrt() } else { (a[i][j] - sum) / a[j][j] };
        }
    }
    a
}

/// Solves L Lᵀ x = b.
fn solve(a: &[Vec<f64>], b: &[f64]) -> Vec<f64> {
    let (n, mut x) = (b.len(), b.to_vec());
    for i in 0..n {
        x[i] = (x[i] - (0..i).map(|k| a[i][k] * x[k]).sum::<f64>()) / a[i][i];
    }
    for i in (0..n).rev() {
        x[i] = (x[i] - (i + 1..n).map(|k| a[k][i] * x[k]).sum::<f64>()) / a[i][i];
    }
    x
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(sigma: f64, step: u64) -> StoredAverage {
        StoredAverage { profile: PowerProfile::new(sigma).unwrap(), step }
    }

    /// The weights of steps 1 to `steps` in the average after the last of them, which is tracked step by step.
    fn tracked(profile: PowerProfile, steps: u64) -> Vec<f64> {
        let mut weights = vec![0.0; steps as usize];
        for t in 1..=steps {
            let decay = profile.decay(t);
            weights.iter_mut().for_each(|w| *w *= decay);
            weights[t as usize - 1] += 1.0 - decay;
        }
        weights
    }

    #[test]
    fn exponents_are_those_of_the_paper() {
        // EDM2, section 3.1: γ ≈ 16.97 and 6.94 for σ_rel = 0.05 and 0.10.
        for (sigma, gamma) in [(0.05, 16.97), (0.10, 6.94), (WIDEST, 0.0)] {
            let found = PowerProfile::new(sigma).unwrap().gamma;
            assert!((found - gamma).abs() < 0.005, "{sigma}: {found}");
        }
        for wrong in [0.0, -0.1, 0.3, f64::NAN] {
            assert_eq!(PowerProfile::new(wrong), None);
        }
    }

    /// The tracked average is the direct sum whose weights are the integrals of τ^γ over the steps, and its width is σ.
    #[test]
    fn a_tracked_average_is_the_direct_weighted_sum() {
        for sigma in [0.02, 0.1, 0.25] {
            let (profile, n) = (PowerProfile::new(sigma).unwrap(), 500);
            let power = |i: u64| (i as f64 / n as f64).powf(profile.gamma + 1.0);
            let weights = tracked(profile, n);
            for (i, w) in (1..).zip(&weights) {
                assert!((w - (power(i) - power(i - 1))).abs() < 1e-12, "{sigma}, step {i}: {w}");
            }
            let moment =
                |k: i32| weights.iter().zip(0..).map(|(w, i)| w * ((i as f64 + 0.5) / n as f64).powi(k)).sum::<f64>();
            let std = (moment(2) - moment(1).powi(2)).sqrt();
            assert!((std - sigma).abs() < 1e-4, "{sigma}: {std}");
        }
    }

    /// From sixteen snapshots of two profiles the weights of another one are found, as the paper reports.
    #[test]
    fn any_profile_is_reconstructed_from_two() {
        let snapshots: Vec<_> = (1..=16).flat_map(|k| [stored(0.05, 25 * k), stored(0.10, 25 * k)]).collect();
        for (sigma, most) in [(0.06, 0.005), (0.08, 0.005), (0.15, 0.015), (0.2, 0.04)] {
            let wanted = stored(sigma, 400);
            let Reconstruction { coefficients, error } = reconstruct(&snapshots, &wanted);
            let mut sum = vec![0.0; 400];
            for (coefficient, snapshot) in coefficients.iter().zip(&snapshots) {
                let weights = tracked(snapshot.profile, snapshot.step);
                sum.iter_mut().zip(weights).for_each(|(sum, w)| *sum += coefficient * w);
            }
            let direct = tracked(wanted.profile, 400);
            let square = |x: &mut dyn Iterator<Item = f64>| x.map(|x| x * x).sum::<f64>();
            let off = square(&mut sum.iter().zip(&direct).map(|(a, b)| a - b));
            let relative = (off / square(&mut direct.iter().copied())).sqrt();
            assert!(relative < most && (relative - error).abs() < 0.002, "{sigma}: {relative}, {error} expected");
            assert!((sum.iter().sum::<f64>() - 1.0).abs() < 1e-9, "the weights of an average add up to 1");
        }
    }

    #[test]
    fn a_stored_profile_is_taken_as_it_is() {
        let snapshots = [stored(0.05, 100), stored(0.10, 100), stored(0.05, 200), stored(0.10, 200)];
        let found = reconstruct(&snapshots, &stored(0.10, 100));
        assert_eq!(found, Reconstruction { coefficients: vec![0.0, 1.0, 0.0, 0.0], error: 0.0 });
    }

    /// Many nearly equal profiles do not lead to coefficients that amplify rounding.
    #[test]
    fn coefficients_stay_moderate() {
        let snapshots: Vec<_> = (1..=200).flat_map(|k| [stored(0.05, 10 * k), stored(0.10, 10 * k)]).collect();
        let found = reconstruct(&snapshots, &stored(0.07, 2000));
        let largest = found.coefficients.iter().fold(0.0, |m: f64, c| m.max(c.abs()));
        assert!(found.error < 1e-3 && largest < 100.0, "{largest} {}", found.error);
    }
}
