//! Training or evaluation, passed with every call; batch statistics leave a training pass through the same argument.
use std::cell::RefCell;

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param, ParamId};
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

/// The place of a buffer among the parameters of a network, the share of the batch, and its mean or variance.
pub(crate) type PlacedMoment = (usize, f32, Vec<f32>);

/// The ids of all parameters and buffers, in the order in which `module` is visited.
fn ids<M: Module>(module: &M) -> Vec<ParamId> {
    struct Ids(Vec<ParamId>);
    impl ModuleVisitor for Ids {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            self.0.push(param.id);
        }
    }
    let mut found = Ids(vec![]);
    module.visit(&mut found);
    found.0
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

    /// What was noted, with the place of each buffer in the order in which `module` is visited: for another process, where the
    /// same buffers have other ids.
    pub(crate) fn into_places<M: Module>(self, module: &M) -> Vec<PlacedMoment> {
        let ids = ids(module);
        let noted = self.0.into_inner().into_iter();
        let place = |id: ParamId| ids.iter().position(|other| *other == id);
        noted.filter_map(|BatchMoment { buffer, momentum, values }| Some((place(buffer)?, momentum, values))).collect()
    }

    /// Notes what [`Statistics::into_places`] returned, for the same network in this process.
    pub(crate) fn extend<M: Module>(&self, moments: Vec<PlacedMoment>, module: &M) {
        let ids = ids(module);
        let moments = moments.into_iter();
        let placed = moments.filter_map(|(place, momentum, values)| Some((*ids.get(place)?, momentum, values)));
        placed.for_each(|(buffer, momentum, values)| self.note(buffer, momentum, values));
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
