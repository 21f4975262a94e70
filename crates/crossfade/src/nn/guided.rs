//! A network in sampling: its class, and the weaker prediction that guides it (§4.8).
use burn::tensor::{Device, Tensor};
use crossfade_math::{Adm, AttenuationFn, Coef, Process};

use super::backbone::{Backbone, Context};
use super::denoiser::{TargetOutput, coef, inputs, precondition, target_output};
use super::mode::Mode;
use super::unet::RawHeads;
use crate::engine::{Images, from_vec};
use crate::error::Result;
use crate::sample::{self, Guidance, Predict};

/// What sampling asks of a network. Every [`Backbone`] answers by itself; a server answers with one that waits for the
/// evaluations of others and joins them to one batch.
pub trait Evaluate {
    /// F(x; c_noise, context) in evaluation mode; an error ends the run of the sampler.
    ///
    /// # Shapes
    /// As [`Backbone::forward`].
    fn evaluate(&self, x: Tensor<4>, c_noise: Tensor<1>, context: &Context) -> Result<RawHeads>;

    /// As [`Backbone::encode`] in evaluation mode.
    fn look_at(&self, condition: Option<Tensor<4>>) -> Result<Context>;

    /// As [`Backbone::mixing`].
    fn mixing_weight(&self) -> Option<Tensor<1>>;
}

impl<B: Backbone> Evaluate for B {
    fn evaluate(&self, x: Tensor<4>, c_noise: Tensor<1>, context: &Context) -> Result<RawHeads> {
        Ok(self.forward(x, c_noise, context, Mode::Eval))
    }
    fn look_at(&self, condition: Option<Tensor<4>>) -> Result<Context> {
        Ok(self.encode(condition, Mode::Eval))
    }
    fn mixing_weight(&self) -> Option<Tensor<1>> {
        self.mixing()
    }
}

/// A network with its process and what it knows of its condition and its class: all that sampling evaluates.
pub struct Conditioned<'a> {
    /// The network, in evaluation mode.
    pub network: &'a dyn Evaluate,
    /// The process that it was trained for.
    pub process: Process,
    /// Whether it embeds the time by random frequencies: ln t, or another small number.
    pub log_time: bool,
    /// What it knows of its condition and its class.
    pub context: Context,
    /// What guides it, if something does.
    pub guide: Option<Guide<'a>>,
}

/// What guides a network.
pub struct Guide<'a> {
    /// How strongly, and when.
    pub guidance: Guidance,
    /// The weaker prediction.
    pub weak: Weak<'a>,
}

/// The weaker prediction of a guided network.
pub enum Weak<'a> {
    /// That of the network itself without a class; it is evaluated together with the other one, in one batch.
    NoClass,
    /// That of another network for the same process.
    Network(Box<Conditioned<'a>>),
}

/// The class of each sample as a row of the network's input: 1 at its class, and all zero for no class.
///
/// # Shapes
/// B classes to `[B, count]`.
pub fn one_hot(classes: &[Option<u32>], count: usize, device: &Device) -> Tensor<2> {
    let mut values = vec![0.0; classes.len() * count];
    for (row, class) in values.chunks_exact_mut(count).zip(classes) {
        if let Some(class) = class {
            row[*class as usize] = 1.0;
        }
    }
    from_vec(values, [classes.len(), count], device)
}

impl<'a> Conditioned<'a> {
    /// The same network for images of these classes; none for images without a class.
    ///
    /// # Shapes
    /// `classes` `[B, classes]`.
    pub(crate) fn of_classes(self, classes: Option<Tensor<2>>) -> Self {
        Self { context: self.context.with_classes(classes), ..self }
    }

    /// The same network guided by a weaker prediction; without a weaker prediction nothing changes.
    pub fn guided(self, guide: Option<Guide<'a>>) -> Self {
        Self { guide, ..self }
    }

    /// Network evaluations of one prediction at time t.
    pub(crate) fn evaluations(&self, t: f64) -> usize {
        self.guide.as_ref().map_or(1, |guide| guide.guidance.evaluations(t))
    }

    /// The same network told the augmentation that the images went through.
    ///
    /// # Shapes
    /// `labels` `[B, augment_dim]`.
    pub(crate) fn of_labels(self, labels: Option<Tensor<2>>) -> Self {
        Self { context: self.context.with_labels(labels), ..self }
    }

