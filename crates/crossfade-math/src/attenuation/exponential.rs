//! h_t = e^{a t} + c, phi = [a, c]. The formulas use E(a, t) = (e^{a t} − 1)/a = t·exprel(a t), which is regular at a
//! = 0.
use super::AttenuationFn;
use crate::{Coef, Field};

/// The exponential attenuation; `a` is drawn.
pub struct Exponential;

/// E(a, t) = ∫₀ᵗ e^{aτ} dτ.
fn E<F: Field>(a: &F, t: &Coef) -> F {
    a.scale(t.clone()).exprel().scale(t.clone())
}

impl AttenuationFn for Exponential {
    fn parts(&self) -> usize {
        2
    }

    fn h<F: Field>(&self, phi: &[F], t: &Coef) -> F {
        phi[0].scale(t.clone()).exp().plus(&phi[1])
    }

    fn H<F: Field>(&self, phi: &[F], t: &Coef) -> F {
        F::lincomb(&[(1.0.into(), &E(&phi[0], t)), (t.clone(), &phi[1])])
    }

    /// c = −x_0 − E(a, 1), from x_0 + H_1(phi) = 0.
    fn solve<F: Field>(&self, x0: &F, drawn: &[F]) -> Vec<F> {
        let a = drawn[0].clone();
        let c = F::lincomb(&[((-1.0).into(), x0), ((-1.0).into(), &a.exprel())]);
        vec![a, c]
    }

    /// (1−t) x_0 + E(a, t) − t E(a, 1) (§1.2), which does not cancel near t = 1.
    fn mean<F: Field>(&self, x0: &F, phi: &[F], t: &Coef) -> F {
        let (now, end) = (phi[0].scale(t.clone()).exprel(), phi[0].exprel());
        F::lincomb(&[(t.map(|t| 1.0 - t), x0), (t.clone(), &now), (t.map(|t| -t), &end)])
    }
    fn is_affine(&self) -> bool {
        true
    }
}
