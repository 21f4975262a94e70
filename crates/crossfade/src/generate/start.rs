//! The starting noise of an image, as a pure function of (seed, image index).
use crate::rng::{Purpose, Stream};

/// The source of an image's starting noise.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StartNoise {
    /// The noise of image `index`.
    Index(u64),
    /// Spherical interpolation between the noise of two images: a share of 0 is the first, 1 the second.
    Between(u64, u64, f64),
}

impl StartNoise {
    /// The index of the image whose noise is used in the steps of stochastic samplers.
    pub(super) fn index(self) -> u64 {
        match self {
            Self::Index(k) | Self::Between(k, ..) => k,
        }
    }

    /// The starting noise; part 0 is for x, part 1 for the velocity of CLD.
    pub(super) fn noise(self, seed: u64, part: u64, len: usize) -> Vec<f32> {
        match self {
            Self::Index(k) => normals(seed, k, part, Purpose::Start, len),
            Self::Between(a, b, share) => {
                // cos² + sin² = 1, so a combination of independent standard normals is standard normal again. A linear
                // interpolation would have too small a variance in the middle.
                let angle = share * std::f64::consts::FRAC_PI_2;
                let [a, b] = [a, b].map(|k| normals(seed, k, part, Purpose::Start, len));
                let (sin, cos) = (libm::sin(angle) as f32, libm::cos(angle) as f32);
                a.iter().zip(&b).map(|(a, b)| cos * a + sin * b).collect()
            }
        }
    }
}

pub(super) fn normals(seed: u64, index: u64, step: u64, purpose: Purpose, len: usize) -> Vec<f32> {
    let mut out = vec![0.0; len];
    Stream::new(seed, index, step, purpose).fill_normal(&mut out);
    out
}
