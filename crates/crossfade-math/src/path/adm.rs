//! Constant attenuation is such a process too: α_t = 1 − t, σ_t = √t or t (§1.2, §10.1).
use super::{Input, PathFn, Target};
use crate::{GridKind, NoiseScale};

impl PathFn for NoiseScale {
    fn alpha(&self, t: f64) -> f64 {
        1.0 - t
    }
    fn sigma(&self, t: f64) -> f64 {
        NoiseScale::sigma(*self, t)
    }
    fn rates(&self, t: f64) -> (f64, f64) {
        let f = -1.0 / (1.0 - t);
        (f, self.variance_slope(t) - 2.0 * f * self.variance(t))
    }
    fn t_end(&self) -> f64 {
        match self {
            NoiseScale::Sqrt => self.time(0.01),
            NoiseScale::Linear => self.time(0.001),
        }
    }
    /// The eps head alone, the paper's "attenuation without image supervision" (Table 6).
    fn target(&self, _t: f64) -> Target {
        Target::EPS
    }
    fn input(&self, t: f64) -> Input {
        let alpha = 1.0 - t;
        Input { scale: 1.0 / (alpha * alpha + self.variance(t)).sqrt(), noise: t.ln() }
    }
    fn training_time(&self, uniform: f64, _normal: f64) -> f64 {
        1e-4 + (1.0 - 1e-4) * uniform
    }
    fn sampler(&self) -> &'static str {
        "ddim"
    }
    fn grid(&self) -> GridKind {
        GridKind::UniformT
    }
}
