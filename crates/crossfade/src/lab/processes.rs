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
use crate::sample::{Hooks, Law, Sampled, Sampler};
use crossfade_math::path::{Baseline, Output, GaussianFn};
use crossfade_math::{Field, Grid, GridKind, NoiseScale, Process};

/// Every process whose samplers differ from another's: what a network predicts beside its target is nothing to an exact
/// denoiser. The first is constant attenuation under the samplers that know only (α_t, σ_t).
pub fn processes(noise: NoiseScale) -> Vec<Law> {
    let own = Process { noise, ..Process::default() };
    let baselines = Baseline::all().into_iter().filter(|b| b.output() == Output::One);
    let laws = baselines.map(|baseline| Law::new(Process::default(), Some(baseline)));
    [Law::Attenuation(own)].into_iter().chain(laws).collect()
}

/// The samplers of a process that are measured here: those of attenuation have their own part.
pub fn samplers(law: &Law) -> Vec<Sampler> {
    law.samplers().into_iter().filter(|s| !law.is_native(*s)).collect()
}

/// One run from the points that `seed` starts with; the noise of the steps is of the next seeds.
pub fn solve(
    mixture: &Mixture,
    law: &Law,
    sampler: Sampler,
    grid: &GridKind,
    steps: usize,
    (count, seed): (usize, u64),
) -> Result<Sampled<Points>> {
    let times = law.times(&Grid { kind: grid.clone(), final_t: None }, sampler, steps)?;
    let dim = mixture.dim;
    let start = normals(dim, count, seed, 0);
    let mut hooks =
        Hooks { noise: &mut |n| normals(dim, count, seed.wrapping_add(3), 1 + n as u64), observe: &mut |_| () };
    match (law, law.path()) {
        (Law::Cld(cld), _) => {
            let oracle = CldOracle { mixture: mixture.clone(), cld: *cld };
            let velocity = normals(dim, count, seed.wrapping_add(4), 0);
            sampler.run(&CldProblem::new(&oracle, *cld), &times, (start, velocity), &mut hooks)
        }
        (_, Some(path)) => {
            let oracle = GaussianOracle { mixture: mixture.clone(), path };
            sampler.run(&GaussianProblem::new(&oracle, path), &times, start.scale(path.sigma(1.0)), &mut hooks)
        }
        _ => Err(Error::request(format!("{} has no exact denoiser here", law.name()))),
    }
}

/// The grids on which a sampler of a process is measured: the one that `auto` means, and where that one suits few steps but
/// costs orders, because the picture is gone at t = 1 (α_1 = 0), last one on which they are seen.
pub fn grids(law: &Law, sampler: Sampler) -> Vec<GridKind> {
    let auto = law.grid(&GridKind::Auto, sampler);
    let begins_at_nothing = law.path().is_some_and(|path| path.alpha(1.0) == 0.0);
    let orderly = match (begins_at_nothing, sampler.is_stochastic(), law) {
        (true, false, _) => GridKind::LogSnr,
        (true, true, Law::Attenuation(_)) => GridKind::UniformSqrt,
        _ => auto.clone(),
    };
    if orderly == auto { vec![auto] } else { vec![auto, orderly] }
}

/// The solution of the deterministic equation in many steps, by a sampler of third order: UniPC, or attenuation's own on its
/// best grid, because UniPC loses its order on those in t of attenuation.
fn limit(mixture: &Mixture, law: &Law, grid: &GridKind, steps: usize, from: (usize, u64)) -> Result<Points> {
    let (Law::Attenuation(process), false) = (law, *grid == GridKind::LogSnr) else {
        return Ok(solve(mixture, law, Sampler::UniPc, grid, steps, from)?.x0);
    };
    let oracle = Oracle::new(mixture.clone(), *process);
    let start = normals(mixture.dim, from.0, from.1, 0);
    Ok(super::solve(&oracle, *process, Sampler::PredictorCorrector, &GridKind::UniformSqrt, steps, &start, 0)?.x0)
}

/// The chosen samplers of one process over all numbers of evaluations.
pub fn curves(config: &LabConfig, law: &Law, data: &Points) -> Result<Vec<Curve>> {
    let mixture = config.mixture();
    let from = (config.samples, config.seed);
    let most = REFERENCE_FACTOR * config.evaluations.last().copied().unwrap_or(1);
    // A discrete chain has no finer steps than its own.
    let finest = law.path().and_then(|p| p.tick()).map_or(most, |tick| most.min((1.0 / tick).round() as usize));
    // The exact solution on each grid: grids differ in where they stop before the last step.
    let mut exact: Vec<(GridKind, Points)> = vec![];
    let mut curves = vec![];
    let chosen = samplers(law).into_iter().filter(|s| config.samplers.contains(s));
    for (sampler, grid) in chosen.flat_map(|s| grids(law, s).into_iter().map(move |grid| (s, grid))) {
        if !sampler.is_stochastic() && !exact.iter().any(|(kind, _)| *kind == grid) {
            exact.push((grid.clone(), limit(&mixture, law, &grid, finest, from)?));
        }
        let reference = exact.iter().find(|(kind, _)| *kind == grid && !sampler.is_stochastic());
        let mut cells = vec![];
        for &n in &config.evaluations {
            let most = n.min(finest * sampler.evaluations_per_step());
            let steps = law.steps_within(&Grid { kind: grid.clone(), final_t: None }, sampler, most)?;
            let sampled = solve(&mixture, law, sampler, &grid, steps, from)?;
            cells.push(Cell {
                steps,
                evaluations: sampled.nfe,
                rms: reference.map(|(_, exact)| rms(&sampled.x0, exact)),
                median: reference.map(|(_, exact)| median(&sampled.x0, exact)),
                weak: config.weak_error(law, sampler, &grid, steps)?,
                w2: sliced_w2(&sampled.x0, data),
            });
        }
        curves.push(Curve::new(law.name(), sampler, grid.name(), cells));
    }
    Ok(curves)
}
