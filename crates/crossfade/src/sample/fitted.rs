//! Times that were fitted to the network of a checkpoint, which `auto` uses (§10.6).
use super::Sampler;
use crossfade_math::GridKind;
use serde::{Deserialize, Serialize};

/// The times that are best for a checkpoint with one sampler and number of steps, as `crossfade calibrate --times` finds them:
/// the options of the grid `log-snr`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FittedTimes {
    /// The sampler.
    pub sampler: Sampler,
    /// Its number of steps.
    pub steps: usize,
    /// The largest κ = σ/α below t = 1.
    pub kappa_max: f64,
    /// κ of the last evaluation.
    pub kappa_min: f64,
    /// c of times that are uniform in (κ^c − 1)/c.
    pub curvature: f64,
    /// The distance between samples on these times and the data, as a share of the distance on the grid `uniform-t`.
    pub distance: f64,
}

impl FittedTimes {
    /// The grid of these times.
    pub fn grid(&self) -> GridKind {
        GridKind::LogSnr {
            kappa_max: Some(self.kappa_max),
            kappa_min: Some(self.kappa_min),
            curvature: Some(self.curvature),
        }
    }

    /// The grid for `steps` steps of `sampler`. Between two fitted numbers of steps ln κ and c are linear in ln N; none
    /// outside of them, because the right noise levels depend much on the number of steps.
    pub fn find(fitted: &[Self], sampler: Sampler, steps: usize) -> Option<GridKind> {
        let own = || fitted.iter().filter(|times| times.sampler == sampler);
        let below = own().filter(|times| times.steps <= steps).max_by_key(|times| times.steps)?;
        let above = own().filter(|times| times.steps >= steps).min_by_key(|times| times.steps)?;
        if below.steps == above.steps {
            return Some(below.grid());
        }
        let ln = |steps: usize| (steps as f64).ln();
        let share = (ln(steps) - ln(below.steps)) / (ln(above.steps) - ln(below.steps));
        let between = |a: f64, b: f64| a + share * (b - a);
        let kappa = |a: f64, b: f64| between(a.ln(), b.ln()).exp();
        let times = Self {
            kappa_max: kappa(below.kappa_max, above.kappa_max),
            kappa_min: kappa(below.kappa_min, above.kappa_min),
            curvature: between(below.curvature, above.curvature),
            ..*below
        };
        Some(times.grid())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_between_fitted_numbers_of_steps_are_interpolated() {
        let fitted = |sampler, steps, kappa_max, kappa_min, curvature| FittedTimes {
            sampler,
            steps,
            kappa_max,
            kappa_min,
            curvature,
            distance: 0.5,
        };
        let list = [
            fitted(Sampler::Ab2, 20, 16.0, 0.04, 0.2),
            fitted(Sampler::Ab2, 5, 4.0, 0.16, 0.0),
            fitted(Sampler::Alg2, 5, 9.0, 0.3, 0.0),
        ];
        let find = |sampler, steps| FittedTimes::find(&list, sampler, steps);
        assert_eq!(find(Sampler::Ab2, 5), Some(list[1].grid()));
        assert_eq!(find(Sampler::Ab2, 20), Some(list[0].grid()));
        // Ten is the geometric mean of five and twenty.
        let Some(GridKind::LogSnr { kappa_max: Some(max), kappa_min: Some(min), curvature: Some(c) }) =
            find(Sampler::Ab2, 10)
        else {
            panic!("no times for 10 steps");
        };
        assert!((max - 8.0).abs() < 1e-9 && (min - 0.08).abs() < 1e-9 && (c - 0.1).abs() < 1e-9, "{max} {min} {c}");
        for (sampler, steps) in [(Sampler::Ab2, 4), (Sampler::Ab2, 21), (Sampler::Alg2, 10), (Sampler::FirstOrder, 5)] {
            assert_eq!(find(sampler, steps), None, "{sampler:?} {steps}");
        }
    }
}
