//! Everything that a resume needs: weights, moving average, optimiser, step.
use super::learner::Learner;
use crate::checkpoint::{self, Checkpoint};
use crate::config::RunConfig;
use crate::engine::{Device, Tensor, from_vec, recording, to_host};
use crate::error::{Error, Result};
use crate::latent::Latent;
use crate::nn::weights::{apply, collect};
use crate::nn::{Denoiser, UNet};
use crate::tensorfile::{HostTensor, TensorMap, save_tensors};
use burn::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn::optim::GradientsParams;
use crossfade_kernels::{AdamW, adamw_step, ema_update, sum_sq};
use crossfade_math::EmaAction;
use std::collections::BTreeMap;
use std::path::Path;

/// A network under training. Parameters are in the order of registration; the optimiser's state lies on the host.
pub struct TrainState<N = UNet> {
    /// Steps done.
    pub step: u64,
    /// The network, on the device with gradients.
    pub net: Denoiser<N>,
    /// The autoencoder of a run on latents; its checkpoints hold it too.
    pub latent: Option<Latent>,
    names: Vec<(String, Vec<usize>)>,
    /// Which of them gradients change.
    trained: Vec<bool>,
    ema: Vec<Vec<f32>>,
    m: Vec<Vec<f32>>,
    v: Vec<Vec<f32>>,
}

/// Gradients of all parameters, on the host, in the order of registration.
pub struct Gradients(Vec<Vec<f32>>);

impl Gradients {
    /// Of `net` from a backward pass.
    pub fn new<M: Module>(grads: GradientsParams, net: &M) -> Self {
        struct Collect(GradientsParams, Vec<Vec<f32>>);
        impl ModuleVisitor for Collect {
            fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
                let size = param.lazy_shape().num_elements();
                let grad = self.0.remove::<D>(param.id);
                self.1.push(grad.map_or_else(|| vec![0.0; size], to_host));
            }
        }
        let mut visitor = Collect(grads, vec![]);
        net.visit(&mut visitor);
        Self(visitor.1)
    }

    /// Adds another micro-batch's.
    pub fn add(&mut self, other: &Self) {
        for (a, b) in self.0.iter_mut().zip(&other.0) {
            a.iter_mut().zip(b).for_each(|(a, b)| *a += b);
        }
    }

    /// The joint L2 norm.
    pub fn norm(&self) -> f64 {
        self.0.iter().map(|g| sum_sq(g)).sum::<f64>().sqrt()
    }
}

impl<N: Learner> TrainState<N> {
    /// Step 0.
    pub fn new(config: &RunConfig, device: &Device) -> Self {
        Self::with(N::fresh(config, &recording(device, config.train.recompute)), config)
    }

    /// Step 0 of a given network.
    pub fn with(unet: N, config: &RunConfig) -> Self {
        let net = config.denoiser(unet);
        let weights = collect(&net.unet);
        let zeros = || weights.iter().map(|(_, _, w)| vec![0.0; w.len()]).collect();
        Self {
            step: 0,
            trained: weights.iter().map(|(name, ..)| N::is_trained(config, name)).collect(),
            m: zeros(),
            v: zeros(),
            names: weights.iter().map(|(name, shape, _)| (name.clone(), shape.clone())).collect(),
            ema: weights.into_iter().map(|(_, _, w)| w).collect(),
            latent: None,
            net,
        }
    }

    /// The state that a checkpoint holds. Its own configuration says what the network is.
    pub fn resume(checkpoint: &Checkpoint, recompute: bool, device: &Device) -> Result<Self> {
        let mut tensors = checkpoint.read()?;
        let mut config = checkpoint.config.clone();
        config.train.recompute = recompute;
        let mut state = Self::new(&config, device);
        let mut take = |prefix: &str| -> Result<TensorMap> {
            let wanted = state.names.iter().map(|(name, shape)| {
                let found = tensors.remove(&format!("{prefix}{name}")).filter(|(s, _)| s == shape);
                let missing = || Error::file(&checkpoint.path, format!("cannot be resumed: no fitting {prefix}{name}"));
                found.map(|t| (name.clone(), t)).ok_or_else(missing)
            });
            wanted.collect()
        };
        let (model, mut ema, mut m, mut v) = (take("model.")?, take("ema.")?, take("adam_m.")?, take("adam_v.")?);
        state.net.unet = apply(state.net.unet, &|name| model.get(name).cloned())?;
        let in_order = |map: &mut TensorMap| -> Vec<Vec<f32>> {
            state.names.iter().map(|(name, _)| map.remove(name).map(|(_, w)| w).unwrap_or_default()).collect()
        };
        (state.ema, state.m, state.v) = (in_order(&mut ema), in_order(&mut m), in_order(&mut v));
        state.step = checkpoint.step;
        state.latent = Latent::of(checkpoint, device)?;
        Ok(state)
    }

