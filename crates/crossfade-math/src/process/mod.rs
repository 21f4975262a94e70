//! The forward processes: one file and one line of the registry each.
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

pub use adm::{Adm, Draw};
pub use cld::{Cld, Cov2, Mat2};
pub use ddpm::{BetaSchedule, Ddpm};
pub use edm::Edm;
pub use flow::Flow;
pub use gaussian::{Gaussian, GaussianFn, Prediction, Target};
pub use ve::Ve;
pub use vp::Vp;

use crate::{Blend, Coef, Field, GridKind, Problem, registry};

/// What defines a process beside its forward marginal. Times run from 1 (noise) to 0 (data).
pub trait ProcessFn {
    /// The scale of the network's input and the time as the network reads it.
    fn input(&self, t: f64) -> Input;

    /// As [`ProcessFn::input`] for networks that embed times by random frequencies: those cannot tell thousandths apart and
    /// read ln t whatever the process is.
    fn log_time_input(&self, t: f64) -> Input {
        Input { noise: t.max(SMALLEST_LOG_TIME).ln(), ..self.input(t) }
    }

    /// A training time from one uniform and one normal number.
    fn training_time(&self, uniform: f64, normal: f64) -> f64;

    /// The name of the sampler that `auto` stands for: the one that its paper uses.
    fn sampler(&self) -> &'static str;

    /// The times that `auto` stands for: those that its paper uses.
    fn grid(&self) -> GridKind {
        GridKind::UniformT
    }

    /// The coefficients of x_t = α_t x_0 + σ_t eps, if the process has this form.
    fn gaussian(&self) -> Option<&dyn GaussianFn> {
        None
    }

    /// Standard normals of the shape of x_0 that the forward process needs beside eps.
    fn extra(&self) -> Extra {
        Extra::default()
    }

    /// All that is wrong with its options.
    fn validate(&self) -> Vec<Problem> {
        vec![]
    }
}

/// The smallest time whose logarithm is given to a network.
const SMALLEST_LOG_TIME: f64 = 1e-6;

/// c_in and c_noise.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Input {
    /// Multiplies x_t before the network.
    pub scale: f64,
    /// The time as the network reads it.
    pub noise: f64,
}

/// Standard normals that a forward process needs beside eps.
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
    /// phi_hat and eps_hat, each inside its scalings; one decoder gives both.
    Heads,
    /// The target of the process; the mean of both outputs where there are two decoders.
    Target,
    /// The target, and x_0 by a second output (Sec. IV-A).
    TargetAndX0,
    /// The target mixed with what would be right for normal data: eps = (1−m) σ_t x_t + m F with m learnt for each channel.
    MixedTarget,
}

/// x_0 carried to its times by a process.
#[derive(Clone, Debug)]
pub struct Forward<F> {
    /// The parts of phi; none but for attenuation.
    pub phi: Vec<F>,
    /// What the network reads: x_t, and the velocity of CLD behind it.
    pub state: Vec<F>,
}

registry! {
    /// A process; the `[process]` section.
    #[derive(Copy)]
    pub enum Process("process", tag = "kind", dispatch = each_process) {
        /// Analytical image attenuation: the paper's process.
        Adm(Adm) = "adm" => Outputs::Heads,
        /// DDPM: 1000 discrete times, eps is predicted. With `[latent]` and the schedule `scaled-linear` it is LDM.
        Ddpm(Ddpm) = "ddpm" => Outputs::Target,
        /// DDPM with a second output for x_0.
        DdpmX0(Ddpm) = "ddpm-x0" => Outputs::TargetAndX0,
        /// Score-SDE, variance preserving.
        Vp(Vp) = "vp" => Outputs::Target,
        /// Score-SDE, variance exploding.
        Ve(Ve) = "ve" => Outputs::Target,
        /// EDM: σ is the time, preconditioned.
        Edm(Edm) = "edm" => Outputs::Target,
        /// Rectified flow: a straight line, velocity prediction.
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

    /// The view that samplers of (α_t, σ_t) use; none for CLD and for attenuations other than the constant one.
    pub fn gaussian(&self) -> Option<Gaussian> {
        Gaussian::new(*self)
    }

    /// The attenuation with its formulas, for what only attenuation has: two heads to blend and weigh.
    pub fn adm(&self) -> Option<&Adm> {
        if let Self::Adm(adm) = self { Some(adm) } else { None }
    }

    /// How many times the channels of an image the network reads: CLD's velocity has as many.
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

    /// Whether it is defined on the latents of an autoencoder only: LSGM mixes with a normal score, which fits latents.
    pub fn needs_latents(&self) -> bool {
        matches!(self, Self::Lsgm(_))
    }

    /// Whether the network's outputs can be blended so: the heads of attenuation in any way, DDPM's x_0 and eps as one of them
    /// or, by `heads`, as their mean; others have nothing to blend.
    pub fn blends(&self, blend: &Blend) -> bool {
        match self.outputs() {
            Outputs::Heads => true,
            Outputs::TargetAndX0 => matches!(blend, Blend::Heads | Blend::Phi | Blend::Eps),
            Outputs::Target | Outputs::MixedTarget => *blend == Blend::Heads,
        }
    }

    /// The state at time t and the parts of phi, from x_0, the noise and the extra normals in the order of [`Extra`].
    ///
    /// `eps` is what the network is to predict: for CLD the normal of the velocity, beside which x has one of its own.
    pub fn forward<F: Field>(&self, x0: &F, eps: &F, extra: &[F], t: &Coef) -> Forward<F> {
        match (self, self.gaussian(), extra) {
            (Self::Adm(adm), ..) => {
                let phi = adm.phi(x0, extra);
                let x_t = adm.x_t(x0, &phi, eps, t);
                Forward { phi, state: vec![x_t] }
            }
            (Self::Cld(cld), _, [of_x, ..]) => {
                let row = |k: usize| {
                    let c = |j: usize| t.map(|t| cld.forward(t)[k][j]);
                    F::lincomb(&[(c(0), x0), (c(1), of_x), (c(2), eps)])
                };
                Forward { phi: vec![], state: vec![row(0), row(1)] }
            }
            (_, Some(gaussian), _) => Forward { phi: vec![], state: vec![gaussian.x_t(x0, eps, t)] },
            _ => panic!("{} needs {:?} extra normals, got {}", self.name(), self.extra(), extra.len()),
        }
    }

    /// What the first output of the network is trained to be, where [`Outputs`] has a target: a·x_0 + b·eps, or the normal
    /// of CLD's velocity.
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

/// Options that must be positive and finite; one whose name ends in `_min` must be below the one that follows it.
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
