//! DDPM, the baseline of the paper's tables (SPEC §9): x_k = √ᾱ_k x_0 + √(1−ᾱ_k) eps for k = 1..T, a network that predicts
//! eps, and the ancestral sampler on any number of steps.
use serde::{Deserialize, Serialize};

/// Linear β from `beta_first` to `beta_last` over `timesteps` steps.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Ddpm {
    /// T.
    pub timesteps: usize,
    /// β_1.
    pub beta_first: f64,
    /// β_T.
    pub beta_last: f64,
}

impl Default for Ddpm {
    fn default() -> Self {
        Self { timesteps: 1000, beta_first: 1e-4, beta_last: 0.02 }
    }
}

/// q(x_s | x_t, x_0) = N(x0·x_0 + x_t·x_t, sigma²).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Posterior {
    /// Coefficient of x_0.
    pub x0: f64,
    /// Coefficient of x_t.
    pub x_t: f64,
    /// Standard deviation.
    pub sigma: f64,
}

impl Ddpm {
    /// ᾱ_0 = 1, ᾱ_1, …, ᾱ_T with ᾱ_k = ∏(1 − β_i).
    pub fn alpha_bars(&self) -> Vec<f64> {
        let last = (self.timesteps.max(2) - 1) as f64;
        let beta = |i: usize| self.beta_first + (self.beta_last - self.beta_first) * i as f64 / last;
        let mut all = vec![1.0];
        for i in 0..self.timesteps {
            all.push(all[i] * (1.0 - beta(i)));
        }
        all
    }

    /// The k that `n` steps visit, from T down to 0 and evenly spaced; at most T steps.
    pub fn respaced(&self, n: usize) -> Vec<usize> {
        let n = n.clamp(1, self.timesteps.max(1));
        (0..=n).map(|i| (self.timesteps * (n - i) + n / 2) / n).collect()
    }

    /// The time in (0, 1] that a network is told at step k.
    pub fn time(&self, k: usize) -> f64 {
        k as f64 / self.timesteps as f64
    }

    /// The posterior from ᾱ_t to ᾱ_s with s < t, whatever lies between: with β = 1 − ᾱ_t/ᾱ_s the mean is
    /// √ᾱ_s β/(1−ᾱ_t) x_0 + √(ᾱ_t/ᾱ_s) (1−ᾱ_s)/(1−ᾱ_t) x_t and the variance β (1−ᾱ_s)/(1−ᾱ_t).
    pub fn posterior(bar_t: f64, bar_s: f64) -> Posterior {
        let beta = 1.0 - bar_t / bar_s;
        let rest = 1.0 - bar_t;
        Posterior {
            x0: bar_s.sqrt() * beta / rest,
            x_t: (bar_t / bar_s).sqrt() * (1.0 - bar_s) / rest,
            sigma: (beta * (1.0 - bar_s) / rest).max(0.0).sqrt(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schedule_is_that_of_ddpm() {
        let bars = Ddpm::default().alpha_bars();
        assert_eq!((bars.len(), bars[0]), (1001, 1.0));
        assert!((bars[1] - 0.9999).abs() < 1e-12);
        // The product over the thousand steps of Ho et al. is 4.0358e-5.
        assert!((bars[1000] - 4.0358e-5).abs() < 1e-8, "{}", bars[1000]);
    }

    /// A step keeps the marginal: var(x_s) = x0²·0 + x_t²·(1−ᾱ_t) + σ² and mean √ᾱ_s x_0, for any spacing.
    #[test]
    fn respaced_steps_keep_the_marginals() {
        let ddpm = Ddpm::default();
        let bars = ddpm.alpha_bars();
        for n in [1, 2, 5, 10, 1000] {
            let visited = ddpm.respaced(n);
            assert_eq!((visited.len(), visited[0], visited[n]), (n + 1, 1000, 0));
            for pair in visited.windows(2) {
                let (t, s) = (bars[pair[0]], bars[pair[1]]);
                let p = Ddpm::posterior(t, s);
                assert!((p.x0 + p.x_t * t.sqrt() - s.sqrt()).abs() < 1e-12);
                assert!((p.x_t * p.x_t * (1.0 - t) + p.sigma * p.sigma - (1.0 - s)).abs() < 1e-12);
            }
        }
        assert_eq!(ddpm.respaced(5000).len(), 1001);
    }
}
