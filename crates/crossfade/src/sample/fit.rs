//! Decides which samplers can run on which process, and resolves `auto`.
//!
//! A sampler's loop is written for one of three forms of a process ([`Form`]). This file is the only place that decides
//! which form a sampler uses on a process.
use super::cld::{CldProblem, VelocityScore};
use super::gaussian::{Denoise, GaussianProblem};
use super::{AttenuationProblem, Guidance, Heads, Hooks, Predict, Sampler};
use crate::error::{Error, Result};
use crossfade_math::process::Cld;
use crossfade_math::{Adm, Gaussian, GaussianFn, Grid, GridKind, Prediction, Process, ProcessFn};

/// The grid that `auto` selects for constant attenuation where no times were fitted to the checkpoint. This is the one
/// place to change it: [`GridKind::Images`] is made for images at few steps, but the paper's grid stays until another one has
/// the lower FID on trained networks. A change raises the revisions of the samplers for attenuation.
const CONSTANT_ATTENUATION: GridKind = GridKind::UniformT;

/// The form in which a sampler uses a process.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Form {
    /// By phi and eps of attenuation.
    Attenuation(Adm),
    /// By (α_t, σ_t): x_t = α_t x_0 + σ_t eps.
    Gaussian(Gaussian),
    /// By the score of the velocity in CLD.
    Velocity(Cld),
}

/// What changes the number of network evaluations of a run besides its times.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EvaluationOptions {
    /// A guided prediction takes two evaluations.
    pub guidance: Guidance,
    /// The evaluation at t = 1 is saved where its result is known (§3.5).
    pub free_first_step: bool,
}

impl Default for EvaluationOptions {
    fn default() -> Self {
        Self { guidance: Guidance::NONE, free_first_step: false }
    }
}

impl Sampler {
    /// The form in which it uses `process`; none if it cannot run on it.
    pub fn form(self, process: &Process) -> Option<Form> {
        let loops = self.loops::<f64>();
        match process {
            Process::Adm(adm) if loops.attenuation.is_some() => Some(Form::Attenuation(*adm)),
            Process::Cld(cld) => loops.cld.is_some().then_some(Form::Velocity(*cld)),
            _ => {
                let gaussian = process.gaussian().filter(|_| loops.gaussian.is_some())?;
                // With α_1 = 0 some samplers would divide by zero in their first step.
                let defined = gaussian.alpha(1.0) > 0.0 || !self.needs_signal_at_start();
                defined.then_some(Form::Gaussian(gaussian))
            }
        }
    }

    /// Whether it uses `process` through the formulas of attenuation.
    pub fn uses_attenuation(self, process: &Process) -> bool {
        matches!(self.form(process), Some(Form::Attenuation(_)))
    }

    /// Every sampler that can run on `process`.
    pub fn fitting(process: &Process) -> Vec<Self> {
        Self::ALL.iter().copied().filter(|sampler| sampler.form(process).is_some()).collect()
    }

    /// The sampler itself, or for `auto` that of the process. If it cannot run on the process, the error lists those
    /// that can.
    pub fn resolved(self, process: &Process) -> Result<Self> {
        let sampler = if self == Self::Auto { Self::parse(process.sampler())? } else { self };
        if sampler.form(process).is_some() {
            return Ok(sampler);
        }
        let fitting: Vec<_> = Self::fitting(process).iter().map(|s| s.name()).collect();
        Err(Error::request(format!(
            "the sampler {} does not fit the process {}; those that do: {}",
            sampler.name(),
            process.name(),
            fitting.join(", ")
        )))
    }

    /// The grid for `auto`, which is the one in the papers of process and sampler.
    fn own_grid(self, process: &Process) -> GridKind {
        let own = process.grid();
        if process.adm().is_some() {
            // Other attenuations than the constant one have no κ, which grids of noise levels need.
            return if process.gaussian().is_some() { CONSTANT_ATTENUATION } else { own };
        }
        let Some(Form::Gaussian(gaussian)) = self.form(process) else { return own };
        match (own, self) {
            // DDIM's quadratic sequence for CIFAR-10.
            (_, Self::Ddim) if gaussian.tick().is_some() => GridKind::DdimQuadratic,
            // If α_1 = 0, ln(α/σ) is infinite at t = 1, and a grid that is uniform in it would put most steps near t = 1.
            (GridKind::UniformT, sampler)
                if sampler.prefers_log_snr() && gaussian.tick().is_none() && gaussian.alpha(1.0) > 0.0 =>
            {
                GridKind::LOG_SNR
            }
            (own, _) => own,
        }
    }

