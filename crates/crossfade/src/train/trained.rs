//! A network with its optimiser and moving average.
use super::state::{Gradients, Update};
use crate::error::{Error, Result};
use crate::nn::weights::{apply, collect};
use crate::tensorfile::{HostTensor, TensorMap};
use burn::module::Module;
use crossfade_kernels::AdamW;
use crossfade_math::EmaAction;
use std::collections::BTreeMap;

/// Weights under training. Parameters are in the order of registration; the optimiser's state lies on the host.
pub struct Trained<M> {
    /// The network, on the device with gradients.
    pub net: M,
    names: Vec<(String, Vec<usize>)>,
    ema: Vec<Vec<f32>>,
    m: Vec<Vec<f32>>,
    v: Vec<Vec<f32>>,
}

impl<M: Module> Trained<M> {
    /// Before the first step.
    pub fn new(net: M) -> Self {
        let weights = collect(&net);
        let zeros = || weights.iter().map(|(_, _, w)| vec![0.0; w.len()]).collect();
        Self {
            m: zeros(),
            v: zeros(),
            names: weights.iter().map(|(name, shape, _)| (name.clone(), shape.clone())).collect(),
            ema: weights.into_iter().map(|(_, _, w)| w).collect(),
            net,
        }
    }

    /// One step of AdamW and of the moving average.
    pub fn update(&mut self, grads: &Gradients, hyper: AdamW, action: EmaAction) {
        let Self { net, ema, m, v, .. } = self;
        let mut update = Update { at: 0, grads, hyper, action, trained: &[], ema, m, v };
        *net = net.clone().map(&mut update);
    }

    /// All that a resume needs, as a checkpoint holds it; `prefix` comes before the names of the network.
    pub fn tensors(&self, prefix: &str) -> Vec<HostTensor> {
        let named = |kind: &str, values: &[Vec<f32>]| -> Vec<HostTensor> {
            let names = self.names.iter().zip(values);
            names.map(|((name, shape), w)| (format!("{kind}.{prefix}{name}"), shape.clone(), w.clone())).collect()
        };
        let model = collect(&self.net).into_iter();
        let model = model.map(|(name, shape, w)| (format!("model.{prefix}{name}"), shape, w));
        let state = [named("ema", &self.ema), named("adam_m", &self.m), named("adam_v", &self.v)];
        model.chain(state.into_iter().flatten()).collect()
    }

    /// The state that `tensors` holds; an error names what is missing.
    pub fn restore(mut self, tensors: &mut TensorMap, prefix: &str) -> Result<Self> {
        let mut take = |kind: &str| -> Result<Vec<Vec<f32>>> {
            let wanted = self.names.iter().map(|(name, shape)| {
                let full = format!("{kind}.{prefix}{name}");
                let found = tensors.remove(&full).filter(|(s, _)| s == shape).map(|(_, values)| values);
                found.ok_or_else(|| Error::Run(format!("cannot be resumed: no fitting {full}")))
            });
            wanted.collect()
        };
        let model = take("model")?;
        (self.ema, self.m, self.v) = (take("ema")?, take("adam_m")?, take("adam_v")?);
        self.net = self.with_values(self.net.clone(), &model)?;
        Ok(self)
    }

    /// `net` with the averaged weights.
    pub fn averaged(&self, net: M) -> Result<M> {
        self.with_values(net, &self.ema)
    }

    fn with_values(&self, net: M, values: &[Vec<f32>]) -> Result<M> {
        let index: BTreeMap<&str, usize> = self.names.iter().enumerate().map(|(i, (n, _))| (n.as_str(), i)).collect();
        apply(net, &|name| {
            let i = *index.get(name)?;
            Some((self.names[i].1.clone(), values[i].clone()))
        })
    }
}
