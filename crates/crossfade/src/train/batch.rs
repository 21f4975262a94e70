//! Prepares a loaded batch for training: augmentation and the forward process. Every random number is a pure function of
//! (seed, sample counter, purpose), so that a resumed run draws the same ones.
use crate::augment::{Draws, LABELS, Margin, augment};
use crate::config::RunConfig;
use crate::data::Classes;
use crate::engine::{Device, Images, Tensor, from_vec};
use crate::loader::Batch;
use crate::loss::Noised;
use crate::nn::one_hot;
use crate::rng::{Purpose, Stream};
use crossfade_math::{DrawnTime, ProcessFn};
use rayon::prelude::*;

/// A batch that is ready for the network.
pub struct Prepared {
    /// The noised batch: x_0, phi, eps, t and x_t.
    pub noised: Noised,
    /// The augmentation labels, `[B, 9]`, if images are augmented.
    pub labels: Option<Tensor<2>>,
    /// The class of each sample, `[B, classes]`, for a network with classes; zeros for samples without their class.
    pub classes: Option<Tensor<2>>,
    /// The condition of a task, `[B, C', H', W']`.
    pub condition: Option<Tensor<4>>,
}

/// Augments `batch` and applies the forward process, on `device`. `classes` are those of the dataset, for a network with
/// classes.
pub fn prepare(batch: Batch, config: &RunConfig, classes: Option<&Classes>, device: &Device) -> Prepared {
    let draw = |uniform: f64, normal: f64| config.loss.times.draw(&config.process, uniform, normal);
    prepare_at(batch, config, classes, device, &draw)
}

/// As [`prepare`], with times that `draw` makes of one uniform and one normal number for each sample.
pub(super) fn prepare_at(
    mut batch: Batch,
    config: &RunConfig,
    classes: Option<&Classes>,
    device: &Device,
    draw: &dyn Fn(f64, f64) -> DrawnTime,
) -> Prepared {
    let (seed, shape) = (config.seed, batch.shape);
    let classes = classes.map(|classes| {
        let samples = batch.counters.iter().zip(&batch.indices);
        let shown: Vec<Option<u32>> = samples
            .map(|(&k, &index)| Some(classes.of[index]).filter(|_| !drops_label(seed, k, config.train.label_dropout)))
            .collect();
        one_hot(&shown, classes.names.len(), device)
    });
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
        draw(uniform, stream.normal())
    };
    let (t, weights) = batch.counters.iter().map(|&k| training_time(k)).map(|drawn| (drawn.t, drawn.weight)).unzip();
    // Further normals that the process needs: the drawn parts of phi, and the velocity of CLD.
    let needed = process.extra();
    let phi = (0..needed.phi as u64).map(|part| normals(part, Purpose::Phi));
    let extra: Vec<Images> = phi.chain(needed.velocity.then(|| normals(1, Purpose::Noise))).collect();
    let x0 = Images(from_vec(std::mem::take(&mut batch.x0), shape, device));
    let noised = Noised { weights, ..Noised::new(process, x0, &extra, eps, t) };
    Prepared { noised, labels, classes, condition }
}

/// Whether the sample at counter `k` is shown without its class.
pub fn drops_label(seed: u64, k: u64, probability: f64) -> bool {
    Stream::new(seed, k, 0, Purpose::LabelDropout).uniform() < probability
}
