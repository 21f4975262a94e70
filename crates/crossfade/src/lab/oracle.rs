//! The exact denoiser of attenuation: E[phi | x_t] and E[eps | x_t] for a Gaussian mixture (§10.4).
//!
//! Given the component of the mixture, the coordinates are independent. Given also the drawn parts of phi, x_t is
//! affine in x_0 for most attenuations ([`AttenuationFn::is_affine`]), and the posterior of x_0 is Gaussian with a
//! closed form. The drawn parts are integrated by quadrature. Where x_t is not affine in x_0 (the sine), x_0 is
//! integrated by quadrature too, with nodes around an approximate posterior mean.
use super::mixture::Mixture;
use super::points::Points;
use crate::error::Result;
use crate::sample::{Heads, Predict};
use crossfade_math::{Adm, AttenuationFn, Draw, JointNode, Node, gauss_legendre, joint_nodes};
use rayon::prelude::*;

/// The optimal network for `mixture` under `process`.
pub struct Oracle {
    mixture: Mixture,
    process: Adm,
    /// Quadrature nodes of the joint distribution of the drawn parts.
    drawn: Vec<JointNode>,
    /// Quadrature nodes for x_0 in units of its posterior deviation, with the logarithms of their weights. For affine
    /// attenuations there is a single node at the posterior mean.
    inner: Vec<Node>,
}

/// Quadrature nodes per drawn part. Ten are enough, because x_t varies slowly with a drawn part. The joint rule has this
/// number to the power of the parts, so that three parts with clamped draws, whose range is short, take fewer.
fn drawn_nodes(process: &Adm) -> usize {
    if process.drawn_parts() > 2 && process.draw == Draw::Clamped { 4 } else { 10 }
}

/// Integrals of 1, phi and eps over the posterior of one coordinate, not normalised, divided by e^top. The factor e^top
/// is kept as a logarithm, because far from all modes likelihoods underflow.
struct Sums {
    top: f64,
    likelihood: f64,
    phi: Vec<f64>,
    eps: f64,
}

/// The Gaussian posterior of one coordinate of x_0.
struct Posterior {
    mean: f64,
    std: f64,
}

/// One node of the drawn parts at one time.
struct Drawn<'a> {
    values: &'a [f64],
    log_weight: f64,
    /// phi and the mean of x_t for x_0 = 0: for affine attenuations all that is needed.
    phi: Vec<f64>,
    offset: f64,
}

impl Oracle {
    /// The oracle of `mixture` under `process`.
    pub fn new(mixture: Mixture, process: Adm) -> Self {
        let drawn = joint_nodes(&process.draw.nodes(drawn_nodes(&process)), process.drawn_parts());
        let inner = if process.attenuation.is_affine() {
            vec![Node { value: 0.0, weight: 0.0 }]
        } else {
            // ±6 deviations around the mean of the affine approximation.
            let nodes = gauss_legendre(25);
            nodes.iter().map(|q| Node { value: 6.0 * q.value, weight: (6.0 * q.weight).ln() }).collect()
        };
        Self { mixture, process, drawn, inner }
    }

    /// Evaluates the nodes of the drawn parts at time t.
    fn at(&self, t: f64) -> Vec<Drawn<'_>> {
        let attenuation = self.process.attenuation;
        (self.drawn.iter())
            .map(|JointNode { values, weight }| {
                let phi = attenuation.solve(&0.0, values);
                Drawn { values, log_weight: weight.ln(), offset: attenuation.mean(&0.0, &phi, &t.into()), phi }
            })
            .collect()
    }

    /// The posterior integrals of one coordinate x under a component with mean `mu`.
    fn coordinate(&self, nodes: &[Drawn], x: f64, mu: f64, t: f64) -> Sums {
        let (sigma, std) = (self.process.noise.sigma(t), self.mixture.std);
        let a = 1.0 - t;
        // x = a x_0 + offset + σ eps: the variance of x, and the gain and the deviation of the posterior of x_0.
        let var = (a * std).powi(2) + sigma * sigma;
        let (gain, width) = (a * std * std / var, std * sigma / var.sqrt());
        let log_scale = -0.5 * var.ln();
        let phi = vec![0.0; self.process.attenuation.parts()];
        let mut sums = Sums { top: f64::NEG_INFINITY, likelihood: 0.0, phi, eps: 0.0 };
        for drawn in nodes {
            let residual = x - drawn.offset - a * mu;
            let centre = mu + gain * residual;
            if self.inner.len() == 1 {
                let log_mass = drawn.log_weight + log_scale - 0.5 * residual * residual / var;
                let (mean, last) = (a * centre + drawn.offset, drawn.phi.len() - 1);
                // phi is affine in x_0: solve(x_0) is solve(0) with x_0 subtracted from the last part.
                let phi = drawn.phi.iter().enumerate().map(|(k, phi)| if k == last { phi - centre } else { *phi });
                sums.add(log_mass, phi, (x - mean) / sigma);
            } else {
                let posterior = Posterior { mean: centre, std: width };
                self.add_by_nodes(&mut sums, drawn, x, mu, t, posterior);
            }
        }
        sums
    }

    /// Adds the integral over x_0 where x_t is not affine in it. The nodes are placed by the posterior of the affine part.
    fn add_by_nodes(&self, sums: &mut Sums, drawn: &Drawn, x: f64, mu: f64, t: f64, posterior: Posterior) {
        let (sigma, std) = (self.process.noise.sigma(t), self.mixture.std);
        let log_scale = drawn.log_weight + (posterior.std / (std * sigma)).ln();
        for node in &self.inner {
            let x0 = posterior.mean + posterior.std * node.value;
            let phi = self.process.attenuation.solve(&x0, drawn.values);
            let mean = self.process.attenuation.mean(&x0, &phi, &t.into());
            // prior(x_0) · p(x | x_0) · dx_0; the common 1/√2π factors cancel.
            let (prior, noise) = ((x0 - mu) / std, (x - mean) / sigma);
            let log_mass = log_scale + node.weight - 0.5 * (prior * prior + noise * noise);
            sums.add(log_mass, phi.iter().copied(), noise);
        }
    }

    /// E[phi | x] and E[eps | x] for one point: the parts of phi, then eps, each with `dim` values.
    fn point(&self, nodes: &[Drawn], x: &[f64], t: f64) -> Vec<f64> {
        let (dim, parts) = (self.mixture.dim, self.process.attenuation.parts());
        let components: Vec<Vec<Sums>> = (self.mixture.means.iter())
            .map(|mean| x.iter().zip(mean).map(|(&x, &mu)| self.coordinate(nodes, x, mu, t)).collect())
            .collect();
        let logs: Vec<f64> = (components.iter().zip(&self.mixture.weights))
            .map(|(sums, w)| w.ln() + sums.iter().map(|s| s.top + s.likelihood.ln()).sum::<f64>())
            .collect();
        let top = logs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let total: f64 = logs.iter().map(|l| (l - top).exp()).sum();
        let mut out = vec![0.0; (parts + 1) * dim];
        for (sums, log) in components.iter().zip(&logs) {
            let share = (log - top).exp() / total;
            for (d, s) in sums.iter().enumerate() {
                let scale = share / s.likelihood;
                for (part, phi) in s.phi.iter().enumerate() {
                    out[part * dim + d] += scale * phi;
                }
                out[parts * dim + d] += scale * s.eps;
            }
        }
        out
    }
}

