//! Processes of the form x_t = α_t x_0 + σ_t eps (§9): their coefficients and the formulas that follow from them.
//!
//! The network of such a process predicts a linear combination a·x_0 + b·eps ([`Target`]). Together with x_t this
//! determines both x̂_0 and eps_hat, so a sampler that knows only (α_t, σ_t) works for every process of this form.
use super::{Process, ProcessFn};
use crate::{Coef, Field};

/// The coefficients of a process. Times run from 1 (noise) to 0 (data).
pub trait GaussianFn {
    /// α_t, the factor of x_0.
    fn alpha(&self, t: f64) -> f64;

    /// σ_t, the standard deviation of the noise.
    fn sigma(&self, t: f64) -> f64;

    /// d ln α_t/dt and g_t² = dσ_t²/dt − 2 (d ln α_t/dt) σ_t²: drift and squared diffusion coefficient of the forward
    /// SDE dx = f x dt + g dw.
    fn rates(&self, t: f64) -> (f64, f64);

    /// The smallest time at which the network is evaluated.
    fn t_end(&self) -> f64;

    /// What the network learns at t.
    fn target(&self, t: f64) -> Target;

    /// The distance between two times of a process with discrete times.
    fn tick(&self) -> Option<f64> {
        None
    }
}

/// The target a·x_0 + b·eps of the network's raw output F.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Target {
    /// a, the coefficient of x_0.
    pub x0: f64,
    /// b, the coefficient of eps.
    pub eps: f64,
}

impl Target {
    /// The network predicts the noise: F = eps.
    pub const EPS: Self = Self { x0: 0.0, eps: 1.0 };
}

/// x̂_0 and eps_hat with x_t = α_t x̂_0 + σ_t eps_hat.
#[derive(Clone, Debug, PartialEq)]
pub struct Prediction<F> {
    /// The estimate x̂_0.
    pub x0: F,
    /// The estimate eps_hat.
    pub eps: F,
}

/// A process that is known to have the form x_t = α_t x_0 + σ_t eps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gaussian(Process);

impl Gaussian {
    /// The view of `process`, if it has this form.
    pub(super) fn new(process: Process) -> Option<Self> {
        ProcessFn::gaussian(&process).is_some().then_some(Self(process))
    }

    /// Every process of this form with its published constants; constant attenuation with each noise scale.
    pub fn all() -> Vec<Self> {
        let adm = crate::NoiseScale::ALL.iter().map(|&noise| super::Adm { noise, ..Default::default() }.into());
        let others = Process::all().into_iter().filter(|process| process.adm().is_none());
        others.chain(adm).filter_map(Self::new).collect()
    }

    /// The process itself.
    pub fn process(&self) -> &Process {
        &self.0
    }

