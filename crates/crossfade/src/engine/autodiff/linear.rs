//! The gradient of a dense layer.
use burn::backend::Flex;
use burn::backend::autodiff::NodeId;
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use crossfade_kernels::linear;

use super::super::flex::{Contiguous, OutputBuffer};
use super::super::ops::{FusedOps, OptionalTensor, linear_shape};
use super::{Tracked, retrieve};

/// The gradient node; its inputs are x, weight and, if N = 3, the bias.
#[derive(Debug)]
pub(super) struct LinearBackward;

impl<const N: usize> Backward<Flex, N> for LinearBackward {
    type State = [NodeId; 2];

    fn backward(self, ops: Ops<[NodeId; 2], N>, grads: &mut Gradients, checkpointer: &mut Checkpointer) {
        let dy = Contiguous::new(grads.consume::<Flex>(&ops.node));
        let [x, weight] = ops.state.map(|id| retrieve(checkpointer, id));
        let shape = linear_shape(&x, &weight);
        let mut buffers = [shape.n * shape.cin, shape.cout * shape.cin, shape.cout].map(OutputBuffer::new);
        let [dx, dw, db] = &mut buffers;
        linear::backward(x.values(), weight.values(), dy.values(), shape, dx.values(), dw.values(), db.values());
        let shapes = [x.shape(), weight.shape(), [shape.cout].into()];
        for ((parent, buffer), shape) in ops.parents.into_iter().zip(buffers).zip(shapes) {
            if let Some(parent) = parent {
                grads.register::<Flex>(parent.id, buffer.into_tensor(shape));
            }
        }
    }
}

/// Runs the layer and keeps x and weight for the backward pass if gradients are recorded.
pub(super) fn linear_tracked<C: CheckpointStrategy, const N: usize>(
    prep: OpsKind<LinearBackward, Flex, [NodeId; 2], C, N>,
    x: Tracked<C>,
    weight: Tracked<C>,
    bias: OptionalTensor<Flex>,
) -> Tracked<C> {
    match prep {
        OpsKind::Tracked(mut prep) => {
            let ids = [prep.checkpoint(&x), prep.checkpoint(&weight)];
            prep.finish(ids, Flex::linear(x.into_primitive(), weight.into_primitive(), bias))
        }
        OpsKind::UnTracked(prep) => prep.finish(Flex::linear(x.into_primitive(), weight.into_primitive(), bias)),
    }
}
