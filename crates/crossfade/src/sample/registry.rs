//! The registry of samplers: one line each.
use super::cld::{self, CldProblem};
use super::gaussian::{GaussianProblem, ddim, euler, heun, lms, multistep, sde};
use super::{AttenuationProblem, Hooks, ab2, alg2, data2m, first_order, midpoint, predictor_corrector, reference_heun};
use crate::error::Result;
use crossfade_math::{Field, registry};

/// The loop of a sampler over `times`, which descend to 0, from the state at the first of them.
type Loop<P, S, F> = fn(&P, &[f64], S, &mut Hooks<F>) -> Result<F>;

/// The loops of a sampler, one for each form of a process that it supports.
pub(super) struct Loops<'a, F> {
    /// By phi and eps of attenuation.
    pub attenuation: Option<Loop<AttenuationProblem<'a, F>, F, F>>,
    /// By (α_t, σ_t): x_t = α_t x_0 + σ_t eps.
    pub gaussian: Option<Loop<GaussianProblem<'a, F>, F, F>>,
    /// By the score of the velocity in CLD.
    pub cld: Option<Loop<CldProblem<'a, F>, (F, F), F>>,
}

/// The properties of a sampler, as its line in the registry gives them.
struct Entry<'a, F> {
    order: u32,
    evaluations_per_step: usize,
    is_stochastic: bool,
    revision: u32,
    needs_signal_at_start: bool,
    prefers_log_snr: bool,
    is_reversible: bool,
    loops: Loops<'a, F>,
}

/// A sampler without noise with this order of convergence; it evaluates the network once per step.
fn deterministic<'a, F>(order: u32) -> Entry<'a, F> {
    let loops = Loops { attenuation: None, gaussian: None, cld: None };
    Entry {
        order,
        evaluations_per_step: 1,
        is_stochastic: false,
        revision: 1,
        needs_signal_at_start: false,
        prefers_log_snr: false,
        is_reversible: false,
        loops,
    }
}

/// A sampler that adds noise, with this order of convergence in distribution.
fn stochastic<'a, F>(order: u32) -> Entry<'a, F> {
    Entry { is_stochastic: true, ..deterministic(order) }
}

impl<'a, F> Entry<'a, F> {
    fn evaluations(self, evaluations_per_step: usize) -> Self {
        Self { evaluations_per_step, ..self }
    }

    /// Sets the revision after a change of the sampler; see [`Sampler::revision`].
    fn revision(self, revision: u32) -> Self {
        Self { revision, ..self }
    }

    /// The first step divides by α_1, so the sampler cannot run on processes with α_1 = 0.
    fn needs_signal_at_start(self) -> Self {
        Self { needs_signal_at_start: true, ..self }
    }

    /// The steps are in κ or λ = −ln κ, so that grids that are uniform in ln κ suit it.
    fn prefers_log_snr(self) -> Self {
        Self { prefers_log_snr: true, ..self }
    }

