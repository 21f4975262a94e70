//! Runs a sampler on a network: translates the network's outputs to the form of the process that the sampler uses.
use crate::config::SampleConfig;
use crate::engine::{Images, Tensor};
use crate::error::{Error, Result};
use crate::nn::Conditioned;
use crate::sample::cld::{CldProblem, VelocityScore};
use crate::sample::gaussian::{Denoise, GaussianProblem};
use crate::sample::{AttenuationProblem, Form, Hooks, Predict, Sampled, Setting};
use crossfade_math::process::Cld;
use crossfade_math::{Blend, Coef, Field, Gaussian, Prediction, Process};

/// Samples a batch. With `mean_x0` the evaluation at t = 1 is saved (§3.5). `start(0)` gives the standard normals for x at the
/// first time, `start(1)` those for the velocity of CLD.
pub fn solve(
    net: &Conditioned,
    config: &SampleConfig,
    mean_x0: Option<Images>,
    start: &dyn Fn(u64) -> Images,
    hooks: &mut Hooks<Images>,
) -> Result<Sampled<Images>> {
    let sampler = config.sampler.resolved(&net.process)?;
    let times = config.times(&net.process)?;
    if let Some(Form::Velocity(cld)) = sampler.form(&net.process) {
        let score = ScoreNet { net, cld };
        return sampler.run(&CldProblem::new(&score, cld), &times, (start(0), start(1)), hooks);
    }
    let x = start(0).scale(start_deviation(&net.process, &times));
    in_form(net, config, mean_x0, &mut |problem| sampler.run(problem, &times, x.clone(), hooks))
}

/// Samples a batch from the state `x_t` at time number `first` of the grid (§3.6).
pub fn solve_from(
    net: &Conditioned,
    config: &SampleConfig,
    x_t: &Images,
    first: usize,
    hooks: &mut Hooks<Images>,
) -> Result<Sampled<Images>> {
    let sampler = config.sampler.resolved(&net.process)?;
    let times = config.times(&net.process)?;
    in_form(net, config, None, &mut |problem| sampler.run(problem, &times[first..], x_t.clone(), hooks))
}

/// The noise from which [`solve`] makes the batch `x0` again, as `start(0)` there, and the network evaluations (§3.6).
pub fn invert(net: &Conditioned, config: &SampleConfig, x0: &Images) -> Result<(Images, usize)> {
    let sampler = config.sampler.resolved(&net.process)?;
    let times = config.times(&net.process)?;
    let inverted = in_form(net, config, None, &mut |problem| sampler.invert(problem, &times, x0))?;
    Ok((inverted.x_t.scale(1.0 / start_deviation(&net.process, &times)), inverted.nfe))
}

/// The standard deviation of x at the first of `times` relative to the normals of `start`.
fn start_deviation(process: &Process, times: &[f64]) -> f64 {
    process.gaussian().map_or(1.0, |gaussian| gaussian.start_deviation(times[0]))
}

/// Calls `run` with the network in the form that the sampler uses, on processes whose state is x_t alone.
fn in_form<R>(
    net: &Conditioned,
    config: &SampleConfig,
    mean_x0: Option<Images>,
    run: &mut dyn FnMut(&dyn Setting<Images, Start = Images>) -> Result<R>,
) -> Result<R> {
    let sampler = config.sampler.resolved(&net.process)?;
    match sampler.form(&net.process) {
        Some(Form::Attenuation(adm)) => {
            let mut problem = AttenuationProblem::new(net, adm);
            problem.blend = config.blend.clone();
            (problem.clip, problem.mean_x0) = (config.clip(), mean_x0);
            run(&problem)
        }
        Some(Form::Gaussian(gaussian)) => {
            let denoise = DenoisingNet { net, gaussian, blend: &config.blend, clip: config.clip() };
            let mut problem = GaussianProblem::new(&denoise, gaussian);
            (problem.clip, problem.eta, problem.churn) = (config.clip(), config.eta, config.churn);
            problem.mean_x0 = mean_x0;
            run(&problem)
        }
        Some(Form::Velocity(_)) | None => {
            Err(Error::Run(format!("{} does not run on {}", sampler.name(), net.process.name())))
        }
    }
}

/// x̂_0 at (x_t, t) as the Gaussian samplers use it.
///
/// # Shapes
/// `x_t` and the result `[B, C, H, W]`.
pub(crate) fn estimate_at(
    net: &Conditioned,
    config: &SampleConfig,
    gaussian: Gaussian,
    x_t: &Images,
    t: f64,
) -> Result<Images> {
    let denoise = DenoisingNet { net, gaussian, blend: &config.blend, clip: config.clip() };
    Ok(denoise.denoise(x_t, t)?.x0)
}

