//! Fits the times of sampling to a trained network: the bounds and the curvature of the grid `log-snr` with the smallest
//! distance between samples and data (§10.6).
use super::search::minimise;
use crate::config::SampleConfig;
use crate::data::{Dataset, Image};
use crate::error::{Error, Result};
use crate::generate::Pipeline;
use crate::lab::Spectrum;
use crate::metrics::{Metric, MetricOptions, Reference, ReferenceWork, RegisteredMetric, Sample};
use crate::sample::{FittedTimes, Sampler};
use crossfade_math::{Grid, GridKind, Process};
use serde::Serialize;

/// The most images of the data that samples are compared with; a larger set is thinned out evenly.
const MOST_REFERENCE: usize = 5000;
/// The largest curvature, up or down.
const MOST_CURVATURE: f64 = 2.0;
/// The first steps of the search: ln κ_max, ln κ_min, curvature.
const STEPS: [f64; 3] = [-0.7, 0.5, 0.2];

/// How times are fitted.
#[derive(Clone, Copy, Debug)]
pub struct TimesConfig {
    /// The sampler.
    pub sampler: Sampler,
    /// The largest number of network evaluations; the sampler makes as many steps as fit.
    pub evaluations: usize,
    /// Images per candidate.
    pub count: usize,
    /// Grids that are tried.
    pub candidates: usize,
    /// The seed of the noise, which is the same for all candidates.
    pub seed: u64,
    /// Images per batch; this changes the speed and nothing else.
    pub batch: usize,
}

/// The distance between samples on a grid and the data.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Score {
    /// The grid, as an argument of `--grid`.
    pub grid: String,
    /// The mean of both distances, each as a share of that of `uniform-t`.
    pub distance: f64,
    /// The random-feature Fréchet distance.
    pub features: f64,
    /// The distance of the spectra.
    pub spectrum: f64,
}

/// Fitted times, and the distances of samples that were not used to find them.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Fit {
    /// The times.
    pub fitted: FittedTimes,
    /// The scores of `uniform-t`, of `images` and of the fitted times, with noise of another seed than in the search.
    pub scores: Vec<Score>,
}

impl Fit {
    /// Whether the fitted times are better than all others that were compared.
    pub fn is_better(&self) -> bool {
        let others = self.scores.iter().filter(|score| score.grid != self.fitted.grid().argument());
        others.into_iter().all(|score| self.fitted.distance < score.distance)
    }
}

/// Finds the bounds and the curvature for which `distance` of a grid is smallest, in `candidates` trials that start from the
/// general grid `images`.
pub fn fit_grid(
    process: &Process,
    sampler: Sampler,
    steps: usize,
    candidates: usize,
    distance: &mut dyn FnMut(&GridKind) -> Result<f64>,
) -> Result<FittedTimes> {
    if process.gaussian().is_none() {
        let name = process.name();
        let problem =
            "times are fitted to noise levels sigma/alpha, which only processes x_t = alpha x_0 + sigma eps have";
        return Err(Error::request(format!("{problem}; {name} of this checkpoint is none, use --grid explicit:…")));
    }
    if steps < 2 {
        return Err(Error::request("times need two evaluations or more: a single one is always at the start"));
    }
    let times = |[max, min, c]: [f64; 3]| FittedTimes {
        sampler,
        steps,
        // Four digits, so that what is printed and stored is what was tried.
        kappa_max: four_digits(max.exp()),
        kappa_min: four_digits(min.exp()),
        curvature: (c * 1e4).round() / 1e4,
        distance: f64::NAN,
    };
    let n = steps as f64;
    let start = [(2.0 * n).ln(), (0.9 / n).ln(), 0.0];
    let (point, found) = minimise(start, STEPS, candidates, &mut |point| {
        let kind = times(point).grid();
        let known = sampler.times(process, &Grid { kind: kind.clone(), final_t: None }, steps).is_ok();
        if known && point[2].abs() <= MOST_CURVATURE { distance(&kind) } else { Ok(f64::INFINITY) }
    })?;
    if !found.is_finite() {
        return Err(Error::request(format!("no times with {steps} steps of {} were found", sampler.name())));
    }
    Ok(FittedTimes { distance: found, ..times(point) })
}

