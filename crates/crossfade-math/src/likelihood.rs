//! The bound on the negative log-likelihood of 8-bit images (§10.7; Kingma et al., Variational Diffusion Models, 2021).
//!
//! All terms depend on the process only through κ = σ_t/α_t, so that one formula holds for every process of the form
//! x_t = α_t x_0 + σ_t eps. Everything is in nats; [`bits_per_dim`] converts.
use crate::{Gaussian, GaussianFn, Problem};

/// The default of the smallest noise level: one that every process reaches, so that their bounds can be compared. It is
/// about the width of a level of 8-bit images.
pub const KAPPA_MIN: f64 = 0.01;

/// s of the density of ln κ, which is proportional to s²/(s² + κ²). For white data of deviation s this is the integrand
/// itself. Images have a deviation of about ½ but are not white: neighbours help to denoise them, and the integrand falls
/// at smaller κ.
const PROPOSAL: f64 = 0.25;

/// Levels that are further than this many κ from the nearest one are left out of the sum of the reconstruction term. Their
/// share is below e^−72.
const REACH: f64 = 12.0;

/// The value in [−1, 1] of a level of 8-bit images.
pub fn level(byte: u8) -> f64 {
    f64::from(byte) / 127.5 - 1.0
}

/// Nats of a whole image of `values` values as bits per value.
pub fn bits_per_dim(nats: f64, values: usize) -> f64 {
    nats / (values as f64 * std::f64::consts::LN_2)
}

/// The noise levels over which the denoising error is integrated.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NoiseRange {
    process: Gaussian,
    kappa_min: f64,
    kappa_max: f64,
}

/// A noise level of the integral.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NoiseLevel {
    /// The time of the process.
    pub t: f64,
    /// The mean of weight·‖x_0 − x̂_0‖² over noise levels is the diffusion term.
    pub weight: f64,
}

impl NoiseRange {
    /// The levels from `kappa_min`, or the smallest one of the process if that is larger, to `kappa_max`, or the largest
    /// one of the process if that is smaller. At discrete times both are those of the next time above.
    pub fn new(process: Gaussian, kappa_min: f64, kappa_max: f64) -> Result<Self, Problem> {
        let (smallest, largest) = (process.ratio(process.tick().unwrap_or(f64::MIN_POSITIVE)), process.ratio(1.0));
        if !(kappa_min > 0.0 && kappa_min < kappa_max.min(largest) && smallest < kappa_max) {
            let message = format!(
                "must be above 0 and below {}, the largest noise level, not {kappa_min}",
                kappa_max.min(largest)
            );
            return Err(Problem::new("kappa_min", message));
        }
        let snapped = |kappa: f64| match process.tick() {
            Some(_) => process.ratio(time(&process, kappa)),
            None => kappa,
        };
        let kappa_min = snapped(kappa_min.max(smallest));
        let kappa_max = if kappa_max < largest { snapped(kappa_max) } else { largest };
        Ok(Self { process, kappa_min, kappa_max })
    }

    /// The smallest level, at which the image is decoded.
    pub fn kappa_min(&self) -> f64 {
        self.kappa_min
    }

    /// The largest level; infinite if nothing of the image is left at t = 1.
    pub fn kappa_max(&self) -> f64 {
        self.kappa_max
    }

    /// The level for a uniform number u in [0, 1).
    ///
    /// The diffusion term is the integral of κ^−2 ‖x_0 − x̂_0‖² over ln κ. With the density p = s²/(s² + κ²)/Z of ln κ the
    /// weight κ^−2/p = Z (κ^−2 + s^−2) stays finite for κ → ∞, so that the range need not be cut. At discrete times the term
    /// is the sum of ½(κ_{i−1}^−2 − κ_i^−2) ‖x_0 − x̂_0(x_i)‖², and time i has the probability of the levels from i−1 to i.
    pub fn draw(&self, u: f64) -> NoiseLevel {
        let start = cumulative(self.kappa_min);
        let whole = cumulative(self.kappa_max) - start;
        let kappa = PROPOSAL / (-2.0 * (start + u * whole)).exp_m1().sqrt();
        let t = time(&self.process, kappa.clamp(self.kappa_min, self.kappa_max));
        let Some(tick) = self.process.tick() else {
            return NoiseLevel { t, weight: whole * (kappa.powi(-2) + PROPOSAL.powi(-2)) };
        };
        // u = 0 is the level of the decoder itself; the first term belongs to the time above it.
        let first = time(&self.process, self.kappa_min) + tick;
        let t = ((t.max(first) / tick).round() * tick).min(1.0);
        let before = self.process.ratio(((t - tick) / tick).round() * tick);
        let here = self.process.ratio(t);
        let probability = (cumulative(here) - cumulative(before)) / whole;
        NoiseLevel { t, weight: 0.5 * (before.powi(-2) - here.powi(-2)) / probability }
    }

