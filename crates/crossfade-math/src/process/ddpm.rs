//! DDPM: a Markov chain of 1000 steps (§9). Time i/1000 is the state after step i.
use super::{GaussianFn, Input, ProcessFn, Target};
use serde::{Deserialize, Serialize};
use std::sync::LazyLock;

/// Steps of the chain.
const STEPS: usize = 1000;

/// The noise schedule β_i of the chain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BetaSchedule {
    /// β from 1e-4 to 0.02: DDPM.
    #[default]
    Linear,
    /// √β from √0.0015 to √0.0195: LDM.
    ScaledLinear,
}

/// The DDPM process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Ddpm {
    /// The noise schedule.
    pub schedule: BetaSchedule,
}

/// ln ᾱ_i for i from 0 to 1000.
type Table = [f64; STEPS + 1];

fn table(beta: impl Fn(f64) -> f64) -> Table {
    // Sums of logarithms and `ln_1p`, because the product of 1000 factors near 1 would lose digits.
    let mut log = [0.0; STEPS + 1];
    for i in 0..STEPS {
        log[i + 1] = log[i] + (-beta(i as f64 / (STEPS - 1) as f64)).ln_1p();
    }
    log
}

static LINEAR: LazyLock<Table> = LazyLock::new(|| table(|s| 1e-4 + s * (0.02 - 1e-4)));
static SCALED_LINEAR: LazyLock<Table> = LazyLock::new(|| {
    let (first, last) = (0.0015f64.sqrt(), 0.0195f64.sqrt());
    table(|s| (first + s * (last - first)).powi(2))
});

impl Ddpm {
    fn table(&self) -> &'static Table {
        match self.schedule {
            BetaSchedule::Linear => &LINEAR,
            BetaSchedule::ScaledLinear => &SCALED_LINEAR,
        }
    }

    /// ln ᾱ and its slope, straight between the chain's times.
    fn log_alpha_bar(&self, t: f64) -> (f64, f64) {
        // Between the chain's times ln ᾱ is interpolated linearly: solvers need its slope, and `time_of_ratio` any
        // time.
        let at = t * STEPS as f64;
        // A time i/1000 belongs to the step before it. t is snapped first because i·0.001 is often rounded up, which
        // would select the next step and its slope.
        let at = if (at - at.round()).abs() < 1e-9 { at.round() } else { at };
        let cell = ((at.ceil() as usize).max(1) - 1).min(STEPS - 1);
        let (low, high) = (self.table()[cell], self.table()[cell + 1]);
        (low + (high - low) * (at - cell as f64), (high - low) * STEPS as f64)
    }
}

impl ProcessFn for Ddpm {
    /// The published networks count the steps from 0.
    fn input(&self, t: f64) -> Input {
        Input { scale: 1.0, noise: t * STEPS as f64 - 1.0 }
    }
    fn training_time(&self, uniform: f64, _normal: f64) -> f64 {
        ((uniform * STEPS as f64).floor().min(STEPS as f64 - 1.0) + 1.0) / STEPS as f64
    }
    fn sampler(&self) -> &'static str {
        "ancestral"
    }
    fn gaussian(&self) -> Option<&dyn GaussianFn> {
        Some(self)
    }
}

impl GaussianFn for Ddpm {
    fn alpha(&self, t: f64) -> f64 {
        (0.5 * self.log_alpha_bar(t).0).exp()
    }
    fn sigma(&self, t: f64) -> f64 {
        // `exp_m1` keeps the digits of 1 − ᾱ near t = 0.
        (-self.log_alpha_bar(t).0.exp_m1()).sqrt()
    }
    fn rates(&self, t: f64) -> (f64, f64) {
        let slope = self.log_alpha_bar(t).1;
        (0.5 * slope, -slope)
    }
    fn t_end(&self) -> f64 {
        1.0 / STEPS as f64
    }
    fn target(&self, _t: f64) -> Target {
        Target::EPS
    }
    fn tick(&self) -> Option<f64> {
        Some(1.0 / STEPS as f64)
    }
}
