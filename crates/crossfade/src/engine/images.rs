//! Batches of images as a [`Field`]: the formulas of `crossfade-math` on tensors.
use super::{Tensor, column};
use crossfade_math::{Coef, Field};

/// A batch of images in \[−1, 1\], or any tensor of that shape.
///
/// # Shapes
/// `[B, C, H, W]`; a coefficient is one number, or one for each of the B samples.
#[derive(Clone, Debug)]
pub struct Images(pub Tensor<4>);

impl Images {
    /// Splits the channels into `parts` equal groups: the parts of phi in the order of the network's output.
    pub fn split(tensor: Tensor<4>, parts: usize) -> Vec<Self> {
        tensor.chunk(parts, 1).into_iter().map(Self).collect()
    }

    /// Concatenates along the channels: the inverse of [`Images::split`].
    pub fn concat(parts: &[Self]) -> Tensor<4> {
        match parts {
            [one] => one.0.clone(),
            _ => Tensor::cat(parts.iter().map(|p| p.0.clone()).collect(), 1),
        }
    }
}

/// c·x. For c = 1, which many formulas have, no pass over the memory is needed.
fn scaled(c: &Coef, x: &Tensor<4>) -> Tensor<4> {
    match c {
        Coef::Same(1.0) => x.clone(),
        Coef::Same(c) => x.clone().mul_scalar(*c as f32),
        Coef::Each(c) => x.clone() * column(c, &x.device()),
    }
}

impl Field for Images {
    fn lincomb(terms: &[(Coef, &Self)]) -> Self {
        let mut products = terms.iter().map(|(c, x)| scaled(c, &x.0));
        let first = products.next().expect("a combination of at least one term");
        Self(products.fold(first, |sum, x| sum + x))
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
    /// An even series below |z| = ½ (its next term is 5e-12) avoids 0/0; above it is the quotient.
    fn sinc(&self) -> Self {
        let z = self.0.clone();
        let series = horner(z.clone().square(), &[1.0, -1.0 / 6.0, 1.0 / 120.0, -1.0 / 5040.0, 1.0 / 362_880.0]);
        small_or(z.clone(), series, |z| z.clone().sin() / z)
    }
    /// A series below |z| = ½ (its next term is 2e-11), because e^z − 1 in f32 would lose digits there.
    fn exprel(&self) -> Self {
        let factorials = [1.0, 2.0, 6.0, 24.0, 120.0, 720.0, 5040.0, 40_320.0, 362_880.0];
        let series = horner(self.0.clone(), &factorials.map(|f| 1.0 / f));
        small_or(self.0.clone(), series, |z| (z.clone().exp() - 1.0) / z)
    }
    fn clamp(&self, low: f64, high: f64) -> Self {
        Self(self.0.clone().clamp(low as f32, high as f32))
    }
}

/// Σ c_k z^k.
fn horner(z: Tensor<4>, c: &[f64]) -> Tensor<4> {
    let (last, lower) = c.split_last().expect("a polynomial has coefficients");
    let start = z.zeros_like() + *last as f32;
    lower.iter().rev().fold(start, |sum, &c| sum * z.clone() + c as f32)
}

/// `series` where |z| < ½, `f(z)` elsewhere. f is never evaluated at a small z: a NaN from 0/0 would survive the
/// masking in the gradient.
fn small_or(z: Tensor<4>, series: Tensor<4>, f: impl Fn(Tensor<4>) -> Tensor<4>) -> Images {
    let small = z.clone().abs().lower_elem(0.5);
    let safe = z.mask_fill(small.clone(), 1.0);
    Images(f(safe).mask_where(small, series))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Device, from_host, to_host};
    use crossfade_math::{Adm, Attenuation, NoiseScale};

    fn values(count: usize, phase: f64) -> Vec<f64> {
        (0..count).map(|i| 0.93 * (1.7 * i as f64 + phase).sin()).collect()
    }

    fn images(values: &[f64]) -> Images {
        let host: Vec<f32> = values.iter().map(|&v| v as f32).collect();
        Images(from_host(&host, [2, 3, 2, 2], &Device::flex()))
    }

    /// The same lines in f64 and on tensors, with one time a sample.
    #[test]
    fn formulas_on_tensors_equal_formulas_in_f64() {
        let (x0, eps) = (values(24, 0.1), values(24, 2.0));
        for &attenuation in Attenuation::ALL {
            for &noise in NoiseScale::ALL {
                let p = Adm::new(attenuation, noise);
                let z: Vec<_> = (0..p.drawn_parts()).map(|part| values(24, 0.7 + 0.6 * part as f64)).collect();
                let drawn: Vec<_> = z.iter().map(|z| images(z)).collect();
                let phi = p.phi(&images(&x0), &drawn);
                let times = [0.83, 0.02];
                let x_t = p.x_t(&images(&x0), &phi, &images(&eps), &Coef::Each(times.to_vec()));
                let s = 0.01;
                let x_s = p.u_tilde(&images(&x0), &phi, &images(&eps), 0.5, s);
                let (got, step) = (to_host(x_t.0), to_host(x_s.0));
                for i in 0..24 {
                    let scalar_drawn: Vec<f64> = z.iter().map(|z| z[i]).collect();
                    let phi = p.phi(&x0[i], &scalar_drawn);
                    let want = p.x_t(&x0[i], &phi, &eps[i], &times[i / 12].into());
                    assert!((f64::from(got[i]) - want).abs() < 1e-6, "{p:?} {i}: {} {want}", got[i]);
                    let want = p.u_tilde(&x0[i], &phi, &eps[i], 0.5, s);
                    assert!((f64::from(step[i]) - want).abs() < 2e-6, "{p:?} {i}: {} {want}", step[i]);
                }
            }
        }
    }

    #[test]
    fn ratios_are_accurate_near_zero() {
        let z: Vec<f64> = (0..24).map(|i| (i as f64 - 12.0) * 0.11).collect();
        let (sinc, exprel) = (to_host(images(&z).sinc().0), to_host(images(&z).exprel().0));
        for i in 0..24 {
            assert!((f64::from(sinc[i]) - Field::sinc(&z[i])).abs() < 3e-7);
            assert!((f64::from(exprel[i]) / Field::exprel(&z[i]) - 1.0).abs() < 4e-7);
        }
    }

    #[test]
    fn parts_split_and_join() {
        let x = images(&values(24, 0.0)).0;
        let parts = Images::split(x.clone(), 3);
        assert_eq!(parts.len(), 3);
        assert_eq!(to_host(Images::concat(&parts)), to_host(x));
    }
}
