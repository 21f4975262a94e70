//! The likelihood of the probability flow: the density that the deterministic sampler gives to images (§10.8).
//!
//! It shares the decoder and its noise with the bound, so that both differ only in how the images at the smallest noise
//! level are modelled: by the flow's density, or by the integral of the denoising error.
use super::{Measurement, Terms, mean_and_error, normals};
use crate::data::Planes;
use crate::engine::{Images, from_host, to_host};
use crate::error::{Error, Result};
use crate::rng::{Purpose, Stream};
use crossfade_math::{GaussianFn, bits_per_dim};
use serde::Serialize;
use std::f64::consts::TAU;

/// The largest noise level of the flow, at which images are taken for pure noise: their share is below 10^-4.
const KAPPA_END: f64 = 100.0;
/// The step of the difference quotients, as a share of the noise level: estimates hardly bend over such a distance, and the
/// rounding of single precision is far below it.
const DIFFERENCE: f64 = 0.02;
/// The most dimensions of which the trace is summed exactly.
const EXACT_LIMIT: usize = 1024;

/// How the trace of the Jacobian of x̂_0 is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trace {
    /// Hutchinson's estimate from this many vectors of random signs, which has no bias.
    Probes(usize),
    /// The sum over all dimensions, which costs two evaluations of each; for tiny images.
    Exact,
}

/// How the likelihood of the flow is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowConfig {
    /// Steps of Heun's method, of equal length in ln κ.
    pub steps: usize,
    /// The trace.
    pub trace: Trace,
}

impl Default for FlowConfig {
    fn default() -> Self {
        Self { steps: 64, trace: Trace::Probes(1) }
    }
}

/// The measured likelihood of the flow, in bits per dimension.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FlowLikelihood {
    /// The negative log-likelihood, mean over images.
    pub bits_per_dim: f64,
    /// Its standard error over images.
    pub standard_error: f64,
    /// The bound minus this value, on the same images with the same noise of the decoder.
    pub gap: f64,
    /// The standard error of the gap, which is smaller than that of either.
    pub gap_error: f64,
    /// Steps.
    pub steps: usize,
    /// Vectors of random signs; none for the exact trace.
    pub probes: Option<usize>,
    /// Network evaluations of each image.
    pub evaluations: usize,
}

impl Measurement<'_> {
    /// The likelihood of the flow on the images whose bound is `bound`; none if `progress` stopped it.
    pub(super) fn flow(
        &self,
        flow: &FlowConfig,
        bound: &[Terms],
        progress: &mut dyn FnMut(u64, u64) -> bool,
    ) -> Result<Option<FlowLikelihood>> {
        if self.process.tick().is_some() {
            let name = self.process.name();
            return Err(Error::request(format!("{name} has discrete times, and its network no flow between them")));
        }
        if flow.steps == 0 || flow.trace == Trace::Probes(0) {
            return Err(Error::request("the probability flow needs a step and a probe at least"));
        }
        let (count, mut found) = (self.count(), vec![]);
        for first in (0..count).step_by(self.config.batch.max(1)) {
            let last = (first + self.config.batch.max(1)).min(count);
            found.extend(self.flow_batch(flow, bound, first..last)?);
            if !progress(last as u64, count as u64) {
                return Ok(None);
            }
        }
        let gaps: Vec<f64> = bound.iter().zip(&found).map(|(bound, flow)| bound.total() - flow.0).collect();
        let bits: Vec<f64> = found.iter().map(|(bits, _)| *bits).collect();
        let ((bits_per_dim, standard_error), (gap, gap_error)) = (mean_and_error(&bits), mean_and_error(&gaps));
        if !bits_per_dim.is_finite() {
            return Err(Error::Run("the probability flow of the network is not finite".into()));
        }
        let probes = match flow.trace {
            Trace::Probes(probes) => Some(probes),
            Trace::Exact => None,
        };
        let evaluations = found.first().map_or(0, |(_, evaluations)| *evaluations);
        Ok(Some(FlowLikelihood {
            bits_per_dim,
            standard_error,
            gap,
            gap_error,
            steps: flow.steps,
            probes,
            evaluations,
        }))
    }

    /// Bits per dimension and network evaluations of each image of a batch.
    ///
    /// In y = x_t/α_t the flow is dy/dκ = (y − x̂_0)/κ, whose divergence over ln κ is D − tr ∂x̂_0/∂y. Hence ln p(y) at the
    /// smallest level is that of the noise at the largest one plus the integral of the divergence.
    fn flow_batch(
        &self,
        flow: &FlowConfig,
        bound: &[Terms],
        places: std::ops::Range<usize>,
    ) -> Result<Vec<(f64, usize)>> {
        let indices: Vec<usize> = places.clone().map(|place| self.index(place)).collect();
        let planes = indices.iter().map(|&index| Ok(Planes::from_image(&self.set.get(index)?)));
        let planes: Vec<Planes> = planes.collect::<Result<_>>()?;
        let shape = planes.first().map_or([0; 3], |planes| planes.shape);
        let values: usize = shape.iter().product();
        let (start, end) = (self.range.kappa_min(), self.range.kappa_max().min(KAPPA_END));
        let mut batch = Batch { of: self, indices: &indices, shape, evaluations: 0 };
        // The noise of the decoder, as in the bound.
        let noise: Vec<Vec<f32>> = indices.iter().map(|&i| normals(self.config.seed, i, 0, values)).collect();
        let clean = planes.iter().flat_map(|planes| &planes.values);
        let mut y: Vec<f64> =
            clean.zip(noise.iter().flatten()).map(|(&x, &eps)| f64::from(x) + start * f64::from(eps)).collect();
        let probes = batch.probes(flow.trace)?;
        let (step, mut kappa) = ((end / start).ln() / flow.steps as f64, start);
        let mut x0 = batch.estimates(&y, kappa)?;
        let mut divergence = batch.divergence(&y, kappa, &probes)?;
        let mut integral = vec![0.0; indices.len()];
        for k in 0..flow.steps {
            let next = start * (step * (k + 1) as f64).exp();
            // Heun in κ, in which the flow of white noise is a straight line.
            let eps = |y: &[f64], x0: &[f64], kappa: f64| -> Vec<f64> {
                y.iter().zip(x0).map(|(y, x0)| (y - x0) / kappa).collect()
            };
            let first = eps(&y, &x0, kappa);
            let predicted: Vec<f64> = y.iter().zip(&first).map(|(y, eps)| y + (next - kappa) * eps).collect();
            let second = eps(&predicted, &batch.estimates(&predicted, next)?, next);
            for (y, (a, b)) in y.iter_mut().zip(first.iter().zip(&second)) {
                *y += (next - kappa) * 0.5 * (a + b);
            }
            x0 = batch.estimates(&y, next)?;
            let after = batch.divergence(&y, next, &probes)?;
            for (integral, (a, b)) in integral.iter_mut().zip(divergence.iter().zip(&after)) {
                *integral += 0.5 * step * (a + b);
            }
            (kappa, divergence) = (next, after);
        }
        let squares = |values: &mut dyn Iterator<Item = f64>| values.map(|v| v * v).sum::<f64>();
        let each = y.chunks_exact(values).zip(integral).zip(&noise).zip(&bound[places]);
        let bits = each.map(|(((y, integral), noise), bound)| {
            let white = |squares: f64, kappa: f64| {
                -0.5 * squares / (kappa * kappa) - 0.5 * values as f64 * (TAU * kappa * kappa).ln()
            };
            let density = white(squares(&mut y.iter().copied()), kappa) + integral;
            // ln q(y | x_0) of the decoder's noise; its mean is minus the entropy of the noise.
            let drawn = white(start * start * squares(&mut noise.iter().map(|&v| f64::from(v))), start);
            (bound.reconstruction + bits_per_dim(drawn - density, values), batch.evaluations)
        });
        Ok(bits.collect())
    }
}

