//! Analytical image attenuation, the paper's process (§1.1): the forward marginal and the bridge back, for any attenuation
//! function and noise scale.
use super::{Extra, GaussianFn, Input, ProcessFn, Target};
use crate::quadrature::{Node, clamped_normal_nodes, joint_nodes, normal_nodes};
use crate::{Attenuation, AttenuationFn, Coef, Estimate, Field, NoiseScale, Precond, Problem, Scalings, registry};
use serde::{Deserialize, Serialize};

registry! {
    /// The distribution of the drawn parts of phi.
    #[derive(Copy, Eq, Default)]
    pub enum Draw("draw") {
        /// N(0, 1) clamped to [−1, 1]: the reference's choice, which keeps e^a small.
        #[default]
        Clamped = "clamped",
        /// N(0, 1), as in the paper.
        Normal = "normal",
    }
}

impl Draw {
    /// Turns standard normals into drawn parts.
    pub fn apply<F: Field>(self, z: &F) -> F {
        match self {
            Self::Clamped => z.clamp(-1.0, 1.0),
            Self::Normal => z.clone(),
        }
    }

    /// Variance of a drawn part: 1, or 1 − 2 φ(1) = 0.5161 when clamped.
    pub fn variance(self) -> f64 {
        match self {
            // E[min(z², 1)] = 1 − 2 φ(1) with φ the normal density; here φ(1) = e^{−1/2}/√(2π).
            Self::Clamped => 1.0 - 2.0 * (-0.5f64).exp() / std::f64::consts::TAU.sqrt(),
            Self::Normal => 1.0,
        }
    }

    /// The distribution as a quadrature rule of weighted nodes.
    pub fn nodes(self, n: usize) -> Vec<Node> {
        match self {
            Self::Clamped => clamped_normal_nodes(n),
            Self::Normal => normal_nodes(n),
        }
    }
}

registry! {
    /// How the network reads the time. The sinusoidal embedding of the U-Net is made for numbers from 0 to 1000: ln t uses
    /// little of that range.
    #[derive(Copy, Eq, Default)]
    pub enum TimeInput("time input") {
        /// c_noise of the preconditioner, ln t: the reference's.
        #[default]
        Log = "log",
        /// 999 t, as the flow and the score-SDE do.
        Linear = "linear",
        /// The noise level of a picture of full strength: ln(σ_t/(1 − t)) from −6 to 6, scaled to the range from 0 to 999.
        LogSnr = "log-snr",
        /// 999 times the share of noise σ_t/(1 − t + σ_t): what a rectified flow reads at the same noise level, 999 t for
        /// σ = t.
        NoiseShare = "noise-share",
    }
}

impl TimeInput {
    fn noise(self, adm: &Adm, t: f64, c_noise: f64) -> f64 {
        match self {
            Self::Log => c_noise,
            Self::Linear => TIME_RANGE * t,
            Self::NoiseShare => {
                let sigma = adm.noise.sigma(t);
                TIME_RANGE * sigma / (1.0 - t + sigma)
            }
            Self::LogSnr => {
                let log_ratio = (adm.noise.sigma(t) / (1.0 - t)).ln();
                TIME_RANGE * (log_ratio.clamp(-LARGEST_LOG_RATIO, LARGEST_LOG_RATIO) + LARGEST_LOG_RATIO)
                    / (2.0 * LARGEST_LOG_RATIO)
            }
        }
    }
}

/// Quadrature nodes of a drawn part for the mean of phi. The only integrand that is not linear is that of the exponential
/// attenuation, (e^a − 1)/a.
const MEAN_NODES: usize = 10;

/// The range of times that are not logarithms: that of the thousand times of DDPM.
const TIME_RANGE: f64 = 999.0;

/// Beyond these noise levels, e^6 = 403 and its inverse, an 8-bit picture is all noise or all picture.
const LARGEST_LOG_RATIO: f64 = 6.0;

/// x_t = x_0 + H_t(phi) + σ_t eps.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Adm {
    /// How the image is attenuated.
    pub attenuation: Attenuation,
    /// How the noise rises.
    pub noise: NoiseScale,
    /// The distribution of the drawn parts of phi.
    pub draw: Draw,
    /// Training times are uniform in [t_min, 1].
    pub t_min: f64,
    /// How the network reads the time; networks with a condition read it in the range from 0 to 1, or its logarithm.
    pub time_input: TimeInput,
    /// The preconditioner: the scalings of the network's input and outputs.
    pub precond: Precond,
}

