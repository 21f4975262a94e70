//! Dropout whose masks belong to a training sample, not to a batch, so that results do not depend on the batch's size.
//!
//! The mask of a sample is a pure function of (seed, step, sample, layer): a ChaCha stream of (seed, sample, step) gives
//! one key, the layer's hash is mixed into it, and a SplitMix64 counter then yields 64 bits for every four elements.
//! Each element keeps if its 16 bits are at least p·2^16, so the rate is p rounded to a multiple of 2^-16, and kept
//! elements are scaled by the exact inverse. The masks do not depend on batch size, order of samples, threads or device.
use burn::tensor::Tensor;
use crossfade_kernels::dropout::{self as kernel, mix};

use crate::engine::ops::{self, DropoutMask};
use crate::engine::{from_vec, has_kernels};
use crate::rng::{Purpose, Stream};

/// What the masks of a training step are a function of: the run's seed, the step and the ids of the samples in the batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DropoutKey {
    /// The seed of the run.
    pub seed: u64,
    /// The training step.
    pub step: u64,
    /// One id for each sample of the batch.
    pub samples: Vec<u64>,
}

/// Drops elements of `x` at `rate` and scales the others by 1/(1 − rate).
///
/// # Shapes
/// `[B, C, H, W]` to the same, with B samples in `key`.
pub fn dropout(x: Tensor<4>, rate: f64, layer: u64, key: &DropoutKey) -> Tensor<4> {
    let threshold = (rate * 65536.0).round().min(65535.0) as u16;
    if threshold == 0 {
        return x;
    }
    let shape = x.dims();
    assert_eq!(shape[0], key.samples.len(), "dropout needs one sample id for each of the {} images", shape[0]);
    let start = |&sample: &u64| mix(Stream::new(key.seed, sample, key.step, Purpose::Dropout).bits() ^ layer);
    let starts: Vec<u64> = key.samples.iter().map(start).collect();
    if has_kernels(&x) {
        return ops::dropout_masked(x, DropoutMask { starts, threshold });
    }
    let mut mask = vec![0.0; shape.iter().product()];
    kernel::dropout(&vec![1.0; mask.len()], &starts, threshold, &mut mask);
    // The mask is a constant of the graph, hence the plain device.
    let device = x.device().without_autodiff();
    x * from_vec(mask, shape, &device)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Device, to_host};

    fn drop(samples: &[u64], step: u64, layer: u64) -> Vec<f32> {
        let x = Tensor::<4>::ones([samples.len(), 5, 7, 9], &Device::flex());
        to_host(dropout(x, 0.25, layer, &DropoutKey { seed: 3, step, samples: samples.to_vec() }))
    }

    #[test]
    fn a_mask_belongs_to_its_sample() {
        let (alone, pair) = (drop(&[11], 2, 1), drop(&[5, 11], 2, 1));
        assert_eq!(alone, pair[315..]);
        assert_ne!(pair[..315], pair[315..]);
        assert_ne!(alone, drop(&[11], 3, 1));
        assert_ne!(alone, drop(&[11], 2, 4));
    }

    #[test]
    fn the_mean_is_kept() {
        let x = Tensor::<4>::ones([4, 16, 64, 64], &Device::flex());
        let key = DropoutKey { seed: 0, step: 0, samples: vec![0, 1, 2, 3] };
        let y = to_host(dropout(x.clone(), 0.1, 9, &key));
        let zeros = y.iter().filter(|&&v| v == 0.0).count() as f64 / y.len() as f64;
        let mean = y.iter().map(|&v| f64::from(v)).sum::<f64>() / y.len() as f64;
        assert!((zeros - 0.1).abs() < 3e-3 && (mean - 1.0).abs() < 3e-3, "{zeros} dropped, mean {mean}");
        assert_eq!(to_host(dropout(x.clone(), 0.0, 9, &key)), to_host(x));
    }
}
