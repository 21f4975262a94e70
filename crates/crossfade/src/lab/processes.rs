//! The laboratory for processes other than attenuation: every sampler that fits a process, on its `auto` grid.
use super::exact::{CldOracle, GaussianOracle};
use super::measure::{median, rms, sliced_w2};
use super::mixture::{Mixture, normals};
use super::oracle::Oracle;
use super::points::Points;
use super::report::{Cell, Curve};
use super::{LabConfig, REFERENCE_FACTOR};
use crate::error::{Error, Result};
use crate::sample::cld::CldProblem;
use crate::sample::gaussian::GaussianProblem;
use crate::sample::{EvaluationOptions, Form, Hooks, Sampled, Sampler};
use crossfade_math::process::Outputs;
use crossfade_math::{Adm, Field, GaussianFn, Grid, GridKind, NoiseScale, Process};

/// The processes that are measured. Processes that differ only in the outputs of their networks are left out, because
/// an exact denoiser has no such outputs. The first process is constant attenuation, which Gaussian samplers can use
/// too.
pub fn processes(noise: NoiseScale) -> Vec<Process> {
    let own = Adm { noise, ..Adm::default() };
    let others = Process::all().into_iter().filter(|process| process.outputs() == Outputs::Target);
    [own.into()].into_iter().chain(others).collect()
}

/// The samplers of a process that are measured here; those for attenuation are measured in `lab/mod.rs`.
pub fn samplers(process: &Process) -> Vec<Sampler> {
    Sampler::fitting(process).into_iter().filter(|s| !s.uses_attenuation(process)).collect()
}

/// Runs a sampler once on `count` points; the noise of the steps has other seeds than the starting noise.
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
            let start = start.scale(gaussian.start_deviation(times[0]));
            sampler.run(&GaussianProblem::new(&oracle, gaussian), &times, start, &mut hooks)
        }
        Some(Form::Attenuation(_)) | None => {
            Err(Error::request(format!("{} is not measured here on {}", sampler.name(), process.name())))
        }
    }
}

/// The grids on which a sampler is measured: that of `auto`, and where necessary one on which its order is visible,
/// which comes last. If α_1 = 0, λ = ln(α/σ) is infinite at t = 1; the `auto` grid is then good for few steps, but
/// samplers do not reach their order on it.
pub fn grids(process: &Process, sampler: Sampler) -> Vec<GridKind> {
    let auto = sampler.grid(process, &GridKind::Auto);
    let starts_without_signal = process.gaussian().is_some_and(|gaussian| gaussian.alpha(1.0) == 0.0);
    let with_order = match (starts_without_signal, sampler.is_stochastic(), process) {
        (true, false, _) => GridKind::LOG_SNR,
        // Stochastic samplers of second order; churn has first order on every grid.
        (true, true, _) if sampler.prefers_log_snr() && sampler.order() > 1 => GridKind::LOG_SNR,
        (true, true, Process::Adm(_)) => GridKind::UniformSqrt,
        _ => auto.clone(),
    };
    if with_order == auto { vec![auto] } else { vec![auto, with_order] }
}

/// The solution of the probability-flow equation, by a third-order sampler with many steps. For constant attenuation
/// this is the predictor–corrector, because UniPC does not reach its order on grids in t under attenuation; otherwise
/// it is UniPC.
fn reference_solution(
    mixture: &Mixture,
    process: &Process,
    grid: &GridKind,
    steps: usize,
    from: (usize, u64),
) -> Result<Points> {
    let (Process::Adm(adm), false) = (process, *grid == GridKind::LOG_SNR) else {
        // With more steps than the chain has below its start, DDIM's sequence would start later.
        let steps = if *grid == GridKind::DdimQuadratic { steps.min(801) } else { steps };
        return Ok(solve(mixture, process, Sampler::UniPc, grid, steps, from)?.x0);
    };
    let oracle = Oracle::new(mixture.clone(), *adm);
    let start = normals(mixture.dim, from.0, from.1, 0);
    Ok(super::solve(&oracle, *adm, Sampler::PredictorCorrector, &GridKind::UniformSqrt, steps, &start, 0)?.x0)
}

/// Measures the chosen samplers of one process for all numbers of evaluations.
pub fn curves(config: &LabConfig, process: &Process, data: &Points) -> Result<Vec<Curve>> {
    let mixture = config.mixture();
    let from = (config.samples, config.seed);
    let most = REFERENCE_FACTOR * config.evaluations.last().copied().unwrap_or(1);
    // A process with discrete times cannot be solved with more steps than it has times.
    let finest = process.gaussian().and_then(|p| p.tick()).map_or(most, |tick| most.min((1.0 / tick).round() as usize));
    // One reference solution per grid, because grids differ in the time before their last step.
    let mut exact: Vec<(GridKind, Points)> = vec![];
    let mut curves = vec![];
    let chosen = samplers(process).into_iter().filter(|s| config.samplers.contains(s));
    for (sampler, grid) in chosen.flat_map(|s| grids(process, s).into_iter().map(move |grid| (s, grid))) {
        if !sampler.is_stochastic() && !exact.iter().any(|(kind, _)| *kind == grid) {
            exact.push((grid.clone(), reference_solution(&mixture, process, &grid, finest, from)?));
        }
        let reference = exact.iter().find(|(kind, _)| *kind == grid && !sampler.is_stochastic());
        let mut cells = vec![];
        for &n in &config.evaluations {
            let most = n.min(finest * sampler.evaluations_per_step());
            let times = Grid { kind: grid.clone(), final_t: None };
            let steps = sampler.steps_within(process, &times, EvaluationOptions::default(), most)?;
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
