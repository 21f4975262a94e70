//! The registered processes: one file and one line each.
use super::{Ddpm, Edm, Flow, Input, PathFn, Ve, Vp};
use crate::cld::Cld;
use crate::{GridKind, NoiseScale};
use serde::{Deserialize, Serialize};

/// What the network's outputs are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// One: the target of its process; the mean of both where there are two decoders.
    One,
    /// Two: the target, and x_0 (Sec. IV-A).
    WithX0,
    /// One, mixed with what would be right for normal data: eps = (1−m) σ_t x_t + m F with m learnt for each channel.
    Mixed,
}

/// One line a process: variant, options, name, outputs.
macro_rules! registry {
    ($($(#[$doc:meta])* $Kind:ident($Options:ty) = $tag:literal, $output:ident;)*) => {
        /// A process to compare with; the `[baseline]` section.
        #[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(tag = "kind")]
        pub enum Baseline {
            $($(#[$doc])* #[serde(rename = $tag)] $Kind($Options),)*
            /// Critically damped Langevin diffusion: a velocity carries the noise; the network sees both.
            #[serde(rename = "cld")]
            Cld(Cld),
        }

        /// A process of the form x_t = α_t x_0 + σ_t eps.
        #[derive(Clone, Copy, Debug, PartialEq)]
        pub enum Path {
            $($(#[$doc])* $Kind($Options),)*
            /// Constant attenuation as such a process, for the samplers that know only (α_t, σ_t).
            Adm(NoiseScale),
        }

        impl Path {
            /// Every process with its published constants.
            pub fn all() -> Vec<Self> {
                let adm = NoiseScale::ALL.iter().copied().map(Self::Adm);
                [$(Self::$Kind(<$Options>::default())),*].into_iter().chain(adm).collect()
            }

            /// The name used in tables.
            pub fn name(&self) -> &'static str {
                match self { $(Self::$Kind(_) => $tag,)* Self::Adm(_) => "adm" }
            }

            pub(super) fn process(&self) -> &dyn PathFn {
                match self { $(Self::$Kind(p) => p,)* Self::Adm(noise) => noise }
            }
        }

        impl Baseline {
            /// Every process with its published constants.
            pub fn all() -> Vec<Self> {
                vec![$(Self::$Kind(<$Options>::default()),)* Self::Cld(Cld::default())]
            }

            /// The name used in configurations and tables.
            pub fn name(&self) -> &'static str {
                match self { $(Self::$Kind(_) => $tag,)* Self::Cld(_) => "cld" }
            }

            /// What the network's outputs are.
            pub fn output(&self) -> Output {
                match self { $(Self::$Kind(_) => Output::$output,)* Self::Cld(_) => Output::One }
            }

            /// The process as (α_t, σ_t), if it is one of these.
            pub fn path(&self) -> Option<Path> {
                match *self { $(Self::$Kind(p) => Some(Path::$Kind(p)),)* Self::Cld(_) => None }
            }

            fn law(&self) -> Result<&dyn PathFn, &Cld> {
                match self { $(Self::$Kind(p) => Ok(p),)* Self::Cld(cld) => Err(cld) }
            }
        }
    };
}

registry! {
    /// DDPM: 1000 discrete times, eps is predicted. With `[latent]` and the schedule `scaled-linear` it is LDM.
    Ddpm(Ddpm) = "ddpm", One;
    /// DDPM with a second output for x_0.
    DdpmX0(Ddpm) = "ddpm-x0", WithX0;
    /// Score-SDE, variance preserving.
    Vp(Vp) = "vp", One;
    /// Score-SDE, variance exploding.
    Ve(Ve) = "ve", One;
    /// EDM: σ is the time, preconditioned.
    Edm(Edm) = "edm", One;
    /// Rectified flow: a straight line, velocity prediction.
    Flow(Flow) = "flow", One;
    /// LSGM: variance preserving on latents, with a mixed score.
    Lsgm(Vp) = "lsgm", Mixed;
}

impl Baseline {
    /// The scale of the network's input and the time as it sees it.
    pub fn input(&self, t: f64) -> Input {
        self.law().map_or_else(|cld| cld.input(t), |path| path.input(t))
    }

    /// A training time from one uniform and one normal number.
    pub fn training_time(&self, uniform: f64, normal: f64) -> f64 {
        self.law().map_or_else(|cld| cld.training_time(uniform), |path| path.training_time(uniform, normal))
    }

    /// The name of the sampler that its paper uses.
    pub fn sampler(&self) -> &'static str {
        self.law().map_or("sscs", |path| path.sampler())
    }

    /// The times that its paper uses, but for CLD's extra evaluation at 1e-3.
    pub fn grid(&self) -> GridKind {
        self.law().map_or(GridKind::UniformSqrt, |path| path.grid())
    }

    /// How many times the channels of an image the network reads: CLD's velocity has as many.
    pub fn inputs(&self) -> usize {
        if matches!(self, Self::Cld(_)) { 2 } else { 1 }
    }

    /// All that is wrong with its options, each message beginning with the option.
    pub fn problems(&self) -> Vec<String> {
        let options = self.law().map_or_else(Cld::options, PathFn::options);
        let mut problems: Vec<String> = (options.iter())
            .filter(|(_, value)| !(*value > 0.0 && value.is_finite()))
            .map(|(name, value)| format!("{name} must be positive, not {value}"))
            .collect();
        for pair in options.windows(2).filter(|pair| pair[0].0.ends_with("_min")) {
            let [(low, a), (high, b)] = [pair[0], pair[1]];
            if a >= b {
                problems.push(format!("{low} must be below {high} = {b}, not {a}"));
            }
        }
        if let Self::Edm(edm) = self
            && (edm.log_mean.is_nan() || edm.log_mean.abs() > 50.0)
        {
            problems.push(format!("log_mean is the logarithm of a noise level: from -50 to 50, not {}", edm.log_mean));
        }
        problems
    }
}