    /// Writes the state as a checkpoint.
    pub fn save(&self, path: &Path, config: &RunConfig) -> Result<()> {
        let named = |prefix: &'static str, values: &[Vec<f32>]| -> Vec<HostTensor> {
            let names = self.names.iter().zip(values);
            names.map(|((name, shape), w)| (format!("{prefix}{name}"), shape.clone(), w.clone())).collect()
        };
        let mut tensors: Vec<HostTensor> =
            collect(&self.net.unet).into_iter().map(|(name, shape, w)| (format!("model.{name}"), shape, w)).collect();
        tensors.extend(named("ema.", &self.ema));
        tensors.extend(named("adam_m.", &self.m));
        tensors.extend(named("adam_v.", &self.v));
        let mut metadata = checkpoint::metadata(config, self.step)?;
        if let Some(latent) = &self.latent {
            tensors.extend(latent.tensors());
            metadata.extend([checkpoint::first_stage_entry(latent.config())?]);
        }
        save_tensors(path, &tensors, &metadata)
    }

    /// The network with the averaged weights, without gradients.
    pub fn averaged(&self, config: &RunConfig, device: &Device) -> Result<Denoiser<N>> {
        let index: BTreeMap<&str, usize> = self.names.iter().enumerate().map(|(i, (n, _))| (n.as_str(), i)).collect();
        let source = |name: &str| {
            let i = *index.get(name)?;
            Some((self.names[i].1.clone(), self.ema[i].clone()))
        };
        Ok(config.denoiser(apply(N::lazy(config, device), &source)?))
    }

    /// One step of AdamW with clipped gradients and the moving average (§2.5).
    pub fn update(&mut self, grads: &Gradients, norm: f64, config: &RunConfig) {
        let optim = &config.optim;
        // clip = min(1, max/(norm + 1e-6)), PyTorch's rule.
        let clip = if optim.clip > 0.0 { (optim.clip / (norm + 1e-6)).min(1.0) } else { 1.0 };
        let hyper = AdamW {
            lr: config.lr_schedule().at(self.step),
            beta1: optim.beta1,
            beta2: optim.beta2,
            adam_eps: optim.adam_eps,
            weight_decay: optim.weight_decay,
            step: self.step + 1,
            grad_scale: clip,
        };
        let ema = config.ema_schedule().action(self.step);
        let mut update = Update {
            at: 0,
            grads,
            hyper,
            action: ema,
            trained: &self.trained,
            ema: &mut self.ema,
            m: &mut self.m,
            v: &mut self.v,
        };
        // Taken out, so that the update works in the parameters' own memory.
        let lazy = N::lazy(config, &Device::flex());
        self.net.unet = std::mem::replace(&mut self.net.unet, lazy).map(&mut update);
        self.step += 1;
    }

    /// Names of the parameters whose values or gradients are no numbers.
    pub fn not_finite(&self, grads: &Gradients) -> Vec<String> {
        let bad = self.names.iter().zip(&grads.0).filter(|(_, g)| !crossfade_kernels::all_finite(g));
        bad.map(|((name, _), _)| name.clone()).collect()
    }
}

/// Walks the parameters in order and replaces each.
pub(super) struct Update<'a> {
    pub at: usize,
    pub grads: &'a Gradients,
    pub hyper: AdamW,
    pub action: EmaAction,
    /// Which parameters follow their gradients; all where it says nothing.
    pub trained: &'a [bool],
    pub ema: &'a mut [Vec<f32>],
    pub m: &'a mut [Vec<f32>],
    pub v: &'a mut [Vec<f32>],
}

impl ModuleMapper for Update<'_> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let i = self.at;
        self.at += 1;
        let (id, tensor) = (param.id, param.val());
        // Running statistics and frozen parts follow no gradient; averaged they are like all else (§2.5).
        let follows = tensor.is_require_grad() && self.trained.get(i).copied().unwrap_or(true);
        let (shape, device) = (tensor.dims(), tensor.device());
        let mut values = to_host(tensor.inner());
        if follows {
            adamw_step(&mut values, &mut self.m[i], &mut self.v[i], &self.grads.0[i], &self.hyper);
        }
        match self.action {
            EmaAction::Skip => {}
            EmaAction::Copy => self.ema[i].copy_from_slice(&values),
            EmaAction::Average(decay) => ema_update(&mut self.ema[i], &values, decay),
        }
        if !follows {
            return param;
        }
        drop(param);
        let tensor = from_vec(values, shape, &device);
        let mut new = Param::from_tensor(tensor);
        new.id = id;
        new
    }
}
