//! The exact denoiser of independent normal coordinates: linear, with a gain of its own for every coordinate (§10.5).
use super::gaussian::Normal;
use super::points::Points;
use crate::error::{Error, Result};
use crate::sample::cld::VelocityScore;
use crate::sample::gaussian::Denoise;
use crate::sample::{Heads, Predict};
use crossfade_math::process::{Cld, Cov2};
use crossfade_math::{Gaussian, GaussianFn, Prediction};

/// The Wiener filter of data whose coordinate d is distributed as `data[d]`, under `process`.
pub(super) struct Linear<'a, P> {
    pub data: &'a [Normal],
    pub process: P,
}

impl Denoise<Points> for Linear<'_, Gaussian> {
    /// x̂_0 = mean + λ α/(α² λ + σ²) (x_t − α mean) with the variance λ of the coordinate.
    fn denoise(&self, x_t: &Points, t: f64) -> Result<Prediction<Points>> {
        let (alpha, sigma) = (self.process.alpha(t), self.process.sigma(t));
        let gain = |data: &Normal| alpha * data.std.powi(2) / ((alpha * data.std).powi(2) + sigma * sigma);
        let gains: Vec<f64> = self.data.iter().map(gain).collect();
        let mut x0 = x_t.clone();
        for row in x0.data.chunks_exact_mut(x_t.dim) {
            for ((x, gain), data) in row.iter_mut().zip(&gains).zip(self.data) {
                *x = data.mean + gain * (*x - alpha * data.mean);
            }
        }
        Ok(self.process.prediction_of_x0(x_t, x0, t))
    }
}

impl Predict<Points> for Linear<'_, Gaussian> {
    /// The heads of constant attenuation, where x_0 alone determines phi.
    fn predict(&self, x_t: &Points, t: f64) -> Result<Heads<Points>> {
        let adm = self.process.process().adm();
        let adm = adm.ok_or_else(|| Error::Run(format!("{} has no heads", self.process.name())))?;
        let Prediction { x0, eps } = self.denoise(x_t, t)?;
        Ok(Heads { phi: adm.phi(&x0, &[]), eps })
    }
}

/// The covariance of (x_t, v_t) for data of this standard deviation.
pub(super) fn covariance(cld: &Cld, std: f64, t: f64) -> Cov2 {
    let start = Cov2 { xx: std * std, xv: 0.0, vv: cld.gamma * cld.mass() };
    let integral = cld.integral(t);
    start.moved(&cld.transition(integral)).plus(&cld.noise(integral))
}

impl VelocityScore<Points> for Linear<'_, Cld> {
    fn score(&self, x: &Points, v: &Points, t: f64) -> Result<Points> {
        let (mean_x, mean_v) = self.process.mean(t);
        let covariances: Vec<Cov2> = self.data.iter().map(|data| covariance(&self.process, data.std, t)).collect();
        let mut score = x.clone();
        for (row, v) in score.data.chunks_exact_mut(x.dim).zip(v.iter()) {
            for (((s, v), data), cov) in row.iter_mut().zip(v).zip(self.data).zip(&covariances) {
                let (dx, dv) = (*s - mean_x * data.mean, v - mean_v * data.mean);
                *s = (cov.xv * dx - cov.xx * dv) / cov.det();
            }
        }
        Ok(score)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{CldOracle, GaussianOracle, Mixture, Oracle, normals};
    use super::*;
    use crossfade_math::{Adm, Process};

    /// For coordinates of one deviation it is the oracle of a mixture with a single component, in all three forms.
    #[test]
    fn it_is_the_oracle_of_one_gaussian() {
        let (mixture, x, v) = (Mixture::gaussian(3, 0.3), normals(3, 20, 1, 0), normals(3, 20, 2, 0));
        let data: Vec<Normal> = mixture.means[0].iter().map(|&mean| Normal { mean, std: 0.3 }).collect();
        let near = |a: &Points, b: &Points, what: &str| {
            let worst = a.data.iter().zip(&b.data).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
            assert!(worst < 1e-9, "{what}: {worst}");
        };
        for t in [0.001, 0.3, 1.0] {
            for process in Process::all().iter().filter_map(Process::gaussian) {
                let found = Linear { data: &data, process }.denoise(&x, t).unwrap();
                let exact = GaussianOracle { mixture: mixture.clone(), process }.denoise(&x, t).unwrap();
                near(&found.x0, &exact.x0, process.name());
            }
            let adm = Adm::default();
            let process = Process::from(adm).gaussian().unwrap();
            let found = Linear { data: &data, process }.predict(&x, t).unwrap();
            let exact = Oracle::new(mixture.clone(), adm).predict(&x, t).unwrap();
            near(&found.phi[0], &exact.phi[0], "phi");
            near(&found.eps, &exact.eps, "eps");
            let cld = Cld::default();
            let found = Linear { data: &data, process: cld }.score(&x, &v, t).unwrap();
            near(&found, &CldOracle { mixture: mixture.clone(), cld }.score(&x, &v, t).unwrap(), "score");
        }
    }
}
