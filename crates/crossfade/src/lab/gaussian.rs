//! The exact distribution that a sampler produces for Gaussian data, and its error. It is computed without Monte Carlo
//! sampling, so that the error has no sampling noise.
use super::linear::{Linear, covariance};
use super::points::Points;
use crate::error::{Error, Result};
use crate::sample::cld::CldProblem;
use crate::sample::gaussian::GaussianProblem;
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

/// How a run starts, and with which churn.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Start {
    /// From the exact distribution at the first time, to see the error of the steps alone. Churn uses S_noise = 1: with
    /// EDM's 1.007 the sampler does not converge to the data.
    Exact,
    /// As images are sampled: from the noise of t = 1, without what is left of the data, and with EDM's churn.
    Noise,
}

/// Rows before those of the steps: no noise at all, the starting noise of x, the starting noise of v.
const START_ROWS: usize = 3;

/// The distribution of every coordinate at the end of `times`, for data with independent coordinates.
///
/// The denoiser is affine ([`Linear`]), so a whole run is an affine function of its noise: the result is mean + Σ c_k z_k
/// over the normals z_k of the start and of the steps. Row 0 is a run in which all z are 0, which gives the mean; in each
/// other row a single z is 1 in all coordinates, which gives their c_k.
pub(super) fn end(
    data: &[Normal],
    process: &Process,
    sampler: Sampler,
    times: &[f64],
    start: Start,
) -> Result<Vec<Normal>> {
    let dim = data.len();
    // The samplers of CLD use up to four normals per step, the others at most one per evaluation.
    let draws = if process.estimates_x0() { sampler.evaluations_per_step() } else { 4 };
    let rows = START_ROWS + draws * times.len();
    let rows_of = |value: &dyn Fn(usize, &Normal) -> f64| Points {
        dim,
        data: (0..rows).flat_map(|row| data.iter().map(move |normal| value(row, normal))).collect(),
    };
    let is = |row: usize, wanted: usize| f64::from(u8::from(row == wanted));
    let mut hooks = Hooks { noise: &mut |n| rows_of(&|row, _| is(row, START_ROWS + n)), observe: &mut |_| () };
    let (t, exact) = (times[0], start == Start::Exact);
    let not_affine = || Error::request(format!("the denoiser of a Gaussian under {} is not affine", process.name()));
    let sampled = match sampler.form(process).ok_or_else(not_affine)? {
        Form::Velocity(cld) => {
            let ((mean_x, mean_v), (prior_x, prior_v)) = (cld.mean(t), cld.prior());
            // The samplers multiply the starting state by the deviations of the prior.
            let x = rows_of(&|row, normal| {
                let (l_xx, ..) = covariance(&cld, normal.std, t).cholesky();
                if exact { (normal.mean * mean_x + is(row, 1) * l_xx) / prior_x } else { is(row, 1) }
            });
            let v = rows_of(&|row, normal| {
                let (_, l_xv, l_vv) = covariance(&cld, normal.std, t).cholesky();
                let noise = is(row, 1) * l_xv + is(row, 2) * l_vv;
                if exact { (normal.mean * mean_v + noise) / prior_v } else { is(row, 2) }
            });
            let oracle = Linear { data, process: cld };
            sampler.run(&CldProblem::new(&oracle, cld), times, (x, v), &mut hooks)?
        }
        form => {
            let gaussian = process.gaussian().ok_or_else(not_affine)?;
            let (alpha, sigma) = (gaussian.alpha(t), gaussian.sigma(t));
            let x = rows_of(&|row, normal| match exact {
                true => alpha * normal.mean + is(row, 1) * (alpha * normal.std).hypot(sigma),
                false => is(row, 1) * gaussian.sigma(1.0),
            });
            let oracle = Linear { data, process: gaussian };
            if let Form::Attenuation(adm) = form {
                sampler.run(&AttenuationProblem::new(&oracle, adm), times, x, &mut hooks)?
            } else {
                let mut problem = GaussianProblem::new(&oracle, gaussian);
                if exact {
                    problem.churn.noise = 1.0;
                }
                sampler.run(&problem, times, x, &mut hooks)?
            }
        }
    };
    let (mean, responses) = sampled.x0.data.split_at(dim);
    let mut variances = vec![0.0; dim];
    for row in responses.chunks_exact(dim) {
        variances.iter_mut().zip(row).zip(mean).for_each(|((sum, x), mean)| *sum += (x - mean).powi(2));
    }
    Ok(mean.iter().zip(variances).map(|(&mean, variance)| Normal { mean, std: variance.sqrt() }).collect())
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
    let end = |sampler, times: &[f64]| Ok::<_, Error>(end(&[data], process, sampler, times, Start::Exact)?[0]);
    Ok(end(sampler, &own)?.distance(end(limit_sampler, &[last, 0.0])?))
}

