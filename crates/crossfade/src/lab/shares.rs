//! Samplers on the exact linear denoiser of an image set's own spectrum: which share of the true standard deviation they
//! leave in every band (§10.5).
use super::gaussian::{Normal, Start, end};
use super::spectrum::{Spectrum, rms_error};
use crate::error::{Error, Result};
use crate::sample::{EvaluationOptions, Sampler};
use crossfade_math::{Grid, Process};
use rayon::prelude::*;
use serde::Serialize;

/// The runs to compare; those that do not fit a process are left out.
#[derive(Clone, Debug)]
pub struct SharesConfig {
    /// Processes.
    pub processes: Vec<Process>,
    /// Samplers.
    pub samplers: Vec<Sampler>,
    /// Time grids; `auto` is that of process and sampler.
    pub grids: Vec<Grid>,
    /// Numbers of network evaluations.
    pub evaluations: Vec<usize>,
}

/// One run: a sampler on a grid with a number of steps.
#[derive(Clone, Debug)]
pub struct SharesRun {
    /// The process.
    pub process: Process,
    /// The sampler.
    pub sampler: Sampler,
    /// The grid, never `auto`.
    pub grid: Grid,
    /// Steps of the sampler.
    pub steps: usize,
    /// Network evaluations.
    pub evaluations: usize,
}

/// What estimates x_0 in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Estimator {
    /// The linear denoiser of the data's spectrum, without clipping.
    Linear,
    /// A trained network, as it is sampled.
    Network,
}

/// The result of one run.
#[derive(Clone, Debug, Serialize)]
pub struct SharesRow {
    /// The process.
    pub process: &'static str,
    /// The sampler.
    pub sampler: Sampler,
    /// The grid's name.
    pub grid: &'static str,
    /// Steps of the sampler.
    pub steps: usize,
    /// Network evaluations.
    pub evaluations: usize,
    /// What estimated x_0.
    pub estimator: Estimator,
    /// The standard deviation of each band over that of the data; 1 is right.
    pub shares: Vec<f64>,
    /// The root mean square over bands of share − 1.
    pub rms: f64,
}

impl SharesConfig {
    /// All runs that fit, in the order of the options.
    pub fn runs(&self) -> Result<Vec<SharesRun>> {
        if let Some(bad) = self.evaluations.iter().find(|&&n| !(1..=1000).contains(&n)) {
            return Err(Error::request(format!("evaluations must be 1 to 1000, not {bad}")));
        }
        let mut runs = vec![];
        for process in &self.processes {
            for &sampler in self.samplers.iter().filter(|sampler| sampler.form(process).is_some()) {
                let mut grids: Vec<Grid> = vec![];
                for grid in &self.grids {
                    let grid = Grid { kind: sampler.grid(process, &grid.kind), final_t: grid.final_t };
                    let fits = !grid.kind.needs_ratio() || process.gaussian().is_some();
                    if fits && !grids.contains(&grid) {
                        grids.push(grid);
                    }
                }
                for grid in grids {
                    for &most in &self.evaluations {
                        let steps = sampler.steps_within(process, &grid, EvaluationOptions::default(), most)?;
                        let evaluations = sampler.evaluations(
                            process,
                            &sampler.times(process, &grid, steps)?,
                            EvaluationOptions::default(),
                        )?;
                        runs.push(SharesRun { process: *process, sampler, grid: grid.clone(), steps, evaluations });
                    }
                }
            }
        }
        if runs.is_empty() {
            return Err(Error::request("none of these samplers and grids fits the processes; choose others, or all"));
        }
        Ok(runs)
    }
}

impl SharesRun {
    /// The row of this run, from the shares that were found.
    pub(crate) fn row(&self, estimator: Estimator, shares: Vec<f64>) -> SharesRow {
        let (sampler, grid, steps, evaluations) = (self.sampler, self.grid.kind.name(), self.steps, self.evaluations);
        let (process, rms) = (self.process.name(), rms_error(&shares));
        SharesRow { process, sampler, grid, steps, evaluations, estimator, shares, rms }
    }

    /// The run on the linear denoiser of `data`. Its result is Gaussian and is computed exactly, without sampling.
    pub fn linear(&self, data: &Spectrum) -> Result<SharesRow> {
        /// Coefficients that are computed at once, which bounds the memory of large images.
        const COEFFICIENTS: usize = 512;
        let times = self.sampler.times(&self.process, &self.grid, self.steps)?;
        let normal = |(&mean, variance): (&f64, f64)| Normal { mean, std: variance.sqrt() };
        let normals: Vec<Normal> = data.mean().iter().zip(data.variance()).map(normal).collect();
        let ends: Result<Vec<Vec<Normal>>> = (normals.par_chunks(COEFFICIENTS))
            .map(|part| end(part, &self.process, self.sampler, &times, Start::Noise))
            .collect();
        let variances: Vec<f64> = ends?.iter().flatten().map(|normal| normal.std.powi(2)).collect();
        Ok(self.row(Estimator::Linear, data.shares_of(&variances)?))
    }
}

