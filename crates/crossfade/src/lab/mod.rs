//! The laboratory: runs every sampler on exact denoisers and measures its order of convergence (§10.4).
//!
//! For Gaussian mixtures the optimal network is known in closed form ([`Oracle`]). A deterministic sampler is compared
//! point by point with the solution of its own differential equation from the same noise (strong error). A stochastic
//! sampler is compared by the distribution that it produces for a single Gaussian, which can be computed exactly
//! ([`weak_error`]). For every sampler, the sliced W2 distance to the data is reported too.
//!
//! The isotropic mixture does not look like images. [`SharesRun`] therefore runs samplers on the exact linear denoiser of
//! the spectrum of an image set (§10.5).
mod exact;
mod gaussian;
mod linear;
mod measure;
mod mixture;
mod oracle;
mod points;
mod processes;
mod report;
mod shares;
mod shares_report;
pub mod spectrum;

pub use exact::{CldOracle, GaussianOracle};
pub use gaussian::{Normal, weak_error};
pub use measure::{median, rms, sliced_w2, slopes};
pub use mixture::{Mixture, normals};
pub use oracle::Oracle;
pub use points::Points;
pub use processes::{grids as process_grids, processes, samplers as process_samplers, solve as solve_process};
pub use report::{Cell, Curve, LabReport};
pub use shares::{Estimator, SharesConfig, SharesRow, SharesRun, linear_error};
pub use shares_report::{NoiseError, SharesReport};
pub use spectrum::{Band, Spectrum};

use crate::error::{Error, Result};
use crate::sample::{AttenuationProblem, EvaluationOptions, Hooks, Predict, Sampler};
use crossfade_math::{Adm, Attenuation, Grid, GridKind, NoiseScale, Process};

/// The options of the laboratory.
#[derive(Clone, Debug, serde::Serialize)]
pub struct LabConfig {
    /// The dimension of the data.
    pub dim: usize,
    /// Components of the mixture; 1 for a single Gaussian.
    pub components: usize,
    /// Standard deviation of a component.
    pub std: f64,
    /// Points per run.
    pub samples: usize,
    /// Seed of the mixture, the noise and the data.
    pub seed: u64,
    /// Attenuations to run, with the samplers for attenuation.
    pub attenuations: Vec<Attenuation>,
    /// Processes to run, with the Gaussian samplers, which use only (α_t, σ_t).
    #[serde(serialize_with = "names")]
    pub processes: Vec<Process>,
    /// The noise scale.
    pub noise: NoiseScale,
    /// Samplers to run.
    pub samplers: Vec<Sampler>,
    /// Grids of times to run the samplers for attenuation on.
    pub grids: Vec<GridKind>,
    /// Numbers of network evaluations, ascending.
    pub evaluations: Vec<usize>,
}

impl Default for LabConfig {
    fn default() -> Self {
        Self {
            dim: 8,
            components: 6,
            std: 0.2,
            samples: 1000,
            seed: 0,
            attenuations: vec![Attenuation::Constant],
            processes: vec![],
            noise: NoiseScale::Sqrt,
            samplers: Sampler::ALL.to_vec(),
            grids: vec![GridKind::UniformSqrt, GridKind::UniformT, GridKind::Reference { sigma_min: 0.01 }],
            evaluations: vec![5, 10, 20, 40, 80, 160, 320],
        }
    }
}

/// Serialises processes by their names; their constants are the published ones.
fn names<S: serde::Serializer>(processes: &[Process], serializer: S) -> std::result::Result<S::Ok, S::Error> {
    serializer.collect_seq(processes.iter().map(Process::name))
}

/// The reference solution has this many times the steps of the largest measured run. The error of a third-order sampler is
/// then 1/125 of that run's error.
const REFERENCE_FACTOR: usize = 5;

impl LabConfig {
    /// Checks the options; all problems are reported at once.
    fn check(&self) -> Result<()> {
        let mut problems = vec![];
        for (bad, what) in [
            (self.dim == 0 || self.dim > 64, "dim must be 1 to 64"),
            (self.components == 0 || self.components > 64, "components must be 1 to 64"),
            (!(1e-4..=10.0).contains(&self.std), "std must be 0.0001 to 10"),
            (self.samples < 2 || self.samples > 10_000_000, "samples must be 2 to 10,000,000"),
            (self.evaluations.iter().any(|&n| n == 0 || n > 100_000), "evaluations must be 1 to 100,000"),
            (!self.evaluations.windows(2).all(|w| w[0] < w[1]), "evaluations must ascend"),
            (self.evaluations.is_empty(), "at least one number of evaluations is needed"),
        ] {
            if bad {
                problems.push(what.to_string());
            }
        }
        if problems.is_empty() { Ok(()) } else { Err(Error::Config(problems)) }
    }

