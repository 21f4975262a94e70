//! Deterministic inversion (§3.6): from x_0 at t = 0 up to the noise that the same sampler turns into x_0.
use super::{Hooks, Sampled, Sampler, Setting, check_times};
use crate::error::{Error, Result};
use crossfade_math::{Field, Process};

/// The result of an inversion.
pub struct Inverted<F> {
    /// x_t at the first of the sampling times.
    pub x_t: F,
    /// The number of network evaluations.
    pub nfe: usize,
}

impl Sampler {
    /// The second-order sampler for inversion on `process`; none for CLD, whose state has a velocity that x_0 does not
    /// determine.
    pub fn inverting(process: &Process) -> Option<Self> {
        Self::invertible(process).into_iter().max_by_key(|sampler| sampler.order())
    }

    /// The samplers that can run from x_0 to noise on `process`: single-step ones without noise, whose formulas hold for
    /// steps in both directions.
    pub fn invertible(process: &Process) -> Vec<Self> {
        Self::fitting(process).into_iter().filter(|sampler| sampler.is_reversible()).collect()
    }

    /// Runs the sampler upward, from x_0 to the first of `times`, which descend to 0 as those of [`Sampler::run`].
    pub fn invert<F: Field, P: Setting<F, Start = F> + ?Sized>(
        self,
        problem: &P,
        times: &[f64],
        x0: &F,
    ) -> Result<Inverted<F>> {
        check_times(times)?;
        if !self.is_reversible() {
            return Err(Error::request(format!("the sampler {} cannot run from a picture to noise", self.name())));
        }
        problem.evaluations().set(0);
        let mut hooks = Hooks { noise: &mut |_| x0.scale(0.0), observe: &mut |_| () };
        let mut run = |times: &[f64], x: F| {
            let no_loop = || format!("the sampler {} does not fit the process {}", self.name(), problem.kind());
            problem.solve(self, times, x, &mut hooks).ok_or_else(|| Error::Request(no_loop()))?
        };
        // Networks are not defined at t = 0, so the first step up is the solution of "the last step down ends at x_0". The
        // map of that short step is close to the identity, and each iteration gains one order of its length.
        let evaluated = &times[..times.len() - 1];
        let last = [evaluated[evaluated.len() - 1], 0.0];
        let mut x = x0.clone();
        for _ in 0..self.order() {
            let end = run(&last, x.clone())?;
            x = F::lincomb(&[(1.0.into(), &x), (1.0.into(), x0), ((-1.0).into(), &end)]);
        }
        let upward: Vec<f64> = evaluated.iter().rev().copied().collect();
        let x_t = run(&upward, x)?;
        Ok(Inverted { x_t, nfe: problem.evaluations().get() })
    }

    /// As [`Sampler::invert`], and back again with the same times: x_t and what x_0 has become.
    pub fn round_trip<F: Field, P: Setting<F, Start = F> + ?Sized>(
        self,
        problem: &P,
        times: &[f64],
        x0: &F,
    ) -> Result<(Inverted<F>, Sampled<F>)> {
        let inverted = self.invert(problem, times, x0)?;
        let mut hooks = Hooks { noise: &mut |_| x0.scale(0.0), observe: &mut |_| () };
        let back = self.run(problem, times, inverted.x_t.clone(), &mut hooks)?;
        Ok((inverted, back))
    }
}