impl Default for Adm {
    fn default() -> Self {
        Self {
            attenuation: Attenuation::default(),
            noise: NoiseScale::default(),
            draw: Draw::default(),
            t_min: 1e-4,
            time_input: TimeInput::default(),
            precond: Precond::default(),
        }
    }
}

impl Adm {
    /// The process of an attenuation and a noise scale, all other options at their defaults.
    pub fn new(attenuation: Attenuation, noise: NoiseScale) -> Self {
        Self { attenuation, noise, ..Self::default() }
    }

    /// The scalings around the network at time t in (0, 1] (§4.1).
    pub fn scalings(&self, t: f64) -> Scalings {
        self.precond.scalings(self, t)
    }

    /// How many parts of phi are drawn at random: all but the last, which x_0 + H_1 = 0 determines.
    pub fn drawn_parts(&self) -> usize {
        self.attenuation.parts() - 1
    }

    /// phi for x_0 from standard normals, one for each drawn part.
    pub fn phi<F: Field>(&self, x0: &F, normals: &[F]) -> Vec<F> {
        let drawn: Vec<F> = normals.iter().map(|z| self.draw.apply(z)).collect();
        self.attenuation.solve(x0, &drawn)
    }

    /// `E[phi]` for images of mean `E[x_0]`, which at t = 1 is also `E[phi | x_1]`: there x_1 = eps says nothing about the image.
    /// None for attenuations that are not affine, whose phi is not determined by the mean of the images.
    pub fn mean_phi<F: Field>(&self, mean_x0: &F) -> Option<Vec<F>> {
        if !self.attenuation.is_affine() {
            return None;
        }
        // The drawn parts are symmetric about 0. The last part is that of x_0 = 0 with x_0 subtracted, and for x_0 = 0 it
        // depends on the drawn parts alone.
        let drawn = joint_nodes(&self.draw.nodes(MEAN_NODES), self.drawn_parts());
        let last = self.drawn_parts();
        let offset: f64 = drawn.iter().map(|node| node.weight * self.attenuation.solve(&0.0, &node.values)[last]).sum();
        let zero = mean_x0.scale(0.0);
        // e^0 = 1 in every element: a field has no other constants.
        let end = F::lincomb(&[(offset.into(), &zero.exp()), ((-1.0).into(), mean_x0)]);
        Some(std::iter::repeat_n(zero, last).chain([end]).collect())
    }

    /// Forward marginal: x_t = x_0 + H_t(phi) + σ_t eps (Eq. 5).
    pub fn x_t<F: Field>(&self, x0: &F, phi: &[F], eps: &F, t: &Coef) -> F {
        let mean = self.attenuation.mean(x0, phi, t);
        F::lincomb(&[(1.0.into(), &mean), (t.map(|t| self.noise.sigma(t)), eps)])
    }

    /// σ̃ of q(x_s | x_t, x_0): σ_s √(σ_t² − σ_s²)/σ_t (Eq. 9); √(s' (t−s')/t) for σ = √t.
    pub fn sigma_tilde(&self, t: f64, s: f64) -> f64 {
        let (var_t, var_s) = (self.noise.variance(t), self.noise.variance(s));
        // Rounding can make the difference slightly negative for s close to t.
        (var_s * (var_t - var_s).max(0.0) / var_t).sqrt()
    }

    /// ũ = x_t + H_s − H_t − (σ_t² − σ_s²)/σ_t eps, the mean of q(x_s | x_t, x_0) for any s < t (Eq. 9).
    pub fn u_tilde<F: Field>(&self, x_t: &F, phi: &[F], eps: &F, t: f64, s: f64) -> F {
        let (H_t, H_s) = (self.H(phi, t), self.H(phi, s));
        let (var_t, var_s) = (self.noise.variance(t), self.noise.variance(s));
        F::lincomb(&[
            (1.0.into(), x_t),
            (1.0.into(), &H_s),
            ((-1.0).into(), &H_t),
            ((-(var_t - var_s) / var_t.sqrt()).into(), eps),
        ])
    }

