//! The exact distribution that a sampler produces for Gaussian data, and its error. It is computed without Monte Carlo
//! sampling, so that the error has no sampling noise.
use super::exact::{CldOracle, GaussianOracle};
use super::mixture::Mixture;
use super::oracle::Oracle;
use super::points::Points;
use crate::error::{Error, Result};
use crate::sample::cld::CldProblem;
use crate::sample::gaussian::{Churn, GaussianProblem};
use crate::sample::{AttenuationProblem, Form, Hooks, Sampler};
use crossfade_math::{GaussianFn, Grid, GridKind, Process};

/// A one-dimensional normal distribution.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Normal {
    /// The mean.
    pub mean: f64,
    /// The standard deviation.
    pub std: f64,
}

impl Normal {
    /// The 2-Wasserstein distance.
    pub fn distance(self, other: Self) -> f64 {
        (self.mean - other.mean).hypot(self.std - other.std)
    }
}

/// Rows before those of the steps: no noise at all, the starting noise of x, the starting noise of v.
const START_ROWS: usize = 3;

/// The distribution at the end of `times`, if the run starts from the exact distribution at the first of them.
///
/// The denoiser of a single Gaussian is affine, so a whole run is an affine function of its noise: the result is mean +
/// Σ c_k z_k over the normals z_k of the start and of the steps. Row 0 is a run in which all z are 0, which gives the
/// mean; in each other row a single z is 1, which gives its c_k. Churn uses S_noise = 1: with EDM's 1.007 the sampler
/// does not converge to the data.
fn end(data: Normal, process: &Process, sampler: Sampler, times: &[f64]) -> Result<Normal> {
    // The samplers of CLD use up to four normals per step.
    let draws = if !process.estimates_x0() { 4 } else { 1 };
    let rows = START_ROWS + draws * times.len();
    let unit = |row: usize| Points { dim: 1, data: (0..rows).map(|r| f64::from(u8::from(r == row))).collect() };
    let start = |mean: f64, at: [f64; 2]| Points {
        dim: 1,
        data: (0..rows).map(|r| mean + if (1..START_ROWS).contains(&r) { at[r - 1] } else { 0.0 }).collect(),
    };
    let mixture = Mixture { dim: 1, weights: vec![1.0], means: vec![vec![data.mean]], std: data.std };
    let mut hooks = Hooks { noise: &mut |n| unit(START_ROWS + n), observe: &mut |_| () };
    let t = times[0];
    let start_x = |mean: f64, std: f64| start(mean, [std, 0.0]);
    let not_affine = || Error::request(format!("the denoiser of a Gaussian under {} is not affine", process.name()));
    let sampled = match sampler.form(process).ok_or_else(not_affine)? {
        Form::Velocity(cld) => {
            let oracle = CldOracle { mixture, cld };
            let ((mean_x, mean_v), (prior_x, prior_v)) = (cld.mean(t), cld.prior());
            let (l_xx, l_xv, l_vv) = oracle.covariance(t).cholesky();
            let x = start(data.mean * mean_x / prior_x, [l_xx / prior_x, 0.0]);
            let v = start(data.mean * mean_v / prior_v, [l_xv / prior_v, l_vv / prior_v]);
            sampler.run(&CldProblem::new(&oracle, cld), times, (x, v), &mut hooks)?
        }
        form => {
            let gaussian = process.gaussian().ok_or_else(not_affine)?;
            let (alpha, sigma) = (gaussian.alpha(t), gaussian.sigma(t));
            let x = start_x(alpha * data.mean, (alpha * data.std).hypot(sigma));
            if let Form::Attenuation(adm) = form {
                let oracle = Oracle::new(mixture, adm);
                sampler.run(&AttenuationProblem::new(&oracle, adm), times, x, &mut hooks)?
            } else {
                let oracle = GaussianOracle { mixture, process: gaussian };
                let mut problem = GaussianProblem::new(&oracle, gaussian);
                problem.churn = Churn { noise: 1.0, ..Churn::default() };
                sampler.run(&problem, times, x, &mut hooks)?
            }
        }
    };
    let mean = sampled.x0.data[0];
    let std = sampled.x0.data.iter().map(|x| (x - mean).powi(2)).sum::<f64>().sqrt();
    Ok(Normal { mean, std })
}

/// The W2 distance between the distribution after `steps` steps and the limit for infinitely many steps. The limit is the
/// exact distribution before the last step, followed by that step. It is not the data distribution: some grids have a last
/// step of fixed length, and VE keeps some noise at its smallest σ.
pub fn weak_error(data: Normal, process: &Process, sampler: Sampler, grid: &GridKind, steps: usize) -> Result<f64> {
    let times = |n: usize| sampler.times(process, &Grid { kind: grid.clone(), final_t: None }, n);
    let (own, before_last) = (times(steps)?, |times: &[f64]| times[times.len() - 2]);
    let mut last = before_last(&own);
    // Where finer grids have a shorter last step, its limit is the smallest time.
    if !times(2 * steps).is_ok_and(|finer| (before_last(&finer) - last).abs() < 1e-9 * last) {
        last = process.gaussian().and_then(|gaussian| gaussian.tick()).unwrap_or(1e-9);
    }
    // In the limit of small steps there is no churn: its amount per step is divided by the number of steps.
    let limit_sampler = if sampler == Sampler::HeunChurn { Sampler::Heun } else { sampler };
    Ok(end(data, process, sampler, &own)?.distance(end(data, process, limit_sampler, &[last, 0.0])?))
}