    /// Its formulas hold for steps in both directions, so that it can run from a picture to noise.
    fn reversible(self) -> Self {
        Self { is_reversible: true, ..self }
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
        /// Deterministic and of first order: DDIM for attenuation, the reference's default.
        FirstOrder = "first-order" => deterministic(1).reversible().attenuation(|p, times, x, hooks| first_order::ddim(p, times, x, hooks, 0.0)),
        /// DDIM with η = ½, halfway between deterministic and Alg. 2.
        DdimHalf = "ddim-half" => stochastic(1).attenuation(|p, times, x, hooks| first_order::ddim(p, times, x, hooks, 0.5)),
        /// Second-order multistep on both heads (Adams–Bashforth).
        Ab2 = "ab2" => deterministic(2).attenuation(ab2::ab2),
        /// Second-order multistep on the estimate of x_0.
        Data2M = "data-2m" => deterministic(2).attenuation(data2m::data2m),
        /// Predictor–corrector with AB2 and AM3, one evaluation per step; the corrector is left out where it would be
        /// unstable.
        PredictorCorrector = "pc" => deterministic(3).attenuation(predictor_corrector::predictor_corrector),
        /// The second-order version of Alg. 2, with an estimate of x_0 that is linear in t.
        Alg2Second = "alg2-second" => stochastic(2).attenuation(data2m::alg2_second),
        /// Single-step second order, two evaluations per step.
        Midpoint = "midpoint" => deterministic(2).evaluations(2).reversible().attenuation(midpoint::midpoint),
        /// Heun with bridge noise of the reference's older release, two evaluations per step; kept for comparison.
        ReferenceHeun = "reference-heun" => stochastic(1).evaluations(2).attenuation(reference_heun::reference_heun),
        /// DDIM with the requested η, 0 by default; Euler in κ = σ/α, which is k-diffusion's `euler`.
        Ddim = "ddim" | "euler" | "sample_euler" | "Euler" | "DDIMScheduler" | "EulerDiscreteScheduler"
            | "FlowMatchEulerDiscreteScheduler"
            => deterministic(1).revision(2).reversible().gaussian(|p, times, x, hooks| ddim::ddim(p, times, x, hooks, p.eta)),
        /// DDPM's sampler on any subset of times: the posterior with variance β̃, which is DDIM with η = 1
        /// and k-diffusion's `euler_ancestral`.
        Ancestral = "ancestral" | "euler-ancestral" | "euler_ancestral" | "sample_euler_ancestral" | "Euler a" | "ddpm"
            | "DDPMScheduler" | "EulerAncestralDiscreteScheduler"
            => stochastic(1).gaussian(|p, times, x, hooks| ddim::ddim(p, times, x, hooks, 1.0)),
        /// DDPM's sampler with variance β.
        AncestralLarge = "ancestral-large" => stochastic(1).gaussian(ddim::ancestral_large),
        /// Euler–Maruyama for the reverse SDE, the paper's choice for most baselines.
        EulerMaruyama = "euler-maruyama"
            => stochastic(1).needs_signal_at_start().gaussian(euler::euler_maruyama).cld(cld::euler_maruyama),
        /// Euler–Maruyama in κ.
        KappaMaruyama = "kappa-maruyama" => stochastic(1).needs_signal_at_start().gaussian(euler::kappa_maruyama),
        /// Score-SDE's predictor: the discretised reverse of the forward step.
        ReverseDiffusion = "reverse-diffusion" => stochastic(1).needs_signal_at_start().gaussian(euler::reverse_diffusion),
        /// Euler in t for the probability-flow ODE.
        ProbabilityFlow = "probability-flow" => deterministic(1).needs_signal_at_start().gaussian(euler::probability_flow),
        /// EDM's Heun, deterministic.
        Heun = "heun" | "sample_heun" | "Heun" | "HeunDiscreteScheduler"
            => deterministic(2).evaluations(2).reversible().prefers_log_snr().gaussian(|p, times, x, hooks| heun::heun(p, times, x, hooks, &heun::Churn::NONE)),
        /// EDM's Heun with churn, by default with EDM's settings for CIFAR-10.
        HeunChurn = "heun-churn"
            => stochastic(1).evaluations(2).prefers_log_snr().gaussian(|p, times, x, hooks| heun::heun(p, times, x, hooks, &p.churn)),
        /// DPM-Solver++(2M).
        Dpmpp2M = "dpmpp-2m" | "dpmpp_2m" | "sample_dpmpp_2m" | "DPM++ 2M" | "DPMSolverMultistepScheduler"
            => deterministic(2).prefers_log_snr().gaussian(multistep::dpmpp_2m),
        /// UniPC-2 with data prediction: a second-order predictor with a corrector that raises the order to three.
        UniPc = "unipc" | "UniPCMultistepScheduler" => deterministic(3).prefers_log_snr().gaussian(multistep::unipc),
        /// k-diffusion's linear multistep sampler: Adams–Bashforth in κ with up to four values. The observed order is 3.5 to
        /// 3.8, because the first steps have fewer values.
        Lms = "lms" | "sample_lms" | "LMS" | "LMSDiscreteScheduler" => deterministic(3).prefers_log_snr().gaussian(lms::lms),
        /// DPM-Solver++ SDE with a middle evaluation, two evaluations per step.
        DpmppSde = "dpmpp-sde" | "dpmpp_sde" | "sample_dpmpp_sde" | "DPM++ SDE" | "DPMSolverSDEScheduler"
            => stochastic(2).prefers_log_snr().evaluations(2).gaussian(sde::dpmpp_sde),
        /// DPM-Solver++(2M) SDE; in diffusers `DPMSolverMultistepScheduler` with `algorithm_type="sde-dpmsolver++"`.
        Dpmpp2MSde = "dpmpp-2m-sde" | "dpmpp_2m_sde" | "sample_dpmpp_2m_sde" | "DPM++ 2M SDE" => stochastic(2).prefers_log_snr().gaussian(sde::dpmpp_2m_sde),
        /// DPM-Solver++(3M) SDE.
        Dpmpp3MSde = "dpmpp-3m-sde" | "dpmpp_3m_sde" | "sample_dpmpp_3m_sde" | "DPM++ 3M SDE" => stochastic(2).prefers_log_snr().gaussian(sde::dpmpp_3m_sde),
        /// The symmetric splitting of CLD's authors: half an exact step without the score, a full step of the score,
        /// another half.
        Sscs = "sscs" => stochastic(1).cld(cld::sscs),
    }
    placeholder {
        /// The default sampler of the process.
        #[default]
        Auto = "auto" => deterministic(0),
    }
}

impl Sampler {
    fn entry<'a, F: Field>(self) -> Entry<'a, F> {
        each_sampler!(self, entry e => e)
    }

    /// The order of convergence on a suitable grid (for attenuation: constant attenuation, uniform in √t). For
    /// stochastic samplers it is the order of the distribution.
    pub fn order(self) -> u32 {
        self.entry::<f64>().order
    }

    /// The largest number of network evaluations per step.
    pub fn evaluations_per_step(self) -> usize {
        self.entry::<f64>().evaluations_per_step
    }

    /// Whether it adds noise.
    pub fn is_stochastic(self) -> bool {
        self.entry::<f64>().is_stochastic
    }

    /// A number that must be raised with every change of the sampler that changes its images. The results of studies
    /// are stored under a hash of it, so that old results are not taken for those of the changed sampler.
    pub fn revision(self) -> u32 {
        self.entry::<f64>().revision
    }

    /// Whether it can run from a picture to noise.
    pub(super) fn is_reversible(self) -> bool {
        self.entry::<f64>().is_reversible
    }

    /// Whether its first step is in t or in κ, which needs α_1 > 0.
    pub(super) fn needs_signal_at_start(self) -> bool {
        self.entry::<f64>().needs_signal_at_start
    }

    /// Whether it integrates in κ or λ, where its order is visible on grids that are uniform in ln κ.
    pub(crate) fn prefers_log_snr(self) -> bool {
        self.entry::<f64>().prefers_log_snr
    }

    pub(super) fn loops<'a, F: Field>(self) -> Loops<'a, F> {
        self.entry().loops
    }
}
