//! Which samplers fit which process, and what each process is sampled with unless something else is asked for.
use super::cld::{CldProblem, VelocityScore};
use super::path::{Denoise, PathProblem};
use super::{Heads, Hooks, Predict, Problem, Sampler};
use crate::error::{Error, Result};
use crossfade_math::cld::Cld;
use crossfade_math::path::{Baseline, Pair, Path, PathFn};
use crossfade_math::{Attenuation, AttenuationFn, Blend, Grid, GridKind, Process};

/// The process that a network was trained for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Law {
    /// Attenuation.
    Attenuation(Process),
    /// A process of the form x_t = α_t x_0 + σ_t eps.
    Path(Baseline, Path),
    /// Critically damped Langevin diffusion.
    Cld(Cld),
}

impl serde::Serialize for Law {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl Law {
    /// The law of a run: attenuation, or the baseline in its place.
    pub fn new(process: Process, baseline: Option<Baseline>) -> Self {
        match baseline {
            None => Self::Attenuation(process),
            Some(Baseline::Cld(cld)) => Self::Cld(cld),
            Some(other) => other.path().map_or(Self::Attenuation(process), |path| Self::Path(other, path)),
        }
    }

    /// The name used in tables.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Attenuation(_) => "adm",
            Self::Path(baseline, _) => baseline.name(),
            Self::Cld(_) => "cld",
        }
    }

    /// (α_t, σ_t), which constant attenuation has too.
    pub fn path(&self) -> Option<Path> {
        match self {
            Self::Attenuation(p) => (p.attenuation == Attenuation::Constant).then_some(Path::Adm(p.noise)),
            Self::Path(_, path) => Some(*path),
            Self::Cld(_) => None,
        }
    }

    /// Whether a sampler can run on it.
    pub fn fits(&self, sampler: Sampler) -> bool {
        let loops = sampler.loops::<f64>();
        let by_path = |path: Path| loops.path.is_some() && (path.alpha(1.0) > 0.0 || !sampler.needs_signal_at_start());
        match self {
            Self::Attenuation(_) if loops.attenuation.is_some() => true,
            Self::Cld(_) => loops.cld.is_some(),
            _ => self.path().is_some_and(by_path),
        }
    }

    /// Whether a sampler runs on it through the formulas of attenuation.
    pub fn is_native(&self, sampler: Sampler) -> bool {
        matches!(self, Self::Attenuation(_)) && sampler.loops::<f64>().attenuation.is_some()
    }

    /// Whether its heads can be blended so: those of attenuation in any way, DDPM's x_0 and eps as one of them or, by
    /// `heads`, as their mean; others have nothing to blend.
    pub fn blends(&self, blend: &Blend) -> bool {
        match self {
            Self::Attenuation(_) => true,
            Self::Path(Baseline::DdpmX0(_), _) => matches!(blend, Blend::Heads | Blend::Phi | Blend::Eps),
            _ => *blend == Blend::Heads,
        }
    }

    /// Every sampler that can run on it.
    pub fn samplers(&self) -> Vec<Sampler> {
        Sampler::ALL.iter().copied().filter(|s| self.fits(*s)).collect()
    }

    /// The sampler itself, or for `auto` that of the process; an error lists those that fit.
    pub fn sampler(&self, wanted: Sampler) -> Result<Sampler> {
        let own = match self {
            Self::Attenuation(_) => Sampler::Ab2,
            Self::Path(baseline, _) => Sampler::parse(baseline.sampler())?,
            Self::Cld(_) => Sampler::Sscs,
        };
        let sampler = if wanted == Sampler::Auto { own } else { wanted };
        if self.fits(sampler) {
            return Ok(sampler);
        }
        let fitting: Vec<_> = self.samplers().iter().map(|s| s.name()).collect();
        Err(Error::request(format!(
            "the sampler {} does not fit the process {}; those that do: {}",
            sampler.name(),
            self.name(),
            fitting.join(", ")
        )))
    }

    /// The family of times for `auto`: what the papers of process and sampler have.
    fn own_grid(&self, sampler: Sampler) -> GridKind {
        let path = match self {
            Self::Path(_, path) => path,
            Self::Attenuation(_) => return GridKind::UniformT,
            Self::Cld(_) => return GridKind::UniformSqrt,
        };
        match (path.grid(), sampler) {
            // DDIM's sequence for CIFAR-10.
            (_, Sampler::Ddim) if path.tick().is_some() => GridKind::UniformSqrt,
            // Where α_1 = 0, ln(α/σ) has no beginning and few steps would spend theirs near it.
            (GridKind::UniformT, Sampler::Dpmpp2M | Sampler::UniPc | Sampler::Heun | Sampler::HeunChurn)
                if path.tick().is_none() && path.alpha(1.0) > 0.0 =>
            {
                GridKind::LogSnr
            }
            (own, _) => own,
        }
    }

    /// The family of times that is meant: what is asked for, or for `auto` what suits.
    pub fn grid(&self, wanted: &GridKind, sampler: Sampler) -> GridKind {
        if *wanted == GridKind::Auto { self.own_grid(sampler) } else { wanted.clone() }
    }

    /// The times of `steps` steps, from 1 to 0.
    pub fn times(&self, grid: &Grid, sampler: Sampler, steps: usize) -> Result<Vec<f64>> {
        let grid = Grid { kind: self.grid(&grid.kind, sampler), final_t: grid.final_t };
        let times = match self.path() {
            Some(path) => grid.times_on(&path, steps),
            None => grid.times(steps),
        };
        times.map_err(Error::Request)
    }
}

