//! Samplers that know only (α_t, σ_t): they serve every process of the form x_t = α_t x_0 + σ_t eps (§9), constant
//! attenuation included.
pub(super) mod ddim;
pub(super) mod euler;
pub(super) mod heun;
pub(super) mod multistep;

pub use heun::Churn;

use super::{Hooks, Sampler, Setting, State, steps};
use crate::error::Result;
use crossfade_math::Field;
use crossfade_math::{Gaussian, Prediction};
use std::cell::Cell;

/// All that these samplers may know of a network.
pub trait Denoise<F> {
    /// x̂_0 and eps_hat at (x_t, t).
    fn denoise(&self, x_t: &F, t: f64) -> Result<Prediction<F>>;
}

/// What these samplers solve: a network and the process that it was trained for.
pub struct GaussianProblem<'a, F> {
    /// The network, or an oracle.
    pub net: &'a dyn Denoise<F>,
    /// The process that it was trained for.
    pub process: Gaussian,
    /// Limits x̂_0 to ±clip at every step; eps follows, so that both still meet in x_t.
    pub clip: Option<f64>,
    /// η of DDIM.
    pub eta: f64,
    /// The fresh noise of `heun-churn`.
    pub churn: Churn,
    evaluations: Cell<usize>,
}

impl<'a, F: Field> GaussianProblem<'a, F> {
    /// A problem without clipping, with η = 0.
    pub fn new(net: &'a dyn Denoise<F>, process: Gaussian) -> Self {
        Self { net, process, clip: None, eta: 0.0, churn: Churn::CIFAR10, evaluations: Cell::new(0) }
    }

    /// Evaluates the network once at (x_t, t).
    fn predict(&self, x_t: &F, t: f64) -> Result<Prediction<F>> {
        self.evaluations.set(self.evaluations.get() + 1);
        let prediction = self.net.denoise(x_t, t)?;
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
    /// From `x` at time 1, of deviation σ_1.
    fn solve(&self, sampler: Sampler, times: &[f64], x: F, hooks: &mut Hooks<F>) -> Option<Result<F>> {
        sampler.loops().gaussian.map(|run| run(self, times, x, hooks))
    }
}

/// Evaluates at step `n` and shows the state.
fn observe<F: Field>(problem: &GaussianProblem<F>, hooks: &mut Hooks<F>, step: usize, x: &F, t: f64) -> Result<Prediction<F>> {
    let prediction = problem.predict(x, t)?;
    (hooks.observe)(State { step, t, x_t: x, x0: &prediction.x0 });
    Ok(prediction)
}
