//! The noise scale σ_t of attenuation.
use crate::registry;

registry! {
    /// σ_t: the standard deviation of the noise in x_t.
    #[derive(Copy, Eq, Default)]
    pub enum NoiseScale("noise scale") {
        /// σ_t = √t, the paper's choice.
        #[default]
        Sqrt = "sqrt",
        /// σ_t = t, the reference's "const2": rectified flow when the attenuation is constant (§1.5).
        Linear = "linear",
    }
}

impl NoiseScale {
    /// The standard deviation σ_t.
    pub fn sigma(self, t: f64) -> f64 {
        match self {
            Self::Sqrt => t.sqrt(),
            Self::Linear => t,
        }
    }

    /// The variance σ_t².
    pub fn variance(self, t: f64) -> f64 {
        match self {
            Self::Sqrt => t,
            Self::Linear => t * t,
        }
    }

    /// dσ_t²/dt, the squared diffusion coefficient.
    pub fn variance_slope(self, t: f64) -> f64 {
        match self {
            Self::Sqrt => 1.0,
            Self::Linear => 2.0 * t,
        }
    }

    /// The time at which the noise has the standard deviation `sigma`.
    pub fn time(self, sigma: f64) -> f64 {
        match self {
            Self::Sqrt => sigma * sigma,
            Self::Linear => sigma,
        }
    }
}
