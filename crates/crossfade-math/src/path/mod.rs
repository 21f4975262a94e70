//! Processes of the form x_t = α_t x_0 + σ_t eps (§9): the baselines, each one file and one line below.
//!
//! Whatever a baseline predicts, it is a line a·x_0 + b·eps ([`Target`]); with x_t that gives both x̂_0 and eps_hat, and a
//! sampler that knows only (α_t, σ_t) serves every process here.
mod adm;
mod ddpm;
mod edm;
mod flow;
mod registry;
mod ve;
mod vp;

pub use ddpm::{BetaSchedule, Ddpm};
pub use edm::Edm;
pub use flow::Flow;
pub use registry::{Baseline, Output, Path};
pub use ve::Ve;
pub use vp::Vp;

use crate::{Coef, Field, GridKind};

/// What defines a process. Times run from 1 (noise) to 0 (data).
pub trait PathFn {
    /// α_t, the share of the picture.
    fn alpha(&self, t: f64) -> f64;

    /// σ_t, the deviation of the noise.
    fn sigma(&self, t: f64) -> f64;

    /// d ln α_t/dt and g_t² = dσ_t²/dt − 2 (d ln α_t/dt) σ_t²: drift and squared diffusion of the forward equation
    /// dx = f x dt + g dw.
    fn rates(&self, t: f64) -> (f64, f64);

    /// The smallest time that the network is asked at.
    fn t_end(&self) -> f64;

    /// What the network learns at t.
    fn target(&self, t: f64) -> Target;

    /// The scale of the network's input and the time as it sees it.
    fn input(&self, t: f64) -> Input;

    /// A training time from one uniform and one normal number.
    fn training_time(&self, uniform: f64, normal: f64) -> f64;

    /// The name of the sampler that its paper uses.
    fn sampler(&self) -> &'static str;

    /// The times that its paper uses.
    fn grid(&self) -> GridKind {
        GridKind::UniformT
    }

    /// Its options that must be positive; one that ends in `_min` must be below the one after it.
    fn options(&self) -> Vec<(&'static str, f64)> {
        vec![]
    }

    /// The length between two times where the network knows only some.
    fn tick(&self) -> Option<f64> {
        None
    }
}

/// F = a·x_0 + b·eps, what the network's raw output is trained to be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Target {
    /// a.
    pub x0: f64,
    /// b.
    pub eps: f64,
}

impl Target {
    /// F = eps.
    pub const EPS: Self = Self { x0: 0.0, eps: 1.0 };
}

/// c_in and c_noise.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Input {
    /// Multiplies x_t before the network.
    pub scale: f64,
    /// The time as the network sees it.
    pub noise: f64,
}

/// x̂_0 and eps_hat with x_t = α_t x̂_0 + σ_t eps_hat.
#[derive(Clone, Debug, PartialEq)]
pub struct Pair<F> {
    /// x̂_0.
    pub x0: F,
    /// eps_hat.
    pub eps: F,
}

impl Path {
    /// Forward marginal x_t = α_t x_0 + σ_t eps.
    pub fn x_t<F: Field>(&self, x0: &F, eps: &F, t: &Coef) -> F {
        F::lincomb(&[(t.map(|t| self.alpha(t)), x0), (t.map(|t| self.sigma(t)), eps)])
    }

    /// The raw target a·x_0 + b·eps.
    pub fn raw_target<F: Field>(&self, x0: &F, eps: &F, t: &Coef) -> F {
        F::lincomb(&[(t.map(|t| self.target(t).x0), x0), (t.map(|t| self.target(t).eps), eps)])
    }

    /// x̂_0 and eps_hat from x_t and the raw output F: two lines through two unknowns. Where nothing of the picture is left
    /// (α_t = 0) and only eps is learnt, x̂_0 = 0 and eps_hat = x_t/σ_t.
    pub fn pair<F: Field>(&self, x_t: &F, raw: &F, t: &Coef) -> Pair<F> {
        let solve = |t: f64| {
            let (alpha, sigma, target) = (self.alpha(t), self.sigma(t), self.target(t));
            match alpha * target.eps - sigma * target.x0 {
                0.0 => [0.0, 0.0, 1.0 / sigma, 0.0],
                det => [target.eps / det, -sigma / det, -target.x0 / det, alpha / det],
            }
        };
        let line = |k: usize| F::lincomb(&[(t.map(|t| solve(t)[k]), x_t), (t.map(|t| solve(t)[k + 1]), raw)]);
        Pair { x0: line(0), eps: line(2) }
    }

    /// The pair of an estimate of x_0: eps_hat = (x_t − α_t x̂_0)/σ_t.
    pub fn pair_of_x0<F: Field>(&self, x_t: &F, x0: F, t: f64) -> Pair<F> {
        let (alpha, sigma) = (self.alpha(t), self.sigma(t));
        let eps = F::lincomb(&[((1.0 / sigma).into(), x_t), ((-alpha / sigma).into(), &x0)]);
        Pair { x0, eps }
    }

    /// κ_t = σ_t/α_t, the noise for a picture of full strength; infinite where α_t = 0.
    pub fn ratio(&self, t: f64) -> f64 {
        self.sigma(t) / self.alpha(t)
    }

    /// λ_t = −ln κ_t.
    pub fn half_log_snr(&self, t: f64) -> f64 {
        -self.ratio(t).ln()
    }

    /// The time with κ_t = `ratio`, between the ends; κ rises with t, so halving finds it.
    pub fn time_of_ratio(&self, ratio: f64) -> f64 {
        let (mut low, mut high) = (0.0, 1.0);
        for _ in 0..100 {
            let mid = 0.5 * (low + high);
            if self.ratio(mid) < ratio {
                low = mid;
            } else {
                high = mid;
            }
        }
        high
    }
}

impl PathFn for Path {
    fn alpha(&self, t: f64) -> f64 {
        if t == 0.0 { 1.0 } else { self.process().alpha(t) }
    }
    fn sigma(&self, t: f64) -> f64 {
        if t == 0.0 { 0.0 } else { self.process().sigma(t) }
    }
    fn rates(&self, t: f64) -> (f64, f64) {
        self.process().rates(t)
    }
    fn t_end(&self) -> f64 {
        self.process().t_end()
    }
    fn target(&self, t: f64) -> Target {
        self.process().target(t)
    }
    fn input(&self, t: f64) -> Input {
        self.process().input(t)
    }
    fn training_time(&self, uniform: f64, normal: f64) -> f64 {
        self.process().training_time(uniform, normal)
    }
    fn sampler(&self) -> &'static str {
        self.process().sampler()
    }
    fn grid(&self) -> GridKind {
        self.process().grid()
    }
    fn tick(&self) -> Option<f64> {
        self.process().tick()
    }
}
