//! h_t = φ₀ t^d + … + φ_d: constant (d = 0), linear (d = 1), quadratic (d = 2) and cubic (d = 3) attenuation.
use super::{AttenuationFn, Moments, PartMoments};
use crate::process::Draw;
use crate::{Coef, Field};

/// The polynomial attenuation of degree `D`; its leading `D` coefficients are drawn.
pub struct Polynomial<const D: usize>;

impl<const D: usize> Polynomial<D> {
    /// B_i(t) = ∫₀ᵗ τ^(D−i) dτ, the weight of φ_i in H_t.
    fn B(i: usize, t: f64) -> f64 {
        let power = (D - i + 1) as i32;
        t.powi(power) / f64::from(power)
    }

    /// B_i(t) − t·B_i(1), the weight of a drawn φ_i in x_t once the last part is eliminated; zero at t = 0 and t = 1.
    fn G(i: usize, t: f64) -> f64 {
        let power = (D - i + 1) as i32;
        (t.powi(power) - t) / f64::from(power)
    }
}

impl<const D: usize> AttenuationFn for Polynomial<D> {
    fn parts(&self) -> usize {
        D + 1
    }

    fn h<F: Field>(&self, phi: &[F], t: &Coef) -> F {
        sum(phi, |i| t.map(|t| t.powi((D - i) as i32)))
    }

    fn H<F: Field>(&self, phi: &[F], t: &Coef) -> F {
        sum(phi, |i| t.map(|t| Self::B(i, t)))
    }

    /// φ_D = −x_0 − Σ φ_i/(D−i+1), from x_0 + H_1(phi) = 0.
    fn solve<F: Field>(&self, x0: &F, drawn: &[F]) -> Vec<F> {
        let mut terms = vec![(Coef::from(-1.0), x0)];
        terms.extend(drawn[..D].iter().enumerate().map(|(i, a)| (Coef::from(-Self::B(i, 1.0)), a)));
        let last = F::lincomb(&terms);
        drawn[..D].iter().cloned().chain([last]).collect()
    }

    /// (1−t) x_0 + Σ φ_i (B_i(t) − t B_i(1)), §1.2.
    fn mean<F: Field>(&self, x0: &F, phi: &[F], t: &Coef) -> F {
        // x_0 + H_t(phi) would be right too, but near t = 1 it subtracts nearly equal numbers.
        let mut terms = vec![(t.map(|t| 1.0 - t), x0)];
        terms.extend(phi[..D].iter().enumerate().map(|(i, a)| (t.map(|t| Self::G(i, t)), a)));
        F::lincomb(&terms)
    }

    fn is_affine(&self) -> bool {
        true
    }

    /// Closed form: everything is linear in x_0 and the independent draws (§1.3).
    fn moments(&self, sigma_data: f64, draw: Draw, t: f64) -> Moments {
        let (var_x, var_a) = (sigma_data * sigma_data, draw.variance());
        let drawn: Vec<_> = (0..D).map(|i| (Self::G(i, t), Self::B(i, 1.0))).collect();
        let last = PartMoments {
            var: var_x + drawn.iter().map(|(_, b)| b * b * var_a).sum::<f64>(),
            cov: -var_x * (1.0 - t) - drawn.iter().map(|(g, b)| g * b * var_a).sum::<f64>(),
        };
        Moments {
            signal: var_x * (1.0 - t) * (1.0 - t) + drawn.iter().map(|(g, _)| g * g * var_a).sum::<f64>(),
            phi: drawn.iter().map(|(g, _)| PartMoments { var: var_a, cov: g * var_a }).chain([last]).collect(),
        }
    }
}

/// Σ c(i) φ_i.
fn sum<F: Field>(phi: &[F], c: impl Fn(usize) -> Coef) -> F {
    F::lincomb(&phi.iter().enumerate().map(|(i, p)| (c(i), p)).collect::<Vec<_>>())
}
