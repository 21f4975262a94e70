//! AdamW and the moving averages of a network's weights, and their state in checkpoints.
mod shared;

use crate::checkpoint::average_prefix;
use crate::config::OptimConfig;
use crate::engine::{Device, Tensor, from_vec, to_host};
use crate::error::{Error, Result};
use crate::nn::weights::{apply, collect};
use crate::ranks::{self, Group};
use crate::tensorfile::{HostTensor, TensorMap};
use burn::module::{Module, ModuleMapper, ModuleVisitor, Param, ParamId};
use burn::optim::GradientsParams;
use crossfade_kernels::{AdamW, adamw_step, all_finite, ema_update, sum_sq};
use crossfade_math::{EmaAction, PowerProfile};
use shared::owners;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The moving averages and AdamW's moments of all parameters, on the host, in the order in which modules visit them.
///
/// Where several ranks train together, each parameter has an owner: only that rank has its moments and averages, sums its
/// gradients and computes its new value, which it sends to the others. The vectors of parameters of other ranks are empty.
#[derive(Clone)]
pub struct Optimiser {
    names: Vec<(String, Vec<usize>)>,
    /// Which parameters are trained.
    trained: Vec<bool>,
    /// The rank that owns each parameter.
    owners: Vec<usize>,
    group: Arc<Group>,
    ema: Vec<Vec<f32>>,
    m: Vec<Vec<f32>>,
    v: Vec<Vec<f32>>,
    /// Further averages, from which others are made after the training.
    averages: Vec<(PowerProfile, Vec<Vec<f32>>)>,
}

/// The gradients of all parameters, on the host, in the same order; zeros for parameters without a gradient. Once they are
/// summed over ranks, those of parameters that other ranks own are empty.
pub struct Gradients(Vec<Vec<f32>>);

impl Gradients {
    /// Collects the gradients of `net` from a backward pass.
    pub fn new<M: Module>(grads: GradientsParams, net: &M) -> Self {
        struct Collect(GradientsParams, Vec<Vec<f32>>);
        impl ModuleVisitor for Collect {
            fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
                let size = param.lazy_shape().num_elements();
                let grad = self.0.remove::<D>(param.id);
                // Parameters that the loss does not depend on have no gradient. They get zeros, so that indices stay
                // aligned.
                self.1.push(grad.map_or_else(|| vec![0.0; size], to_host));
            }
        }
        let mut visitor = Collect(grads, vec![]);
        net.visit(&mut visitor);
        Self(visitor.1)
    }

    /// Adds the gradients of another micro-batch.
    pub fn add(&mut self, other: &Self) {
        for (a, b) in self.0.iter_mut().zip(&other.0) {
            a.iter_mut().zip(b).for_each(|(a, b)| *a += b);
        }
    }

    /// Multiplies all gradients by a number.
    pub(super) fn scale(&mut self, by: f32) {
        self.0.iter_mut().flatten().for_each(|g| *g *= by);
    }

    /// Whether all of them are finite.
    pub(super) fn is_finite(&self) -> bool {
        self.0.iter().all(|g| all_finite(g))
    }

    /// The global L2 norm.
    pub fn norm(&self) -> f64 {
        self.0.iter().map(|g| sum_sq(g)).sum::<f64>().sqrt()
    }
}

/// Which parameters have gradients: running statistics have none.
fn have_gradients<M: Module>(net: &M) -> Vec<bool> {
    struct Find(Vec<bool>);
    impl ModuleVisitor for Find {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            self.0.push(param.val().is_require_grad());
        }
    }
    let mut found = Find(vec![]);
    net.visit(&mut found);
    found.0
}

/// The hyper-parameters of AdamW for the `count`-th update of weights whose gradients have this global norm.
pub(crate) fn adamw(optim: &OptimConfig, lr: f64, count: u64, norm: f64) -> AdamW {
    AdamW {
        lr,
        beta1: optim.beta1,
        beta2: optim.beta2,
        adam_eps: optim.adam_eps,
        weight_decay: optim.weight_decay,
        step: count,
        // min(1, max/(norm + 1e-6)), as in PyTorch's `clip_grad_norm_`.
        grad_scale: optim.clip().map_or(1.0, |most| (most / (norm + 1e-6)).min(1.0)),
    }
}

impl Optimiser {
    /// The state before the first step of `net`; `is_trained` decides by name which parameters are trained.
    pub fn new<M: Module>(net: &M, is_trained: impl Fn(&str) -> bool) -> Self {
        let (group, weights, gradients) = (ranks::current(), collect(net), have_gradients(net));
        let sizes: Vec<usize> = weights.iter().map(|(_, _, w)| w.len()).collect();
        let owners = owners(&sizes, group.size());
        let is_own = |i: usize| owners[i] == group.rank();
        let zeros = || sizes.iter().enumerate().map(|(i, &n)| vec![0.0; if is_own(i) { n } else { 0 }]).collect();
        let own_weights = |(i, (_, _, w)): (usize, (String, Vec<usize>, Vec<f32>))| if is_own(i) { w } else { vec![] };
        Self {
            m: zeros(),
            v: zeros(),
            trained: weights.iter().zip(gradients).map(|((name, ..), has)| has && is_trained(name)).collect(),
            names: weights.iter().map(|(name, shape, _)| (name.clone(), shape.clone())).collect(),
            averages: vec![],
            ema: weights.into_iter().enumerate().map(own_weights).collect(),
            owners,
            group,
        }
    }

