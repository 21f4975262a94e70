//! Randomness as a pure function of (seed, index, step, purpose).
//!
//! Every number drawn anywhere in the toolkit comes from here, so that an image or a training sample depends on its own
//! index alone: never on batch size, thread count, shard, device or on what was drawn before. The generator is ChaCha8
//! keyed by those four numbers; normals are Box–Muller through `libm`, which gives the same bits on every platform.
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// What a stream of numbers is for. Two purposes never share numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u64)]
pub enum Purpose {
    /// Initial weights of a network; the index is the hash of the parameter's name.
    Weights = 1,
    /// The order of the training images; the index is the epoch.
    Order = 2,
    /// The training time t of a sample.
    Time = 3,
    /// The training noise eps of a sample.
    Noise = 4,
    /// The drawn parts of phi of a sample.
    Phi = 5,
    /// Augmentation of a sample.
    Augment = 6,
    /// Dropout masks of a sample; the step is the position of the layer.
    Dropout = 7,
    /// The starting noise x_1 of an image.
    Start = 8,
    /// The noise z that a stochastic sampler adds to an image; the step is the sampler's step.
    Step = 9,
    /// A procedural image.
    Procedural = 10,
    /// Samples of the oracle laboratory.
    Lab = 11,
    /// The horizontal flip of a training sample.
    Flip = 12,
    /// The filters of the metric random-frechet; the index is the layer.
    RandomFilters = 13,
    /// Resamples of a bootstrap; the index is the resample.
    Bootstrap = 20,
    /// The noise with which the latent of a training sample is drawn.
    Posterior = 30,
    /// The crop of a training sample.
    Crop = 40,
    /// The hole of an inpainting sample.
    Mask = 41,
    /// The starting noise of a tile of a large image; the step is the tile.
    Tile = 42,
    /// The noise that a stochastic sampler adds to a tile; the step combines the tile and the sampler's step.
    TileStep = 43,
    /// Whether a training sample is shown to the network without its class.
    LabelDropout = 50,
    /// The class of a sampled image.
    Class = 51,
    /// The noise level at which the likelihood of an image is measured; the step counts the levels.
    LikelihoodTime = 60,
    /// The noise of that measurement; step 0 is that of the decoder, the others follow.
    LikelihoodNoise = 61,
    /// The signs of a probe of the trace in the probability-flow likelihood; the step is the probe.
    LikelihoodProbe = 62,
}

/// A stream of numbers that belongs to one (seed, index, step, purpose).
pub struct Stream(ChaCha8Rng);

impl Stream {
    /// The stream for `purpose`, for the image or sample `index`, at `step`.
    pub fn new(seed: u64, index: u64, step: u64, purpose: Purpose) -> Self {
        let mut key = [0u8; 32];
        for (bytes, word) in key.chunks_exact_mut(8).zip([seed, index, step, purpose as u64]) {
            // The four numbers are the key itself, so distinct inputs give unrelated streams without any hashing.
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        Self(ChaCha8Rng::from_seed(key))
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Uniform in [0, 1), 53 bits.
    pub fn uniform(&mut self) -> f64 {
        // The upper 53 bits are all that a double can hold, so the result is never rounded up to 1.
        (self.bits() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// Uniform in 0..n, without bias (Lemire's rejection).
    pub fn below(&mut self, n: u64) -> u64 {
        assert!(n > 0, "a draw from an empty range");
        loop {
            let wide = u128::from(self.bits()) * u128::from(n);
            // Lemire: the upper half of bits·n is the draw; a few values of the lower half are rejected, because 2^64
            // is in general no multiple of n.
            let low = wide as u64;
            if low >= n || low >= n.wrapping_neg() % n {
                return (wide >> 64) as u64;
            }
        }
    }

    /// Two independent standard normals (Box–Muller).
    fn normal_pair(&mut self) -> (f64, f64) {
        // 1 - u lies in (0, 1], so the logarithm is finite.
        let radius = (-2.0 * libm::log(1.0 - self.uniform())).sqrt();
        let (sin, cos) = libm::sincos(std::f64::consts::TAU * self.uniform());
        (radius * cos, radius * sin)
    }

    /// One standard normal.
    pub fn normal(&mut self) -> f64 {
        // The second normal of the pair is dropped, so that the bits consumed do not depend on earlier calls.
        self.normal_pair().0
    }

    /// Fills `out` with standard normals.
    pub fn fill_normal(&mut self, out: &mut [f32]) {
        for pair in out.chunks_mut(2) {
            let (a, b) = self.normal_pair();
            pair[0] = a as f32;
            if let Some(second) = pair.get_mut(1) {
                *second = b as f32;
            }
        }
    }

    /// A random permutation of 0..n (Fisher–Yates).
    pub(crate) fn permutation(&mut self, n: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..n).collect();
        for i in (1..n).rev() {
            order.swap(i, self.below(i as u64 + 1) as usize);
        }
        order
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_differ_in_every_coordinate() {
        let base = Stream::new(1, 2, 3, Purpose::Noise).bits();
        for other in [
            Stream::new(2, 2, 3, Purpose::Noise),
            Stream::new(1, 3, 3, Purpose::Noise),
            Stream::new(1, 2, 4, Purpose::Noise),
            Stream::new(1, 2, 3, Purpose::Time),
        ] {
            let mut other = other;
            assert_ne!(other.bits(), base);
        }
    }

    #[test]
    fn normals_have_unit_moments() {
        let mut x = vec![0.0; 200_001];
        Stream::new(7, 0, 0, Purpose::Noise).fill_normal(&mut x);
        let n = x.len() as f64;
        let moment = |k: i32| x.iter().map(|&v| f64::from(v).powi(k)).sum::<f64>() / n;
        assert!(moment(1).abs() < 0.01, "mean {}", moment(1));
        assert!((moment(2) - 1.0).abs() < 0.02, "variance {}", moment(2));
        assert!((moment(4) - 3.0).abs() < 0.1, "kurtosis {}", moment(4));
    }

    #[test]
    fn below_is_uniform_and_a_permutation_is_one() {
        let mut s = Stream::new(0, 0, 0, Purpose::Order);
        let mut counts = [0; 7];
        (0..70_000).for_each(|_| counts[s.below(7) as usize] += 1);
        assert!(counts.iter().all(|&c| (9_600..10_400).contains(&c)), "{counts:?}");
        let mut p = s.permutation(1000);
        p.sort_unstable();
        assert_eq!(p, (0..1000).collect::<Vec<_>>());
    }
}
