//! The training objective (Eq. 11): errors of both heads at x_t, weighted by a function of time.
mod autoencoder;
mod objective;

pub use autoencoder::{AutoencoderLoss, DiscriminatorStep, GeneratorStep, GeneratorTerms, hinge};
pub use objective::{AuxEstimate, AuxWeight, Auxiliary, Objective, Pairing, Reduction, Supervise};

use crate::engine::{Images, Tensor, column};
use crate::nn::{Context, Denoiser, Heads, Mode, RawHeads};
use crossfade_math::{Adm, AttenuationFn, Coef, Field, Process, Weighting};

/// A batch to which the forward process was applied.
#[derive(Clone, Debug)]
pub struct Noised {
    /// x_0, `[B, C, H, W]`.
    pub x0: Images,
    /// The parts of phi, each `[B, C, H, W]`; empty for processes without attenuation.
    pub phi: Vec<Images>,
    /// The noise, `[B, C, H, W]`.
    pub eps: Images,
    /// One time per sample.
    pub t: Vec<f64>,
    /// The weight of each sample in the loss: 1, unless importance weights keep the objective of the process.
    pub weights: Vec<f64>,
    /// x_t, `[B, inputs·C, H, W]`; for CLD the velocity is concatenated to it.
    pub x_t: Images,
}

impl Noised {
    /// Applies the forward process to x_0 at times `t`. `extra` are the standard normals that the process needs besides
    /// eps.
    pub fn new(process: &Process, x0: Images, extra: &[Images], eps: Images, t: Vec<f64>) -> Self {
        let forward = process.forward(&x0, &eps, extra, &Coef::Each(t.clone()));
        let weights = vec![1.0; t.len()];
        Self { x0, phi: forward.phi, eps, t, weights, x_t: Images(Images::concat(&forward.state)) }
    }
}

/// A distance between images, such as LPIPS, with one number per sample: `[B, C, H, W]` twice to `[B, 1]`.
pub type Perceptual<'a> = &'a dyn Fn(Tensor<4>, Tensor<4>) -> Tensor<2>;

/// The loss and its two terms, scalars.
pub struct Loss {
    /// The sum of the terms, which is minimised.
    pub total: Tensor<1>,
    /// The weighted errors of both heads.
    pub main: Tensor<1>,
    /// The auxiliary term, if any.
    pub auxiliary: Option<Tensor<1>>,
}

impl Objective {
    /// The loss of `net` on a batch.
    pub fn loss(
        &self,
        net: &Denoiser,
        batch: &Noised,
        context: &Context,
        mode: Mode,
        perceptual: Option<Perceptual>,
    ) -> Loss {
        let raw = net.raw(batch.x_t.0.clone(), &batch.t, context, mode);
        self.of_raw(net, batch, raw, perceptual)
    }

    /// The loss for outputs `raw` that `net` computed for a batch.
    pub fn of_raw(&self, net: &Denoiser, batch: &Noised, raw: RawHeads, perceptual: Option<Perceptual>) -> Loss {
        let Process::Adm(adm) = &net.process else {
            let main = self.target_errors(net, batch, raw);
            return Loss { total: main.clone(), main, auxiliary: None };
        };
        let main = match self.weighting {
            Weighting::Adaptive => self.raw_errors(adm, batch, &raw),
            _ => self.head_errors(net, adm, batch, &raw),
        };
        let auxiliary = self.auxiliary.map(|aux| {
            let heads = net.precondition(batch.x_t.0.clone(), &batch.t, raw);
            auxiliary(&aux, adm, batch, heads, perceptual)
        });
        let total = auxiliary.iter().fold(main.clone(), |sum, aux| sum + aux.clone());
        Loss { total, main, auxiliary }
    }

    /// The loss of processes with a single target: the squared error of the raw output, which equals the weighted
    /// losses of their papers except LSGM's (§9), plus the squared error of x_0 where it is predicted too.
    fn target_errors(&self, net: &Denoiser, batch: &Noised, raw: RawHeads) -> Tensor<1> {
        let output = net.target_output(&batch.x_t, &batch.t, raw);
        let target = net.process.raw_target(&batch.x0, &batch.eps, &Coef::Each(batch.t.clone()));
        let weights = &batch.weights;
        let main = self.weighted(output.target.0 - target.0, weights);
        output.x0.iter().fold(main, |sum, x0| sum + self.weighted(x0.0.clone() - batch.x0.0.clone(), weights))
    }

