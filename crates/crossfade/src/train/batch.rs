//! Prepares a loaded batch for training: augmentation and the forward process. Every random number is a pure function of
//! (seed, sample counter, purpose), so that a resumed run draws the same ones.
use crate::augment::{Draws, LABELS, Margin, augment};
use crate::config::RunConfig;
use crate::engine::{Device, Images, Tensor, from_vec};
use crate::loader::Batch;
use crate::loss::Noised;
use crate::rng::{Purpose, Stream};
use crossfade_math::ProcessFn;
use rayon::prelude::*;

/// A batch that is ready for the network.
pub struct Prepared {
    /// The noised batch: x_0, phi, eps, t and x_t.
    pub noised: Noised,
    /// The augmentation labels, `[B, 9]`, if images are augmented.
    pub labels: Option<Tensor<2>>,
    /// The condition of a task, `[B, C', H', W']`.
    pub condition: Option<Tensor<4>>,
}

/// Augments `batch` and applies the forward process, on `device`.
pub fn prepare(mut batch: Batch, config: &RunConfig, device: &Device) -> Prepared {
    let (seed, shape) = (config.seed, batch.shape);
    // Augmentation comes before the forward process: it must not resample the noise (§2.6).
    let labels = (config.train.augment > 0.0).then(|| {
        let draws: Vec<Draws> = batch.counters.iter().map(|&k| Draws::new(seed, k)).collect();
        let labels = augment(&mut batch.x0, shape, &draws, config.train.augment, Margin::Image);
        from_vec(labels.concat(), [shape[0], LABELS], device)
    });
    let normals = |part: u64, purpose: Purpose| {
        let size = shape[1..].iter().product();
        let mut out = vec![0.0; size * shape[0]];
        // One stream per sample, so that the result does not depend on threads or on the batch size.
        (out.par_chunks_mut(size).zip(&batch.counters))
            .for_each(|(out, &k)| Stream::new(seed, k, part, purpose).fill_normal(out));
        Images(from_vec(out, shape, device))
    };
    let eps = normals(0, Purpose::Noise);
    let condition = batch.condition.take().map(|c| from_vec(c.values, c.shape, device));
    let process = &config.process;
    let training_time = |k: u64| {
        let mut stream = Stream::new(seed, k, 0, Purpose::Time);
        // Both numbers are always drawn, so that the stream does not depend on which one the process uses.
        let uniform = stream.uniform();
        config.loss.times.draw(process, uniform, stream.normal())
    };
    let (t, weights) = batch.counters.iter().map(|&k| training_time(k)).map(|drawn| (drawn.t, drawn.weight)).unzip();
    // Further normals that the process needs: the drawn parts of phi, and the velocity of CLD.
    let needed = process.extra();
    let phi = (0..needed.phi as u64).map(|part| normals(part, Purpose::Phi));
    let extra: Vec<Images> = phi.chain(needed.velocity.then(|| normals(1, Purpose::Noise))).collect();
    let x0 = Images(from_vec(std::mem::take(&mut batch.x0), shape, device));
    let noised = Noised { weights, ..Noised::new(process, x0, &extra, eps, t) };
    Prepared { noised, labels, condition }
}
