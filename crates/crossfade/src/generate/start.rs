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

/// Spherical interpolation: the point at `share` of the arc from the direction of `a` to that of `b`. The noises of real
/// images are not independent, so the angle between them is measured.
pub(super) fn slerp(a: &[f32], b: &[f32], share: f64) -> Vec<f32> {
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>();
    let cosine = dot(a, b) / (dot(a, a) * dot(b, b)).sqrt();
    let angle = libm::acos(cosine.clamp(-1.0, 1.0));
    // For (nearly) equal or opposite directions there is no arc, and the line is as good.
    let [of_a, of_b] = match libm::sin(angle) {
        sin if sin > 1e-6 => [libm::sin((1.0 - share) * angle) / sin, libm::sin(share * angle) / sin],
        _ => [1.0 - share, share],
    };
    a.iter().zip(b).map(|(a, b)| (of_a * f64::from(*a) + of_b * f64::from(*b)) as f32).collect()
}

pub(super) fn normals(seed: u64, index: u64, step: u64, purpose: Purpose, len: usize) -> Vec<f32> {
    let mut out = vec![0.0; len];
    Stream::new(seed, index, step, purpose).fill_normal(&mut out);
    out
}

#[cfg(test)]
mod tests {
    use super::slerp;

    #[test]
    fn interpolation_keeps_ends_and_length() {
        let (a, b) = ([1.0, 0.0, 0.0], [0.6, 0.8, 0.0]);
        assert_eq!(slerp(&a, &b, 0.0), a);
        let near = |found: &[f32], wanted: &[f32]| found.iter().zip(wanted).all(|(a, b)| (a - b).abs() < 1e-6);
        assert!(near(&slerp(&a, &b, 1.0), &b));
        let middle = slerp(&a, &b, 0.5);
        assert!((middle.iter().map(|v| v * v).sum::<f32>() - 1.0).abs() < 1e-6, "{middle:?}");
        assert!(near(&slerp(&a, &a, 0.3), &a), "equal noises have no arc");
    }
}