fn four_digits(x: f64) -> f64 {
    let scale = 10f64.powi(3 - x.abs().log10().floor() as i32);
    (x * scale).round() / scale
}

/// Fits the times of a sampler to the network of `pipeline`, compared with the images of `set`, which must have the size of
/// its samples. `progress` is called with (images done, all images).
pub fn fit_times(
    pipeline: &Pipeline,
    set: &dyn Dataset,
    config: &TimesConfig,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Fit> {
    pipeline.size()?;
    let process = *pipeline.process();
    let sampler = config.sampler.resolved(&process)?;
    let options = pipeline.sample_config().evaluation_options();
    let steps = sampler.steps_within(&process, &Grid::default(), options, config.evaluations)?;
    let set = Thinned { set, count: set.len().min(MOST_REFERENCE) };
    let metric = RegisteredMetric::parse("random-frechet")?;
    let mut opened = (metric.open)(&MetricOptions::new(pipeline.device()))?;
    let mut work = ReferenceWork { store: None, stop: &|| false, progress: &mut |_, _| () };
    opened.prepare(&Reference::Images(&set), &mut work)?;
    let spectrum = Spectrum::of(&set, &mut |_, _| ())?;
    let grids = [GridKind::UniformT, GridKind::Images];
    let all = (config.candidates + 1 + grids.len() + 1) as u64 * config.count as u64;
    let data = Data { metric: &*opened, spectrum };
    let mut sampling = Sampling { pipeline, config, sampler, steps, data, progress, done: 0, all };

    let base = sampling.distances(&GridKind::UniformT, config.seed)?;
    let fitted = fit_grid(&process, sampler, steps, config.candidates, &mut |kind| {
        Ok(relative(sampling.distances(kind, config.seed)?, base))
    })?;
    // The times were chosen by this seed, which flatters them; the scores that are told have another one.
    let seed = config.seed.wrapping_add(1);
    let (mut scores, mut base) = (vec![], [1.0; 2]);
    for kind in grids.iter().chain([&fitted.grid()]) {
        let found = sampling.distances(kind, seed)?;
        if scores.is_empty() {
            base = found;
        }
        let [features, spectrum] = found;
        scores.push(Score { grid: kind.argument(), distance: relative(found, base), features, spectrum });
    }
    let distance = scores[grids.len()].distance;
    let fitted = FittedTimes { distance: (distance * 1e4).round() / 1e4, ..fitted };
    Ok(Fit { fitted, scores })
}

/// The mean of both distances, each relative to that of the base.
fn relative(found: [f64; 2], base: [f64; 2]) -> f64 {
    found.iter().zip(base).map(|(value, base)| 0.5 * value / base.max(1e-12)).sum()
}

/// What samples are compared with.
struct Data<'a> {
    metric: &'a dyn Metric,
    spectrum: Spectrum,
}

/// The network with what is the same for all candidates.
struct Sampling<'a> {
    pipeline: &'a Pipeline,
    config: &'a TimesConfig,
    sampler: Sampler,
    steps: usize,
    data: Data<'a>,
    progress: &'a mut dyn FnMut(u64, u64),
    done: u64,
    all: u64,
}

impl Sampling<'_> {
    /// The random-feature Fréchet distance and the distance of the spectra, of samples on a grid.
    fn distances(&mut self, kind: &GridKind, seed: u64) -> Result<[f64; 2]> {
        let grid = Grid { kind: kind.clone(), final_t: None };
        let own = self.pipeline.sample_config().clone();
        let sample = SampleConfig { sampler: self.sampler, steps: self.steps, grid, ..own };
        let pipeline = self.pipeline.with_sample(&sample)?;
        let mut spectrum = Spectrum::new(self.data.spectrum.shape());
        let mut accumulator = self.data.metric.accumulator();
        let (count, batch) = (self.config.count as u64, self.config.batch.max(1));
        for from in (0..count).step_by(batch) {
            let images = pipeline.images(seed, from..(from + batch as u64).min(count))?;
            images.iter().try_for_each(|image| spectrum.add(image))?;
            self.done += images.len() as u64;
            let named = |(k, image): (usize, Image)| {
                let name = (from + k as u64).to_string();
                Sample { origin: name.clone().into(), name, output: image.into(), target: None, class: None }
            };
            accumulator.add(images.into_iter().enumerate().map(named).collect())?;
            (self.progress)(self.done, self.all.max(self.done));
        }
        let report = accumulator.finish()?.report;
        let features = report.values.first().map_or(f64::NAN, |(_, value)| *value);
        Ok([features, spectrum.distance(&self.data.spectrum)?])
    }
}