    /// KL(N(α x_0, σ²) ‖ N(0, σ²)) at the largest level, from ‖x_0‖².
    pub fn prior(&self, squares: f64) -> f64 {
        0.5 * squares / self.kappa_max.powi(2)
    }

    /// −ln p(x_0 | z) of one value at the smallest level, where x_0 is the level `byte` and x_0 + κ·`eps` is seen:
    /// p is proportional to exp(−(z − level)²/(2κ²)) over the 256 levels.
    pub fn reconstruction(&self, byte: u8, eps: f64) -> f64 {
        let scale = 1.0 / (127.5 * self.kappa_min);
        // In units of κ, relative to the true level, so that the true level has the exponent −eps²/2 exactly.
        let exponent = |other: i32| {
            let distance = eps - f64::from(other - i32::from(byte)) * scale;
            -0.5 * distance * distance
        };
        let nearest = (f64::from(byte) + eps / scale).round().clamp(0.0, 255.0);
        let reach = (REACH / scale).ceil();
        let (low, high) = ((nearest - reach).max(0.0) as i32, (nearest + reach).min(255.0) as i32);
        let most = exponent(nearest as i32);
        let sum: f64 = (low..=high).map(|other| (exponent(other) - most).exp()).sum();
        sum.ln() + most - exponent(i32::from(byte))
    }
}

/// The integral of s²/(s² + κ²) over ln κ up to κ, with the value 0 at κ = ∞.
fn cumulative(kappa: f64) -> f64 {
    -0.5 * (PROPOSAL / kappa).powi(2).ln_1p()
}

