//! The attenuation functions: how the picture fades (§1.2). One file a family, one line in the registry below.
mod exponential;
mod polynomial;
mod sine;

use crate::process::Draw;
use crate::quadrature::normal_nodes;
use crate::{Coef, Field, registry};

/// An attenuation h_t(phi) with its integral H_t and the solution of x_0 + H_1 = 0.
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

    /// x_0 + H_t(phi), the mean of x_t. Attenuations give a form that does not cancel near t = 1.
    fn mean<F: Field>(&self, x0: &F, phi: &[F], t: &Coef) -> F {
        x0.plus(&self.H(phi, t))
    }

    /// Second moments for x_0 ~ N(0, σ_data²): the preconditioner's input. By quadrature unless a closed form is known.
    fn moments(&self, sigma_data: f64, draw: Draw, t: f64) -> Moments {
        let samples = normal_nodes(NODES).into_iter().flat_map(|x| {
            draw.nodes(NODES).into_iter().map(move |a| (x.value * sigma_data, a.value, x.weight * a.weight))
        });
        let t = Coef::from(t);
        let mut sums = Sums::new(self.parts());
        for (x0, a, weight) in samples {
            let phi = self.solve(&x0, &[a]);
            sums.add(weight, self.mean(&x0, &phi, &t), &phi);
        }
        sums.moments()
    }
}

/// Quadrature nodes an axis: enough for 1e-9 on the smooth integrands here.
const NODES: usize = 32;

/// Second moments of the signal m_t = x_0 + H_t and of the parts of phi.
#[derive(Clone, Debug, PartialEq)]
pub struct Moments {
    /// var(m_t).
    pub signal: f64,
    /// For each part: its variance and its covariance with m_t.
    pub phi: Vec<PartMoments>,
}

/// Moments of one part of phi.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PartMoments {
    /// var(phi_i).
    pub var: f64,
    /// cov(phi_i, m_t).
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
    /// The registered attenuations, in the paper's order.
    #[derive(Copy, Eq, Default)]
    pub enum Attenuation("attenuation", dispatch = each_attenuation) {
        /// h = c: the paper's choice.
        #[default]
        Constant = "constant" => polynomial::Polynomial::<0>,
        /// h = a t + c.
        Linear = "linear" => polynomial::Polynomial::<1>,
        /// h = a t² + b t + c.
        Quadratic = "quadratic" => polynomial::Polynomial::<2>,
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
    fn moments(&self, sigma_data: f64, draw: Draw, t: f64) -> Moments {
        each_attenuation!(self, entry f => f.moments(sigma_data, draw, t))
    }
}