    /// The DDIM-η family (§3.3): x_s = anchor + H_s(phi) + √(σ_s² − η²σ̃²) eps + η σ̃ z. η = 0 is deterministic, η = 1 the
    /// bridge of Alg. 2. Without `z` the mean is returned.
    pub fn ddim<F: Field>(&self, from: &Estimate<F>, z: Option<&F>, eta: f64, t: f64, s: f64) -> F {
        let deviation = eta * self.sigma_tilde(t, s);
        let eps_coef = (self.noise.variance(s) - deviation * deviation).max(0.0).sqrt();
        let H_s = self.H(&from.phi, s);
        let mut terms = vec![(1.0.into(), &from.anchor), (1.0.into(), &H_s), (eps_coef.into(), &from.eps)];
        terms.extend(z.filter(|_| deviation > 0.0).map(|z| (deviation.into(), z)));
        F::lincomb(&terms)
    }

    /// H_t(phi) at one time.
    pub fn H<F: Field>(&self, phi: &[F], t: f64) -> F {
        self.attenuation.H(phi, &t.into())
    }

    /// The two estimates of x_0 (§10.3): x̂_0^φ = −H_1(phi), and from both heads x̂_0 = x_t − H_t(phi) − σ_t eps.
    pub fn x0_estimates<F: Field>(&self, x_t: &F, phi: &[F], eps: &F, t: &Coef) -> (F, F) {
        let from_phi = self.H(phi, 1.0).scale(-1.0);
        let H_t = self.attenuation.H(phi, t);
        let sigma = t.map(|t| -self.noise.sigma(t));
        (from_phi, F::lincomb(&[(1.0.into(), x_t), ((-1.0).into(), &H_t), (sigma, eps)]))
    }
}

impl ProcessFn for Adm {
    fn extra(&self) -> Extra {
        Extra { phi: self.drawn_parts(), velocity: false }
    }
    fn input(&self, t: f64) -> Input {
        let scalings = self.scalings(t);
        Input { scale: scalings.c_in, noise: self.time_input.noise(self, t, scalings.c_noise) }
    }
    /// The scalings already use ln t, with the factor of the preconditioner's authors. Other numbers are brought from the range
    /// of 0 to 999 to that of 0 to 1, which random frequencies resolve as well as that of ln t.
    fn log_time_input(&self, t: f64) -> Input {
        let input = self.input(t);
        if self.time_input == TimeInput::Log { input } else { Input { noise: input.noise / TIME_RANGE, ..input } }
    }
    fn training_time(&self, uniform: f64, _normal: f64) -> f64 {
        self.t_min + (1.0 - self.t_min) * uniform
    }
    fn sampler(&self) -> &'static str {
        // The only process whose default is not its paper's sampler: AB2 needs one evaluation per step as Alg. 2
        // does, but is of second order (§10.2).
        "ab2"
    }
    fn gaussian(&self) -> Option<&dyn GaussianFn> {
        (self.attenuation == Attenuation::Constant).then_some(&self.noise)
    }
    fn validate(&self) -> Vec<Problem> {
        let mut problems = vec![];
        if !(self.t_min > 0.0 && self.t_min < 1.0) {
            problems.push(Problem::new("t_min", format!("must be between 0 and 1, not {}", self.t_min)));
        }
        if self.precond == Precond::Velocity && self.attenuation != Attenuation::Constant {
            let message = format!(
                "velocity needs constant attenuation, whose phi is −x_0; use optimal for {}",
                self.attenuation.name()
            );
            problems.push(Problem::new("precond.kind", message));
        }
        problems.extend(self.precond.validate().into_iter().map(|problem| problem.within("precond")));
        problems
    }
}

/// Constant attenuation in the form x_t = α_t x_0 + σ_t eps: α_t = 1 − t, σ_t = √t or t (§1.2, §10.1). The coefficients
/// depend on the noise scale alone.
impl GaussianFn for NoiseScale {
    fn alpha(&self, t: f64) -> f64 {
        1.0 - t
    }
    fn sigma(&self, t: f64) -> f64 {
        NoiseScale::sigma(*self, t)
    }
    fn rates(&self, t: f64) -> (f64, f64) {
        // The Markov SDE with the same marginals as the process (§1.1); it is singular at t = 1.
        let f = -1.0 / (1.0 - t);
        (f, self.variance_slope(t) - 2.0 * f * self.variance(t))
    }
    fn t_end(&self) -> f64 {
        match self {
            // The reference's sigma_min: 0.01, and 0.001 for σ = t (§3.2).
            NoiseScale::Sqrt => self.time(0.01),
            NoiseScale::Linear => self.time(0.001),
        }
    }
    /// The eps head alone, the paper's "attenuation without image supervision" (Table 6).
    fn target(&self, _t: f64) -> Target {
        Target::EPS
    }
}
