//! The registered samplers: one line each.
use super::cld::{self, CldProblem};
use super::gaussian::{GaussianProblem, ddim, euler, heun, multistep};
use super::{AttenuationProblem, Hooks, ab2, alg2, data2m, first_order, midpoint, predictor_corrector, reference_heun};
use crate::error::Result;
use crossfade_math::{Field, registry};

/// A loop over `times` (descending, first 1, last 0) from the state at time 1.
type Loop<P, S, F> = fn(&P, &[f64], S, &mut Hooks<F>) -> Result<F>;

/// A sampler's loops, one for each form in which a process can be known.
pub(super) struct Loops<'a, F> {
    /// By phi and eps: attenuation.
    pub attenuation: Option<Loop<AttenuationProblem<'a, F>, F, F>>,
    /// By (α_t, σ_t): x_t = α_t x_0 + σ_t eps.
    pub gaussian: Option<Loop<GaussianProblem<'a, F>, F, F>>,
    /// By the score of a velocity: CLD.
    pub cld: Option<Loop<CldProblem<'a, F>, (F, F), F>>,
}

/// What a line of the registry says of a sampler.
struct Entry<'a, F> {
    order: u32,
    evaluations_per_step: usize,
    is_stochastic: bool,
    revision: u32,
    needs_signal_at_start: bool,
    loops: Loops<'a, F>,
}

/// A sampler without noise, of that order of convergence, that evaluates the network once a step.
fn deterministic<'a, F>(order: u32) -> Entry<'a, F> {
    let loops = Loops { attenuation: None, gaussian: None, cld: None };
    Entry { order, evaluations_per_step: 1, is_stochastic: false, revision: 1, needs_signal_at_start: false, loops }
}

/// A sampler that adds noise, of that order of convergence in distribution.
fn stochastic<'a, F>(order: u32) -> Entry<'a, F> {
    Entry { is_stochastic: true, ..deterministic(order) }
}

impl<'a, F> Entry<'a, F> {
    fn evaluations(self, evaluations_per_step: usize) -> Self {
        Self { evaluations_per_step, ..self }
    }

    /// States that the same network makes other images than by revision 1; see [`Sampler::revision`].
    #[allow(dead_code, reason = "no sampler was changed since revisions are counted")]
    fn revision(self, revision: u32) -> Self {
        Self { revision, ..self }
    }

    /// Its first step divides by α_1: no process that ends in pure noise can use it.
    fn needs_signal_at_start(self) -> Self {
        Self { needs_signal_at_start: true, ..self }
    }

    fn attenuation(mut self, run: Loop<AttenuationProblem<'a, F>, F, F>) -> Self {
        self.loops.attenuation = Some(run);
        self
    }

    fn gaussian(mut self, run: Loop<GaussianProblem<'a, F>, F, F>) -> Self {
        self.loops.gaussian = Some(run);
        self
    }

    fn cld(mut self, run: Loop<CldProblem<'a, F>, (F, F), F>) -> Self {
        self.loops.cld = Some(run);
        self
    }
}

