//! h_t = sin(a t + c), phi = [a, c] (§1.2 (ii)); H_t = (cos c − cos(a t + c))/a = t·sin(c + a t/2)·sinc(a t/2).
use super::AttenuationFn;
use crate::{Coef, Field};

/// The sine attenuation; `a` is drawn and kept in [−1, 1].
///
/// The integral is limited: |H_1| ≤ S(a) = sinc(a/2), which is at least 0.9589. Where |x_0| > S(a) the boundary
/// condition x_0 + H_1 = 0 has no solution, and the mean at t = 1 is x_0 ∓ S(a) instead of 0.
pub struct Sine;

impl AttenuationFn for Sine {
    fn parts(&self) -> usize {
        2
    }

    fn h<F: Field>(&self, phi: &[F], t: &Coef) -> F {
        F::lincomb(&[(t.clone(), &phi[0]), (1.0.into(), &phi[1])]).sin()
    }

    fn H<F: Field>(&self, phi: &[F], t: &Coef) -> F {
        let half = phi[0].scale(t.map(|t| 0.5 * t));
        // The product form has no division by a, which may be 0.
        half.plus(&phi[1]).sin().mul(&half.sinc()).scale(t.clone())
    }

    /// c = −a/2 − arcsin(x_0/S(a)).
    fn solve<F: Field>(&self, x0: &F, drawn: &[F]) -> Vec<F> {
        let a = drawn[0].clamp(-1.0, 1.0);
        let angle = x0.div(&a.scale(0.5).sinc()).clamp(-1.0, 1.0).asin();
        let c = F::lincomb(&[((-0.5).into(), &a), ((-1.0).into(), &angle)]);
        vec![a, c]
    }
}
