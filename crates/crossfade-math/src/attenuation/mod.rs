//! The attenuation functions h_t (§1.2): one file for each family, one line for each function in the registry below.
mod exponential;
mod polynomial;
mod sine;

use crate::process::Draw;
use crate::quadrature::{joint_nodes, normal_nodes};
use crate::{Coef, Field, registry};

/// An attenuation function h_t(phi), its integral H_t, and the solution of x_0 + H_1 = 0 for phi.
///
/// `phi` is a list of parts, each of the shape of x_0: first the drawn ones, last the one that the boundary condition fixes.
pub trait AttenuationFn {
    /// How many parts phi has; the network's phi head has this many times the image's channels.
    fn parts(&self) -> usize;

    /// h_t(phi), the rate of attenuation.
    fn h<F: Field>(&self, phi: &[F], t: &Coef) -> F;

    /// H_t(phi) = ∫₀ᵗ h.
    fn H<F: Field>(&self, phi: &[F], t: &Coef) -> F;

    /// All parts of phi from x_0 and the drawn parts, so that x_0 + H_1(phi) = 0.
    fn solve<F: Field>(&self, x0: &F, drawn: &[F]) -> Vec<F>;

    /// x_0 + H_t(phi), the mean of x_t. Implementations override this with a form that does not cancel near t = 1.
    fn mean<F: Field>(&self, x0: &F, phi: &[F], t: &Coef) -> F {
        x0.plus(&self.H(phi, t))
    }

    /// Whether h = f_t(drawn parts) + φ_last. Then x_0 enters the last part as −x_0 and the mean of x_t as (1−t) x_0, so
    /// that the posterior of x_0 under Gaussian data is Gaussian and the laboratory's oracle has a closed form.
    /// `false` is right for every attenuation, only slower there.
    fn is_affine(&self) -> bool {
        false
    }

    /// Second moments for x_0 ~ N(0, σ_data²), which the preconditioner needs. Computed by quadrature; attenuations
    /// with a closed form override this.
    fn moments(&self, sigma_data: f64, draw: Draw, t: f64) -> Moments {
        let drawn_parts = self.parts() - 1;
        let drawn = joint_nodes(&draw.nodes(drawn_nodes(drawn_parts)), drawn_parts);
        let t = Coef::from(t);
        let mut sums = Sums::new(self.parts());
        for x in normal_nodes(NODES) {
            let x0 = x.value * sigma_data;
            for a in &drawn {
                let phi = self.solve(&x0, &a.values);
                sums.add(x.weight * a.weight, self.mean(&x0, &phi, &t), &phi);
            }
        }
        sums.moments()
    }
}

/// Quadrature nodes for x_0: enough for 1e-9 on the smooth integrands here.
const NODES: usize = 32;

/// Quadrature nodes for each drawn part. The joint rule has this number to the power of the drawn parts, so it must
/// fall as they grow; ten nodes still give an accuracy of 3e-4 for unclamped draws. An attenuation with four or more
/// drawn parts should implement `moments` in closed form.
fn drawn_nodes(drawn_parts: usize) -> usize {
    match drawn_parts {
        0 | 1 => NODES,
        2 => 16,
        _ => 10,
    }
}

/// Second moments of the signal m_t = x_0 + H_t and of the parts of phi.
#[derive(Clone, Debug, PartialEq)]
pub struct Moments {
    /// The variance of m_t.
    pub signal: f64,
    /// Variance and covariance with m_t of each part of phi.
    pub phi: Vec<PartMoments>,
}

/// Moments of one part of phi.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PartMoments {
    /// The variance of phi_i.
    pub var: f64,
    /// The covariance of phi_i and m_t.
    pub cov: f64,
}

/// Weighted sums from which [`Moments`] follow.
struct Sums {
    weight: f64,
    signal: [f64; 2],
    /// Σφ, Σφ², Σφm for each part.
    phi: Vec<[f64; 3]>,
}

impl Sums {
    fn new(parts: usize) -> Self {
        Self { weight: 0.0, signal: [0.0; 2], phi: vec![[0.0; 3]; parts] }
    }

    fn add(&mut self, weight: f64, signal: f64, phi: &[f64]) {
        self.weight += weight;
        self.signal[0] += weight * signal;
        self.signal[1] += weight * signal * signal;
        for (sums, &p) in self.phi.iter_mut().zip(phi) {
            sums[0] += weight * p;
            sums[1] += weight * p * p;
            sums[2] += weight * p * signal;
        }
    }

    fn moments(&self) -> Moments {
        let mean = |sum: f64| sum / self.weight;
        let m = mean(self.signal[0]);
        Moments {
            // At t = 1 the signal is 0, and rounding may leave a small negative number.
            signal: (mean(self.signal[1]) - m * m).max(0.0),
            phi: (self.phi.iter())
                .map(|p| {
                    let e = mean(p[0]);
                    PartMoments { var: mean(p[1]) - e * e, cov: mean(p[2]) - e * m }
                })
                .collect(),
        }
    }
}

