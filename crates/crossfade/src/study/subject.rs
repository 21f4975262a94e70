//! Images of a model for a seed, and the error of its estimates of x_0 during sampling.
use super::held_out::held_out_draw;
use crate::apply::{Model, Part};
use crate::data::{Dataset, Image};
use crate::engine::{Images, to_host};
use crate::error::{Error, Result};
use crate::generate::{Pipeline, StartNoise};

/// The images of one batch.
pub struct Batch {
    /// The images.
    pub images: Vec<Image>,
    /// Network evaluations per image.
    pub nfe: usize,
    /// (t, the pictures x̂_0(t)) at the times that were asked for.
    pub estimates: Vec<(f64, Vec<Image>)>,
}

/// The mean square of x̂_0(t) − x_0 over the times of a sampler.
#[derive(Default)]
pub struct Curve {
    times: Vec<f64>,
    sums: Vec<f64>,
    images: u64,
}

/// Samples images `from..to` of a seed, as `crossfade sample` does; the errors of the intermediate estimates are added
/// to `curve`, and `pictures` of them are decoded.
pub fn images(
    pipeline: &Pipeline,
    seed: u64,
    [from, to]: [u64; 2],
    curve: Option<&mut Curve>,
    pictures: usize,
) -> Result<Batch> {
    let starts: Vec<_> = (from..to).map(StartNoise::Index).collect();
    let mut estimates: Vec<(f64, Images)> = vec![];
    let records_estimates = curve.is_some() || pictures > 0;
    let sampled = pipeline.sample(seed, &starts, &mut |state| {
        if records_estimates {
            estimates.push((state.t, state.x0.clone()));
        }
    })?;
    if let Some(curve) = curve {
        curve.add(&estimates, &to_host(sampled.x0.0.clone()), starts.len());
    }
    let chosen = evenly(estimates.len(), pictures).into_iter().map(|i| &estimates[i]);
    let estimates = chosen.map(|(t, x0)| (*t, pipeline.decode(x0.0.clone()))).collect();
    Ok(Batch { images: pipeline.pictures(sampled.x0.0)?, nfe: sampled.nfe, estimates })
}

/// `wanted` of the indices below `len`, evenly from the first to the last; all of them if there are not so many.
fn evenly(len: usize, wanted: usize) -> Vec<usize> {
    if wanted >= len {
        return (0..len).collect();
    }
    let gaps = wanted.saturating_sub(1).max(1);
    (0..wanted).map(|i| (i * (len - 1) + gaps / 2) / gaps).collect()
}

impl Curve {
    /// Adds `count` images one after the other, so that the rounding of the sums does not depend on the batch size.
    fn add(&mut self, estimates: &[(f64, Images)], last: &[f32], count: usize) {
        let size = last.len() / count;
        self.times = estimates.iter().map(|(t, _)| *t).collect();
        // All batches of a cell have the same times.
        self.sums.resize(estimates.len(), 0.0);
        for (sum, (_, estimate)) in self.sums.iter_mut().zip(estimates) {
            for (a, b) in to_host(estimate.0.clone()).chunks_exact(size).zip(last.chunks_exact(size)) {
                *sum += a.iter().zip(b).map(|(a, b)| f64::from(a - b).powi(2)).sum::<f64>() / size as f64;
            }
        }
        self.images += count as u64;
    }

    /// The points (t, mean square) of the curve.
    pub fn points(&self) -> Result<Vec<[f64; 2]>> {
        if !self.sums.iter().all(|sum| sum.is_finite()) {
            return Err(Error::Run("the estimates of x_0 are not finite; has the training diverged?".into()));
        }
        Ok(self.times.iter().zip(&self.sums).map(|(t, sum)| [*t, sum / self.images.max(1) as f64]).collect())
    }
}

/// The network's output for held-out image k of a task, and the target. Crops and holes depend on k alone.
pub(crate) fn held_out_pair(pipeline: &Pipeline, seed: u64, held_out: &dyn Dataset, k: u64) -> Result<[Image; 2]> {
    let (draw, task) = (held_out_draw(k), pipeline.task());
    let (index, model) = (k as usize, pipeline.task_model(task.name(), seed)?);
    let pair = task.task().example(&held_out.get(index)?, held_out.label(index)?.as_ref(), &draw)?;
    let [_, height, width] = pair.target.shape;
    let none = || Error::request("held-out images need a task with a condition; see [task]");
    let part = Part { condition: pair.condition.ok_or_else(none)?, size: [height, width], y: 0, x: 0 };
    let output = model.make(k, std::slice::from_ref(&part))?.pop();
    let output = output.ok_or_else(|| Error::Run("the network returned no output".into()))?;
    // The network's output may not be an image, but for example the residual to an interpolated image.
    Ok([output, pair.target].map(|planes| task.task().output(planes, &part.condition).to_image()))
}

#[cfg(test)]
mod tests {
    use super::evenly;

    #[test]
    fn times_are_chosen_evenly_with_both_ends() {
        assert_eq!(evenly(10, 0), [0usize; 0]);
        assert_eq!(evenly(0, 5), [0usize; 0]);
        assert_eq!(evenly(3, 5), [0, 1, 2]);
        assert_eq!(evenly(10, 2), [0, 9]);
        assert_eq!(evenly(50, 5), [0, 12, 25, 37, 49]);
        for (len, wanted) in [(7, 6), (1000, 999), (11, 3)] {
            let chosen = evenly(len, wanted);
            assert!(chosen.len() == wanted && chosen.is_sorted_by(|a, b| a < b) && chosen[wanted - 1] == len - 1);
        }
    }
}
