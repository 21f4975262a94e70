//! Samplers: from noise at t = 1 to x_0 at t = 0. Each sampler is one function with its own loop, in one file, and has
//! one line in `registry.rs`.
//!
//! They use a network only through [`Predict`], [`gaussian::Denoise`] or [`cld::VelocityScore`], and combine images
//! only through [`Field`]. The laboratory can therefore run the same code in f64 that sampling runs on tensors. For
//! attenuation every step is the analytic one, `anchor + H_s(phi) + σ_s eps`, plus the correction of a higher order, so
//! that samplers work with any attenuation, any noise scale and any number of steps.
mod ab2;
mod alg2;
pub mod cld;
mod data2m;
mod first_order;
mod fit;
mod fitted;
pub mod gaussian;
mod guidance;
mod invert;
mod midpoint;
mod predictor_corrector;
mod reference_heun;
mod registry;
mod student;

pub use fit::{EvaluationOptions, Form};
pub use fitted::FittedTimes;
pub use guidance::Guidance;
pub use invert::Inverted;
pub use registry::Sampler;
pub use student::student_target;

use crate::error::{Error, Result};
use crossfade_math::{Adm, Blend, Estimate, Field};
use std::cell::Cell;

/// The outputs of a network at x_t.
#[derive(Clone, Debug)]
pub struct Heads<F> {
    /// The parts of phi_hat.
    pub phi: Vec<F>,
    /// eps_hat.
    pub eps: F,
}

/// The interface of a network for the samplers of attenuation.
pub trait Predict<F> {
    /// phi_hat and eps_hat at (x_t, t); t is in (0, 1].
    fn predict(&self, x_t: &F, t: f64) -> Result<Heads<F>>;

    /// Network evaluations that a prediction at time t takes: 2 where it is guided.
    fn evaluations(&self, _t: f64) -> usize {
        1
    }
}

/// A network, the process that it was trained for, and the settings of a run.
pub struct AttenuationProblem<'a, F> {
    /// The network, or an oracle.
    pub net: &'a dyn Predict<F>,
    /// The process that it was trained for.
    pub process: Adm,
    /// How the outputs of its heads are combined to one estimate.
    pub blend: Blend,
    /// x̂_0 is clamped to ±clip at every step.
    pub clip: Option<f64>,
    /// `E[x_0]`. With it the network is not evaluated at t = 1, where its ideal outputs are known (§3.5).
    pub mean_x0: Option<F>,
    /// Network evaluations so far.
    evaluations: Cell<usize>,
}

impl<'a, F: Field> AttenuationProblem<'a, F> {
    /// A problem without clamping, with the estimate of both heads.
    pub fn new(net: &'a dyn Predict<F>, process: Adm) -> Self {
        Self { net, process, blend: Blend::Heads, clip: None, mean_x0: None, evaluations: Cell::new(0) }
    }

    /// The estimate of the network at (x_t, t), unless its ideal outputs are known.
    fn estimate(&self, x_t: &F, t: f64) -> Result<Estimate<F>> {
        let heads = match self.known_heads(x_t, t) {
            Some(known) => known,
            None => {
                self.evaluations.set(self.evaluations.get() + self.net.evaluations(t));
                self.net.predict(x_t, t)?
            }
        };
        Ok(self.blend.estimate(&self.process, x_t, &heads.phi, &heads.eps, t, self.clip))
    }

    /// The ideal outputs at t = 1, where x_1 = σ_1 eps: E[phi], and eps itself.
    fn known_heads(&self, x_t: &F, t: f64) -> Option<Heads<F>> {
        let mean = self.mean_x0.as_ref().filter(|_| t == 1.0)?;
        Some(Heads { phi: self.process.mean_phi(mean)?, eps: x_t.scale(1.0 / self.process.noise.sigma(t)) })
    }

    /// The deterministic first-order step from t to s, which is exact if phi and eps are constant.
    fn first_order(&self, e: &Estimate<F>, t: f64, s: f64) -> F {
        self.process.ddim(e, None, 0.0, t, s)
    }
}

/// One state of a run for an observer: the input of the network and its estimate of x_0.
pub struct State<'a, F> {
    /// The index of the step, from 0.
    pub step: usize,
    /// The time.
    pub t: f64,
    /// x_t.
    pub x_t: &'a F,
    /// The estimate of x_0 at that state.
    pub x0: &'a F,
}

/// Callbacks of a run.
pub struct Hooks<'a, F> {
    /// Gives the standard normals for step `n` of a stochastic sampler.
    pub noise: &'a mut dyn FnMut(usize) -> F,
    /// Is called with every intermediate state.
    pub observe: &'a mut dyn FnMut(State<'_, F>),
}

/// The result of a run.
pub struct Sampled<F> {
    /// x at t = 0.
    pub x0: F,
    /// The number of network evaluations.
    pub nfe: usize,
}

/// A network under a process, in one of the three forms that samplers are written for.
pub trait Setting<F> {
    /// The state at t = 1 that a run starts from.
    type Start;

    /// The kind of process, for messages.
    fn kind(&self) -> String;

    /// The counter of network evaluations.
    fn evaluations(&self) -> &Cell<usize>;

    /// Runs the loop of a sampler; none if it has no loop for this form.
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
    /// Runs the sampler from the state `x` at the first of `times` to 0 over the others.
    pub fn run<F: Field, P: Setting<F> + ?Sized>(
        self,
        problem: &P,
        times: &[f64],
        x: P::Start,
        hooks: &mut Hooks<F>,
    ) -> Result<Sampled<F>> {
        // A wrong grid would give plausible but wrong images, so it is rejected here for all samplers.
        check_times(times)?;
        problem.evaluations().set(0);
        let no_loop = || format!("the sampler {} does not fit the process {}", self.name(), problem.kind());
        let x0 = problem.solve(self, times, x, hooks).ok_or_else(|| Error::Request(no_loop()))??;
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

/// The steps (n, t, s) of a grid: step n goes from time t to time s < t, or to s > t in an inversion.
fn steps(times: &[f64]) -> impl Iterator<Item = (usize, f64, f64)> + '_ {
    times.windows(2).enumerate().map(|(n, w)| (n, w[0], w[1]))
}