    /// The name used in tables.
    pub fn name(&self) -> &'static str {
        self.0.name()
    }

    fn coefficients(&self) -> &dyn GaussianFn {
        ProcessFn::gaussian(&self.0).expect("only processes of this form are wrapped")
    }

    /// Forward marginal x_t = α_t x_0 + σ_t eps.
    pub fn x_t<F: Field>(&self, x0: &F, eps: &F, t: &Coef) -> F {
        F::lincomb(&[(t.map(|t| self.alpha(t)), x0), (t.map(|t| self.sigma(t)), eps)])
    }

    /// The raw target a·x_0 + b·eps.
    pub fn raw_target<F: Field>(&self, x0: &F, eps: &F, t: &Coef) -> F {
        F::lincomb(&[(t.map(|t| self.target(t).x0), x0), (t.map(|t| self.target(t).eps), eps)])
    }

    /// x̂_0 and eps_hat from x_t and the raw output F: the solution of two linear equations in two unknowns. Where
    /// nothing of the image is left (α_t = 0) and only eps is learnt, x̂_0 = 0 and eps_hat = x_t/σ_t.
    pub fn prediction<F: Field>(&self, x_t: &F, raw: &F, t: &Coef) -> Prediction<F> {
        let solve = |t: f64| {
            let (alpha, sigma, target) = (self.alpha(t), self.sigma(t), self.target(t));
            // Cramer's rule for α x̂_0 + σ eps_hat = x_t and a x̂_0 + b eps_hat = F.
            match alpha * target.eps - sigma * target.x0 {
                0.0 => [0.0, 0.0, 1.0 / sigma, 0.0],
                det => [target.eps / det, -sigma / det, -target.x0 / det, alpha / det],
            }
        };
        let combine = |k: usize| F::lincomb(&[(t.map(|t| solve(t)[k]), x_t), (t.map(|t| solve(t)[k + 1]), raw)]);
        Prediction { x0: combine(0), eps: combine(2) }
    }

    /// Both estimates from the one of x_0: eps_hat = (x_t − α_t x̂_0)/σ_t.
    pub fn prediction_of_x0<F: Field>(&self, x_t: &F, x0: F, t: impl Into<Coef>) -> Prediction<F> {
        let t = t.into();
        let eps =
            F::lincomb(&[(t.map(|t| 1.0 / self.sigma(t)), x_t), (t.map(|t| -self.alpha(t) / self.sigma(t)), &x0)]);
        Prediction { x0, eps }
    }

    /// The estimates with which one deterministic step from x_t at t ends at x_s at s < t (§2.9): the solution of
    /// α_t x̂_0 + σ_t eps_hat = x_t and α_s x̂_0 + σ_s eps_hat = x_s.
    pub fn prediction_between<F: Field>(&self, x_t: &F, t: &Coef, x_s: &F, s: &Coef) -> Prediction<F> {
        // κ falls with the time, so that the determinant σ_t α_s − α_t σ_s is positive.
        let over = |value: &dyn Fn(f64, f64) -> f64| {
            t.zip(s, |t, s| value(t, s) / (self.sigma(t) * self.alpha(s) - self.alpha(t) * self.sigma(s)))
        };
        let x0 = [over(&|_, s| -self.sigma(s)), over(&|t, _| self.sigma(t))];
        let eps = [over(&|_, s| self.alpha(s)), over(&|t, _| -self.alpha(t))];
        let combine = |[of_t, of_s]: [Coef; 2]| F::lincomb(&[(of_t, x_t), (of_s, x_s)]);
        Prediction { x0: combine(x0), eps: combine(eps) }
    }

    /// The factor by which an error of the raw output F becomes one of the velocity v = eps − x_0, at given x_t:
    /// (α_t + σ_t)/|α_t b − σ_t a|. It is 1 for a network that predicts v, and 1 + κ for one that predicts eps.
    pub fn velocity_factor(&self, t: f64) -> f64 {
        let (alpha, sigma, target) = (self.alpha(t), self.sigma(t), self.target(t));
        (alpha + sigma) / (alpha * target.eps - sigma * target.x0).abs()
    }

    /// κ_t = σ_t/α_t, the noise relative to the image; infinite where α_t = 0.
    pub fn ratio(&self, t: f64) -> f64 {
        self.sigma(t) / self.alpha(t)
    }

    /// λ_t = −ln κ_t.
    pub fn half_log_snr(&self, t: f64) -> f64 {
        -self.ratio(t).ln()
    }

    /// The deviation of the normal distribution that sampling starts from at time t. At t = 1 this is σ_1: what is left of
    /// x_0 is neglected. Below, where more is left, it is that of x_t for data of deviation 1, which is N(0, I) for DDPM,
    /// as in DDIM's code.
    pub fn start_deviation(&self, t: f64) -> f64 {
        if t == 1.0 { self.sigma(1.0) } else { self.alpha(t).hypot(self.sigma(t)) }
    }

    /// The time with κ_t = `ratio`, between the ends, by bisection: κ rises with t.
    pub fn time_of_ratio(&self, ratio: f64) -> f64 {
        let (mut low, mut high) = (0.0, 1.0);
        // 100 halvings reach the limit of f64 anywhere in [0, 1]; this runs once per step, so speed does not matter.
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

impl GaussianFn for Gaussian {
    /// Exactly 1 at t = 0, so that the last step of a sampler returns x̂_0 unchanged: rounding, or the smallest noise
    /// level of VE, would leave something else there.
    fn alpha(&self, t: f64) -> f64 {
        if t == 0.0 { 1.0 } else { self.coefficients().alpha(t) }
    }
    /// Exactly 0 at t = 0, for the same reason.
    fn sigma(&self, t: f64) -> f64 {
        if t == 0.0 { 0.0 } else { self.coefficients().sigma(t) }
    }
    fn rates(&self, t: f64) -> (f64, f64) {
        self.coefficients().rates(t)
    }
    fn t_end(&self) -> f64 {
        self.coefficients().t_end()
    }
    fn target(&self, t: f64) -> Target {
        self.coefficients().target(t)
    }
    fn tick(&self) -> Option<f64> {
        self.coefficients().tick()
    }
}
