//! Samplers: from x_1 ~ N(0, I) to x_0. Each is one function that owns its loop; one file and one line below.
//!
//! They know a network only through [`Predict`] and combine images only through [`Field`], so the laboratory runs the same
//! lines in f64 that sampling runs on tensors. Every step is the analytic one, `anchor + H_s(phi) + σ_s eps`, plus what a
//! higher order adds: hence any attenuation, any noise scale, any number of steps from 1 up.
mod ab2;
mod alg2;
mod data2m;
mod ddim;
mod ddpm;
mod midpoint;
pub mod path;
mod predictor_corrector;
mod reference_heun;

pub use ddpm::ancestral;

use crate::error::{Error, Result};
use crossfade_math::{Blend, Estimate, Field, Process};
use std::cell::Cell;

/// What a network says of x_t.
#[derive(Clone, Debug)]
pub struct Heads<F> {
    /// The parts of phi_hat.
    pub phi: Vec<F>,
    /// eps_hat.
    pub eps: F,
}

/// All that a sampler may know of a network.
pub trait Predict<F> {
    /// phi_hat and eps_hat at (x_t, t); t is in (0, 1].
    fn predict(&self, x_t: &F, t: f64, condition: Option<&F>) -> Result<Heads<F>>;
}

/// What is solved: a network's view of a process.
pub struct Problem<'a, F> {
    /// The network, or an oracle.
    pub net: &'a dyn Predict<F>,
    /// The process that it was trained for.
    pub process: Process,
    /// How its heads become one estimate.
    pub blend: Blend,
    /// Limits x̂_0 to ±clip at every step.
    pub clip: Option<f64>,
    /// Handed to the network at every evaluation.
    pub condition: Option<&'a F>,
    /// Evaluations so far.
    evaluations: Cell<usize>,
}

impl<'a, F: Field> Problem<'a, F> {
    /// A problem without condition, clipping or blending.
    pub fn new(net: &'a dyn Predict<F>, process: Process) -> Self {
        Self { net, process, blend: Blend::Heads, clip: None, condition: None, evaluations: Cell::new(0) }
    }

    /// Evaluates the network once at (x_t, t).
    fn estimate(&self, x_t: &F, t: f64) -> Result<Estimate<F>> {
        self.evaluations.set(self.evaluations.get() + 1);
        let heads = self.net.predict(x_t, t, self.condition)?;
        Ok(self.blend.estimate(&self.process, x_t, &heads.phi, &heads.eps, t, self.clip))
    }

    /// The deterministic first-order step from an estimate at t to s, exact while phi and eps stay as they are.
    fn first_order(&self, e: &Estimate<F>, t: f64, s: f64) -> F {
        self.process.ddim(e, None, 0.0, t, s)
    }
}

/// One state of a run, as offered to an observer: the network's input and its estimate there.
pub struct State<'a, F> {
    /// Number of the step, from 0.
    pub step: usize,
    /// Its time.
    pub t: f64,
    /// The state.
    pub x_t: &'a F,
    /// The estimate of x_0 at that state.
    pub x0: &'a F,
}

/// Where a run reports to and takes its noise from.
pub struct Hooks<'a, F> {
    /// Standard normals for step `n` of a stochastic sampler.
    pub noise: &'a mut dyn FnMut(usize) -> F,
    /// Sees every intermediate state.
    pub observe: &'a mut dyn FnMut(State<'_, F>),
}

/// The result of a run.
pub struct Sampled<F> {
    /// x at time 0.
    pub x0: F,
    /// Network evaluations used.
    pub nfe: usize,
}

/// A sampler's loop: over `times` (descending, first 1, last 0) from `x` at time 1.
type Loop<F> = fn(&Problem<F>, &[f64], F, &mut Hooks<F>) -> Result<F>;

