//! Batches of images as a [`Field`], so that the formulas of `crossfade-math` run on tensors.
use burn::tensor::Tensor;
use crossfade_math::{Coef, Field};

use super::column;

/// A tensor `[B, C, H, W]`; a coefficient with one number a sample has B of them.
#[derive(Clone, Debug)]
pub struct Images(pub Tensor<4>);

impl Images {
    fn times(&self, coef: &Coef) -> Tensor<4> {
        match coef {
            Coef::Same(1.0) => self.0.clone(),
            Coef::Same(c) => self.0.clone() * *c,
            Coef::Each(c) => self.0.clone() * column(c, &self.0.device().without_autodiff()),
        }
    }
}

impl Field for Images {
    fn lincomb(terms: &[(Coef, &Self)]) -> Self {
        let mut terms = terms.iter().map(|(coef, x)| x.times(coef));
        let first = terms.next().expect("at least one term");
        Self(terms.fold(first, |sum, term| sum + term))
    }
    fn mul(&self, other: &Self) -> Self {
        Self(self.0.clone() * other.0.clone())
    }
    fn div(&self, other: &Self) -> Self {
        Self(self.0.clone() / other.0.clone())
    }
    fn exp(&self) -> Self {
        Self(self.0.clone().exp())
    }
    fn sin(&self) -> Self {
        Self(self.0.clone().sin())
    }
    fn asin(&self) -> Self {
        Self(self.0.clone().asin())
    }
    fn sinc(&self) -> Self {
        // sin(z)/z is exact down to the smallest numbers; only 0/0 must be avoided.
        let z = self.0.clone().mask_fill(self.0.clone().equal_elem(0.0), 1e-20);
        Self(z.clone().sin() / z)
    }
    fn exprel(&self) -> Self {
        // e^z − 1 cancels near 0: there Σ z^k/(k+1)!, which for |z| < 1 is exact to f32 with eleven terms.
        let z = self.0.clone();
        let near = z.clone().abs().lower_elem(1.0);
        let z_near = z.clone().clamp(-1.0, 1.0);
        let series = (2..=11).rev().fold(z.ones_like(), |sum, k| sum * z_near.clone() * (1.0 / f64::from(k)) + 1.0);
        let z_far = z.mask_fill(near.clone(), 1.0);
        let direct = (z_far.clone().exp() - 1.0) / z_far;
        Self(direct.mask_where(near, series))
    }
    fn clamp(&self, low: f64, high: f64) -> Self {
        Self(self.0.clone().clamp(low, high))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Device, from_host, to_host};

    /// Every function of the vocabulary agrees with f64 to f32's precision.
    #[test]
    fn images_agree_with_numbers() {
        let values = [0.0, 1e-6, -1e-3, 0.02, 0.5, -0.999, 1.0, -0.3];
        let images = |values: &[f64]| {
            let values: Vec<f32> = values.iter().map(|&v| v as f32).collect();
            Images(from_host(&values, [2, 1, 2, 2], &Device::flex()))
        };
        let check = |name: &str, got: Images, want: &dyn Fn(f64, usize) -> f64| {
            for (i, (got, &x)) in to_host(got.0).into_iter().zip(&values).enumerate() {
                let want = want(f64::from(x as f32), i);
                assert!((f64::from(got) - want).abs() <= 3e-7 * want.abs().max(1.0), "{name}({x}): {got}, not {want}");
            }
        };
        let x = images(&values);
        check("exp", x.exp(), &|x, _| x.exp());
        check("sin", x.sin(), &|x, _| x.sin());
        check("asin", x.asin(), &|x, _| x.asin());
        check("sinc", x.sinc(), &|x, _| Field::sinc(&x));
        check("exprel", x.exprel(), &|x, _| Field::exprel(&x));
        check("exprel(3x)", x.scale(3.0).exprel(), &|x, _| Field::exprel(&(3.0 * x)));
        check("clamp", Field::clamp(&x, -0.5, 0.25), &|x, _| x.clamp(-0.5, 0.25));
        check("mul", x.mul(&x), &|x, _| x * x);
        check("div", x.div(&x.exp()), &|x, _| x / x.exp());
        let each = Coef::Each(vec![2.0, -3.0]);
        let sum = Images::lincomb(&[(each, &x), (0.5.into(), &x.exp())]);
        check("lincomb", sum, &|x, i| if i < 4 { 2.0 * x } else { -3.0 * x } + 0.5 * x.exp());
    }
}
