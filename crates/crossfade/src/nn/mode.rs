//! Training or evaluation, passed with every call; batch statistics leave a training pass through the same argument.
use std::cell::RefCell;

use burn::module::{Module, ModuleMapper, Param, ParamId};
use burn::tensor::Tensor;

use super::dropout::DropoutKey;
use crate::engine::{from_vec, to_host};

/// Whether a network is being trained or evaluated.
#[derive(Clone, Copy, Debug)]
pub enum Mode<'a> {
    /// Running statistics and no dropout.
    Eval,
    /// Statistics of the batch, dropout and stochastic depth.
    Train {
        /// Decides which features and branches are dropped.
        dropout: &'a DropoutKey,
        /// Takes the statistics of every batch normalisation.
        statistics: &'a Statistics,
    },
}

impl<'a> Mode<'a> {
    /// The key of the dropout masks; none in evaluation.
    pub fn dropout(&self) -> Option<&'a DropoutKey> {
        match self {
            Self::Eval => None,
            Self::Train { dropout, .. } => Some(dropout),
        }
    }
}

/// Mean or variance of one batch, for the buffer with this id.
#[derive(Debug)]
struct BatchMoment {
    buffer: ParamId,
    /// Share of the batch in the running statistics.
    momentum: f32,
    values: Vec<f32>,
}

/// Means and variances of batches, on their way into the running statistics.
///
/// A forward pass takes the network by shared reference and cannot change its buffers, so it notes the moments here;
/// [`Statistics::into_module`] adds them to the running statistics in the order of the passes. Buffers are saved and restored
/// as parameters are.
#[derive(Debug, Default)]
pub struct Statistics(RefCell<Vec<BatchMoment>>);

impl Statistics {
    pub(in crate::nn) fn note(&self, buffer: ParamId, momentum: f32, values: Vec<f32>) {
        self.0.borrow_mut().push(BatchMoment { buffer, momentum, values });
    }

    /// The module with running ← (1 − momentum)·running + momentum·batch for every batch noted.
    pub fn into_module<M: Module>(self, module: M) -> M {
        struct Absorb(Vec<BatchMoment>);
        impl ModuleMapper for Absorb {
            fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
                let mut batches = self.0.iter().filter(|batch| batch.buffer == param.id).peekable();
                if batches.peek().is_none() {
                    return param;
                }
                let (id, old) = (param.id, param.val());
                let (shape, device) = (old.dims(), old.device());
                let mut running = to_host(old);
                for BatchMoment { momentum, values, .. } in batches {
                    running.iter_mut().zip(values).for_each(|(r, b)| *r = (1.0 - momentum) * *r + momentum * b);
                }
                let mut new = Param::from_tensor(from_vec(running, shape, &device)).set_require_grad(false);
                new.id = id;
                new
            }
        }
        module.map(&mut Absorb(self.0.into_inner()))
    }
}
