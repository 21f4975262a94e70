//! Bits per dimension of images under a network: the bound of §10.7, measured.
mod flow;

pub use flow::{FlowConfig, FlowLikelihood, Trace};

use super::Pipeline;
use super::solve::estimates_at;
use crate::data::{Dataset, Planes};
use crate::engine::{Device, Images, from_host, to_host};
use crate::error::{Error, Result};
use crate::nn::one_hot;
use crate::rng::{Purpose, Stream};
use crate::task::TaskConfig;
use crossfade_math::{Coef, Gaussian, KAPPA_MIN, NoiseRange, Process, bits_per_dim};
use serde::Serialize;

/// What to measure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LikelihoodConfig {
    /// The number of images, evenly spread over the set.
    pub count: usize,
    /// The number of noise levels at which each image is denoised.
    pub times: usize,
    /// The noise level κ = σ/α at which images are decoded.
    pub kappa_min: f64,
    /// The seed of noise and noise levels.
    pub seed: u64,
    /// Noised images per batch; this changes the speed and nothing else.
    pub batch: usize,
    /// How the likelihood of the probability flow is measured too; none to measure the bound only.
    pub flow: Option<FlowConfig>,
}

impl Default for LikelihoodConfig {
    fn default() -> Self {
        Self { count: 1000, times: 8, kappa_min: KAPPA_MIN, seed: 0, batch: super::BATCH, flow: None }
    }
}

/// The measured bound. All values are means over images in bits per dimension.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Likelihood {
    /// The upper bound of the negative log-likelihood: the sum of the three terms.
    pub bits_per_dim: f64,
    /// Its standard error over images.
    pub standard_error: f64,
    /// What is left of the images at the largest noise level.
    pub prior: f64,
    /// The 8-bit values, given the image at the smallest noise level.
    pub reconstruction: f64,
    /// The integral of the denoising error.
    pub diffusion: f64,
    /// The number of images.
    pub images: usize,
    /// Noise levels of each image.
    pub times: usize,
    /// The smallest noise level κ = σ/α.
    pub kappa_min: f64,
    /// The largest one; none if it is infinite, where nothing of the images is left.
    pub kappa_max: Option<f64>,
    /// Whether the network was told the class of each image.
    pub with_classes: bool,
    /// The likelihood of the probability flow, if it was measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flow: Option<FlowLikelihood>,
}

impl Likelihood {
    /// Its values by the names of the metric `nll`.
    pub fn values(&self) -> Vec<(String, f64)> {
        let values = [self.bits_per_dim, self.standard_error, self.prior, self.reconstruction, self.diffusion];
        let names = ["bits per dimension", "standard error", "prior", "reconstruction", "diffusion"];
        names.map(String::from).into_iter().zip(values).collect()
    }
}

/// The terms of one image, in bits per dimension.
#[derive(Clone, Copy, Default)]
struct Terms {
    prior: f64,
    reconstruction: f64,
    diffusion: f64,
}

impl Terms {
    fn total(&self) -> f64 {
        self.prior + self.reconstruction + self.diffusion
    }
}

/// x̂_0 of noised images `[B, C, H, W]`, from their times and their indices in the set.
type Estimate<'a> = dyn Fn(&Images, &[f64], &[usize]) -> Result<Images> + 'a;

impl Pipeline {
    /// Bits per dimension of images, which must have the size of the network. x̂_0 is made with the blend and the clipping of
    /// the sampling settings. A network with classes is told those of the images, if the set has classes. `progress` is
    /// called with (noised images done, all of them) and returns whether to go on; none if it did not.
    pub fn likelihood(
        &self,
        set: &dyn Dataset,
        config: &LikelihoodConfig,
        progress: &mut dyn FnMut(u64, u64) -> bool,
    ) -> Result<Option<Likelihood>> {
        let process = likelihood_process(self.process(), self.task(), self.latent.is_some())
            .map_err(|reason| Error::request(format!("{}: {reason}", self.origin())))?;
        let ([channels, side, _], first) = (self.size()?, set.get(0)?);
        if [first.channels, first.height, first.width] != [channels, side, side] {
            let (c, h, w) = (first.channels, first.height, first.width);
            return Err(Error::request(format!(
                "{} is for images of {side}x{side} with {channels} channels, not for {w}x{h} with {c}: {}",
                self.origin(),
                set.describe()
            )));
        }
        let range = NoiseRange::new(process, config.kappa_min, f64::INFINITY);
        let range = range.map_err(|problem| Error::request(problem.to_string()))?;
        let classes = self.classes_in(set)?;
        let estimate = |x_t: &Images, times: &[f64], indices: &[usize]| {
            let of = |classes: &Vec<u32>| {
                let classes: Vec<_> = indices.iter().map(|&index| Some(classes[index])).collect();
                one_hot(&classes, self.class_names.len(), &self.device)
            };
            let net = self.net.conditioned(None).of_classes(classes.as_ref().map(of));
            estimates_at(&net, &self.sample, process, x_t, times)
        };
        let measurement =
            Measurement { set, process, range: &range, config, estimate: &estimate, device: &self.device };
        let found = measurement.run(progress)?;
        Ok(found.map(|found| Likelihood { with_classes: classes.is_some(), ..found }))
    }

