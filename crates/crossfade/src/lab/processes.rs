//! The laboratory for every process: each sampler that fits it, on the grid that suits both.
use super::measure::{median, rms, sliced_w2};
use super::mixture::{Mixture, normals};
use super::oracle::Oracle;
use super::exact::{CldOracle, GaussianOracle};
use super::points::Points;
use super::report::{Cell, Curve};
use super::{LabConfig, REFERENCE_FACTOR};
use crate::error::{Error, Result};
use crate::sample::cld::CldProblem;
use crate::sample::gaussian::GaussianProblem;
use crate::sample::{Form, Hooks, Sampled, Sampler};
use crossfade_math::process::Outputs;
use crossfade_math::{Adm, Field, GaussianFn, Grid, GridKind, NoiseScale, Process};

/// Every process whose samplers differ from another's: what a network predicts beside its target is nothing to an exact
/// denoiser. The first is constant attenuation under the samplers that know only (α_t, σ_t).
pub fn processes(noise: NoiseScale) -> Vec<Process> {
    let own = Adm { noise, ..Adm::default() };
    let others = Process::all().into_iter().filter(|process| process.outputs() == Outputs::Target);
    [own.into()].into_iter().chain(others).collect()
}

/// The samplers of a process that are measured here: those of attenuation have their own part.
pub fn samplers(process: &Process) -> Vec<Sampler> {
    Sampler::fitting(process).into_iter().filter(|s| !s.uses_attenuation(process)).collect()
}

/// One run from the points that `seed` starts with; the noise of the steps is of the next seeds.
pub fn solve(
    mixture: &Mixture,
    process: &Process,
    sampler: Sampler,
    grid: &GridKind,
    steps: usize,
    (count, seed): (usize, u64),
) -> Result<Sampled<Points>> {
    let times = sampler.times(process, &Grid { kind: grid.clone(), final_t: None }, steps)?;
    let dim = mixture.dim;
    let start = normals(dim, count, seed, 0);
    let mut hooks =
        Hooks { noise: &mut |n| normals(dim, count, seed.wrapping_add(3), 1 + n as u64), observe: &mut |_| () };
    match sampler.form(process) {
        Some(Form::Velocity(cld)) => {
            let oracle = CldOracle { mixture: mixture.clone(), cld };
            let velocity = normals(dim, count, seed.wrapping_add(4), 0);
            sampler.run(&CldProblem::new(&oracle, cld), &times, (start, velocity), &mut hooks)
        }
        Some(Form::Gaussian(gaussian)) => {
            let oracle = GaussianOracle { mixture: mixture.clone(), process: gaussian };
            sampler.run(&GaussianProblem::new(&oracle, gaussian), &times, start.scale(gaussian.sigma(1.0)), &mut hooks)
        }
        Some(Form::Attenuation(_)) | None => {
            Err(Error::request(format!("{} is not measured here on {}", sampler.name(), process.name())))
        }
    }
}

/// The grids on which a sampler of a process is measured: the one that `auto` means, and where that one suits few steps but
/// costs orders, because the picture is gone at t = 1 (α_1 = 0), last one on which they are seen.
pub fn grids(process: &Process, sampler: Sampler) -> Vec<GridKind> {
    let auto = sampler.grid(process, &GridKind::Auto);
    let begins_at_nothing = process.gaussian().is_some_and(|gaussian| gaussian.alpha(1.0) == 0.0);
    let orderly = match (begins_at_nothing, sampler.is_stochastic(), process) {
        (true, false, _) => GridKind::LogSnr,
        (true, true, Process::Adm(_)) => GridKind::UniformSqrt,
        _ => auto.clone(),
    };
    if orderly == auto { vec![auto] } else { vec![auto, orderly] }
}

/// The solution of the deterministic equation in many steps, by a sampler of third order: UniPC, or attenuation's own on its
/// best grid, because UniPC loses its order on those in t of attenuation.
fn limit(mixture: &Mixture, process: &Process, grid: &GridKind, steps: usize, from: (usize, u64)) -> Result<Points> {
    let (Process::Adm(adm), false) = (process, *grid == GridKind::LogSnr) else {
        return Ok(solve(mixture, process, Sampler::UniPc, grid, steps, from)?.x0);
    };
    let oracle = Oracle::new(mixture.clone(), *adm);
    let start = normals(mixture.dim, from.0, from.1, 0);
    Ok(super::solve(&oracle, *adm, Sampler::PredictorCorrector, &GridKind::UniformSqrt, steps, &start, 0)?.x0)
}

/// The chosen samplers of one process over all numbers of evaluations.
pub fn curves(config: &LabConfig, process: &Process, data: &Points) -> Result<Vec<Curve>> {
    let mixture = config.mixture();
    let from = (config.samples, config.seed);
    let most = REFERENCE_FACTOR * config.evaluations.last().copied().unwrap_or(1);
    // A discrete chain has no finer steps than its own.
    let finest = process.gaussian().and_then(|p| p.tick()).map_or(most, |tick| most.min((1.0 / tick).round() as usize));
    // The exact solution on each grid: grids differ in where they stop before the last step.
    let mut exact: Vec<(GridKind, Points)> = vec![];
    let mut curves = vec![];
    let chosen = samplers(process).into_iter().filter(|s| config.samplers.contains(s));
    for (sampler, grid) in chosen.flat_map(|s| grids(process, s).into_iter().map(move |grid| (s, grid))) {
        if !sampler.is_stochastic() && !exact.iter().any(|(kind, _)| *kind == grid) {
            exact.push((grid.clone(), limit(&mixture, process, &grid, finest, from)?));
        }
        let reference = exact.iter().find(|(kind, _)| *kind == grid && !sampler.is_stochastic());
        let mut cells = vec![];
        for &n in &config.evaluations {
            let most = n.min(finest * sampler.evaluations_per_step());
            let steps = sampler.steps_within(process, &Grid { kind: grid.clone(), final_t: None }, most)?;
            let sampled = solve(&mixture, process, sampler, &grid, steps, from)?;
            cells.push(Cell {
                steps,
                evaluations: sampled.nfe,
                rms: reference.map(|(_, exact)| rms(&sampled.x0, exact)),
                median: reference.map(|(_, exact)| median(&sampled.x0, exact)),
                weak: config.weak_error(process, sampler, &grid, steps)?,
                w2: sliced_w2(&sampled.x0, data),
            });
        }
        curves.push(Curve::new(process.name(), sampler, grid.name(), cells));
    }
    Ok(curves)
}