registry! {
    /// The registered samplers.
    #[derive(Copy, Eq, Default)]
    pub enum Sampler("sampler", dispatch = each_sampler) {
        /// The paper's Alg. 2: the bridge with both heads.
        Alg2 = "alg2" => stochastic(1).attenuation(alg2::alg2),
        /// Deterministic, first order: DDIM on this process, the reference's default.
        FirstOrder = "first-order" => deterministic(1).attenuation(|p, times, x, hooks| first_order::ddim(p, times, x, hooks, 0.0)),
        /// DDIM with η = ½, halfway between deterministic and Alg. 2.
        DdimHalf = "ddim-half" => stochastic(1).attenuation(|p, times, x, hooks| first_order::ddim(p, times, x, hooks, 0.5)),
        /// Second-order multistep on both heads (Adams–Bashforth).
        Ab2 = "ab2" => deterministic(2).attenuation(ab2::ab2),
        /// Second-order multistep on the estimate of x_0.
        Data2M = "data-2m" => deterministic(2).attenuation(data2m::data2m),
        /// Predictor–corrector: AB2 and AM3 at one evaluation a step, guarded against amplification.
        PredictorCorrector = "pc" => deterministic(3).attenuation(predictor_corrector::predictor_corrector),
        /// Alg. 2 of second order: the bridge with a linear estimate of x_0.
        Alg2Second = "alg2-second" => stochastic(2).attenuation(data2m::alg2_second),
        /// Single-step second order, two evaluations a step.
        Midpoint = "midpoint" => deterministic(2).evaluations(2).attenuation(midpoint::midpoint),
        /// The older release's Heun with bridge noise, two evaluations a step; kept for comparison.
        ReferenceHeun = "reference-heun" => stochastic(1).evaluations(2).attenuation(reference_heun::reference_heun),
        /// DDIM with the requested η, 0 by default; Euler in κ = σ/α.
        Ddim = "ddim" => deterministic(1).gaussian(|p, times, x, hooks| ddim::ddim(p, times, x, hooks, p.eta)),
        /// DDPM's own, on any subset of times: the posterior with variance β̃, which is η = 1.
        Ancestral = "ancestral" => stochastic(1).gaussian(|p, times, x, hooks| ddim::ddim(p, times, x, hooks, 1.0)),
        /// The same with variance β.
        AncestralLarge = "ancestral-large" => stochastic(1).gaussian(ddim::ancestral_large),
        /// Euler–Maruyama on the reverse equation, the paper's choice for most baselines.
        EulerMaruyama = "euler-maruyama"
            => stochastic(1).needs_signal_at_start().gaussian(euler::euler_maruyama).cld(cld::euler_maruyama),
        /// Euler–Maruyama in κ.
        KappaMaruyama = "kappa-maruyama" => stochastic(1).needs_signal_at_start().gaussian(euler::kappa_maruyama),
        /// Score-SDE's predictor: the chain's own transition, reversed.
        ReverseDiffusion = "reverse-diffusion" => stochastic(1).needs_signal_at_start().gaussian(euler::reverse_diffusion),
        /// Euler in t on the probability flow.
        ProbabilityFlow = "probability-flow" => deterministic(1).needs_signal_at_start().gaussian(euler::probability_flow),
        /// EDM's Heun, deterministic.
        Heun = "heun"
            => deterministic(2).evaluations(2).gaussian(|p, times, x, hooks| heun::heun(p, times, x, hooks, &heun::Churn::NONE)),
        /// EDM's Heun with churn, by default that of its CIFAR-10 runs.
        HeunChurn = "heun-churn"
            => stochastic(1).evaluations(2).gaussian(|p, times, x, hooks| heun::heun(p, times, x, hooks, &p.churn)),
        /// DPM-Solver++(2M).
        Dpmpp2M = "dpmpp-2m" => deterministic(2).gaussian(multistep::dpmpp_2m),
        /// UniPC-2 with data prediction: a predictor of second order, which the corrector makes third.
        UniPc = "unipc" => deterministic(3).gaussian(multistep::unipc),
        /// CLD's symmetric splitting: half an exact step without the score, a whole step of the score, the other half.
        Sscs = "sscs" => stochastic(1).cld(cld::sscs),
    }
    placeholder {
        /// The sampler that suits the process.
        #[default]
        Auto = "auto" => deterministic(0),
    }
}

impl Sampler {
    fn entry<'a, F: Field>(self) -> Entry<'a, F> {
        each_sampler!(self, entry e => e)
    }

    /// The order of convergence on a grid that suits it (for attenuation: constant, uniform in √t); of the distribution
    /// where it draws noise.
    pub fn order(self) -> u32 {
        self.entry::<f64>().order
    }

    /// Network evaluations a step, at most.
    pub fn evaluations_per_step(self) -> usize {
        self.entry::<f64>().evaluations_per_step
    }

    /// Whether it adds noise in its steps.
    pub fn is_stochastic(self) -> bool {
        self.entry::<f64>().is_stochastic
    }

    /// A number that must be raised with every change after which the same network makes other images by this sampler.
    /// Results of studies are kept under a hash of it, so that a corrected sampler does not present old values as its own.
    pub fn revision(self) -> u32 {
        self.entry::<f64>().revision
    }

    /// Whether it steps in t or κ from the very start, which needs a trace of the image there: α_1 > 0.
    pub(super) fn needs_signal_at_start(self) -> bool {
        self.entry::<f64>().needs_signal_at_start
    }

    pub(super) fn loops<'a, F: Field>(self) -> Loops<'a, F> {
        self.entry().loops
    }
}