/// A network that says nothing, to count how often it is asked.
struct Silent {
    parts: usize,
}

impl Predict<f64> for Silent {
    fn predict(&self, _: &f64, _: f64) -> Result<Heads<f64>> {
        Ok(Heads { phi: vec![0.0; self.parts], eps: 0.0 })
    }
}

impl Denoise<f64> for Silent {
    fn denoise(&self, _: &f64, _: f64) -> Result<Pair<f64>> {
        Ok(Pair { x0: 0.0, eps: 0.0 })
    }
}

impl VelocityScore<f64> for Silent {
    fn score(&self, _: &f64, _: &f64, _: f64) -> Result<f64> {
        Ok(0.0)
    }
}

impl Law {
    /// How often a sampler evaluates the network: it runs on a single number.
    pub fn evaluations(&self, sampler: Sampler, times: &[f64]) -> Result<usize> {
        let mut hooks = Hooks { noise: &mut |_| 0.0, observe: &mut |_| () };
        let process = if let Self::Attenuation(process) = self { *process } else { Process::default() };
        let net = Silent { parts: process.attenuation.parts() };
        let sampled = match (self, self.path()) {
            (Self::Cld(cld), _) => sampler.run(&CldProblem::new(&net, *cld), times, (0.0, 0.0), &mut hooks),
            (_, Some(path)) if !self.is_native(sampler) => {
                sampler.run(&PathProblem::new(&net, path), times, 1.0, &mut hooks)
            }
            _ => sampler.run(&Problem::new(&net, process), times, 1.0, &mut hooks),
        };
        Ok(sampled?.nfe)
    }

    /// The largest number of steps that takes at most `most` evaluations; one if that takes more.
    pub fn steps_within(&self, grid: &Grid, sampler: Sampler, most: usize) -> Result<usize> {
        let taken = |steps: usize| self.evaluations(sampler, &self.times(grid, sampler, steps)?);
        // The last step, and for some the first, takes fewer evaluations; an extra one at the end of the grid takes more.
        let mut steps = (most / sampler.evaluations_per_step()).max(1);
        while steps < most && taken(steps + 1).is_ok_and(|n| n <= most) {
            steps += 1;
        }
        while steps > 1 && taken(steps)? > most {
            steps -= 1;
        }
        Ok(steps)
    }
}
