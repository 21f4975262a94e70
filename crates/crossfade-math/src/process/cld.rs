//! Critically damped Langevin diffusion (§9): the image x is coupled to a velocity v, and only v receives noise.
//!
//! du = A u β dt + noise in v only, with u = (x, v). Every element follows the same linear SDE in two dimensions, so
//! that mean and covariance have closed forms.
use super::{Extra, Input, ProcessFn, check_options};
use crate::{GridKind, Problem};
use serde::{Deserialize, Serialize};

/// The CLD process. M is the mass, Γ = 2√M the critical damping, β the speed, and γ the variance of v_0 in units of
/// M.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Cld {
    /// The inverse mass 1/M.
    pub inverse_mass: f64,
    /// The speed β of the process.
    pub beta: f64,
    /// The variance γ of v_0, in units of M.
    pub gamma: f64,
}

impl Default for Cld {
    fn default() -> Self {
        Self { inverse_mass: 4.0, beta: 4.0, gamma: 0.04 }
    }
}

/// A 2x2 matrix by rows.
pub type Mat2 = [[f64; 2]; 2];

/// A symmetric 2x2 covariance.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cov2 {
    /// Variance of x.
    pub xx: f64,
    /// Covariance of x and v.
    pub xv: f64,
    /// Variance of v.
    pub vv: f64,
}

impl Cov2 {
    /// The determinant of the matrix.
    pub fn det(&self) -> f64 {
        self.xx * self.vv - self.xv * self.xv
    }

    /// Lower Cholesky factor (l_xx, l_xv, l_vv).
    pub fn cholesky(&self) -> (f64, f64, f64) {
        // At t = 0 the matrix is singular and rounding may even make it negative; zeros are right there.
        let l_xx = self.xx.max(0.0).sqrt();
        let l_xv = if l_xx > 0.0 { self.xv / l_xx } else { 0.0 };
        (l_xx, l_xv, (self.vv - l_xv * l_xv).max(0.0).sqrt())
    }

    /// The covariance of m·u if u has this covariance.
    pub fn moved(&self, m: &Mat2) -> Self {
        let row = |r: [f64; 2]| [r[0] * self.xx + r[1] * self.xv, r[0] * self.xv + r[1] * self.vv];
        let (x, v) = (row(m[0]), row(m[1]));
        Self {
            xx: x[0] * m[0][0] + x[1] * m[0][1],
            xv: x[0] * m[1][0] + x[1] * m[1][1],
            vv: v[0] * m[1][0] + v[1] * m[1][1],
        }
    }

    /// The sum of two covariances.
    pub fn plus(&self, other: &Self) -> Self {
        Self { xx: self.xx + other.xx, xv: self.xv + other.xv, vv: self.vv + other.vv }
    }
}

impl Cld {
    /// The mass M.
    pub fn mass(&self) -> f64 {
        1.0 / self.inverse_mass
    }

    /// The critical damping Γ = 2√M: the fastest approach to equilibrium without oscillation.
    pub fn damping(&self) -> f64 {
        2.0 * self.mass().sqrt()
    }

    /// The standard deviations of the equilibrium, from which sampling starts: 1 for x, √M for v.
    pub fn prior(&self) -> (f64, f64) {
        (1.0, self.mass().sqrt())
    }

    /// e^{A B}, the map of the mean of u while ∫β = B. A has the double eigenvalue −ω with ω = 1/√M = 2/Γ.
    pub fn transition(&self, integral: f64) -> Mat2 {
        // A = [[0, 1/M], [−1, −Γ/M]]; with ω = 1/√M, e^{AB} = e^{−ωB}(I + (A + ωI) B).
        let omega = self.inverse_mass.sqrt();
        let decay = (-omega * integral).exp();
        let (a12, a22) = (self.inverse_mass, -self.damping() * self.inverse_mass);
        [
            [decay * (1.0 + omega * integral), decay * a12 * integral],
            [-decay * integral, decay * (1.0 + (a22 + omega) * integral)],
        ]
    }

    /// The covariance of u after ∫β = B if it was zero before: Σ = Σ_∞ − e^{AB} Σ_∞ e^{AB}ᵀ with Σ_∞ = diag(1, M).
    /// With y = 2ωB its entries are 1 − e^{−y}(1 + y + y²/2), y²e^{−y}/2ω and M(1 − e^{−y}(1 − y + y²/2)), written so
    /// that nothing cancels for small times.
    pub fn noise(&self, integral: f64) -> Cov2 {
        let y = 2.0 * self.inverse_mass.sqrt() * integral;
        let decay = (-y).exp();
        Cov2 {
            xx: exp_remainder(y),
            xv: y * integral * decay,
            vv: self.mass() * (y * decay * (1.0 - 0.5 * y) - (-y).exp_m1()),
        }
    }

