//! Samplers that use only (α_t, σ_t). They run on every process of the form x_t = α_t x_0 + σ_t eps (§9), including
//! constant attenuation.
pub(super) mod ddim;
pub(super) mod euler;
pub(super) mod heun;
pub(super) mod lms;
pub(super) mod multistep;
pub(super) mod sde;

pub use heun::Churn;

use super::{Hooks, Sampler, Setting, State, steps};
use crate::error::Result;
use crossfade_math::Field;
use crossfade_math::{Gaussian, GaussianFn, Prediction};
use std::cell::Cell;

/// The interface of a network for these samplers.
pub trait Denoise<F> {
    /// x̂_0 and eps_hat at (x_t, t).
    fn denoise(&self, x_t: &F, t: f64) -> Result<Prediction<F>>;

    /// Network evaluations that this takes at time t: 2 where the network is guided.
    fn evaluations(&self, _t: f64) -> usize {
        1
    }
}

/// A network, the process that it was trained for, and the settings of a run.
pub struct GaussianProblem<'a, F> {
    /// The network, or an oracle.
    pub net: &'a dyn Denoise<F>,
    /// The process that it was trained for.
    pub process: Gaussian,
    /// x̂_0 is clamped to ±clip at every step. eps is then recomputed, so that α_t x̂_0 + σ_t eps is still x_t.
    pub clip: Option<f64>,
    /// η of DDIM.
    pub eta: f64,
    /// The noise that `heun-churn` adds.
    pub churn: Churn,
    /// `E[x_0]`. With it the network is not evaluated at t = 1 if α_1 = 0, where its ideal outputs are known (§3.5).
    pub mean_x0: Option<F>,
    evaluations: Cell<usize>,
}

impl<'a, F: Field> GaussianProblem<'a, F> {
    /// A problem without clipping, with η = 0.
    pub fn new(net: &'a dyn Denoise<F>, process: Gaussian) -> Self {
        let (mean_x0, evaluations) = (None, Cell::new(0));
        Self { net, process, clip: None, eta: 0.0, churn: Churn::CIFAR10, mean_x0, evaluations }
    }

    /// The prediction of the network at (x_t, t), unless its ideal outputs are known.
    fn predict(&self, x_t: &F, t: f64) -> Result<Prediction<F>> {
        let prediction = match &self.mean_x0 {
            Some(mean) if t == 1.0 && self.process.alpha(t) == 0.0 => {
                self.process.prediction_of_x0(x_t, mean.clone(), t)
            }
            _ => {
                self.evaluations.set(self.evaluations.get() + self.net.evaluations(t));
                self.net.denoise(x_t, t)?
            }
        };
        // Clamping needs a recomputed eps, or x_t would no longer be α_t x̂_0 + σ_t eps.
        let Some(clip) = self.clip else { return Ok(prediction) };
        Ok(self.process.prediction_of_x0(x_t, prediction.x0.clamp(-clip, clip), t))
    }
}

impl<F: Field> Setting<F> for GaussianProblem<'_, F> {
    type Start = F;
    fn kind(&self) -> String {
        self.process.name().into()
    }
    fn evaluations(&self) -> &Cell<usize> {
        &self.evaluations
    }
    /// `x` is the state at t = 1, with standard deviation σ_1.
    fn solve(&self, sampler: Sampler, times: &[f64], x: F, hooks: &mut Hooks<F>) -> Option<Result<F>> {
        sampler.loops().gaussian.map(|run| run(self, times, x, hooks))
    }
}

/// Evaluates the network at a step and calls the observer.
fn observe<F: Field>(
    problem: &GaussianProblem<F>,
    hooks: &mut Hooks<F>,
    step: usize,
    x: &F,
    t: f64,
) -> Result<Prediction<F>> {
    let prediction = problem.predict(x, t)?;
    (hooks.observe)(State { step, t, x_t: x, x0: &prediction.x0 });
    Ok(prediction)
}
