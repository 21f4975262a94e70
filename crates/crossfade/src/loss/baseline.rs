//! The baselines' training: x_t from x_0 and noise, and the plain error of what the network is to say (§9).
use super::{Noised, Objective};
use crate::engine::{Images, Tensor};
use crate::nn::baseline::Said;
use crossfade_math::path::Baseline;
use crossfade_math::{Coef, Field};

impl Noised {
    /// Takes x_0 to its times under a baseline. `eps` is what is to be predicted; `other` is CLD's noise of x, beside that
    /// of v, and x_t then has twice the channels.
    pub fn baseline(baseline: &Baseline, x0: Images, eps: Images, other: Option<&Images>, t: Vec<f64>) -> Self {
        let times = Coef::Each(t.clone());
        let x_t = match (baseline, other, baseline.path()) {
            (Baseline::Cld(cld), Some(other), _) => {
                let row = |k: usize| {
                    let c = |j: usize| times.map(|t| cld.forward(t)[k][j]);
                    Images::lincomb(&[(c(0), &x0), (c(1), other), (c(2), &eps)])
                };
                Images(Images::concat(&[row(0), row(1)]))
            }
            (_, _, Some(path)) => path.x_t(&x0, &eps, &times),
            _ => unreachable!("CLD is given two noises"),
        };
        Self { x0, phi: vec![], eps, t, x_t }
    }
}

impl Objective {
    /// The loss of a baseline: the squared error of the raw target, which is what the papers' weights come to, plus that of
    /// x_0 where it is predicted too.
    ///
    /// # Shapes
    /// `said` `[B, C, H, W]`.
    pub fn of_baseline(&self, baseline: &Baseline, batch: &Noised, said: Said) -> Tensor<1> {
        let times = Coef::Each(batch.t.clone());
        let target = baseline.path().map_or_else(|| batch.eps.clone(), |p| p.raw_target(&batch.x0, &batch.eps, &times));
        let ones = vec![1.0; batch.t.len()];
        let main = self.weighted(said.target.0 - target.0, &ones);
        said.x0.iter().fold(main, |sum, x0| sum + self.weighted(x0.0.clone() - batch.x0.0.clone(), &ones))
    }
}
