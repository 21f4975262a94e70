//! Samplers: from noise at time 1 to x_0. Each is one function that owns its loop; one file, and one line in `registry.rs`.
//!
//! They know a network only through [`Predict`], [`gaussian::Denoise`] or [`cld::VelocityScore`] and combine images only through
//! [`Field`], so the laboratory runs the same lines in f64 that sampling runs on tensors. Every step of attenuation is the
//! analytic one, `anchor + H_s(phi) + σ_s eps`, plus what a higher order adds: hence any attenuation, any noise scale, any
//! number of steps from 1 up.
mod ab2;
mod alg2;
pub mod cld;
mod data2m;
mod first_order;
mod fit;
pub mod gaussian;
mod midpoint;
mod predictor_corrector;
mod reference_heun;
mod registry;

pub use fit::Form;
pub use registry::Sampler;

use crate::error::{Error, Result};
use crossfade_math::{Adm, Blend, Estimate, Field};
use std::cell::Cell;

/// What a network predicts at x_t.
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
    fn predict(&self, x_t: &F, t: f64) -> Result<Heads<F>>;
}

/// What the samplers of attenuation solve: a network and the process that it was trained for.
pub struct AttenuationProblem<'a, F> {
    /// The network, or an oracle.
    pub net: &'a dyn Predict<F>,
    /// The process that it was trained for.
    pub process: Adm,
    /// How its heads become one estimate.
    pub blend: Blend,
    /// Limits x̂_0 to ±clip at every step.
    pub clip: Option<f64>,
    /// Evaluations so far.
    evaluations: Cell<usize>,
}

impl<'a, F: Field> AttenuationProblem<'a, F> {
    /// A problem without clipping or blending.
    pub fn new(net: &'a dyn Predict<F>, process: Adm) -> Self {
        Self { net, process, blend: Blend::Heads, clip: None, evaluations: Cell::new(0) }
    }

    /// Evaluates the network once at (x_t, t).
    fn estimate(&self, x_t: &F, t: f64) -> Result<Estimate<F>> {
        self.evaluations.set(self.evaluations.get() + 1);
        let heads = self.net.predict(x_t, t)?;
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

/// A network's view of a process, in one of the forms that samplers know.
pub trait Setting<F> {
    /// What a run starts from.
    type Start;

    /// What kind of process this is, for messages.
    fn kind(&self) -> String;

    /// How often the network was evaluated.
    fn evaluations(&self) -> &Cell<usize>;

    /// The loop of a sampler that knows this form.
    fn solve(&self, sampler: Sampler, times: &[f64], x: Self::Start, hooks: &mut Hooks<F>) -> Option<Result<F>>;
}

impl<F: Field> Setting<F> for AttenuationProblem<'_, F> {
    type Start = F;
    fn kind(&self) -> String {
        "attenuation".into()
    }
    fn evaluations(&self) -> &Cell<usize> {
        &self.evaluations
    }
    fn solve(&self, sampler: Sampler, times: &[f64], x: F, hooks: &mut Hooks<F>) -> Option<Result<F>> {
        sampler.loops().attenuation.map(|run| run(self, times, x, hooks))
    }
}

impl Sampler {
    /// Runs from the state at time 1 over `times` (descending, first 1, last 0).
    pub fn run<F: Field, P: Setting<F>>(
        self,
        problem: &P,
        times: &[f64],
        x: P::Start,
        hooks: &mut Hooks<F>,
    ) -> Result<Sampled<F>> {
        check_times(times)?;
        problem.evaluations().set(0);
        let unfit = || format!("the sampler {} does not fit the process {}", self.name(), problem.kind());
        let x0 = problem.solve(self, times, x, hooks).ok_or_else(|| Error::Request(unfit()))??;
        Ok(Sampled { x0, nfe: problem.evaluations().get() })
    }
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
