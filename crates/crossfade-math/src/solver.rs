//! Coefficients of the high-order solvers (§10.2). A step goes from t to s < t.
use crate::{NoiseScale, gauss_legendre};

/// J_1 of the data form, M_1 = σ_s ∫(τ−t) dκ over τ from t to s with κ = (1−τ)/σ_τ: the weight of dx̂_0/dt.
pub fn data_J1(noise: NoiseScale, t: f64, s: f64) -> f64 {
    match noise {
        NoiseScale::Sqrt => {
            let (sigma, u) = (t.sqrt(), s.sqrt());
            -(sigma - u).powi(2) * (3.0 + 2.0 * sigma * u + u * u) / 3.0
        }
        NoiseScale::Linear => bridge_slope(t, s),
    }
}

/// Weight of dx̂_0/dt in the second-order form of Alg. 2, σ = √t: s·ln(t/s) − (t−s), −t at s = 0.
///
/// It is also J_1 of the data form for σ = t. For σ = t the bridge integral is ∫ 2 s² (t−τ)/τ³ dτ = −(t−s)²/t.
pub fn bridge_J1(noise: NoiseScale, t: f64, s: f64) -> f64 {
    match noise {
        NoiseScale::Sqrt => bridge_slope(t, s),
        NoiseScale::Linear => -(t - s).powi(2) / t,
    }
}

/// s·ln(t/s) − (t−s), with its limit −t at s = 0, where the product would be 0·∞.
fn bridge_slope(t: f64, s: f64) -> f64 {
    if s == 0.0 { -t } else { s * (t / s).ln() - (t - s) }
}

/// The second-order term of AB2. The integral over a step `k` of the line through the last two values is k f_n + c
/// (f_n − f_{n−1}); this returns c = k²/(2 k0), where k0 is the previous step.
pub fn ab2(k: f64, k0: f64) -> f64 {
    k * k / (2.0 * k0)
}

/// The weights of an Adams–Bashforth step from `nodes[0]` to `to` with values at `nodes`, which are in the order from the
/// newest to the oldest: the integrals of their Lagrange polynomials.
pub fn adams_bashforth(nodes: &[f64], to: f64) -> Vec<f64> {
    let Some(&from) = nodes.first() else { return vec![] };
    let half = 0.5 * (to - from);
    // Gauss–Legendre with m points is exact for polynomials up to degree 2m − 1.
    let points = gauss_legendre(nodes.len().div_ceil(2));
    let lagrange = |j: usize, z: f64| -> f64 {
        let others = nodes.iter().enumerate().filter(|(k, _)| *k != j);
        others.map(|(_, node)| (z - node) / (nodes[j] - node)).product()
    };
    let integral = |j| points.iter().map(|q| half * q.weight * lagrange(j, from + half * (q.value + 1.0))).sum();
    (0..nodes.len()).map(integral).collect()
}

/// The second-order term of a single-step method with a node at distance `m` into a step `k`: c = k²/(2m) in c (f_m −
/// f_n).
pub fn midpoint(k: f64, m: f64) -> f64 {
    k * k / (2.0 * m)
}

/// The terms of AM3 (AM2 on the first step) after k f_n: weights (a, b) in a (f_{n+1} − f_n) + b (f_n − f_{n−1}).
///
/// Derived from k(f_n + f_{n+1})/2 − (k³/6)[(f_{n+1}−f_n)/k − (f_n−f_{n−1})/k0]/(k + k0), for steps of different
/// length.
pub fn adams_moulton(k: f64, k0: Option<f64>) -> (f64, f64) {
    match k0 {
        None => (k / 2.0, 0.0),
        Some(k0) => {
            let c = k.powi(3) / (6.0 * (k + k0));
            (k / 2.0 - c / k, c / k0)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// ∫ f over [a, b].
    fn integral(a: f64, b: f64, f: impl Fn(f64) -> f64) -> f64 {
        let half = 0.5 * (b - a);
        gauss_legendre(40).iter().map(|q| half * q.weight * f(a + half * (q.value + 1.0))).sum()
    }

    #[test]
    fn moments_agree_with_quadrature() {
        for &noise in NoiseScale::ALL {
            for (t, s) in [(1.0, 0.6), (0.5, 0.2), (0.3, 0.05)] {
                // dκ/dτ with κ = (1−τ)/σ, by central differences inside the integrand.
                let kappa = |x: f64| (1.0 - x) / noise.sigma(x);
                let slope = |x: f64| (kappa(x + 1e-6) - kappa(x - 1e-6)) / 2e-6;
                let expected = noise.sigma(s) * integral(t, s, |x| (x - t) * slope(x));
                assert!((data_J1(noise, t, s) - expected).abs() < 1e-8, "{noise:?} {t} {s}");
                // Alg. 2: x_s = (σ_s²/σ_t²) x_t + σ_s² ∫ m d(1/σ²) with m linear in τ.
                let inverse = |x: f64| -1.0 / noise.variance(x);
                let slope = |x: f64| (inverse(x + 1e-6) - inverse(x - 1e-6)) / 2e-6;
                let expected = -noise.variance(s) * integral(t, s, |x| (x - t) * slope(x));
                assert!((bridge_J1(noise, t, s) - expected).abs() < 1e-7, "{noise:?} bridge {t} {s}");
            }
        }
    }

    #[test]
    fn adams_rules_integrate_parabolas() {
        let (k0, k) = (0.3, 0.2);
        let line = |z: f64| 2.0 - 3.0 * z;
        let exact = 2.0 * k - 1.5 * k * k;
        assert!((k * line(0.0) + ab2(k, k0) * (line(0.0) - line(-k0)) - exact).abs() < 1e-15);
        let parabola = |z: f64| 1.0 + z + 5.0 * z * z;
        let exact = k + k * k / 2.0 + 5.0 * k.powi(3) / 3.0;
        let [now, before, oldest] = adams_bashforth(&[0.0, -k0, -0.7], k)[..] else { panic!("three weights") };
        let got = now * parabola(0.0) + before * parabola(-k0) + oldest * parabola(-0.7);
        assert!((got - exact).abs() < 1e-14);
        // Four equal steps: the classical weights 55, −59, 37, −9 over 24.
        let classical = [55.0, -59.0, 37.0, -9.0].map(|c| c / 24.0);
        let ours = adams_bashforth(&[0.0, -1.0, -2.0, -3.0], 1.0);
        assert!(ours.iter().zip(classical).all(|(a, b)| (a - b).abs() < 1e-14), "{ours:?}");
        let (a, b) = adams_moulton(k, Some(k0));
        let got = k * parabola(0.0) + a * (parabola(k) - parabola(0.0)) + b * (parabola(0.0) - parabola(-k0));
        assert!((got - exact).abs() < 1e-15);
    }
}