    /// The class of every image of the set as the network numbers it; none if the network or the set has no classes.
    fn classes_in(&self, set: &dyn Dataset) -> Result<Option<Vec<u32>>> {
        let (origin, images) = (self.origin(), set.describe());
        if self.class_names.is_empty() {
            return Ok(None);
        }
        let Some(classes) = set.classes()? else {
            if self.label_dropout == 0.0 {
                let problem = "was trained with train.label_dropout = 0 and never saw an image without its class";
                return Err(Error::request(format!("{origin} {problem}, but these have none: {images}")));
            }
            return Ok(None);
        };
        let own = |name: &String| {
            let found = self.class_names.iter().position(|own| own == name).map(|class| class as u32);
            found.ok_or_else(|| Error::request(format!("{origin} does not know the class `{name}` of {images}")))
        };
        let numbers = classes.names.iter().map(own).collect::<Result<Vec<_>>>()?;
        Ok(Some(classes.of.iter().map(|&class| numbers[class as usize]).collect()))
    }
}

/// The (α_t, σ_t) process of a network; the error is the reason if its likelihood of images is not known.
pub(crate) fn likelihood_process(
    process: &Process,
    task: &TaskConfig,
    on_latents: bool,
) -> std::result::Result<Gaussian, String> {
    let refuse = |reason: &str| Err(format!("no bits per dimension: {reason}"));
    if on_latents {
        return refuse("the network models latents, whose density says nothing about 8-bit pixels");
    }
    if !task.is_unconditional() {
        return refuse("the network of a task models images given a condition; give an unconditional network");
    }
    match (process.gaussian(), process) {
        (Some(gaussian), _) => Ok(gaussian),
        (None, Process::Cld(_)) => refuse("CLD predicts the score of a velocity and has no estimate of x_0"),
        (None, _) => {
            refuse("only the constant attenuation has the form alpha_t x_0 + sigma_t eps that the bound needs")
        }
    }
}

/// The measurement of a set under any estimate of x_0.
struct Measurement<'a> {
    set: &'a dyn Dataset,
    process: Gaussian,
    range: &'a NoiseRange,
    config: &'a LikelihoodConfig,
    estimate: &'a Estimate<'a>,
    device: &'a Device,
}

