//! One batch from its noise, under whatever process the network was trained for.
use crate::config::SampleConfig;
use crate::engine::Images;
use crate::error::{Error, Result};
use crate::nn::baseline::{Network, ask};
use crate::sample::cld::{CldProblem, VelocityScore};
use crate::sample::gaussian::{Denoise, GaussianProblem};
use crate::sample::{Hooks, Law, Problem, Sampled};
use crossfade_math::process::Cld;
use crossfade_math::path::{Baseline, Prediction, Path, GaussianFn};
use crossfade_math::{Blend, Field};

/// Samples from standard normals: `start(0)` for x, and `start(1)` for the velocity of CLD.
pub fn solve(
    net: &dyn Network,
    config: &SampleConfig,
    start: &dyn Fn(u64) -> Images,
    hooks: &mut Hooks<Images>,
) -> Result<Sampled<Images>> {
    let law = Law::new(net.process(), net.baseline());
    let sampler = law.sampler(config.sampler)?;
    let times = config.times(&law)?;
    if let Law::Cld(cld) = law {
        let score = CldNet { net, cld };
        return sampler.run(&CldProblem::new(&score, cld), &times, (start(0), start(1)), hooks);
    }
    if law.is_native(sampler) {
        let mut problem = Problem::new(net, net.process());
        problem.blend = config.blend.clone();
        problem.clip = config.clip();
        return sampler.run(&problem, &times, start(0), hooks);
    }
    let path = law.path().ok_or_else(|| Error::Run(format!("{} has no path", law.name())))?;
    let denoise = PathNet { net, path, blend: &config.blend, clip: config.clip() };
    let mut problem = GaussianProblem::new(&denoise, path);
    (problem.clip, problem.eta, problem.churn) = (config.clip(), config.eta, config.churn);
    sampler.run(&problem, &times, start(0).scale(path.sigma(1.0)), hooks)
}

/// x̂_0 at (x_t, t) as the samplers of the path see it.
///
/// # Shapes
/// `x_t` and the result `[B, C, H, W]`.
pub fn estimate_at(net: &dyn Network, config: &SampleConfig, path: Path, x_t: &Images, t: f64) -> Result<Images> {
    let denoise = PathNet { net, path, blend: &config.blend, clip: config.clip() };
    Ok(denoise.denoise(x_t, t)?.x0)
}

/// A network as the samplers of a path see it.
struct PathNet<'a> {
    net: &'a dyn Network,
    path: Path,
    blend: &'a Blend,
    clip: Option<f64>,
}

impl PathNet<'_> {
    /// The share of the second output in x̂_0; the other is what eps says (§9: the mean, unless one is asked for).
    fn share(&self) -> f64 {
        match self.blend {
            Blend::Phi => 1.0,
            Blend::Eps => 0.0,
            _ => 0.5,
        }
    }
}

impl Denoise<Images> for PathNet<'_> {
    fn denoise(&self, x_t: &Images, t: f64) -> Result<Prediction<Images>> {
        let Some(baseline) = self.net.baseline() else {
            let heads = self.net.predict(x_t, t)?;
            let process = self.net.process();
            let x0 = self.blend.estimate(&process, x_t, &heads.phi, &heads.eps, t, None).x0;
            return Ok(self.path.prediction_of_x0(x_t, x0, t));
        };
        let said = ask(self.net, &baseline, x_t, t);
        let pair = self.path.pair(x_t, &said.target, &t.into());
        let Some(x0) = said.x0 else { return Ok(pair) };
        // Near t = 1 what eps says of x_0 is its error a hundred times enlarged, so it is limited before it is averaged.
        let limited = |x: Images| self.clip.map_or_else(|| x.clone(), |c| x.clamp(-c, c));
        let (share, other) = (self.share(), limited(pair.x0));
        let mean = Images::lincomb(&[(share.into(), &limited(x0)), ((1.0 - share).into(), &other)]);
        Ok(self.path.prediction_of_x0(x_t, mean, t))
    }
}

/// A network as the samplers of CLD see it: score = −ℓ_t α.
struct CldNet<'a> {
    net: &'a dyn Network,
    cld: Cld,
}

impl VelocityScore<Images> for CldNet<'_> {
    fn score(&self, x: &Images, v: &Images, t: f64) -> Result<Images> {
        let state = Images(Images::concat(&[x.clone(), v.clone()]));
        let alpha = ask(self.net, &Baseline::Cld(self.cld), &state, t).target;
        Ok(alpha.scale(-self.cld.score_scale(t)))
    }
}

#[cfg(test)]
mod tests;
