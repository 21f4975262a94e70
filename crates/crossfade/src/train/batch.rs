//! From loaded pixels to a noised batch: every draw is a pure function of (seed, sample counter, purpose).
use crate::augment::{Draws, LABELS, Margin, augment};
use crate::config::{Baseline, RunConfig};
use crate::data::loader::Batch;
use crate::engine::{Device, Images, Tensor, from_vec};
use crate::loss::Noised;
use crate::rng::{Purpose, Stream};
use rayon::prelude::*;

/// A batch ready for the network, with augmentation labels if there are any.
pub struct Prepared {
    /// x_0, phi, eps, t and x_t.
    pub noised: Noised,
    /// `[B, 9]`.
    pub labels: Option<Tensor<2>>,
    /// What the network is told, `[B, C', H', W']`.
    pub condition: Option<Tensor<4>>,
}

/// Augments and noises `batch` on `device`.
pub fn prepare(mut batch: Batch, config: &RunConfig, device: &Device) -> Prepared {
    let (seed, shape) = (config.seed, batch.shape);
    let labels = (config.train.augment > 0.0).then(|| {
        let draws: Vec<Draws> = batch.counters.iter().map(|&k| Draws::new(seed, k)).collect();
        let labels = augment(&mut batch.pixels, shape, &draws, config.train.augment, Margin::Image);
        from_vec(labels.concat(), [shape[0], LABELS], device)
    });
    let normals = |part: u64, purpose: Purpose| {
        let size = shape[1..].iter().product();
        let mut out = vec![0.0; size * shape[0]];
        (out.par_chunks_mut(size).zip(&batch.counters))
            .for_each(|(out, &k)| Stream::new(seed, k, part, purpose).fill_normal(out));
        Images(from_vec(out, shape, device))
    };
    let drawn: Vec<Images> = (0..config.process.drawn_parts() as u64).map(|k| normals(k, Purpose::Phi)).collect();
    let eps = normals(0, Purpose::Noise);
    let condition = batch.condition.take().map(|c| from_vec(c.values, c.shape, device));
    let uniform = |k: u64| Stream::new(seed, k, 0, Purpose::Time).uniform();
    let x0 = Images(from_vec(std::mem::take(&mut batch.pixels), shape, device));
    let noised = match &config.baseline {
        Some(Baseline::Ddpm(ddpm)) => {
            // k uniform in 1..=T.
            let k = |counter| 1 + ((uniform(counter) * ddpm.timesteps as f64) as usize).min(ddpm.timesteps - 1);
            Noised::ddpm(ddpm, x0, eps, batch.counters.iter().map(|&counter| k(counter)).collect())
        }
        None => {
            let t_min = config.loss.t_min;
            let t = batch.counters.iter().map(|&k| t_min + (1.0 - t_min) * uniform(k)).collect();
            Noised::new(&config.process, x0, &drawn, eps, t)
        }
    };
    Prepared { noised, labels, condition }
}