impl Measurement<'_> {
    /// The number of images.
    fn count(&self) -> usize {
        self.config.count.min(self.set.len())
    }

    /// The index in the set of image number `place`. Sets may be sorted by class, so that the first images would not stand
    /// for all of them.
    fn index(&self, place: usize) -> usize {
        place * self.set.len() / self.count()
    }

    /// The bound, and the likelihood of the flow if it is wanted; none if `progress` stopped it.
    fn run(&self, progress: &mut dyn FnMut(u64, u64) -> bool) -> Result<Option<Likelihood>> {
        let Some(terms) = self.bound(progress)? else { return Ok(None) };
        let bound = summary(&terms, self.range, self.config.times)?;
        let Some(flow) = &self.config.flow else { return Ok(Some(bound)) };
        let Some(flow) = self.flow(flow, &terms, progress)? else { return Ok(None) };
        Ok(Some(Likelihood { flow: Some(flow), ..bound }))
    }

    /// The terms of the bound of each image.
    fn bound(&self, progress: &mut dyn FnMut(u64, u64) -> bool) -> Result<Option<Vec<Terms>>> {
        let Self { set, process, range, config, estimate, device } = *self;
        let (count, times) = (self.count(), config.times);
        if count < 2 || times == 0 {
            let message =
                format!("a standard error needs two images and one noise level or more, not {count} and {times}");
            return Err(Error::request(message));
        }
        let mut terms = vec![Terms::default(); count];
        let mut image = (usize::MAX, Planes::new([0; 3], vec![]));
        for first in (0..count * times).step_by(config.batch.max(1)) {
            let last = (first + config.batch.max(1)).min(count * times);
            let (mut clean, mut noise, mut levels, mut indices) = (vec![], vec![], vec![], vec![]);
            for job in first..last {
                let (place, k) = (job / times, job % times);
                let index = self.index(place);
                if image.0 != index {
                    image = (index, Planes::from_image(&set.get(index)?));
                }
                let planes = &image.1;
                if k == 0 {
                    terms[place] = ends(planes, range, config.seed, index);
                }
                // One level in each of `times` equally probable parts of the range.
                let within = Stream::new(config.seed, index as u64, k as u64, Purpose::LikelihoodTime).uniform();
                levels.push(range.draw((k as f64 + within) / times as f64));
                noise.extend(normals(config.seed, index, k as u64 + 1, planes.values.len()));
                clean.extend_from_slice(&planes.values);
                indices.push(index);
            }
            let [channels, height, width] = image.1.shape;
            let shape = [last - first, channels, height, width];
            let at: Vec<f64> = levels.iter().map(|level| level.t).collect();
            let (x0, eps) = (Images(from_host(&clean, shape, device)), Images(from_host(&noise, shape, device)));
            let found = to_host(estimate(&process.x_t(&x0, &eps, &Coef::Each(at.clone())), &at, &indices)?.0);
            let values = channels * height * width;
            let errors = found.chunks_exact(values).zip(clean.chunks_exact(values)).map(|(found, clean)| {
                found.iter().zip(clean).map(|(a, b)| (f64::from(*a) - f64::from(*b)).powi(2)).sum::<f64>()
            });
            for (job, (error, level)) in (first..last).zip(errors.zip(&levels)) {
                terms[job / times].diffusion += bits_per_dim(level.weight * error / times as f64, values);
            }
            if !progress(last as u64, (count * times) as u64) {
                return Ok(None);
            }
        }
        Ok(Some(terms))
    }
}

/// The terms of an image at both ends of the noise levels, which need no network.
fn ends(image: &Planes, range: &NoiseRange, seed: u64, index: usize) -> Terms {
    let values = image.values.len();
    let squares = image.values.iter().map(|&v| f64::from(v).powi(2)).sum();
    let byte = |v: f32| ((v + 1.0) * 127.5).round() as u8;
    let decoded = image.values.iter().zip(normals(seed, index, 0, values));
    let nats = decoded.map(|(&v, eps)| range.reconstruction(byte(v), eps.into())).sum();
    Terms {
        prior: bits_per_dim(range.prior(squares), values),
        reconstruction: bits_per_dim(nats, values),
        diffusion: 0.0,
    }
}

fn normals(seed: u64, index: usize, step: u64, count: usize) -> Vec<f32> {
    let mut values = vec![0.0; count];
    Stream::new(seed, index as u64, step, Purpose::LikelihoodNoise).fill_normal(&mut values);
    values
}

/// Means over images, and the standard error of their sum.
fn summary(terms: &[Terms], range: &NoiseRange, times: usize) -> Result<Likelihood> {
    let count = terms.len() as f64;
    let mean = |term: &dyn Fn(&Terms) -> f64| terms.iter().map(term).sum::<f64>() / count;
    let (bits, standard_error) = mean_and_error(&terms.iter().map(Terms::total).collect::<Vec<_>>());
    if !bits.is_finite() {
        return Err(Error::Run(
            "the network's estimates of x_0 are not finite: there are no bits per dimension".into(),
        ));
    }
    Ok(Likelihood {
        bits_per_dim: bits,
        standard_error,
        prior: mean(&|of| of.prior),
        reconstruction: mean(&|of| of.reconstruction),
        diffusion: mean(&|of| of.diffusion),
        images: terms.len(),
        times,
        kappa_min: range.kappa_min(),
        kappa_max: Some(range.kappa_max()).filter(|kappa| kappa.is_finite()),
        with_classes: false,
        flow: None,
    })
}

/// The mean of values and its standard error.
fn mean_and_error(values: &[f64]) -> (f64, f64) {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (count - 1.0);
    (mean, (variance / count).sqrt())
}

#[cfg(test)]
mod tests;