impl Sums {
    /// Adds e^log_mass times (1, phi, eps). If it is the largest term so far, the sums are rescaled to it.
    fn add(&mut self, log_mass: f64, phi: impl Iterator<Item = f64>, eps: f64) {
        if log_mass > self.top {
            let kept = (self.top - log_mass).exp();
            self.top = log_mass;
            self.likelihood *= kept;
            self.phi.iter_mut().for_each(|sum| *sum *= kept);
            self.eps *= kept;
        }
        let mass = (log_mass - self.top).exp();
        self.likelihood += mass;
        self.phi.iter_mut().zip(phi).for_each(|(sum, phi)| *sum += mass * phi);
        self.eps += mass * eps;
    }
}

impl Predict<Points> for Oracle {
    fn predict(&self, x_t: &Points, t: f64) -> Result<Heads<Points>> {
        let (dim, parts) = (x_t.dim, self.process.attenuation.parts());
        let nodes = self.at(t);
        let rows: Vec<Vec<f64>> = x_t.data.par_chunks_exact(dim).map(|x| self.point(&nodes, x, t)).collect();
        let column = |k: usize| Points {
            dim,
            data: rows.iter().flat_map(|r| r[k * dim..(k + 1) * dim].iter().copied()).collect(),
        };
        Ok(Heads { phi: (0..parts).map(column).collect(), eps: column(parts) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crossfade_math::{Attenuation, Field, NoiseScale};

    /// Far from every mode, with little noise, x_0 is at the nearest one.
    #[test]
    fn far_from_all_modes_x0_is_at_the_nearest_one() {
        let mixture = Mixture { dim: 1, weights: vec![0.5; 2], means: vec![vec![-1.0], vec![1.0]], std: 1e-3 };
        for &attenuation in Attenuation::ALL {
            let process = Adm { attenuation, ..Adm::default() };
            let heads =
                Oracle::new(mixture.clone(), process).predict(&Points { dim: 1, data: vec![0.4] }, 1e-6).unwrap();
            let phi: Vec<f64> = heads.phi.iter().map(|part| part.data[0]).collect();
            // x_0 + H_1(phi) = 0.
            let x0 = -attenuation.H(&phi, &1.0.into());
            assert!((x0 - 1.0).abs() < 0.5, "{attenuation:?}: {x0}");
        }
    }

    /// The defining property of a conditional mean: E[(phi − phi_hat) g(x_t)] = 0 for every function g.
    #[test]
    fn oracle_is_the_conditional_mean_for_every_attenuation() {
        for &attenuation in Attenuation::ALL {
            for &noise in NoiseScale::ALL {
                let process = Adm::new(attenuation, noise);
                let mixture = Mixture::random(1, 3, 0.12, 0.5, 3);
                let n = 8_000;
                let x0 = mixture.sample(n, 5);
                let z: Vec<_> =
                    (0..process.drawn_parts()).map(|k| super::super::mixture::normals(1, n, 6, k as u64)).collect();
                let eps = super::super::mixture::normals(1, n, 7, 9);
                let phi = process.phi(&x0, &z);
                for t in [0.05, 0.5, 1.0] {
                    let x_t = process.x_t(&x0, &phi, &eps, &t.into());
                    let heads = Oracle::new(mixture.clone(), process).predict(&x_t, t).unwrap();
                    let pairs = phi.iter().zip(&heads.phi).chain([(&eps, &heads.eps)]);
                    for (truth, guess) in pairs {
                        let error = truth.minus(guess);
                        let spread = (error.data.iter().map(|e| e * e).sum::<f64>() / n as f64).sqrt();
                        for g in [|_: f64| 1.0, |x: f64| x, |x: f64| x * x - 0.5] {
                            let terms = error.data.iter().zip(&x_t.data).map(|(e, &x)| e * g(x));
                            let mean = terms.sum::<f64>() / n as f64;
                            let bound = 6.0 * spread * 2.0 / (n as f64).sqrt() + 1e-3;
                            assert!(mean.abs() < bound, "{process:?} t={t}: {mean} > {bound}");
                        }
                    }
                }
            }
        }
    }
}
