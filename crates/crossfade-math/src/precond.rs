//! Preconditioning: head = c_skip·x_t + c_out·F(c_in·x_t, c_noise) (§4.1).
use crate::{Adm, Attenuation, AttenuationFn, Problem, registry};

registry! {
    /// The choice of c_in, c_noise, c_skip and c_out.
    #[derive(Copy)]
    #[serde(deny_unknown_fields)]
    pub enum Precond("preconditioner", tag = "kind") {
        /// Gives the network's input and raw targets unit variance for data of deviation `sigma_data`: c_skip =
        /// cov(target, x_t)/var(x_t).
        Optimal {
            /// Standard deviation of the data; the reference uses 1.
            #[serde(default = "one")]
            sigma_data: f64 = one(),
        } = "optimal",
        /// Both raw outputs are the velocity eps − x_0, whatever the noise scale: the rectified flow's parameterisation, for
        /// constant attenuation. x_t divided by α_t + σ_t lies on the straight line between x_0 and eps.
        Velocity = "velocity",
        /// The scalings of constant attenuation, repeated for every part of phi, as the reference's linear
        /// attenuation needs.
        Repeated = "repeated",
        /// The older release's, which give neither input nor targets unit variance; needed to run its weights.
        OlderRelease = "older-release",
        /// The conditional networks': as the older release, without c_in.
        Conditional = "conditional",
        /// DiffusionEdge's: c_noise = ln(t)/4, and a φ head that tends to +x_t at t = 0.
        DiffusionEdge = "diffusion-edge",
        /// The heads are the raw outputs; only the input is scaled.
        None = "none",
    }
}

fn one() -> f64 {
    1.0
}

impl Default for Precond {
    fn default() -> Self {
        Self::Optimal { sigma_data: 1.0 }
    }
}

/// c_skip and c_out of one output.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scaling {
    /// c_skip, the factor of x_t.
    pub skip: f64,
    /// c_out, the factor of the raw output F.
    pub out: f64,
}

/// All scalings at one time t.
#[derive(Clone, Debug, PartialEq)]
pub struct Scalings {
    /// Multiplies x_t before the network.
    pub c_in: f64,
    /// The time as the network reads it.
    pub c_noise: f64,
    /// The scaling of each part of phi.
    pub phi: Vec<Scaling>,
    /// The scaling of eps.
    pub eps: Scaling,
}

impl Precond {
    /// All that is wrong with its options.
    pub fn validate(&self) -> Vec<Problem> {
        match *self {
            Self::Optimal { sigma_data } if !(sigma_data > 0.0 && sigma_data.is_finite()) => {
                vec![Problem::new("sigma_data", format!("must be positive, not {sigma_data}"))]
            }
            _ => vec![],
        }
    }

    /// The factor of eps in its raw target (eps − c_skip x_t)/c_out = factor·eps − (c_skip/c_out) m_t, where x_t = m_t + σ_t eps:
    /// (1 − c_skip σ_t)/c_out, simplified for the scalings that training uses so that nothing is 0/0 near t = 1.
    pub fn raw_eps_factor(&self, scalings: &Scalings) -> f64 {
        match self {
            Self::Velocity => 1.0,
            // c_out² = 1 − c_skip σ_t.
            _ => scalings.eps.out,
        }
    }

    /// The scalings at time t in (0, 1].
    pub fn scalings(&self, process: &Adm, t: f64) -> Scalings {
        let parts = process.attenuation.parts();
        let all = |c_in: f64, c_noise: f64, phi: (f64, f64), eps: (f64, f64)| Scalings {
            c_in,
            c_noise,
            phi: vec![Scaling { skip: phi.0, out: phi.1 }; parts],
            eps: Scaling { skip: eps.0, out: eps.1 },
        };
        // The older release and the conditional networks differ only in c_in.
        let older =
            |c_in: f64| all(c_in, t.ln(), (t - 1.0, t / (1.0 + t).sqrt()), (t.sqrt(), ((1.0 - t) / (1.0 + t)).sqrt()));
        match *self {
            Self::Optimal { sigma_data } => optimal(process, sigma_data, t),
            Self::Velocity => {
                // x_0 = (x_t − σ_t v)/(α_t + σ_t) and eps = (x_t + α_t v)/(α_t + σ_t) with v = eps − x_0, and phi = −x_0.
                let (alpha, sigma) = (1.0 - t, process.noise.sigma(t));
                let sum = alpha + sigma;
                all(1.0 / sum, t.ln(), (-1.0 / sum, sigma / sum), (1.0 / sum, alpha / sum))
            }
            Self::Repeated => {
                let constant = optimal(&Adm { attenuation: Attenuation::Constant, ..*process }, 1.0, t);
                Scalings { phi: vec![constant.phi[0]; parts], ..constant }
            }
            Self::OlderRelease => older(1.0 / (1.0 + t).sqrt()),
            Self::Conditional => older(1.0),
            Self::DiffusionEdge => {
                let norm = (t * t + 1.0).sqrt();
                all(1.0, t.ln() / 4.0, (1.0 - t, t / norm), (t.sqrt(), (1.0 - t).sqrt() / norm))
            }
            Self::None => {
                let D = (1.0 - t).powi(2) + process.noise.variance(t);
                all(1.0 / D.sqrt(), t.ln(), (0.0, 1.0), (0.0, 1.0))
            }
        }
    }
}

/// c_in = 1/√D with D = var(x_t); c_skip = cov/D; c_out² = var − cov²/D (§1.3, §4.1).
fn optimal(process: &Adm, sigma_data: f64, t: f64) -> Scalings {
    let moments = process.attenuation.moments(sigma_data, process.draw, t);
    let (sigma, variance) = (process.noise.sigma(t), process.noise.variance(t));
    let D = moments.signal + variance;
    Scalings {
        c_in: 1.0 / D.sqrt(),
        c_noise: t.ln(),
        phi: (moments.phi.iter())
            .map(|m| {
                // var·D − cov² with D written out. The part that does not depend on σ_t vanishes exactly where phi
                // and the signal are proportional, as in constant attenuation, instead of leaving rounding errors.
                let residual = m.var * variance + (m.var * moments.signal - m.cov * m.cov).max(0.0);
                Scaling { skip: m.cov / D, out: (residual / D).sqrt() }
            })
            .collect(),
        eps: Scaling { skip: sigma / D, out: (moments.signal / D).sqrt() },
    }
}
