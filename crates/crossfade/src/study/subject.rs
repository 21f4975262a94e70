//! A model in use: images of a seed, and how its estimate approaches them.
use super::held_out::held_out_draw;
use crate::apply::{Model, Part};
use crate::data::{Dataset, Image};
use crate::engine::to_host;
use crate::error::{Error, Result};
use crate::generate::{Pipeline, StartNoise};

/// Images of one batch.
pub struct Batch {
    /// The images.
    pub images: Vec<Image>,
    /// Network evaluations each.
    pub nfe: usize,
}

/// The mean square of x̂_0(t) − x_0 over the way of a sampler.
#[derive(Default)]
pub struct Curve {
    times: Vec<f64>,
    sums: Vec<f64>,
    images: u64,
}

/// Images `from` to `to` of a seed, as `crossfade sample` makes them; `curve` sees the estimates on the way.
pub fn images(pipeline: &Pipeline, seed: u64, [from, to]: [u64; 2], curve: Option<&mut Curve>) -> Result<Batch> {
    let starts: Vec<_> = (from..to).map(StartNoise::Index).collect();
    let mut seen: Vec<(f64, Vec<f32>)> = vec![];
    let wanted = curve.is_some();
    let sampled = pipeline.sample(seed, &starts, &mut |state| {
        if wanted {
            seen.push((state.t, to_host(state.x0.0.clone())));
        }
    })?;
    if let Some(curve) = curve {
        curve.add(&seen, &to_host(sampled.x0.0.clone()), starts.len());
    }
    Ok(Batch { images: pipeline.decode(sampled.x0.0), nfe: sampled.nfe })
}

impl Curve {
    /// Adds `count` images one after the other, so that sums do not depend on batches.
    fn add(&mut self, seen: &[(f64, Vec<f32>)], last: &[f32], count: usize) {
        let size = last.len() / count;
        self.times = seen.iter().map(|(t, _)| *t).collect();
        self.sums.resize(seen.len(), 0.0);
        for (sum, (_, estimate)) in self.sums.iter_mut().zip(seen) {
            for (a, b) in estimate.chunks_exact(size).zip(last.chunks_exact(size)) {
                *sum += a.iter().zip(b).map(|(a, b)| f64::from(a - b).powi(2)).sum::<f64>() / size as f64;
            }
        }
        self.images += count as u64;
    }

    /// (t, mean square).
    pub fn points(&self) -> Result<Vec<[f64; 2]>> {
        if !self.sums.iter().all(|sum| sum.is_finite()) {
            return Err(Error::Run("the estimates of x_0 are not finite; has the training diverged?".into()));
        }
        Ok(self.times.iter().zip(&self.sums).map(|(t, sum)| [*t, sum / self.images.max(1) as f64]).collect())
    }
}


/// The network's output for held-out image k of a task, and the target. Crops and holes depend on k alone.
pub fn held_out_pair(
    pipeline: &Pipeline,
    seed: u64,
    held_out: &dyn Dataset,
    k: u64,
) -> Result<[Image; 2]> {
    let (draw, task) = (held_out_draw(k), pipeline.task());
    let (index, model) = (k as usize, pipeline.task_model(task.name(), seed)?);
    let pair = task.task().example(&held_out.get(index)?, held_out.label(index)?.as_ref(), &draw)?;
    let [_, height, width] = pair.target.shape;
    let none = || Error::request("held-out images need a task with a condition; see [task]");
    let part = Part { condition: pair.condition.ok_or_else(none)?, size: [height, width], y: 0, x: 0 };
    let made = model.make(k, std::slice::from_ref(&part))?.pop();
    let made = made.ok_or_else(|| Error::Run("no output came out".into()))?;
    // The network may make something else than pictures, such as what a filter lacks.
    Ok([made, pair.target].map(|planes| task.task().output(planes, &part.condition).to_image()))
}
