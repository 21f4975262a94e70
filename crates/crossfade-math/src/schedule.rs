//! Learning rate and EMA decay as functions of the step (§2.5).
use serde::{Deserialize, Serialize};

/// γ = max(γ_0 (1 − i/N)^p, γ_min) after a linear warm-up.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LrSchedule {
    /// The learning rate γ_0 after the warm-up.
    pub base: f64,
    /// The smallest learning rate γ_min.
    pub floor: f64,
    /// N, the number of training steps.
    pub steps: u64,
    /// Steps of linear warm-up; 0 for the paper's formula.
    pub warmup: u64,
    /// The exponent p of the decay.
    pub exponent: f64,
}

impl Default for LrSchedule {
    fn default() -> Self {
        Self { base: 1e-4, floor: 5e-6, steps: 800_000, warmup: 5000, exponent: 0.96 }
    }
}

impl LrSchedule {
    /// The multiplier of `base` while step `i` (counted from 0) is executed. Step `warmup` itself still belongs to the
    /// warm-up and reaches (warmup+1)/warmup, as in the reference.
    pub fn ratio(&self, i: u64) -> f64 {
        if self.warmup > 0 && i <= self.warmup {
            // At i = warmup this slightly exceeds 1. It is kept so that training curves equal the reference's.
            return (i + 1) as f64 / self.warmup as f64;
        }
        let done = (i - self.warmup) as f64 / self.steps as f64;
        (1.0 - done).max(0.0).powf(self.exponent).max(self.floor / self.base)
    }

    /// The learning rate at step `i`.
    pub fn at(&self, i: u64) -> f64 {
        self.base * self.ratio(i)
    }
}

/// EMA with a decay that ramps up: min(β, 1 − (1+k)^(−2/3)).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EmaSchedule {
    /// β, the largest decay.
    pub beta: f64,
    /// Until this step the EMA is a plain copy.
    pub update_after: u64,
    /// Steps between updates.
    pub update_every: u64,
}

impl Default for EmaSchedule {
    fn default() -> Self {
        Self { beta: 0.9996, update_after: 10_000, update_every: 8 }
    }
}

/// What happens to the EMA weights at a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum EmaAction {
    /// They do not change.
    Skip,
    /// They become a copy of the online weights.
    Copy,
    /// ema ← d·ema + (1−d)·online.
    Average(f64),
}

impl EmaSchedule {
    /// The decay `k` steps after averaging began; 0 for k ≤ 0.
    pub fn decay(&self, k: i64) -> f64 {
        if k <= 0 {
            return 0.0;
        }
        (1.0 - (1.0 + k as f64).powf(-2.0 / 3.0)).min(self.beta)
    }

    /// What to do at EMA step `step`, counted from 0. The first averaging step still ends as a copy.
    pub fn action(&self, step: u64) -> EmaAction {
        // 0 would divide by zero below; it is taken as 1.
        let every = self.update_every.max(1);
        if !step.is_multiple_of(every) {
            return EmaAction::Skip;
        }
        // At the first step after `update_after` the reference still copies, because its EMA is only initialised
        // then.
        let first = (self.update_after / every + 1) * every;
        if step <= first {
            return EmaAction::Copy;
        }
        EmaAction::Average(self.decay(step as i64 - self.update_after as i64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ema_ramp_has_the_stated_values() {
        let ema = EmaSchedule::default();
        assert_eq!(ema.decay(0), 0.0);
        assert!((ema.decay(1000) - 0.99001).abs() < 1e-5);
        assert!(ema.decay(124_900) < 0.9996 && ema.decay(125_000) == 0.9996);
    }

    #[test]
    fn learning_rate_without_warmup_is_the_papers() {
        let lr = LrSchedule { warmup: 0, ..Default::default() };
        assert!((lr.ratio(400_000) - 0.5141).abs() < 1e-4);
        assert_eq!(lr.at(800_000), 5e-6);
        assert_eq!(lr.at(900_000), 5e-6);
    }
}
