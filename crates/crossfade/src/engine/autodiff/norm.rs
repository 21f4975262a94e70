//! The gradient of a group normalisation with its modulation and SiLU.
use burn::backend::Flex;
use burn::backend::autodiff::NodeId;
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, NodeGuard, Ops, OpsKind};
use crossfade_kernels::norm::{self, NormGrads, NormTail};
use std::sync::Arc;

use super::super::flex::{Contiguous, OutputBuffer};
use super::super::ops::{norm_forward, norm_shape};
use super::{CheapOp, Recompute, Tracked, retrieve};

/// The gradient node; its inputs are x, γ, β and, if N = 4, the modulation.
#[derive(Debug)]
pub(super) struct NormBackward;

#[derive(Clone, Debug)]
pub(super) struct NormState<const N: usize> {
    inputs: [NodeId; N],
    stats: Arc<Vec<[f32; 2]>>,
    groups: usize,
    silu: bool,
}

impl<const N: usize> Backward<Flex, N> for NormBackward {
    type State = NormState<N>;

    fn backward(self, ops: Ops<NormState<N>, N>, grads: &mut Gradients, checkpointer: &mut Checkpointer) {
        let state = ops.state;
        let dy = Contiguous::new(grads.consume::<Flex>(&ops.node));
        let inputs = state.inputs.map(|id| retrieve(checkpointer, id));
        let (x, modulation) = (&inputs[0], inputs.get(3));
        let shape = norm_shape(x, state.groups);
        let tail = NormTail {
            gamma: inputs[1].values(),
            beta: inputs[2].values(),
            scale_shift: modulation.map(Contiguous::values),
            silu: state.silu,
        };
        let mut results: Vec<OutputBuffer> =
            inputs.iter().map(|input| OutputBuffer::new(input.values().len())).collect();
        let [dx, gamma, beta, modulation_grad @ ..] = results.as_mut_slice() else {
            unreachable!("a norm has three inputs")
        };
        let scale_shift = modulation_grad.first_mut().map(OutputBuffer::values);
        let out = NormGrads { x: dx.values(), gamma: gamma.values(), beta: beta.values(), scale_shift };
        norm::backward(x.values(), dy.values(), tail, &state.stats, shape, out);
        for ((parent, result), input) in ops.parents.into_iter().zip(results).zip(&inputs) {
            if let Some(parent) = parent {
                grads.register::<Flex>(parent.id, result.into_tensor(input.shape()));
            }
        }
    }
}

/// Runs the normalisation. It is declared memory-bound, so that with `train.recompute` its output is computed again
/// in the backward pass instead of kept.
pub(super) fn norm_tracked<C: CheckpointStrategy, const N: usize>(
    inputs: [Tracked<C>; N],
    groups: usize,
    silu: bool,
) -> Tracked<C> {
    let nodes: [_; N] = std::array::from_fn(|i| inputs[i].node());
    let run = |inputs: [Tracked<C>; N]| {
        let inputs = inputs.map(|input| Contiguous::new(input.into_primitive()));
        norm_forward(&inputs[0], &inputs[1], &inputs[2], inputs.get(3), groups, silu)
    };
    let recompute =
        Recompute { inputs: nodes.iter().map(NodeGuard::id).collect(), what: CheapOp::Norm { groups, silu } };
    let prep = NormBackward.prepare::<C>(nodes).memory_bound().retro_forward(recompute).parents(&inputs);
    match prep.stateful() {
        OpsKind::Tracked(mut prep) => {
            let ids: [_; N] = std::array::from_fn(|i| prep.checkpoint(&inputs[i]));
            let (out, stats) = run(inputs);
            prep.finish(NormState { inputs: ids, stats: Arc::new(stats), groups, silu }, out)
        }
        OpsKind::UnTracked(prep) => prep.finish(run(inputs).0),
    }
}