/// `count` images of a set, evenly spaced.
struct Thinned<'a> {
    set: &'a dyn Dataset,
    count: usize,
}

impl Thinned<'_> {
    fn place(&self, index: usize) -> usize {
        index * self.set.len() / self.count
    }
}

impl Dataset for Thinned<'_> {
    fn len(&self) -> usize {
        self.count
    }
    fn get(&self, index: usize) -> Result<Image> {
        self.set.get(self.place(index))
    }
    fn name(&self, index: usize) -> String {
        self.set.name(self.place(index))
    }
    fn describe(&self) -> String {
        format!("{}, {} of them", self.set.describe(), self.count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{AttenuationProblem, Heads, Hooks, Predict};
    use crossfade_math::{Adm, Attenuation, NoiseScale};

    /// The exact denoiser of N(0, std²) under constant attenuation.
    struct Linear {
        std: f64,
    }

    impl Predict<f64> for Linear {
        fn predict(&self, x_t: &f64, t: f64) -> Result<Heads<f64>> {
            let (alpha, sigma) = (1.0 - t, t.sqrt());
            let x0 = alpha * self.std * self.std * x_t / ((alpha * self.std).powi(2) + sigma * sigma);
            Ok(Heads { phi: vec![-x0], eps: (x_t - alpha * x0) / sigma })
        }
    }

    /// The root mean square over bands of the share of the deviation that a sampler leaves, minus 1. The deviations fall
    /// as those of photographs do.
    fn error(sampler: Sampler, kind: &GridKind, steps: usize) -> Result<f64> {
        let process = Process::default();
        let times = sampler.times(&process, &Grid { kind: kind.clone(), final_t: None }, steps)?;
        let bands: Vec<f64> = (0..6).map(|k| 0.8 * 0.4f64.powi(k)).collect();
        let mut sum = 0.0;
        for &std in &bands {
            let net = Linear { std };
            let mut hooks = Hooks { noise: &mut |_| 0.0, observe: &mut |_| () };
            // A linear map of x_1, so that its size for x_1 = 1 is the deviation.
            let x0 = sampler.run(&AttenuationProblem::new(&net, Adm::default()), &times, 1.0, &mut hooks)?.x0;
            sum += (x0.abs() / std - 1.0).powi(2);
        }
        Ok((sum / bands.len() as f64).sqrt())
    }

    #[test]
    fn fitted_times_are_better_for_a_known_gaussian() {
        for sampler in [Sampler::Ab2, Sampler::FirstOrder] {
            for steps in [5, 10] {
                let mut trials = 0;
                let fitted = fit_grid(&Process::default(), sampler, steps, 40, &mut |kind| {
                    trials += 1;
                    error(sampler, kind, steps)
                })
                .unwrap();
                let [uniform, general] =
                    [GridKind::UniformT, GridKind::Images].map(|k| error(sampler, &k, steps).unwrap());
                let own = error(sampler, &fitted.grid(), steps).unwrap();
                assert_eq!(own, fitted.distance, "the stored numbers are those that were tried");
                assert!(own < 0.6 * uniform && own <= general, "{sampler:?} {steps}: {own} {uniform} {general}");
                assert!(trials <= 40 && fitted.kappa_min < fitted.kappa_max);
            }
        }
    }

    #[test]
    fn what_has_no_noise_levels_is_refused() {
        let linear = Process::Adm(Adm::new(Attenuation::Linear, NoiseScale::Sqrt));
        let fit = |process: &Process, steps| fit_grid(process, Sampler::Ab2, steps, 5, &mut |_| Ok(1.0));
        assert!(fit(&linear, 5).unwrap_err().to_string().contains("sigma/alpha"));
        assert!(fit(&Process::default(), 1).unwrap_err().to_string().contains("two evaluations"));
    }
}