    /// The integral of β from 0 to t.
    pub fn integral(&self, t: f64) -> f64 {
        self.beta * t
    }

    /// The mean of u_t for a known x_0, as factors of x_0 (E v_0 = 0).
    pub fn mean(&self, t: f64) -> (f64, f64) {
        let m = self.transition(self.integral(t));
        (m[0][0], m[1][0])
    }

    /// The covariance of u_t for a known x_0 and a random v_0 ~ N(0, γM). Marginalising over v_0 is what the paper
    /// calls hybrid score matching.
    pub fn covariance(&self, t: f64) -> Cov2 {
        let start = Cov2 { xx: 0.0, xv: 0.0, vv: self.gamma * self.mass() };
        start.moved(&self.transition(self.integral(t))).plus(&self.noise(self.integral(t)))
    }

    /// (x_t, v_t) as combinations of x_0 and two standard normals: rows of (x_0, eps_x, eps_v).
    pub fn forward(&self, t: f64) -> [[f64; 3]; 2] {
        let ((mean_x, mean_v), (l_xx, l_xv, l_vv)) = (self.mean(t), self.covariance(t).cholesky());
        [[mean_x, l_xx, 0.0], [mean_v, l_xv, l_vv]]
    }

    /// c_t of the mixed score α = c_t v + F. The term c_t v with c_t = 1/(ℓ_t Σ_vv) is the score of v for x_0 = 0
    /// without knowledge of x, so that F only has to learn the difference.
    pub fn mixing(&self, t: f64) -> f64 {
        1.0 / (self.score_scale(t) * self.covariance(t).vv)
    }

    /// ℓ_t in score_v = −ℓ_t α: 1/l_vv of the Cholesky factor, so that α is the standard normal from which v was
    /// computed.
    pub fn score_scale(&self, t: f64) -> f64 {
        let integral = self.integral(t);
        let (noise, [[_, x], [_, v]]) = (self.noise(integral), self.transition(integral));
        // det(N + γM mmᵀ) = det N + γM (m_x² N_vv − 2 m_x m_v N_xv + m_v² N_xx). The determinant of Σ itself would
        // subtract two nearly equal numbers for small t.
        let from_start = x * x * noise.vv - 2.0 * x * v * noise.xv + v * v * noise.xx;
        let det = noise.det() + self.gamma * self.mass() * from_start;
        (self.covariance(t).xx / det).sqrt()
    }
}

impl ProcessFn for Cld {
    /// The network's input is not scaled; it reads the time in thousandths.
    fn input(&self, t: f64) -> Input {
        Input { scale: 1.0, noise: 999.0 * t }
    }
    /// Uniform, except for the times near 0 at which the covariance cannot be inverted.
    fn training_time(&self, uniform: f64, _normal: f64) -> f64 {
        1e-5 + (1.0 - 1e-5) * uniform
    }
    fn sampler(&self) -> &'static str {
        "sscs"
    }
    /// The grid of CLD's paper, without its extra evaluation at 1e-3.
    fn grid(&self) -> GridKind {
        GridKind::UniformSqrt
    }
    fn extra(&self) -> Extra {
        Extra { velocity: true, ..Extra::default() }
    }
    fn validate(&self) -> Vec<Problem> {
        check_options(&[("inverse_mass", self.inverse_mass), ("beta", self.beta), ("gamma", self.gamma)])
    }
}