    /// The same with power-function averages of these profiles.
    pub fn with_averages(mut self, profiles: Vec<PowerProfile>) -> Self {
        self.averages = profiles.into_iter().map(|profile| (profile, self.ema.clone())).collect();
        self
    }

    /// One step of AdamW and of the moving averages (§2.5); returns the network with the new weights.
    pub fn update<M: Module>(&mut self, net: M, grads: &Gradients, hyper: AdamW, action: EmaAction) -> M {
        net.map(&mut Update { at: 0, grads, hyper, action, state: self })
    }

    /// Weights, moving averages and moments as tensors of a checkpoint; `prefix` is put before the names of the parameters.
    pub fn tensors<M: Module>(&self, net: &M, prefix: &str) -> Vec<HostTensor> {
        let named = |kind: &str, values: &[Vec<f32>]| self.named(&format!("{kind}.{prefix}"), values);
        let model = collect(net).into_iter();
        let model = model.map(|(name, shape, w)| (format!("model.{prefix}{name}"), shape, w));
        let state = [named("ema", &self.ema), named("adam_m", &self.m), named("adam_v", &self.v)];
        model.chain(state.into_iter().flatten()).chain(self.average_tensors()).collect()
    }

    /// The power-function averages as tensors of a file.
    pub(crate) fn average_tensors(&self) -> Vec<HostTensor> {
        let of = |(profile, values): &(PowerProfile, Vec<Vec<f32>>)| self.named(&average_prefix(profile.sigma), values);
        self.averages.iter().flat_map(of).collect()
    }

    fn named(&self, prefix: &str, values: &[Vec<f32>]) -> Vec<HostTensor> {
        let names = self.names.iter().zip(values);
        names.map(|((name, shape), w)| (format!("{prefix}{name}"), shape.clone(), w.clone())).collect()
    }

    /// Restores the state from `tensors` and returns `net` with its weights; an error names the tensor that is missing.
    pub(crate) fn restore<M: Module>(&mut self, net: M, tensors: &mut TensorMap, prefix: &str) -> Result<M> {
        let mut take = |kind: &str| -> Result<Vec<Vec<f32>>> {
            let wanted = self.names.iter().map(|(name, shape)| {
                let full = format!("{kind}{prefix}{name}");
                let found = tensors.remove(&full).filter(|(s, _)| s == shape).map(|(_, values)| values);
                found.ok_or_else(|| Error::Run(format!("cannot be resumed: no tensor {full} of the right shape")))
            });
            wanted.collect()
        };
        let model = take("model.")?;
        (self.ema, self.m, self.v) = (take("ema.")?, take("adam_m.")?, take("adam_v.")?);
        for (profile, values) in &mut self.averages {
            *values = take(&average_prefix(profile.sigma))?;
        }
        let net = self.with_values(net, &model)?;
        let others: Vec<usize> = (0..self.names.len()).filter(|&i| !self.is_own(i)).collect();
        for kept in self.kept_mut() {
            others.iter().for_each(|&i| kept[i] = vec![]);
        }
        Ok(net)
    }

    /// `net` with the moving average as its weights.
    pub fn averaged<M: Module>(&self, net: M) -> Result<M> {
        self.with_values(net, &self.ema)
    }

    /// The names of parameters whose gradients are not finite.
    pub(crate) fn not_finite(&self, grads: &Gradients) -> Vec<String> {
        let bad = self.names.iter().zip(&grads.0).filter(|(_, g)| !all_finite(g));
        bad.map(|((name, _), _)| name.clone()).collect()
    }

    fn with_values<M: Module>(&self, net: M, values: &[Vec<f32>]) -> Result<M> {
        let index: BTreeMap<&str, usize> = self.names.iter().enumerate().map(|(i, (n, _))| (n.as_str(), i)).collect();
        apply(net, &|name| {
            let i = *index.get(name)?;
            Some((self.names[i].1.clone(), values[i].clone()))
        })
    }
}

/// Visits the parameters in order and replaces each by its updated value.
struct Update<'a> {
    at: usize,
    grads: &'a Gradients,
    hyper: AdamW,
    action: EmaAction,
    state: &'a mut Optimiser,
}

impl ModuleMapper for Update<'_> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let (i, state) = (self.at, &mut *self.state);
        self.at += 1;
        let (id, tensor) = (param.id, param.val());
        // Running statistics and frozen parameters are not trained, but their moving average is kept like that of all
        // others (§2.5).
        let is_trained = state.trained[i];
        let (shape, device) = (tensor.dims(), tensor.device());
        if !state.is_own(i) {
            return param;
        }
        let mut values = to_host(tensor.inner());
        if is_trained {
            adamw_step(&mut values, &mut state.m[i], &mut state.v[i], &self.grads.0[i], &self.hyper);
        }
        match self.action {
            EmaAction::Skip => {}
            EmaAction::Copy => state.ema[i].copy_from_slice(&values),
            EmaAction::Average(decay) => ema_update(&mut state.ema[i], &values, decay),
        }
        for (profile, average) in &mut state.averages {
            ema_update(&mut average[i], &values, profile.decay(self.hyper.step));
        }
        if !is_trained {
            return param;
        }
        // Frees the old tensor before the new one is created, to keep the peak memory low.
        drop(param);
        replaced(id, values, shape, &device)
    }
}

/// A trained parameter with new values. The id must not change: gradients are looked up by it.
fn replaced<const D: usize>(id: ParamId, values: Vec<f32>, shape: [usize; D], device: &Device) -> Param<Tensor<D>> {
    let mut new = Param::from_tensor(from_vec(values, shape, device));
    new.id = id;
    new
}