    /// The data distribution.
    pub fn mixture(&self) -> Mixture {
        match self.components {
            1 => Mixture::gaussian(self.dim, self.std),
            n => Mixture::random(self.dim, n, self.std, 1.0, self.seed),
        }
    }

    /// The error of the distribution that a stochastic sampler produces for one Gaussian, divided by its standard
    /// deviation. None for deterministic samplers, and where the denoiser is not affine.
    fn weak_error(&self, process: &Process, sampler: Sampler, grid: &GridKind, steps: usize) -> Result<Option<f64>> {
        if !sampler.is_stochastic() || (process.gaussian().is_none() && process.estimates_x0()) {
            return Ok(None);
        }
        let data = Normal { mean: self.std, std: self.std };
        Ok(Some(weak_error(data, process, sampler, grid, steps)? / self.std))
    }

    /// The process with this attenuation.
    fn process(&self, attenuation: Attenuation) -> Adm {
        Adm::new(attenuation, self.noise)
    }
}

/// Runs all curves; `progress` is called with (curves done, all curves).
pub fn run(config: &LabConfig, progress: &mut dyn FnMut(usize, usize)) -> Result<LabReport> {
    config.check()?;
    let mixture = config.mixture();
    let start = normals(config.dim, config.samples, config.seed, 0);
    // Data, floor, start and steps have different seeds, so that their draws are independent.
    let data = mixture.sample(config.samples, config.seed.wrapping_add(1));
    // The distance between two samples of the data itself: no sampler can be measured to be better.
    let floor = sliced_w2(&data, &mixture.sample(config.samples, config.seed.wrapping_add(2)));
    let fine = REFERENCE_FACTOR * config.evaluations.last().copied().unwrap_or(1);
    let for_attenuation = |s: &&Sampler| s.uses_attenuation(&Process::default());
    let own: Vec<Sampler> = config.samplers.iter().filter(for_attenuation).copied().collect();
    let curves_of = |process: &Process| -> usize {
        let chosen = processes::samplers(process).into_iter().filter(|s| config.samplers.contains(s));
        chosen.map(|s| processes::grids(process, s).len()).sum()
    };
    let others: usize = config.processes.iter().map(curves_of).sum();
    let all = config.attenuations.len() * own.len() * config.grids.len() + others;
    if all == 0 {
        let advice = "none of these samplers fits what is compared; choose others, or --processes all";
        return Err(Error::request(advice));
    }
    let mut curves = vec![];
    for &attenuation in &config.attenuations {
        let adm = config.process(attenuation);
        let process = Process::Adm(adm);
        let oracle = Oracle::new(mixture.clone(), adm);
        let exact = solve(&oracle, adm, Sampler::PredictorCorrector, &GridKind::UniformSqrt, fine, &start, 0)?;
        for &sampler in &own {
            for grid in &config.grids {
                let mut cells = vec![];
                for &n in &config.evaluations {
                    let times = Grid { kind: grid.clone(), final_t: None };
                    let steps = sampler.steps_within(&process, &times, EvaluationOptions::default(), n)?;
                    let sampled = solve(&oracle, adm, sampler, grid, steps, &start, config.seed.wrapping_add(3))?;
                    let deterministic = !sampler.is_stochastic();
                    cells.push(Cell {
                        steps,
                        evaluations: sampled.nfe,
                        rms: deterministic.then(|| rms(&sampled.x0, &exact.x0)),
                        median: deterministic.then(|| median(&sampled.x0, &exact.x0)),
                        weak: config.weak_error(&process, sampler, grid, steps)?,
                        w2: sliced_w2(&sampled.x0, &data),
                    });
                }
                curves.push(Curve::new(attenuation.name(), sampler, grid.name(), cells));
                progress(curves.len(), all);
            }
        }
    }
    for process in &config.processes {
        curves.extend(processes::curves(config, process, &data)?);
        progress(curves.len(), all);
    }
    Ok(LabReport { config: config.clone(), floor, curves })
}

/// Runs a sampler for attenuation once from `start`.
fn solve(
    oracle: &dyn Predict<Points>,
    adm: Adm,
    sampler: Sampler,
    grid: &GridKind,
    steps: usize,
    start: &Points,
    seed: u64,
) -> Result<crate::sample::Sampled<Points>> {
    let times = sampler.times(&adm.into(), &Grid { kind: grid.clone(), final_t: None }, steps)?;
    let mut hooks =
        Hooks { noise: &mut |step| normals(start.dim, start.count(), seed, 1 + step as u64), observe: &mut |_| () };
    sampler.run(&AttenuationProblem::new(oracle, adm), &times, start.clone(), &mut hooks)
}