/// 1 − e^{−y}(1 + y + y²/2) = e^{−y} Σ_{k≥3} y^k/k!, the remainder of the exponential series after its square.
fn exp_remainder(y: f64) -> f64 {
    let decay = (-y).exp();
    // The closed form cancels for small y; the series needs many terms for large y.
    if y > 1.0 {
        return 1.0 - decay * (1.0 + y + 0.5 * y * y);
    }
    let (mut term, mut sum) = (decay * y * y * y / 6.0, 0.0);
    for k in 4..24 {
        sum += term;
        term *= y / f64::from(k);
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The closed moments against small steps of dx = βv/M, dv = −βx − Γβv/M + √(2Γβ) dw.
    #[test]
    fn moments_solve_the_equation() {
        for cld in [Cld::default(), Cld { inverse_mass: 2.25, beta: 3.0, gamma: 0.1 }] {
            let (mut cov, mut mean) = (Cov2 { vv: cld.gamma * cld.mass(), ..Cov2::default() }, (1.0, 0.0));
            let (n, t) = (200_000, 0.7);
            let h = cld.beta * t / f64::from(n);
            let (a, g) = (cld.inverse_mass, cld.damping());
            for _ in 0..n {
                // The midpoint rule for d mean = A mean and d cov = A cov + cov Aᵀ + diag(0, 2Γ).
                let rate_m = |m: (f64, f64)| (a * m.1, -m.0 - g * a * m.1);
                let k = rate_m(mean);
                let k = rate_m((mean.0 + 0.5 * h * k.0, mean.1 + 0.5 * h * k.1));
                mean = (mean.0 + h * k.0, mean.1 + h * k.1);
                let rate = |c: Cov2| Cov2 {
                    xx: 2.0 * a * c.xv,
                    xv: a * c.vv - c.xx - g * a * c.xv,
                    vv: -2.0 * c.xv - 2.0 * g * a * c.vv + 2.0 * g,
                };
                let step = |c: Cov2, k: Cov2, h: f64| c.plus(&Cov2 { xx: h * k.xx, xv: h * k.xv, vv: h * k.vv });
                let middle = step(cov, rate(cov), 0.5 * h);
                cov = step(cov, rate(middle), h);
            }
            let (expected_mean, expected) = (cld.mean(t), cld.covariance(t));
            for (ours, truth) in [
                (expected_mean.0, mean.0),
                (expected_mean.1, mean.1),
                (expected.xx, cov.xx),
                (expected.xv, cov.xv),
                (expected.vv, cov.vv),
            ] {
                assert!((ours - truth).abs() < 1e-8, "{ours} {truth} of {cld:?}");
            }
        }
    }

    /// The published form of the mean (§9): e^{−2Bg}(2Bg x + 4Bg² v + x), e^{−2Bg}(−Bx − 2Bg v + v), g = 1/Γ.
    #[test]
    fn the_transition_is_the_published_one() {
        let cld = Cld::default();
        for b in [0.0, 0.3, 2.0] {
            let g = 1.0 / cld.damping();
            let decay = (-2.0 * b * g).exp();
            let m = cld.transition(b);
            let expected =
                [[decay * (2.0 * b * g + 1.0), decay * 4.0 * b * g * g], [-decay * b, decay * (1.0 - 2.0 * b * g)]];
            for (ours, truth) in m.iter().flatten().zip(expected.iter().flatten()) {
                assert!((ours - truth).abs() < 1e-12, "{m:?} {expected:?}");
            }
        }
    }

    /// Near t = 0, where Σ is almost singular: Σ and ℓ_t against their leading terms in B.
    #[test]
    fn small_times_keep_their_digits() {
        let cld = Cld::default();
        for t in [1e-4, 1e-6, 1e-8, 1e-10] {
            let b = cld.integral(t);
            let omega = cld.inverse_mass.sqrt();
            // N_xx = 4ω³B³/3, N_xv = 2ωB², N_vv = 4ωBM, each to leading order in ωB.
            let noise = cld.noise(b);
            let leading = [4.0 / 3.0 * (omega * b).powi(3), 2.0 * omega * b * b, 4.0 * omega * b * cld.mass()];
            for (ours, truth) in [noise.xx, noise.xv, noise.vv].into_iter().zip(leading) {
                assert!((ours / truth - 1.0).abs() < 4.0 * omega * b + 1e-12, "{ours} {truth} at {t}");
            }
            // From v_0: Σ_xx = γω²B² + N_xx, and det Σ = γM·4ω³B³/3 + 4ω⁴B⁴M/3.
            let (g, m) = (cld.gamma, cld.mass());
            let det = 4.0 / 3.0 * (g * m * (omega * b).powi(3) + (omega * b).powi(4) * m);
            let truth = ((g * (omega * b).powi(2) + leading[0]) / det).sqrt();
            let ours = cld.score_scale(t);
            assert!((ours / truth - 1.0).abs() < 10.0 * omega * b + 1e-9, "{ours} {truth} at {t}");
        }
    }

    #[test]
    fn long_times_forget_the_start() {
        let cld = Cld::default();
        let cov = cld.covariance(10.0);
        assert!((cov.xx - 1.0).abs() < 1e-9 && cov.xv.abs() < 1e-9 && (cov.vv - cld.mass()).abs() < 1e-9, "{cov:?}");
        let (l_xx, l_xv, l_vv) = cld.covariance(0.4).cholesky();
        let cov = cld.covariance(0.4);
        assert!((l_xv * l_xv + l_vv * l_vv - cov.vv).abs() < 1e-12 && (l_xx * l_xv - cov.xv).abs() < 1e-12);
        assert!((cld.score_scale(0.4) * l_vv - 1.0).abs() < 1e-9);
    }
}