/// Images that are followed together.
struct Batch<'a> {
    of: &'a Measurement<'a>,
    indices: &'a [usize],
    /// Channels, height and width.
    shape: [usize; 3],
    /// Network evaluations of each image so far.
    evaluations: usize,
}

impl Batch<'_> {
    /// x̂_0 of states y at a noise level.
    fn estimates(&mut self, y: &[f64], kappa: f64) -> Result<Vec<f64>> {
        let process = self.of.process;
        let t = process.time_of_ratio(kappa);
        let alpha = process.alpha(t);
        let x_t: Vec<f32> = y.iter().map(|y| (alpha * y) as f32).collect();
        let [c, h, w] = self.shape;
        let x_t = Images(from_host(&x_t, [self.indices.len(), c, h, w], self.of.device));
        self.evaluations += 1;
        let found = (self.of.estimate)(&x_t, &vec![t; self.indices.len()], self.indices)?;
        Ok(to_host(found.0).into_iter().map(f64::from).collect())
    }

    /// The directions v of the quotients; the sum of vᵀJv over them, divided by their weight, is the trace.
    fn probes(&self, trace: Trace) -> Result<Vec<Vec<f64>>> {
        let values: usize = self.shape.iter().product();
        let sign = |stream: &mut Stream| if stream.uniform() < 0.5 { -1.0 } else { 1.0 };
        match trace {
            Trace::Probes(count) => Ok((0..count as u64)
                .map(|probe| {
                    let of = |index: usize| {
                        let seed = self.of.config.seed;
                        let mut stream = Stream::new(seed, index as u64, probe, Purpose::LikelihoodProbe);
                        (0..values).map(move |_| sign(&mut stream))
                    };
                    self.indices.iter().flat_map(|&index| of(index)).collect()
                })
                .collect()),
            Trace::Exact if values > EXACT_LIMIT => Err(Error::request(format!(
                "the exact trace of {values} dimensions is too expensive; at most {EXACT_LIMIT} are possible: give probes"
            ))),
            Trace::Exact => Ok((0..values)
                .map(|d| (0..values * self.indices.len()).map(|i| f64::from(u8::from(i % values == d))).collect())
                .collect()),
        }
    }

    /// D − tr ∂x̂_0/∂y of each image, by central differences along the probes.
    fn divergence(&mut self, y: &[f64], kappa: f64, probes: &[Vec<f64>]) -> Result<Vec<f64>> {
        let (values, h) = (y.len() / self.indices.len(), DIFFERENCE * kappa);
        let mut traces = vec![0.0; self.indices.len()];
        for probe in probes {
            let moved = |sign: f64| y.iter().zip(probe).map(|(y, v)| y + sign * h * v).collect::<Vec<f64>>();
            let (above, below) = (self.estimates(&moved(1.0), kappa)?, self.estimates(&moved(-1.0), kappa)?);
            for (i, trace) in traces.iter_mut().enumerate() {
                let own = i * values..(i + 1) * values;
                let difference = above[own.clone()].iter().zip(&below[own.clone()]).zip(&probe[own]);
                *trace += difference.map(|((a, b), v)| v * (a - b)).sum::<f64>() / (2.0 * h);
            }
        }
        // Unit vectors add up to the trace, vectors of signs have it as their mean.
        let is_exact = probes.first().is_some_and(|probe| probe.contains(&0.0));
        let count = if is_exact { 1.0 } else { probes.len() as f64 };
        Ok(traces.into_iter().map(|trace| values as f64 - trace / count).collect())
    }
}

#[cfg(test)]
mod tests;