/// The time with this level; of discrete times the first one that is not below it.
fn time(process: &Gaussian, kappa: f64) -> f64 {
    let t = process.time_of_ratio(kappa);
    // The time of a level that belongs to a discrete time is rounded either way.
    process.tick().map_or(t, |tick| ((t / tick - 1e-6).ceil().max(1.0) * tick).min(1.0))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::normal_nodes;
    use std::f64::consts::{E, TAU};

    const DEVIATION: f64 = 0.4;

    /// The mean of weight·E(x_0 − x̂_0)² over levels for normal data with the exact denoiser, whose error is
    /// κ² s²/(κ² + s²).
    fn diffusion(range: &NoiseRange) -> f64 {
        let count = 10_000;
        let term = |i: i32| {
            let NoiseLevel { t, weight } = range.draw((f64::from(i) + 0.5) / f64::from(count));
            let kappa = range.process.ratio(t);
            weight / (kappa.powi(-2) + DEVIATION.powi(-2))
        };
        (0..count).map(term).sum::<f64>() / f64::from(count)
    }

    /// For normal data and a normal decoder the bound is known: it is the differential entropy up to the prior and what the
    /// decoder does not know of the deviation of the data.
    #[test]
    fn the_bound_of_normal_data_is_its_entropy() {
        let entropy = 0.5 * (TAU * E * DEVIATION * DEVIATION).ln();
        for process in Gaussian::all().into_iter().filter(|process| process.tick().is_none()) {
            let range = NoiseRange::new(process, 0.004, f64::INFINITY).unwrap();
            let (low, high) = (range.kappa_min(), range.kappa_max());
            let decoder = 0.5 * (TAU * E * low * low).ln();
            let bound = range.prior(DEVIATION * DEVIATION) + decoder + diffusion(&range);
            let gap = 0.5 * (low / DEVIATION).powi(2).ln_1p() + 0.5 * (DEVIATION / high).powi(2)
                - 0.5 * (DEVIATION / high).powi(2).ln_1p();
            assert!((bound - entropy - gap).abs() < 1e-6, "{}: {bound} and {entropy} + {gap}", process.name());
            assert!(bound > entropy && bound < entropy + 1e-3, "{}: {bound} above {entropy}", process.name());
        }
    }

    /// The sum over DDPM's times is above the integral, because x̂_0 is taken at the noisier end of each step, and its
    /// weights add up to the decrease of the signal-to-noise ratio.
    #[test]
    fn discrete_times_sum_to_a_bound_that_is_slightly_larger() {
        for process in Gaussian::all().into_iter().filter(|process| process.tick().is_some()) {
            let range = NoiseRange::new(process, 0.02, f64::INFINITY).unwrap();
            let snr = |kappa: f64| kappa.powi(-2) + DEVIATION.powi(-2);
            let integral = 0.5 * (snr(range.kappa_min()) / snr(range.kappa_max())).ln();
            let tick = process.tick().unwrap();
            let first = (process.time_of_ratio(range.kappa_min()) / tick).round() as i32;
            let sum: f64 = (first + 1..=1000)
                .map(|i| {
                    let [before, here] = [i - 1, i].map(|i| process.ratio(f64::from(i) * tick));
                    0.5 * (before.powi(-2) - here.powi(-2)) / snr(here)
                })
                .sum();
            let found = diffusion(&range);
            assert!((found / sum - 1.0).abs() < 1e-3, "{}: {found} and {sum}", process.name());
            assert!(sum > integral && sum < integral * 1.3, "{}: {sum} above {integral}", process.name());
        }
    }

    #[test]
    fn the_decoder_is_a_distribution_over_all_levels() {
        let process = Gaussian::all()[0];
        for kappa in [0.0105, 0.03, 0.5] {
            let range = NoiseRange::new(process, kappa, f64::INFINITY).unwrap();
            let kappa = range.kappa_min();
            for (byte, eps) in [(0, -0.7), (3, -2.0), (128, 0.3), (255, 1.0), (250, 4.0)] {
                let z = level(byte) + kappa * eps;
                let total: f64 = (0..=255).map(|k| (-range.reconstruction(k, (z - level(k)) / kappa)).exp()).sum();
                assert!((total - 1.0).abs() < 1e-9, "kappa {kappa}, level {byte}: {total}");
            }
        }
    }

    /// Where levels are much closer than the noise, the decoder costs the entropy of the noise in units of a level; where
    /// they are much further apart it costs nothing.
    #[test]
    fn the_cost_of_decoding_is_that_of_the_noise() {
        let flow = Gaussian::all().into_iter().find(|process| process.name() == "flow").unwrap();
        let cost = |kappa: f64| {
            let range = NoiseRange::new(flow, kappa, f64::INFINITY).unwrap();
            normal_nodes(64).iter().map(|node| node.weight * range.reconstruction(128, node.value)).sum::<f64>()
        };
        let noise = 0.5 * (TAU * E * (0.05f64 * 127.5).powi(2)).ln();
        assert!((cost(0.05) - noise).abs() < 1e-3, "{} and {noise}", cost(0.05));
        assert!(cost(0.0005) < 1e-9 && cost(0.0005) >= 0.0, "{}", cost(0.0005));
        assert!(cost(0.01) > cost(0.005));
    }

    #[test]
    fn ranges_stay_within_the_process() {
        for process in Gaussian::all() {
            let range = NoiseRange::new(process, KAPPA_MIN, f64::INFINITY).unwrap();
            // Every process reaches the default, DDPM with its first time and VE with its smallest σ; the schedule of
            // latents starts higher.
            assert!((KAPPA_MIN..0.0101).contains(&range.kappa_min()), "{}: {}", process.name(), range.kappa_min());
            assert_eq!(range.kappa_max(), process.ratio(1.0));
            for u in [0.0, 0.3, 0.999_999_999] {
                let NoiseLevel { t, weight } = range.draw(u);
                assert!(t > 0.0 && t <= 1.0 && weight.is_finite() && weight > 0.0, "{}: {t} {weight}", process.name());
            }
            for wrong in [0.0, -1.0, f64::NAN, f64::INFINITY] {
                assert!(NoiseRange::new(process, wrong, f64::INFINITY).is_err(), "{}: {wrong}", process.name());
            }
        }
    }
}
