//! Loss weights λ(t) of the two heads (§2.2).
use crate::{Adm, NoiseScale, Precond, registry};

registry! {
    /// The loss weights (λ_φ, λ_ε) as functions of time.
    #[derive(Copy, Eq, Default)]
    pub enum Weighting("weighting") {
        /// λ = (D/(σ_d² t), D/(σ_d² (1−t)²)), that is 1/c_out²: the loss becomes a plain mean square of the network's
        /// raw outputs. The paper's best.
        #[default]
        Adaptive = "adaptive",
        /// λ = (1, 1).
        Ones = "ones",
        /// λ = (1/t, 1/(1−t)).
        Reciprocal = "reciprocal",
        /// λ = (eᵗ, e^{1−t}).
        Exponential = "exponential",
        /// The evidence lower bound of Alg. 2 without its cross term (supplement, Eq. 14): λ = (1, 1/t) for σ = √t. For any
        /// noise scale the divergence of one infinitesimal step is ½ ‖δh + (σ²)'/σ δeps‖²/(σ²)' dt.
        Elbo = "elbo",
        /// The reference's λ = (D/t, D/(1−t+t_min)), whose second denominator is not squared.
        Reference = "reference",
        /// The reference's for σ = t: λ = (((1−t)/t)² + 1, (t/(1−t+t_min))² + 1).
        ReferenceLinear = "reference-linear",
        /// The older release's λ = (1/t, 1/(1−t+t_min)).
        OlderRelease = "older-release",
        /// DiffusionEdge's λ = ((t+1)/√t, √(2−t)/√(1−t+t_min)).
        DiffusionEdge = "diffusion-edge",
    }
}

impl Weighting {
    /// (λ of the last part of phi, λ_ε) at t. `t_min` guards the reference's variants at t = 1, as it does there.
    pub fn lambda(self, process: &Adm, sigma_data: f64, t: f64, t_min: f64) -> (f64, f64) {
        // var(x_t) for data of unit variance and constant attenuation.
        let D = (1.0 - t).powi(2) + process.noise.variance(t);
        // t_min keeps the weight of eps finite at t = 1.
        let remaining = 1.0 - t + t_min;
        match self {
            Self::Adaptive => {
                // Always the optimal scalings, whichever ones surround the network: the weights shall not change when
                // the preconditioner does.
                let c = Precond::Optimal { sigma_data }.scalings(process, t);
                let phi = c.phi.last().map_or(1.0, |phi| phi.out);
                (phi.powi(-2), c.eps.out.powi(-2))
            }
            Self::Ones => (1.0, 1.0),
            Self::Reciprocal => (1.0 / t, 1.0 / (1.0 - t)),
            Self::Exponential => (t.exp(), (1.0 - t).exp()),
            Self::Elbo => {
                let slope = process.noise.variance_slope(t);
                (1.0 / slope, slope / process.noise.variance(t))
            }
            Self::Reference => (D / process.noise.variance(t), D / remaining),
            Self::ReferenceLinear => {
                let c = NoiseScale::Linear.sigma(t);
                (((1.0 - t) / c).powi(2) + 1.0, (c / remaining).powi(2) + 1.0)
            }
            Self::OlderRelease => (1.0 / t, 1.0 / remaining),
            Self::DiffusionEdge => ((t + 1.0) / t.sqrt(), (2.0 - t).sqrt() / remaining.sqrt()),
        }
    }
}

registry! {
    /// The norm of the error in the loss (§2.3).
    #[derive(Copy, Eq, Default)]
    pub enum LossNorm("loss norm") {
        /// Absolute errors.
        L1 = "l1",
        /// Squared errors.
        #[default]
        L2 = "l2",
        /// The mean of both.
        L1L2 = "l1-l2",
    }
}

impl LossNorm {
    /// (weight of the absolute error, weight of the squared error).
    pub fn shares(self) -> (f64, f64) {
        match self {
            Self::L1 => (1.0, 0.0),
            Self::L2 => (0.0, 1.0),
            Self::L1L2 => (0.5, 0.5),
        }
    }
}
