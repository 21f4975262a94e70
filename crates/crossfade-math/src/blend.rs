//! How the predictions of the two heads are combined into one estimate (§10.3).
use crate::{Adm, Attenuation, AttenuationFn, Coef, Field, registry};

registry! {
    /// The estimate x̂_0 = w x̂_0^φ + (1−w) x̂_0^ε and what follows from it.
    #[derive(Default)]
    pub enum Blend("blend") {
        /// Uses phi_hat and eps_hat as they are: the paper's Alg. 2.
        #[default]
        Heads = "heads",
        /// w = 1: the φ head alone.
        Phi = "phi",
        /// w = 0: the ε head alone. At t = 1, where x_t contains nothing of x_0, the estimate is 0 (§9).
        Eps = "eps",
        /// w = t with the ε head kept as it is: the reference's "corrected C".
        Reference = "reference",
        /// w = ½: optimal when both heads err equally.
        Average = "average",
    }
    needs_data {
        /// w(t) measured on held-out samples, as values at the centres of equal bins in √t.
        Table(Vec<f64>) = "table",
    }
}

/// The estimates from which a sampler computes its next step.
#[derive(Clone, Debug)]
pub struct Estimate<F> {
    /// The estimate of x_0.
    pub x0: F,
    /// phi, with its last part consistent with `x0` if the heads were blended.
    pub phi: Vec<F>,
    /// The estimate of eps.
    pub eps: F,
    /// x_t − H_t(phi) − σ_t eps, the point at which a step starts. It equals `x0` except for the blend `reference`.
    pub anchor: F,
}

impl Blend {
    /// The weight w(t) of x̂_0^φ.
    fn weight(&self, t: f64) -> f64 {
        match self {
            Self::Phi => 1.0,
            Self::Eps => 0.0,
            // What both heads together amount to (§10.3); `estimate` treats these two separately.
            Self::Heads | Self::Reference => t,
            Self::Average => 0.5,
            Self::Table(w) if w.is_empty() => 0.5,
            Self::Table(w) => {
                // Linear interpolation between the centres, constant beyond the first and the last.
                let place = (t.sqrt() * w.len() as f64 - 0.5).clamp(0.0, (w.len() - 1) as f64);
                let (low, part) = (place.floor() as usize, place.fract());
                w[low] * (1.0 - part) + w[(low + 1).min(w.len() - 1)] * part
            }
        }
    }

    /// The estimate at (x_t, t) from both heads; `clip` limits x̂_0 to ±clip.
    pub fn estimate<F: Field>(
        &self,
        process: &Adm,
        x_t: &F,
        phi_hat: &[F],
        eps_hat: &F,
        t: f64,
        clip: Option<f64>,
    ) -> Estimate<F> {
        let clipped = |x: F| clip.map_or_else(|| x.clone(), |c| x.clamp(-c, c));
        let attenuation: &Attenuation = &process.attenuation;
        let solve_phi = |x0: &F| attenuation.solve(x0, &drawn(process, phi_hat));
        let (from_phi, from_both) = process.x0_estimates(x_t, phi_hat, eps_hat, &t.into());
        match self {
            Self::Heads => {
                let x0 = clipped(from_both);
                Estimate { anchor: x0.clone(), x0, phi: phi_hat.to_vec(), eps: eps_hat.clone() }
            }
            Self::Reference => {
                let x0 = clipped(from_both);
                let phi = solve_phi(&x0);
                let (_, anchor) = process.x0_estimates(x_t, &phi, eps_hat, &t.into());
                Estimate { x0, phi, eps: eps_hat.clone(), anchor }
            }
            _ => {
                // Both heads together give t x̂_0^φ + (1−t) x̂_0^ε, from which x̂_0^ε follows for t < 1. At t = 1 the
                // ε head carries no information on x_0.
                let (pure_noise, w) = (1.0 - t < 1e-9, self.weight(t));
                let blended = match self {
                    Self::Eps if pure_noise => x_t.scale(0.0),
                    _ if pure_noise || w == 1.0 => from_phi,
                    _ => {
                        let k = (1.0 - w) / (1.0 - t);
                        F::lincomb(&[((w - k * t).into(), &from_phi), (k.into(), &from_both)])
                    }
                };
                let x0 = clipped(blended);
                let phi = solve_phi(&x0);
                let mean = attenuation.mean(&x0, &phi, &Coef::from(t));
                // eps is recomputed so that x_t = x_0 + H_t(phi) + σ_t eps holds for the blended x_0.
                let k = 1.0 / process.noise.sigma(t);
                let eps = F::lincomb(&[(k.into(), x_t), ((-k).into(), &mean)]);
                Estimate { anchor: x0.clone(), x0, phi, eps }
            }
        }
    }
}

/// The predicted drawn parts of phi, clamped to the range of the true ones.
fn drawn<F: Field>(process: &Adm, phi_hat: &[F]) -> Vec<F> {
    phi_hat[..process.drawn_parts()].iter().map(|a| process.draw.apply(a)).collect()
}