/// x̂_0 as [`estimate_at`] makes it, clamped as samplers clamp it, with a time for each sample.
///
/// # Shapes
/// `x_t` and the result `[B, C, H, W]`, B times.
pub(crate) fn estimates_at(
    net: &Conditioned,
    config: &SampleConfig,
    gaussian: Gaussian,
    x_t: &Images,
    t: &[f64],
) -> Result<Images> {
    let denoise = DenoisingNet { net, gaussian, blend: &config.blend, clip: config.clip() };
    if let Process::Adm(adm) = &net.process {
        let heads = net.heads(adm, x_t, t)?;
        let one = |i: usize, t: f64| {
            let sample = |x: &Images| Images(x.0.clone().narrow(0, i, 1));
            let phi: Vec<Images> = heads.phi.iter().map(sample).collect();
            denoise.limited(config.blend.estimate(adm, &sample(x_t), &phi, &sample(&heads.eps), t, None).x0).0
        };
        return Ok(Images(Tensor::cat(t.iter().enumerate().map(|(i, &t)| one(i, t)).collect(), 0)));
    }
    let output = net.target_output(x_t, t)?;
    let x0 = gaussian.prediction(x_t, &output.target, &Coef::Each(t.to_vec())).x0;
    Ok(denoise.limited(match output.x0 {
        Some(second) => denoise.mean(second, x0),
        None => x0,
    }))
}

/// A network in the form that Gaussian samplers use: x̂_0 and eps under x_t = α_t x_0 + σ_t eps.
struct DenoisingNet<'a> {
    net: &'a Conditioned<'a>,
    gaussian: Gaussian,
    blend: &'a Blend,
    clip: Option<f64>,
}

impl DenoisingNet<'_> {
    /// The weight of the x_0 output in x̂_0; the other estimate is computed from eps. By default both are averaged (§9).
    fn weight_of_x0(&self) -> f64 {
        match self.blend {
            Blend::Phi => 1.0,
            Blend::Eps => 0.0,
            _ => 0.5,
        }
    }

    /// An estimate of x_0 within the bound of the samplers.
    fn limited(&self, x0: Images) -> Images {
        self.clip.map_or_else(|| x0.clone(), |c| x0.clamp(-c, c))
    }

    /// The mean of the x_0 output and the estimate from eps.
    ///
    /// Near t = 1 the estimate (x_t − σ_t eps)/α_t amplifies the error of eps by σ_t/α_t, a factor of a hundred and more. It
    /// is therefore clamped before both are averaged.
    fn mean(&self, x0: Images, other: Images) -> Images {
        let (weight, x0, other) = (self.weight_of_x0(), self.limited(x0), self.limited(other));
        Images::lincomb(&[(weight.into(), &x0), ((1.0 - weight).into(), &other)])
    }
}

impl Denoise<Images> for DenoisingNet<'_> {
    fn denoise(&self, x_t: &Images, t: f64) -> Result<Prediction<Images>> {
        if let Process::Adm(adm) = &self.net.process {
            let heads = self.net.predict(x_t, t)?;
            // Without clamping: the Gaussian samplers clamp x̂_0 themselves and recompute eps.
            let x0 = self.blend.estimate(adm, x_t, &heads.phi, &heads.eps, t, None).x0;
            return Ok(self.gaussian.prediction_of_x0(x_t, x0, t));
        }
        let output = self.net.target_output(x_t, &[t])?;
        let prediction = self.gaussian.prediction(x_t, &output.target, &t.into());
        let Some(x0) = output.x0 else { return Ok(prediction) };
        let mean = self.mean(x0, prediction.x0);
        Ok(self.gaussian.prediction_of_x0(x_t, mean, t))
    }

    fn evaluations(&self, t: f64) -> usize {
        self.net.evaluations(t)
    }
}

/// A network in the form that the samplers of CLD use: score = −ℓ_t times its output.
struct ScoreNet<'a> {
    net: &'a Conditioned<'a>,
    cld: Cld,
}

impl VelocityScore<Images> for ScoreNet<'_> {
    fn score(&self, x: &Images, v: &Images, t: f64) -> Result<Images> {
        let state = Images(Images::concat(&[x.clone(), v.clone()]));
        let normal = self.net.target_output(&state, &[t])?.target;
        Ok(normal.scale(-self.cld.score_scale(t)))
    }

    fn evaluations(&self, t: f64) -> usize {
        self.net.evaluations(t)
    }
}

#[cfg(test)]
mod guided;
#[cfg(test)]
mod tests;
