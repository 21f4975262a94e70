//! The registered samplers: one line each.
use super::cld::{self, CldProblem};
use super::path::{PathProblem, ddim as path_ddim, euler, heun, multistep};
use super::{Hooks, Problem, ab2, alg2, data2m, ddim, midpoint, predictor_corrector, reference_heun};
use crate::error::{Error, Result};
use crossfade_math::Field;

/// A loop over `times` (descending, first 1, last 0) from the state at time 1.
type Loop<P, S, F> = fn(&P, &[f64], S, &mut Hooks<F>) -> Result<F>;

/// A sampler's loops, one for each form in which a process can be known.
pub(super) struct Loops<'a, F> {
    /// By phi and eps: attenuation.
    pub attenuation: Option<Loop<Problem<'a, F>, F, F>>,
    /// By (α_t, σ_t): x_t = α_t x_0 + σ_t eps.
    pub path: Option<Loop<PathProblem<'a, F>, F, F>>,
    /// By the score of a velocity: CLD.
    pub cld: Option<Loop<CldProblem<'a, F>, (F, F), F>>,
}

impl<F> Loops<'_, F> {
    const NONE: Self = Self { attenuation: None, path: None, cld: None };
}

/// One line a sampler: variant, name, order of convergence, evaluations a step, whether it draws noise, its loops.
macro_rules! registry {
    ($($(#[$doc:meta])* $Name:ident = $tag:literal, $order:literal, $per_step:literal, $stochastic:literal
        => { $($family:ident: $run:expr),+ };)*) => {
        /// The registered samplers.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
        pub enum Sampler {
            /// The one that suits the process.
            #[default]
            #[serde(rename = "auto")]
            Auto,
            $($(#[$doc])* #[serde(rename = $tag)] $Name),*
        }

        impl Sampler {
            /// Every sampler.
            pub const ALL: &[Self] = &[$(Self::$Name),*];

            /// The name used on the command line and in tables.
            pub fn name(self) -> &'static str {
                match self { Self::Auto => "auto", $(Self::$Name => $tag),* }
            }

            /// The order of convergence on a grid that suits it (for attenuation: constant, uniform in √t); of the
            /// distribution where it draws noise.
            pub fn order(self) -> u32 {
                match self { Self::Auto => 0, $(Self::$Name => $order),* }
            }

            /// Network evaluations a step, at most.
            pub fn evaluations_per_step(self) -> usize {
                match self { Self::Auto => 1, $(Self::$Name => $per_step),* }
            }

            /// Whether it adds noise on the way.
            pub fn is_stochastic(self) -> bool {
                match self { Self::Auto => false, $(Self::$Name => $stochastic),* }
            }

            pub(super) fn loops<'a, F: Field>(self) -> Loops<'a, F> {
                match self {
                    Self::Auto => Loops::NONE,
                    $(Self::$Name => Loops { $($family: Some($run),)+ ..Loops::NONE }),*
                }
            }
        }
    };
}

registry! {
    /// The paper's Alg. 2: the bridge with both heads.
    Alg2 = "alg2", 1, 1, true => { attenuation: alg2::alg2 };
    /// Deterministic, first order: DDIM on this process, the reference's default.
    FirstOrder = "first-order", 1, 1, false => { attenuation: |p, times, x, hooks| ddim::ddim(p, times, x, hooks, 0.0) };
    /// DDIM with η = ½, halfway between deterministic and Alg. 2.
    DdimHalf = "ddim-half", 1, 1, true => { attenuation: |p, times, x, hooks| ddim::ddim(p, times, x, hooks, 0.5) };
    /// Second-order multistep on both heads (Adams–Bashforth).
    Ab2 = "ab2", 2, 1, false => { attenuation: ab2::ab2 };
    /// Second-order multistep on the estimate of x_0.
    Data2M = "data-2m", 2, 1, false => { attenuation: data2m::data2m };
    /// Predictor–corrector: AB2 and AM3 at one evaluation a step, guarded against amplification.
    PredictorCorrector = "pc", 3, 1, false => { attenuation: predictor_corrector::predictor_corrector };
    /// Alg. 2 of second order: the bridge with a linear estimate of x_0.
    Alg2Second = "alg2-second", 2, 1, true => { attenuation: data2m::alg2_second };
    /// Single-step second order, two evaluations a step.
    Midpoint = "midpoint", 2, 2, false => { attenuation: midpoint::midpoint };
    /// The older release's Heun with bridge noise, two evaluations a step; kept for comparison.
    ReferenceHeun = "reference-heun", 1, 2, true => { attenuation: reference_heun::reference_heun };
    /// DDIM with the η that is asked for, 0 by default; Euler in κ = σ/α.
    Ddim = "ddim", 1, 1, false => { path: |p, times, x, hooks| path_ddim::ddim(p, times, x, hooks, p.eta) };
    /// DDPM's own, on any subset of times: the posterior with variance β̃, which is η = 1.
    Ancestral = "ancestral", 1, 1, true => { path: |p, times, x, hooks| path_ddim::ddim(p, times, x, hooks, 1.0) };
    /// The same with variance β.
    AncestralLarge = "ancestral-large", 1, 1, true => { path: path_ddim::ancestral_large };
    /// Euler–Maruyama on the reverse equation, the paper's choice for most baselines.
    EulerMaruyama = "euler-maruyama", 1, 1, true => { path: euler::euler_maruyama, cld: cld::euler_maruyama };
    /// Euler–Maruyama in κ.
    KappaMaruyama = "kappa-maruyama", 1, 1, true => { path: euler::kappa_maruyama };
    /// Score-SDE's predictor: the chain's own transition, reversed.
    ReverseDiffusion = "reverse-diffusion", 1, 1, true => { path: euler::reverse_diffusion };
    /// Euler in t on the probability flow.
    ProbabilityFlow = "probability-flow", 1, 1, false => { path: euler::probability_flow };
    /// EDM's Heun, deterministic.
    Heun = "heun", 2, 2, false => { path: |p, times, x, hooks| heun::heun(p, times, x, hooks, &heun::Churn::NONE) };
    /// EDM's Heun with churn, by default that of its CIFAR-10 runs.
    HeunChurn = "heun-churn", 1, 2, true => { path: |p, times, x, hooks| heun::heun(p, times, x, hooks, &p.churn) };
    /// DPM-Solver++(2M).
    Dpmpp2M = "dpmpp-2m", 2, 1, false => { path: multistep::dpmpp_2m };
    /// UniPC-2 with data prediction: a predictor of second order, which the corrector makes third.
    UniPc = "unipc", 3, 1, false => { path: multistep::unipc };
    /// CLD's symmetric splitting: half an exact step without the score, a whole step of the score, the other half.
    Sscs = "sscs", 1, 1, true => { cld: cld::sscs };
}

impl Sampler {
    /// The sampler of that name.
    pub fn parse(name: &str) -> Result<Self> {
        let all = || [Self::Auto].iter().chain(Self::ALL);
        all().copied().find(|s| s.name() == name).ok_or_else(|| {
            let known: Vec<_> = all().map(|s| s.name()).collect();
            Error::request(format!("unknown sampler '{name}'; known: {}", known.join(", ")))
        })
    }

    /// A number that must be raised with every change after which the same network makes other images by this sampler.
    /// Results of studies are kept under a hash of it, so that a corrected sampler does not present old values as its own.
    pub fn revision(self) -> u32 {
        // A sampler that was changed gets an arm of its own, as in `Self::Heun => 2`.
        #[allow(clippy::match_single_binding)]
        match self {
            _ => 1,
        }
    }

    /// Whether it steps in t or κ from the very start, which needs something of the picture there: α_1 > 0.
    pub(super) fn starts_from_a_rest(self) -> bool {
        matches!(self, Self::EulerMaruyama | Self::KappaMaruyama | Self::ReverseDiffusion | Self::ProbabilityFlow)
    }
}