/// The root mean square of x̂_0 − x_0 of the linear denoiser at κ = σ/α: √ of the mean of λ κ²/(λ + κ²) over the variances λ.
/// It is exact for any data with these variances, because the error of a linear function depends on no other moments.
pub fn linear_error(data: &Spectrum, ratio: f64) -> f64 {
    let (variances, noise) = (data.variance(), ratio * ratio);
    // λ = 0 at κ = 0 would divide by zero; there is no error then.
    let error = |v: &f64| if v + noise > 0.0 { v * noise / (v + noise) } else { 0.0 };
    (variances.iter().map(error).sum::<f64>() / variances.len() as f64).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::procedural::Procedural;
    use crossfade_math::GridKind;
    use crossfade_math::process::{Edm, Flow};

    fn spectrum() -> Spectrum {
        Spectrum::of(&Procedural::new(2, 200, 16).unwrap(), &mut |_, _| ()).unwrap()
    }

    fn run(process: Process, sampler: Sampler, grid: GridKind, evaluations: usize) -> SharesRun {
        let config = SharesConfig {
            processes: vec![process],
            samplers: vec![sampler],
            grids: vec![Grid { kind: grid, final_t: None }],
            evaluations: vec![evaluations],
        };
        config.runs().unwrap().remove(0)
    }

    /// With one evaluation the sampler returns E[x_0 | x_1], which under the flow is the mean: nothing varies.
    #[test]
    fn one_evaluation_leaves_nothing_and_many_leave_everything() {
        let (data, flow) = (spectrum(), Process::Flow(Flow::default()));
        let one = run(flow, Sampler::Ddim, GridKind::Auto, 1).linear(&data).unwrap();
        assert!(one.shares.iter().all(|s| s.abs() < 1e-9) && (one.rms - 1.0).abs() < 1e-9, "{one:?}");
        let errors: Vec<f64> =
            [5, 10, 40, 200].map(|n| run(flow, Sampler::Ddim, GridKind::Images, n).linear(&data).unwrap().rms).to_vec();
        assert!(errors.windows(2).all(|w| w[1] < w[0]) && errors[3] < 0.03, "{errors:?}");
    }

    /// DDIM multiplies every coefficient by a product of known factors, which is written out here. Under EDM α is 1, and a
    /// step from σ to s multiplies by (λ + s σ)/(λ + σ²).
    #[test]
    fn ddim_has_its_closed_form() {
        let (data, edm) = (spectrum(), Process::Edm(Edm::default()));
        let run = run(edm, Sampler::Ddim, GridKind::Auto, 10);
        let times = Sampler::Ddim.times(&edm, &run.grid, run.steps).unwrap();
        let gaussian = edm.gaussian().unwrap();
        let sigmas: Vec<f64> = times.iter().map(|&t| crossfade_math::GaussianFn::sigma(&gaussian, t)).collect();
        let factor = |v: f64| sigmas.windows(2).map(|w| (v + w[1] * w[0]) / (v + w[0] * w[0])).product::<f64>();
        let variances: Vec<f64> = data.variance().iter().map(|&v| (sigmas[0] * factor(v)).powi(2)).collect();
        let (expected, found) = (data.shares_of(&variances).unwrap(), run.linear(&data).unwrap());
        assert!(expected.iter().zip(&found.shares).all(|(a, b)| (a / b - 1.0).abs() < 1e-9), "{expected:?} {found:?}");
    }

    #[test]
    fn only_what_fits_is_run() {
        let all = SharesConfig {
            processes: super::super::processes(crossfade_math::NoiseScale::Sqrt),
            samplers: Sampler::ALL.to_vec(),
            grids: [GridKind::Auto, GridKind::UniformT, GridKind::Images]
                .map(|kind| Grid { kind, final_t: None })
                .to_vec(),
            evaluations: vec![7],
        };
        let runs = all.runs().unwrap();
        let data = spectrum();
        for run in &runs {
            assert!(run.evaluations <= 7 || run.steps == 1, "{run:?}");
            let row = run.linear(&data).unwrap();
            assert!(row.shares.iter().all(|s| s.is_finite()), "{row:?}");
        }
        // The grid of `auto` is not listed twice, and CLD, without a noise level σ/α, has no grid by noise levels.
        let of = |process: &str| runs.iter().filter(|run| run.process.name() == process).collect::<Vec<_>>();
        assert_eq!(of("flow").iter().filter(|run| run.sampler == Sampler::Ddim).count(), 2);
        assert!(of("cld").iter().all(|run| !run.grid.kind.needs_ratio()) && !of("cld").is_empty());
        assert!(
            SharesConfig { samplers: vec![Sampler::Sscs], processes: all.processes[..1].to_vec(), ..all }
                .runs()
                .is_err()
        );
    }

    /// At little noise all of it is left in the estimate, at much noise all of the image is missing.
    #[test]
    fn the_linear_error_has_its_limits() {
        let data = spectrum();
        let total = (data.variance().iter().sum::<f64>() / data.variance().len() as f64).sqrt();
        assert!((linear_error(&data, 1e6) / total - 1.0).abs() < 1e-6);
        assert!(linear_error(&data, 1e-4) <= 1e-4 && linear_error(&data, 0.0) == 0.0);
    }
}
