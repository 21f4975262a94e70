//! Loss weights λ(t) of the two heads (§2.2).
use crate::{Adm, NoiseScale, Precond, registry};

registry! {
    /// The loss weights (λ_φ, λ_ε) as functions of time.
    #[derive(Copy, Eq, Default)]
    pub enum Weighting("weighting") {
        /// D/(σ_d² t), D/(σ_d² (1−t)²): 1/c_out², a plain mean square of the raw outputs. The paper's best.
        #[default]
        Adaptive = "adaptive",
        /// 1, 1.
        Ones = "ones",
        /// 1/t, 1/(1−t).
        Reciprocal = "reciprocal",
        /// eᵗ, e^{1−t}.
        Exponential = "exponential",
        /// The reference's: D/t, D/(1−t+t_min), the second with the first power.
        Reference = "reference",
        /// The reference's for σ = t: ((1−t)/t)² + 1, (t/(1−t+t_min))² + 1.
        ReferenceLinear = "reference-linear",
        /// The older release's: 1/t, 1/(1−t+t_min).
        OlderRelease = "older-release",
        /// DiffusionEdge's: (t+1)/√t, √(2−t)/√(1−t+t_min).
        DiffusionEdge = "diffusion-edge",
    }
}

impl Weighting {
    /// (λ of the last part of phi, λ_ε) at t. `t_min` guards the reference's variants at t = 1, as it does there.
    pub fn lambda(self, process: &Adm, sigma_data: f64, t: f64, t_min: f64) -> (f64, f64) {
        let D = (1.0 - t).powi(2) + process.noise.variance(t);
        let rest = 1.0 - t + t_min;
        match self {
            Self::Adaptive => {
                let c = Precond::Optimal { sigma_data }.scalings(process, t);
                let phi = c.phi.last().map_or(1.0, |phi| phi.out);
                (phi.powi(-2), c.eps.out.powi(-2))
            }
            Self::Ones => (1.0, 1.0),
            Self::Reciprocal => (1.0 / t, 1.0 / (1.0 - t)),
            Self::Exponential => (t.exp(), (1.0 - t).exp()),
            Self::Reference => (D / process.noise.variance(t), D / rest),
            Self::ReferenceLinear => {
                let c = NoiseScale::Linear.sigma(t);
                (((1.0 - t) / c).powi(2) + 1.0, (c / rest).powi(2) + 1.0)
            }
            Self::OlderRelease => (1.0 / t, 1.0 / rest),
            Self::DiffusionEdge => ((t + 1.0) / t.sqrt(), (2.0 - t).sqrt() / rest.sqrt()),
        }
    }
}

registry! {
    /// How an error is measured (§2.3).
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