/// One line a sampler: variant, name, order of convergence for constant attenuation, evaluations a step, whether it draws
/// noise, its loop.
macro_rules! registry {
    ($($(#[$doc:meta])* $Name:ident = $tag:literal, $order:literal, $per_step:literal, $stochastic:literal => $run:expr;)*) => {
        /// The registered samplers.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
        pub enum Sampler { $($(#[$doc])* #[serde(rename = $tag)] $Name),* }

        impl Sampler {
            /// Every sampler.
            pub const ALL: &[Self] = &[$(Self::$Name),*];

            /// The name used on the command line and in tables.
            pub fn name(self) -> &'static str {
                match self { $(Self::$Name => $tag),* }
            }

            /// The order of convergence with constant attenuation on a grid uniform in √t.
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
    /// The paper's Alg. 2: the bridge with both heads.
    Alg2 = "alg2", 1, 1, true => alg2::alg2;
    /// Deterministic, first order: DDIM on this process, the reference's default.
    #[default]
    FirstOrder = "first-order", 1, 1, false => |p, times, x, hooks| ddim::ddim(p, times, x, hooks, 0.0);
    /// DDIM with η = ½, halfway between deterministic and Alg. 2.
    DdimHalf = "ddim-half", 1, 1, true => |p, times, x, hooks| ddim::ddim(p, times, x, hooks, 0.5);
    /// Second-order multistep on both heads (Adams–Bashforth).
    Ab2 = "ab2", 2, 1, false => ab2::ab2;
    /// Second-order multistep on the estimate of x_0.
    Data2M = "data-2m", 2, 1, false => data2m::data2m;
    /// Predictor–corrector: AB2 and AM3 at one evaluation a step, guarded against amplification.
    PredictorCorrector = "pc", 3, 1, false => predictor_corrector::predictor_corrector;
    /// Alg. 2 of second order: the bridge with a linear estimate of x_0.
    Alg2Second = "alg2-second", 2, 1, true => data2m::alg2_second;
    /// Single-step second order, two evaluations a step.
    Midpoint = "midpoint", 2, 2, false => midpoint::midpoint;
    /// The older release's Heun with bridge noise, two evaluations a step; kept for comparison.
    ReferenceHeun = "reference-heun", 1, 2, true => reference_heun::reference_heun;
}

impl Sampler {
    /// The sampler of that name.
    pub fn parse(name: &str) -> Result<Self> {
        Self::ALL.iter().copied().find(|s| s.name() == name).ok_or_else(|| {
            let known: Vec<_> = Self::ALL.iter().map(|s| s.name()).collect();
            Error::request(format!("unknown sampler '{name}'; known: {}", known.join(", ")))
        })
    }

    /// Runs from `x` at time 1 over `times` (descending, first 1, last 0).
    pub fn run<F: Field>(self, problem: &Problem<F>, times: &[f64], x: F, hooks: &mut Hooks<F>) -> Result<Sampled<F>> {
        check_times(times)?;
        problem.evaluations.set(0);
        let x0 = self.run_of()(problem, times, x, hooks)?;
        Ok(Sampled { x0, nfe: problem.evaluations.get() })
    }
}

/// DDIM with any η in [0, 1]; the registered samplers cover 0, ½ and (as Alg. 2) 1.
pub fn ddim_eta<F: Field>(
    problem: &Problem<F>,
    times: &[f64],
    x: F,
    hooks: &mut Hooks<F>,
    eta: f64,
) -> Result<Sampled<F>> {
    check_times(times)?;
    problem.evaluations.set(0);
    let x0 = ddim::ddim(problem, times, x, hooks, eta)?;
    Ok(Sampled { x0, nfe: problem.evaluations.get() })
}

fn check_times(times: &[f64]) -> Result<()> {
    let descends = times.windows(2).all(|w| w[0] > w[1]);
    if times.len() < 2 || !descends || times[0] > 1.0 || times[times.len() - 1] != 0.0 {
        return Err(Error::request(format!("sampling times must descend to 0, got {times:?}")));
    }
    Ok(())
}

/// The steps (n, t, s) of a grid.
fn steps(times: &[f64]) -> impl Iterator<Item = (usize, f64, f64)> + '_ {
    times.windows(2).enumerate().map(|(n, w)| (n, w[0], w[1]))
}