#[cfg(test)]
mod tests {
    use super::super::normals;
    use super::*;
    use crossfade_math::process::{Cld, Edm, Flow, Vp};
    use crossfade_math::{Adm, Field};

    /// The exact distribution is that of many samples of the same Gaussian, for deterministic and stochastic samplers of
    /// every form. The deviations of the coordinates span the range of a spectrum of images.
    #[test]
    fn the_exact_distribution_is_that_of_many_samples() {
        let data = [(2.0, 9.0), (-0.5, 0.7), (0.1, 0.05)].map(|(mean, std)| Normal { mean, std });
        let (adm, edm, flow): (Process, Process, Process) =
            (Adm::default().into(), Process::Edm(Edm::default()), Process::Flow(Flow::default()));
        let (vp, cld) = (Process::Vp(Vp::default()), Process::Cld(Cld::default()));
        for (process, sampler) in [
            (adm, Sampler::Alg2),
            (adm, Sampler::Ab2),
            (flow, Sampler::Ddim),
            (flow, Sampler::AncestralLarge),
            (edm, Sampler::HeunChurn),
            (edm, Sampler::Dpmpp2M),
            (edm, Sampler::DpmppSde),
            (flow, Sampler::Dpmpp3MSde),
            (vp, Sampler::EulerMaruyama),
            (cld, Sampler::Sscs),
        ] {
            let times = sampler.times(&process, &Grid::default(), 10).unwrap();
            let exact = end(&data, &process, sampler, &times, Start::Noise).unwrap();
            let (count, dim) = (20_000, data.len());
            let mut hooks = Hooks { noise: &mut |n| normals(dim, count, 5, 1 + n as u64), observe: &mut |_| () };
            let x = normals(dim, count, 3, 0);
            let sampled = match sampler.form(&process).unwrap() {
                Form::Velocity(cld) => {
                    let oracle = Linear { data: &data, process: cld };
                    sampler.run(&CldProblem::new(&oracle, cld), &times, (x, normals(dim, count, 4, 0)), &mut hooks)
                }
                Form::Attenuation(adm) => {
                    let oracle = Linear { data: &data, process: process.gaussian().unwrap() };
                    sampler.run(&AttenuationProblem::new(&oracle, adm), &times, x, &mut hooks)
                }
                Form::Gaussian(gaussian) => {
                    let oracle = Linear { data: &data, process: gaussian };
                    let x = x.scale(gaussian.sigma(1.0));
                    sampler.run(&GaussianProblem::new(&oracle, gaussian), &times, x, &mut hooks)
                }
            };
            let sampled = sampled.unwrap().x0;
            for (d, exact) in exact.iter().enumerate() {
                let mean = sampled.iter().map(|x| x[d]).sum::<f64>() / count as f64;
                let variance = sampled.iter().map(|x| (x[d] - mean).powi(2)).sum::<f64>() / count as f64;
                // Four standard errors: std/√n of the mean, std/√(2n) of the deviation.
                let bound = 4.0 * exact.std / (count as f64).sqrt();
                let what = format!("{} on {}, coordinate {d}", sampler.name(), process.name());
                assert!((mean - exact.mean).abs() < bound, "{what}: mean {mean}, {exact:?}");
                assert!(
                    (variance.sqrt() - exact.std).abs() < bound / 2f64.sqrt(),
                    "{what}: {}, {exact:?}",
                    variance.sqrt()
                );
            }
        }
    }
}