registry! {
    /// The registered attenuations.
    #[derive(Copy, Eq, Default)]
    pub enum Attenuation("attenuation", dispatch = each_attenuation) {
        /// h = c: the paper's choice.
        #[default]
        Constant = "constant" => polynomial::Polynomial::<0>,
        /// h = a t + c.
        Linear = "linear" => polynomial::Polynomial::<1>,
        /// h = a t² + b t + c.
        Quadratic = "quadratic" => polynomial::Polynomial::<2>,
        /// h = a t³ + b t² + d t + c; not in the paper.
        Cubic = "cubic" => polynomial::Polynomial::<3>,
        /// h = e^{a t} + c.
        Exponential = "exponential" => exponential::Exponential,
        /// h = sin(a t + c).
        Sine = "sine" => sine::Sine,
    }
}

impl AttenuationFn for Attenuation {
    fn parts(&self) -> usize {
        each_attenuation!(self, entry f => f.parts())
    }
    fn h<F: Field>(&self, phi: &[F], t: &Coef) -> F {
        each_attenuation!(self, entry f => f.h(phi, t))
    }
    fn H<F: Field>(&self, phi: &[F], t: &Coef) -> F {
        each_attenuation!(self, entry f => f.H(phi, t))
    }
    fn solve<F: Field>(&self, x0: &F, drawn: &[F]) -> Vec<F> {
        each_attenuation!(self, entry f => f.solve(x0, drawn))
    }
    fn mean<F: Field>(&self, x0: &F, phi: &[F], t: &Coef) -> F {
        each_attenuation!(self, entry f => f.mean(x0, phi, t))
    }
    fn is_affine(&self) -> bool {
        each_attenuation!(self, entry f => f.is_affine())
    }
    fn moments(&self, sigma_data: f64, draw: Draw, t: f64) -> Moments {
        each_attenuation!(self, entry f => f.moments(sigma_data, draw, t))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The polynomial without its closed form, as somebody would first write a new attenuation.
    struct Plain<const D: usize>;

    impl<const D: usize> AttenuationFn for Plain<D> {
        fn parts(&self) -> usize {
            polynomial::Polynomial::<D>.parts()
        }
        fn h<F: Field>(&self, phi: &[F], t: &Coef) -> F {
            polynomial::Polynomial::<D>.h(phi, t)
        }
        fn H<F: Field>(&self, phi: &[F], t: &Coef) -> F {
            polynomial::Polynomial::<D>.H(phi, t)
        }
        fn solve<F: Field>(&self, x0: &F, drawn: &[F]) -> Vec<F> {
            polynomial::Polynomial::<D>.solve(x0, drawn)
        }
    }

    /// Constant attenuation of pictures that are all brighter by 3, whose phi is larger by 5.
    struct Shifted;

    impl AttenuationFn for Shifted {
        fn parts(&self) -> usize {
            1
        }
        fn h<F: Field>(&self, phi: &[F], _: &Coef) -> F {
            phi[0].clone()
        }
        fn H<F: Field>(&self, phi: &[F], t: &Coef) -> F {
            phi[0].scale(t.clone())
        }
        fn solve<F: Field>(&self, x0: &F, _: &[F]) -> Vec<F> {
            let one = x0.scale(0.0).exp();
            vec![F::lincomb(&[((-1.0).into(), x0), (5.0.into(), &one)])]
        }
        fn mean<F: Field>(&self, x0: &F, _: &[F], t: &Coef) -> F {
            let one = x0.scale(0.0).exp();
            F::lincomb(&[(t.map(|t| 1.0 - t), x0), (3.0.into(), &one)])
        }
    }

    #[test]
    fn moments_do_not_see_where_the_middle_is() {
        let (shifted, plain) =
            (Shifted.moments(0.5, Draw::Normal, 0.3), Attenuation::Constant.moments(0.5, Draw::Normal, 0.3));
        let values = |m: &Moments| [m.signal, m.phi[0].var, m.phi[0].cov];
        assert!(
            values(&shifted).iter().zip(values(&plain)).all(|(a, b)| (a - b).abs() < 1e-9),
            "{shifted:?} {plain:?}"
        );
    }

    /// The default `moments` must be right for any number of drawn parts.
    fn check_moments<const D: usize>(draws: &[Draw]) {
        for &draw in draws {
            let t = 0.3;
            let closed = polynomial::Polynomial::<D>.moments(0.5, draw, t);
            let summed = Plain::<D>.moments(0.5, draw, t);
            let tolerance = if draw == Draw::Normal && D > 2 { 1e-3 } else { 1e-8 };
            assert!((closed.signal - summed.signal).abs() < tolerance, "{D} {draw:?}: {closed:?} {summed:?}");
            for (a, b) in closed.phi.iter().zip(&summed.phi) {
                let error = (a.var - b.var).abs().max((a.cov - b.cov).abs());
                assert!(error < tolerance, "{D} {draw:?}: {closed:?} {summed:?}");
            }
        }
    }

    #[test]
    fn moments_by_quadrature_equal_the_closed_form() {
        check_moments::<0>(Draw::ALL);
        check_moments::<1>(Draw::ALL);
        check_moments::<2>(Draw::ALL);
        check_moments::<3>(Draw::ALL);
        check_moments::<4>(&[Draw::Clamped]);
    }
}
