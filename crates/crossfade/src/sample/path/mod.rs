//! Samplers that know only (α_t, σ_t): they serve every process of the form x_t = α_t x_0 + σ_t eps (§9), constant
//! attenuation included. Each is one function that owns its loop; one file and one line below.
mod ddim;
mod euler;
mod heun;
mod multistep;

use super::{Hooks, Sampled, State, check_times, steps};
use crate::error::{Error, Result};
use crossfade_math::Field;
use crossfade_math::path::{Pair, Path};
use std::cell::Cell;

/// All that these samplers may know of a network.
pub trait Denoise<F> {
    /// x̂_0 and eps_hat at (x_t, t).
    fn denoise(&self, x_t: &F, t: f64) -> Result<Pair<F>>;
}

/// What is solved: a network's view of a process.
pub struct PathProblem<'a, F> {
    /// The network, or an oracle.
    pub net: &'a dyn Denoise<F>,
    /// The process that it was trained for.
    pub path: Path,
    /// Limits x̂_0 to ±clip at every step; eps follows, so that both still meet in x_t.
    pub clip: Option<f64>,
    evaluations: Cell<usize>,
}

impl<'a, F: Field> PathProblem<'a, F> {
    /// A problem without clipping.
    pub fn new(net: &'a dyn Denoise<F>, path: Path) -> Self {
        Self { net, path, clip: None, evaluations: Cell::new(0) }
    }

    /// Evaluates the network once at (x_t, t).
    fn pair(&self, x_t: &F, t: f64) -> Result<Pair<F>> {
        use crossfade_math::path::PathFn;
        self.evaluations.set(self.evaluations.get() + 1);
        let pair = self.net.denoise(x_t, t)?;
        let Some(clip) = self.clip else { return Ok(pair) };
        let (alpha, sigma) = (self.path.alpha(t), self.path.sigma(t));
        let x0 = pair.x0.clamp(-clip, clip);
        let eps = F::lincomb(&[((1.0 / sigma).into(), x_t), ((-alpha / sigma).into(), &x0)]);
        Ok(Pair { x0, eps })
    }
}

/// A sampler's loop: over `times` (descending, first 1, last 0) from `x` at time 1.
type Loop<F> = fn(&PathProblem<F>, &[f64], F, &mut Hooks<F>) -> Result<F>;

/// One line a sampler: variant, name, order, evaluations a step, whether it draws noise, its loop.
macro_rules! registry {
    ($($(#[$doc:meta])* $Name:ident = $tag:literal, $order:literal, $per_step:literal, $stochastic:literal => $run:expr;)*) => {
        /// The registered samplers.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
        pub enum PathSampler { $($(#[$doc])* #[serde(rename = $tag)] $Name),* }

        impl PathSampler {
            /// Every sampler.
            pub const ALL: &[Self] = &[$(Self::$Name),*];

            /// The name used on the command line and in tables.
            pub fn name(self) -> &'static str {
                match self { $(Self::$Name => $tag),* }
            }

            /// The order of convergence on a grid that suits it; for stochastic ones of the distribution.
            pub fn order(self) -> u32 {
                match self { $(Self::$Name => $order),* }
            }

            /// Network evaluations a step, at most.
            pub fn evaluations_per_step(self) -> usize {
                match self { $(Self::$Name => $per_step),* }
            }

            /// Whether it adds noise on the way.
            pub fn is_stochastic(self) -> bool {
                match self { $(Self::$Name => $stochastic),* }
            }

            fn run_of<F: Field>(self) -> Loop<F> {
                match self { $(Self::$Name => $run),* }
            }
        }
    };
}

registry! {
    /// DDIM, η = 0; Euler in κ = σ/α.
    Ddim = "ddim", 1, 1, false => |p, times, x, hooks| ddim::ddim(p, times, x, hooks, 0.0);
    /// DDIM, η = ½.
    DdimHalf = "ddim-half", 1, 1, true => |p, times, x, hooks| ddim::ddim(p, times, x, hooks, 0.5);
    /// DDPM's own, on any subset of times: the posterior with variance β̃, which is η = 1.
    Ancestral = "ancestral", 1, 1, true => |p, times, x, hooks| ddim::ddim(p, times, x, hooks, 1.0);
    /// The same with variance β.
    AncestralLarge = "ancestral-large", 1, 1, true => ddim::ancestral_large;
    /// Euler–Maruyama on the reverse equation, the paper's choice for most baselines.
    EulerMaruyama = "euler-maruyama", 1, 1, true => euler::euler_maruyama;
    /// Euler–Maruyama in κ: the one for EDM.
    KappaMaruyama = "kappa-maruyama", 1, 1, true => euler::kappa_maruyama;
    /// Score-SDE's predictor: the chain's own transition, reversed.
    ReverseDiffusion = "reverse-diffusion", 1, 1, true => euler::reverse_diffusion;
    /// Euler in t on the probability flow.
    ProbabilityFlow = "probability-flow", 1, 1, false => euler::probability_flow;
    /// EDM's Heun, deterministic.
    Heun = "heun", 2, 2, false => |p, times, x, hooks| heun::heun(p, times, x, hooks, &heun::Churn::NONE);
    /// EDM's Heun with its CIFAR-10 churn.
    HeunChurn = "heun-churn", 1, 2, true => |p, times, x, hooks| heun::heun(p, times, x, hooks, &heun::Churn::CIFAR10);
    /// DPM-Solver++(2M).
    Dpmpp2M = "dpmpp-2m", 2, 1, false => multistep::dpmpp_2m;
    /// UniPC of order 2 with data prediction.
    UniPc = "unipc", 2, 1, false => multistep::unipc;
}

impl PathSampler {
    /// The sampler of that name.
    pub fn parse(name: &str) -> Result<Self> {
        Self::ALL.iter().copied().find(|s| s.name() == name).ok_or_else(|| {
            let known: Vec<_> = Self::ALL.iter().map(|s| s.name()).collect();
            Error::request(format!("unknown sampler '{name}'; known: {}", known.join(", ")))
        })
    }

    /// Runs from `x` at time 1, deviation σ_1, over `times` (descending, first 1, last 0).
    pub fn run<F: Field>(
        self,
        problem: &PathProblem<F>,
        times: &[f64],
        x: F,
        hooks: &mut Hooks<F>,
    ) -> Result<Sampled<F>> {
        check_times(times)?;
        problem.evaluations.set(0);
        let x0 = self.run_of()(problem, times, x, hooks)?;
        Ok(Sampled { x0, nfe: problem.evaluations.get() })
    }
}

/// Evaluates at step `n` and shows the state.
fn observe<F: Field>(problem: &PathProblem<F>, hooks: &mut Hooks<F>, step: usize, x: &F, t: f64) -> Result<Pair<F>> {
    let pair = problem.pair(x, t)?;
    (hooks.observe)(State { step, t, x_t: x, x0: &pair.x0 });
    Ok(pair)
}
