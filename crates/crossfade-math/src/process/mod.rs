//! The forward processes: one file and one registry line for each.
//!
//! A [`Process`] owns everything that training and sampling need to know about it: how training times are drawn, how x_0
//! becomes x_t, what the network reads and what its outputs mean, and which sampler and times its paper uses. Callers ask
//! the process and do not branch on its kind. Two views exist because samplers are written for them: [`Gaussian`] for
//! every process of the form x_t = α_t x_0 + σ_t eps, and [`Cld`], whose state has a velocity.
mod adm;
mod cld;
mod ddpm;
mod edm;
mod flow;
mod gaussian;
mod ve;
mod vp;

pub use adm::{Adm, Draw, TimeInput};
pub use cld::{Cld, Cov2, Mat2};
pub use ddpm::{BetaSchedule, Ddpm};
pub use edm::Edm;
pub use flow::Flow;
pub use gaussian::{Gaussian, GaussianFn, Prediction, Target};
pub use ve::Ve;
pub use vp::Vp;

use crate::{AttenuationFn, Blend, Coef, Field, GridKind, Problem, registry};

/// What defines a process in addition to its forward marginal. Times run from 1 (noise) to 0 (data).
pub trait ProcessFn {
    /// The scale of the network's input and the time as the network reads it.
    fn input(&self, t: f64) -> Input;

    /// As [`ProcessFn::input`] for networks with a random Fourier embedding of the time. That embedding is made for
    /// ln t and cannot resolve times counted in thousandths, so these networks read ln t, or for attenuation what
    /// `time_input` names as a number from 0 to 1.
    fn log_time_input(&self, t: f64) -> Input {
        Input { noise: t.max(SMALLEST_LOG_TIME).ln(), ..self.input(t) }
    }

    /// A training time from one uniform and one normal number.
    fn training_time(&self, uniform: f64, normal: f64) -> f64;

    /// The density of [`ProcessFn::training_time`] at t; uniform times have 1.
    fn time_density(&self, _t: f64) -> f64 {
        1.0
    }

    /// The name of the sampler that `auto` selects: the one of the paper that introduced the process.
    fn sampler(&self) -> &'static str;

    /// The time grid that `auto` selects: the one of the same paper.
    fn grid(&self) -> GridKind {
        GridKind::UniformT
    }

    /// The coefficients of x_t = α_t x_0 + σ_t eps, if the process has this form.
    fn gaussian(&self) -> Option<&dyn GaussianFn> {
        None
    }

    /// How many standard normals of the shape of x_0 the forward process needs in addition to eps.
    fn extra(&self) -> Extra {
        Extra::default()
    }

    /// All that is wrong with its options.
    fn validate(&self) -> Vec<Problem> {
        vec![]
    }
}

/// Times are limited to this value before the logarithm is taken, so that the network never reads −∞.
const SMALLEST_LOG_TIME: f64 = 1e-6;

/// The network's input scaling c_in and its time input c_noise.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Input {
    /// Multiplies x_t before the network.
    pub scale: f64,
    /// The time as the network reads it.
    pub noise: f64,
}

/// How many standard normals a forward process needs in addition to eps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extra {
    /// One for each drawn part of phi.
    pub phi: usize,
    /// One for the velocity of CLD.
    pub velocity: bool,
}

/// What the network's outputs mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outputs {
    /// phi_hat and eps_hat, each with its own c_skip and c_out; a single decoder may output both.
    Heads,
    /// The target of the process. A network with two decoders averages their outputs.
    Target,
    /// The target, and x_0 as a second output (Sec. IV-A).
    TargetAndX0,
    /// The target mixed with the score of normal data: eps = (1−m) σ_t x_t + m F, with m learnt for each channel.
    MixedTarget,
}

/// The result of the forward process for a batch.
#[derive(Clone, Debug)]
pub struct Forward<F> {
    /// The parts of phi; empty for every process but attenuation.
    pub phi: Vec<F>,
    /// What the network reads: x_t, followed by the velocity for CLD.
    pub state: Vec<F>,
}

registry! {
    /// A process; the `[process]` section.
    #[derive(Copy)]
    pub enum Process("process", tag = "kind", dispatch = each_process) {
        /// Analytical image attenuation: the paper's process.
        Adm(Adm) = "adm" => Outputs::Heads,
        /// DDPM: 1000 discrete times, the network predicts eps. With `[latent]` and the schedule `scaled-linear` it
        /// is LDM.
        Ddpm(Ddpm) = "ddpm" => Outputs::Target,
        /// DDPM with a second output for x_0.
        DdpmX0(Ddpm) = "ddpm-x0" => Outputs::TargetAndX0,
        /// Score-SDE, variance preserving.
        Vp(Vp) = "vp" => Outputs::Target,
        /// Score-SDE, variance exploding.
        Ve(Ve) = "ve" => Outputs::Target,
        /// EDM: the time is σ, and the network is preconditioned.
        Edm(Edm) = "edm" => Outputs::Target,
        /// Rectified flow: a straight line from data to noise, velocity prediction.
        Flow(Flow) = "flow" => Outputs::Target,
        /// LSGM: variance preserving on latents, with a mixed score.
        Lsgm(Vp) = "lsgm" => Outputs::MixedTarget,
        /// Critically damped Langevin diffusion: a velocity carries the noise; the network reads both.
        Cld(Cld) = "cld" => Outputs::Target,
    }
}

impl Default for Process {
    fn default() -> Self {
        Self::Adm(Adm::default())
    }
}

impl From<Adm> for Process {
    fn from(adm: Adm) -> Self {
        Self::Adm(adm)
    }
}

impl Process {
    fn definition(&self) -> &dyn ProcessFn {
        each_process!(self, options process => process)
    }