    /// Adaptive weights: unweighted errors of the raw outputs F against their targets (§2.2, "v space"). The targets
    /// are computed from x_0, phi and eps, which avoids divisions by quantities that vanish at t = 1.
    fn raw_errors(&self, adm: &Adm, batch: &Noised, raw: &RawHeads) -> Tensor<1> {
        let scalings: Vec<_> = batch.t.iter().map(|&t| adm.scalings(t.min(LAST_T))).collect();
        let each = |f: &dyn Fn(usize) -> f64| Coef::Each((0..scalings.len()).map(f).collect());
        // (phi_i − c_skip x_t)/c_out.
        let targets: Vec<Images> = (batch.phi.iter().enumerate())
            .map(|(i, phi)| {
                let inverse = each(&|b| 1.0 / scalings[b].phi[i].out);
                let skip = each(&|b| -scalings[b].phi[i].skip / scalings[b].phi[i].out);
                Images::lincomb(&[(inverse, phi), (skip, &batch.x_t)])
            })
            .collect();
        // (eps − c_skip x_t)/c_out with x_t = m_t + σ eps: factor·eps − (c_skip/c_out) m_t.
        // At the limited times too: at t = 1, where distillation trains, m_t is 0 and c_skip/c_out infinite, but not their
        // product.
        let mean = adm.attenuation.mean(&batch.x0, &batch.phi, &each(&|b| batch.t[b].min(LAST_T)));
        let skip = each(&|b| -scalings[b].eps.skip / scalings[b].eps.out);
        let factor = each(&|b| adm.precond.raw_eps_factor(&scalings[b]));
        let eps = Images::lincomb(&[(factor, &batch.eps), (skip, &mean)]);
        let weights = &batch.weights;
        let phi_error = || raw.phi.clone() - Images::concat(&targets);
        // A single decoder's eps head has the same raw output as its phi head.
        let eps_error = raw.eps.clone().unwrap_or_else(|| raw.phi.clone()) - eps.0;
        self.supervised(|| self.weighted(phi_error(), weights), self.weighted(eps_error, weights))
    }

    /// All other weightings: errors of the preconditioned heads, weighted by λ(t).
    fn head_errors(&self, net: &Denoiser, adm: &Adm, batch: &Noised, raw: &RawHeads) -> Tensor<1> {
        let heads = net.precondition(batch.x_t.0.clone(), &batch.t, raw.clone());
        let (phi, eps): (Vec<f64>, Vec<f64>) = (batch.t.iter().zip(&batch.weights))
            .map(|(&t, weight)| {
                let (phi, eps) = self.weighting.lambda(adm, 1.0, t, adm.t_min);
                (weight * phi, weight * eps)
            })
            .unzip();
        let eps = self.weighted(heads.eps - batch.eps.0.clone(), &eps);
        self.supervised(|| self.weighted(heads.phi - Images::concat(&batch.phi), &phi), eps)
    }

    /// The sum of the errors of the supervised heads.
    fn supervised(&self, phi: impl FnOnce() -> Tensor<1>, eps: Tensor<1>) -> Tensor<1> {
        match self.supervise {
            Supervise::Both => phi() + eps,
            // The phi error is a closure, so that it is not computed here.
            Supervise::Eps => eps,
        }
    }

    /// The mean over the batch of weight·(ℓ1 and ℓ2 norms of a sample's error).
    ///
    /// # Shapes
    /// `error` `[B, C, H, W]`, `weights` `[B]`.
    fn weighted(&self, error: Tensor<4>, weights: &[f64]) -> Tensor<1> {
        let weights = column(weights, &error.device()).flatten::<2>(1, 3);
        let (l1, l2) = self.norm.shares();
        let absolute = (l1 > 0.0).then(|| reduce(error.clone().abs(), self.l1_reduction) * l1 as f32);
        let squared = (l2 > 0.0).then(|| reduce(error.square(), self.reduction) * l2 as f32);
        let sum = match (absolute, squared) {
            (Some(a), Some(s)) => a + s,
            (Some(one), None) | (None, Some(one)) => one,
            (None, None) => unreachable!("every norm has an l1 or an l2 part"),
        };
        (sum * weights).mean()
    }
}

/// The upper limit of t in the scalings: at t = 1 the eps target is 0/0.
const LAST_T: f64 = 1.0 - 1e-7;

/// The sum or mean over C, H and W: one number per sample.
///
/// # Shapes
/// `[B, C, H, W]` to `[B, 1]`.
fn reduce(x: Tensor<4>, reduction: Reduction) -> Tensor<2> {
    let x = x.flatten::<2>(1, 3);
    match reduction {
        Reduction::Mean => x.mean_dim(1),
        Reduction::Sum => x.sum_dim(1),
    }
}

/// The reference's auxiliary term on x̂_0 (§2.4).
fn auxiliary(aux: &Auxiliary, adm: &Adm, batch: &Noised, heads: Heads, perceptual: Option<Perceptual>) -> Tensor<1> {
    let phi = Images::split(heads.phi, batch.phi.len());
    let t = Coef::Each(batch.t.clone());
    let estimate = match aux.estimate {
        AuxEstimate::Phi => adm.H(&phi, 1.0).scale(-1.0),
        AuxEstimate::Heads => adm.x0_estimates(&batch.x_t, &phi, &Images(heads.eps), &t).1,
    };
    let l1 = aux.l1.map(|how| reduce((estimate.0.clone() - batch.x0.0.clone()).abs(), how));
    let perceptual = perceptual.map(|distance| distance(estimate.0, batch.x0.0.clone()));
    let size = batch.t.len();
    let device = batch.x0.0.device();
    let distance = match (l1, perceptual) {
        (Some(a), Some(b)) => a + b,
        (Some(one), None) | (None, Some(one)) => one,
        (None, None) => Tensor::zeros([size, 1], &device),
    };
    let weights: Vec<f64> = batch.t.iter().map(|&t| aux.weight.at(t)).collect();
    let mean = weights.iter().sum::<f64>() / size as f64;
    match aux.pairing {
        Pairing::PerSample => (distance * column(&weights, &device).flatten::<2>(1, 3)).mean(),
        Pairing::Mixed => distance.mean() * mean as f32,
        Pairing::MixedSum => distance.mean() * (mean * size as f64) as f32,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
