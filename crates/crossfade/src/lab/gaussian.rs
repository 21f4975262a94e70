//! What a sampler makes of Gaussian data, exactly: the error of a distribution without the error of sampling from it.
use super::mixture::Mixture;
use super::oracle::Oracle;
use super::exact::{CldOracle, GaussianOracle};
use super::points::Points;
use crate::error::{Error, Result};
use crate::sample::cld::CldProblem;
use crate::sample::gaussian::{Churn, GaussianProblem};
use crate::sample::{AttenuationProblem, Form, Hooks, Sampler};
use crossfade_math::{GaussianFn, Grid, GridKind, Process};

/// A normal distribution on the line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Normal {
    /// Its mean.
    pub mean: f64,
    /// Its standard deviation.
    pub std: f64,
}

impl Normal {
    /// The 2-Wasserstein distance.
    pub fn distance(self, other: Self) -> f64 {
        (self.mean - other.mean).hypot(self.std - other.std)
    }
}

/// Rows before those of the steps: nothing, the start's x, the start's v.
const FIRST: usize = 3;

/// The distribution at the end of `times`, from the exact one at the first of them.
///
/// The denoiser of one Gaussian is affine, hence so is a run: its result is mean + Σ c_k z_k over the normals z_k of the start
/// and of the steps. Row 0 is a run without any of them, which gives the mean; each other row has a single one, of value 1,
/// which gives its c_k. Churn has S_noise = 1: with more, no number of steps leads to the data.
fn end(data: Normal, process: &Process, sampler: Sampler, times: &[f64]) -> Result<Normal> {
    // A step of CLD asks for up to four normals.
    let draws = if !process.estimates_x0() { 4 } else { 1 };
    let rows = FIRST + draws * times.len();
    let unit = |row: usize| Points { dim: 1, data: (0..rows).map(|r| f64::from(u8::from(r == row))).collect() };
    let start = |mean: f64, at: [f64; 2]| Points {
        dim: 1,
        data: (0..rows).map(|r| mean + if (1..FIRST).contains(&r) { at[r - 1] } else { 0.0 }).collect(),
    };
    let mixture = Mixture { dim: 1, weights: vec![1.0], means: vec![vec![data.mean]], std: data.std };
    let mut hooks = Hooks { noise: &mut |n| unit(FIRST + n), observe: &mut |_| () };
    let t = times[0];
    let affine = |mean: f64, std: f64| start(mean, [std, 0.0]);
    let unfit = || Error::request(format!("the denoiser of a Gaussian under {} is not affine", process.name()));
    let sampled = match sampler.form(process).ok_or_else(unfit)? {
        Form::Velocity(cld) => {
            let oracle = CldOracle { mixture, cld };
            let ((mean_x, mean_v), (prior_x, prior_v)) = (cld.mean(t), cld.prior());
            let (l_xx, l_xv, l_vv) = oracle.covariance(t).cholesky();
            let x = start(data.mean * mean_x / prior_x, [l_xx / prior_x, 0.0]);
            let v = start(data.mean * mean_v / prior_v, [l_xv / prior_v, l_vv / prior_v]);
            sampler.run(&CldProblem::new(&oracle, cld), times, (x, v), &mut hooks)?
        }
        form => {
            let gaussian = process.gaussian().ok_or_else(unfit)?;
            let (alpha, sigma) = (gaussian.alpha(t), gaussian.sigma(t));
            let x = affine(alpha * data.mean, (alpha * data.std).hypot(sigma));
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

/// The distance from the distribution at the end of `steps` steps to that of infinitely many of them: the exact one before the
/// last step, and that step alone. Some grids stop at a fixed time before 0, and VE has some noise left at its smallest.
pub fn weak_error(data: Normal, process: &Process, sampler: Sampler, grid: &GridKind, steps: usize) -> Result<f64> {
    let times = |n: usize| sampler.times(process, &Grid { kind: grid.clone(), final_t: None }, n);
    let (own, before_last) = (times(steps)?, |times: &[f64]| times[times.len() - 2]);
    let mut last = before_last(&own);
    if !times(2 * steps).is_ok_and(|finer| (before_last(&finer) - last).abs() < 1e-9 * last) {
        last = process.gaussian().and_then(|gaussian| gaussian.tick()).unwrap_or(1e-9);
    }
    // The share of churn in a step goes to 0 with its length.
    let calm = if sampler == Sampler::HeunChurn { Sampler::Heun } else { sampler };
    Ok(end(data, process, sampler, &own)?.distance(end(data, process, calm, &[last, 0.0])?))
}