    /// What the network's outputs mean.
    pub fn outputs(&self) -> Outputs {
        each_process!(self, entry outputs => outputs)
    }

    /// The (α_t, σ_t) view that the samplers use; `None` for CLD and for attenuations other than the constant one.
    pub fn gaussian(&self) -> Option<Gaussian> {
        Gaussian::new(*self)
    }

    /// The attenuation process, for code that needs what only attenuation has: two heads to blend and to weight.
    pub fn adm(&self) -> Option<&Adm> {
        if let Self::Adm(adm) = self { Some(adm) } else { None }
    }

    /// The network's input channels as a multiple of the image's: 2 for CLD, whose velocity has as many channels as
    /// x_t.
    pub fn inputs(&self) -> usize {
        if self.extra().velocity { 2 } else { 1 }
    }

    /// How many parts the first output of the network has, each with the channels of an image.
    pub fn phi_parts(&self) -> usize {
        self.extra().phi + 1
    }

    /// Whether x_0 is estimated on the way from noise to data; CLD estimates the score of the velocity instead.
    pub fn estimates_x0(&self) -> bool {
        !self.extra().velocity
    }

    /// Whether x_t is pure noise at t = 1 and the mean of the images determines the ideal outputs of the network there, so
    /// that its first evaluation can be saved (§3.5).
    pub fn first_step_is_known(&self) -> bool {
        match (self, self.gaussian()) {
            (Self::Adm(adm), _) => adm.attenuation.is_affine(),
            (_, Some(gaussian)) => gaussian.alpha(1.0) == 0.0,
            _ => false,
        }
    }

    /// Whether the process is only defined on the latents of an autoencoder: LSGM mixes with the score of normal
    /// data, which fits latents and not pixels.
    pub fn needs_latents(&self) -> bool {
        matches!(self, Self::Lsgm(_))
    }

    /// Whether the network's outputs can be blended in this way. The heads of attenuation allow every blend. DDPM
    /// with a second output allows either of x_0 and eps, or their mean (`heads`). The others have one output and
    /// nothing to blend.
    pub fn blends(&self, blend: &Blend) -> bool {
        match self.outputs() {
            Outputs::Heads => true,
            Outputs::TargetAndX0 => matches!(blend, Blend::Heads | Blend::Phi | Blend::Eps),
            Outputs::Target | Outputs::MixedTarget => *blend == Blend::Heads,
        }
    }

    /// The state at time t and the parts of phi, from x_0, the noise and the extra normals in the order of [`Extra`].
    ///
    /// `eps` is the noise that the network predicts. For CLD this is the normal of the velocity; x has a normal of
    /// its own, which is the extra one.
    pub fn forward<F: Field>(&self, x0: &F, eps: &F, extra: &[F], t: &Coef) -> Forward<F> {
        match (self, self.gaussian(), extra) {
            (Self::Adm(adm), ..) => {
                let phi = adm.phi(x0, extra);
                let x_t = adm.x_t(x0, &phi, eps, t);
                Forward { phi, state: vec![x_t] }
            }
            (Self::Cld(cld), _, [normal_x, ..]) => {
                // (x_t, v_t) is one linear map of (x_0, eps_x, eps_v): the Cholesky factor of the 2x2 covariance.
                let row = |k: usize| {
                    let c = |j: usize| t.map(|t| cld.forward(t)[k][j]);
                    F::lincomb(&[(c(0), x0), (c(1), normal_x), (c(2), eps)])
                };
                Forward { phi: vec![], state: vec![row(0), row(1)] }
            }
            (_, Some(gaussian), _) => Forward { phi: vec![], state: vec![gaussian.x_t(x0, eps, t)] },
            // A bug of the caller: `extra` states how many normals are needed.
            _ => panic!("{} needs {:?} extra normals, got {}", self.name(), self.extra(), extra.len()),
        }
    }

    /// The target of the network's first output, where [`Outputs`] has a target: a·x_0 + b·eps, or the normal of
    /// CLD's velocity.
    pub fn raw_target<F: Field>(&self, x0: &F, eps: &F, t: &Coef) -> F {
        self.gaussian().map_or_else(|| eps.clone(), |gaussian| gaussian.raw_target(x0, eps, t))
    }
}

impl ProcessFn for Process {
    fn input(&self, t: f64) -> Input {
        self.definition().input(t)
    }
    fn log_time_input(&self, t: f64) -> Input {
        self.definition().log_time_input(t)
    }
    fn training_time(&self, uniform: f64, normal: f64) -> f64 {
        self.definition().training_time(uniform, normal)
    }
    fn time_density(&self, t: f64) -> f64 {
        self.definition().time_density(t)
    }
    fn sampler(&self) -> &'static str {
        self.definition().sampler()
    }
    fn grid(&self) -> GridKind {
        self.definition().grid()
    }
    fn gaussian(&self) -> Option<&dyn GaussianFn> {
        self.definition().gaussian()
    }
    fn extra(&self) -> Extra {
        self.definition().extra()
    }
    fn validate(&self) -> Vec<Problem> {
        self.definition().validate()
    }
}

/// Reports options that are not positive and finite, and every option named `…_min` that is not below the one after
/// it.
fn check_options(options: &[(&str, f64)]) -> Vec<Problem> {
    let bad = options.iter().filter(|(_, value)| !(*value > 0.0 && value.is_finite()));
    let mut problems: Vec<Problem> =
        bad.map(|(name, value)| Problem::new(*name, format!("must be positive, not {value}"))).collect();
    for pair in options.windows(2).filter(|pair| pair[0].0.ends_with("_min")) {
        let [(low, a), (high, b)] = [pair[0], pair[1]];
        if a >= b {
            problems.push(Problem::new(low, format!("must be below {high} = {b}, not {a}")));
        }
    }
    problems
}