    fn raw(&self, x_t: &Images, t: &[f64], context: &Context) -> Result<RawHeads> {
        let (x, c_noise) = inputs(&self.process, self.log_time, x_t.0.clone(), t);
        self.network.evaluate(x, c_noise, context)
    }

    /// The prediction at (x_t, t), guided where it is to be; `meaning` makes a prediction of the outputs of a network. `t` has
    /// one time for all samples, or one each.
    ///
    /// Guidance combines predictions and not the outputs F: those of two networks may mean different things.
    fn predicted<T: Prediction>(
        &self,
        x_t: &Images,
        t: &[f64],
        meaning: impl Fn(&Conditioned, RawHeads) -> T,
    ) -> Result<T> {
        let acts = |guide: &&Guide| t.iter().any(|&t| guide.guidance.acts(t));
        let Some(guide) = self.guide.as_ref().filter(acts) else {
            return Ok(meaning(self, self.raw(x_t, t, &self.context)?));
        };
        let (strong, weak) = match &guide.weak {
            Weak::NoClass => {
                let both = Images(Tensor::cat(vec![x_t.0.clone(); 2], 0));
                let times = if t.len() > 1 { t.repeat(2) } else { t.to_vec() };
                let [strong, weak] = halves(self.raw(&both, &times, &self.context.clone().and_without_class())?);
                (meaning(self, strong), meaning(self, weak))
            }
            Weak::Network(weak) => {
                let strong = meaning(self, self.raw(x_t, t, &self.context)?);
                (strong, meaning(weak, weak.raw(x_t, t, &weak.context)?))
            }
        };
        Ok(strong.combine(weak, &guide.guidance, &coef(t)))
    }

    /// The outputs of a process with a single target.
    ///
    /// # Shapes
    /// As `target_output`.
    pub(crate) fn target_output(&self, x_t: &Images, t: &[f64]) -> Result<TargetOutput> {
        self.predicted(x_t, t, |net, raw| target_output(&net.process, x_t, t, raw, net.network.mixing_weight()))
    }

    /// phi_hat and eps_hat of `adm`, the process of this network.
    ///
    /// # Shapes
    /// `x_t` `[B, C, H, W]`, one time or B times.
    pub(crate) fn heads(&self, adm: &Adm, x_t: &Images, t: &[f64]) -> Result<sample::Heads<Images>> {
        self.predicted(x_t, t, |_, raw| {
            let heads = precondition(adm, x_t.0.clone(), t, raw);
            sample::Heads { phi: Images::split(heads.phi, adm.attenuation.parts()), eps: Images(heads.eps) }
        })
    }
}

impl Predict<Images> for Conditioned<'_> {
    fn predict(&self, x_t: &Images, t: f64) -> Result<sample::Heads<Images>> {
        let Process::Adm(adm) = &self.process else {
            unreachable!("samplers of attenuation run on attenuation only");
        };
        self.heads(adm, x_t, &[t])
    }

    fn evaluations(&self, t: f64) -> usize {
        Self::evaluations(self, t)
    }
}

/// A prediction that can be guided.
trait Prediction {
    fn combine(self, weak: Self, guidance: &Guidance, t: &Coef) -> Self;
}

impl Prediction for sample::Heads<Images> {
    fn combine(self, weak: Self, guidance: &Guidance, t: &Coef) -> Self {
        let phi = self.phi.iter().zip(&weak.phi).map(|(strong, weak)| guidance.combine(strong, weak, t)).collect();
        Self { phi, eps: guidance.combine(&self.eps, &weak.eps, t) }
    }
}

impl Prediction for TargetOutput {
    fn combine(self, weak: Self, guidance: &Guidance, t: &Coef) -> Self {
        let x0 = self.x0.zip(weak.x0).map(|(strong, weak)| guidance.combine(&strong, &weak, t));
        Self { target: guidance.combine(&self.target, &weak.target, t), x0 }
    }
}

/// The two halves of a batch.
fn halves(raw: RawHeads) -> [RawHeads; 2] {
    let half = |x: &Tensor<4>, which: usize| {
        let samples = x.dims()[0] / 2;
        x.clone().narrow(0, which * samples, samples)
    };
    [0, 1].map(|which| RawHeads { phi: half(&raw.phi, which), eps: raw.eps.as_ref().map(|eps| half(eps, which)) })
}