    /// The grid `wanted`, or for `auto` the one for process and sampler.
    pub fn grid(self, process: &Process, wanted: &GridKind) -> GridKind {
        if *wanted == GridKind::Auto { self.own_grid(process) } else { wanted.clone() }
    }

    /// The times of `steps` steps, down to 0.
    pub fn times(self, process: &Process, grid: &Grid, steps: usize) -> Result<Vec<f64>> {
        let grid = Grid { kind: self.grid(process, &grid.kind), final_t: grid.final_t };
        let times = match process.gaussian() {
            Some(gaussian) => grid.times_on(&gaussian, steps),
            None => grid.times(steps),
        };
        times.map_err(Error::Request)
    }

    /// The number of network evaluations of a run. It is counted by running the sampler on a single number, because
    /// samplers treat their first and last steps differently, and evaluate the network between the times of the grid.
    pub fn evaluations(self, process: &Process, times: &[f64], options: EvaluationOptions) -> Result<usize> {
        let EvaluationOptions { guidance, free_first_step } = options;
        let mean_x0 = free_first_step.then_some(0.0);
        let sampler = self.resolved(process)?;
        let mut hooks = Hooks { noise: &mut |_| 0.0, observe: &mut |_| () };
        let net = ZeroNetwork { phi_parts: process.phi_parts(), guidance };
        let sampled = match sampler.form(process) {
            Some(Form::Velocity(cld)) => sampler.run(&CldProblem::new(&net, cld), times, (0.0, 0.0), &mut hooks),
            Some(Form::Gaussian(gaussian)) => {
                let mut problem = GaussianProblem::new(&net, gaussian);
                problem.mean_x0 = mean_x0;
                sampler.run(&problem, times, 1.0, &mut hooks)
            }
            Some(Form::Attenuation(adm)) => {
                let mut problem = AttenuationProblem::new(&net, adm);
                problem.mean_x0 = mean_x0;
                sampler.run(&problem, times, 1.0, &mut hooks)
            }
            None => Err(Error::Run(format!("{} has no form of {}", sampler.name(), process.name()))),
        };
        Ok(sampled?.nfe)
    }

    /// The largest number of steps with at most `most` evaluations; 1 if even one step takes more.
    pub(crate) fn steps_within(
        self,
        process: &Process,
        grid: &Grid,
        options: EvaluationOptions,
        most: usize,
    ) -> Result<usize> {
        let evaluations = |steps: usize| self.evaluations(process, &self.times(process, grid, steps)?, options);
        // The first guess may be off: some samplers take fewer evaluations in the first or last step, and some grids
        // have an extra step at the end.
        let mut steps = (most / self.evaluations_per_step()).max(1);
        while steps <= most && evaluations(steps + 1).is_ok_and(|n| n <= most) {
            steps += 1;
        }
        while steps > 1 && evaluations(steps)? > most {
            steps -= 1;
        }
        Ok(steps)
    }
}

/// A network whose outputs are all zero, to count evaluations.
struct ZeroNetwork {
    phi_parts: usize,
    guidance: Guidance,
}

impl Predict<f64> for ZeroNetwork {
    fn predict(&self, _: &f64, _: f64) -> Result<Heads<f64>> {
        Ok(Heads { phi: vec![0.0; self.phi_parts], eps: 0.0 })
    }
    fn evaluations(&self, t: f64) -> usize {
        self.guidance.evaluations(t)
    }
}

impl Denoise<f64> for ZeroNetwork {
    fn denoise(&self, _: &f64, _: f64) -> Result<Prediction<f64>> {
        Ok(Prediction { x0: 0.0, eps: 0.0 })
    }
    fn evaluations(&self, t: f64) -> usize {
        self.guidance.evaluations(t)
    }
}

impl VelocityScore<f64> for ZeroNetwork {
    fn score(&self, _: &f64, _: &f64, _: f64) -> Result<f64> {
        Ok(0.0)
    }
    fn evaluations(&self, t: f64) -> usize {
        self.guidance.evaluations(t)
    }
}
