//! The gradient of a convolution.
use burn::backend::Flex;
use burn::backend::autodiff::NodeId;
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use crossfade_kernels::conv::{self, ConvShape};

use super::super::flex::{Contiguous, OutputBuffer};
use super::super::ops::{OptionalTensor, conv_forward, conv_shape};
use super::{Tracked, retrieve};

/// The gradient node; its inputs are x, weight, bias and, if N = 4, the tensor to which the result was added.
#[derive(Debug)]
pub(super) struct ConvBackward;

/// What the backward pass needs. dx needs the weights and dw needs x, so that frozen weights cost no activation
/// memory and the first layer keeps no weights.
#[derive(Clone, Debug)]
pub(super) struct ConvState {
    x: Option<NodeId>,
    weight: Option<NodeId>,
    shape: ConvShape,
}

impl<const N: usize> Backward<Flex, N> for ConvBackward {
    type State = ConvState;

    fn backward(self, ops: Ops<ConvState, N>, grads: &mut Gradients, checkpointer: &mut Checkpointer) {
        let shape = ops.state.shape;
        let dy = Contiguous::new(grads.consume::<Flex>(&ops.node));
        let x = ops.state.x.map(|id| retrieve(checkpointer, id));
        let weight = ops.state.weight.map(|id| retrieve(checkpointer, id));
        let mut parents = ops.parents.into_iter();
        let [to_x, to_weight, to_bias, to_base] = std::array::from_fn(|_| parents.next().flatten());
        if let (Some(parent), Some(weight)) = (to_x, weight) {
            let mut dx = OutputBuffer::new(shape.x_len());
            conv::backward_input(dy.values(), weight.values(), &shape, dx.values());
            grads.register::<Flex>(parent.id, dx.into_tensor([shape.n, shape.ci, shape.h, shape.w]));
        }
        if let Some(x) = x {
            let (mut dw, mut db) = (OutputBuffer::new(shape.weight_len()), OutputBuffer::new(shape.co));
            conv::backward_weight(x.values(), dy.values(), &shape, dw.values(), Some(db.values()));
            if let Some(parent) = to_weight {
                grads.register::<Flex>(parent.id, dw.into_tensor([shape.co, shape.ci, shape.kernel, shape.kernel]));
            }
            if let Some(parent) = to_bias {
                grads.register::<Flex>(parent.id, db.into_tensor([shape.co]));
            }
        }
        if let Some(parent) = to_base {
            // The gradient of an addition is the gradient itself; sharing it avoids a copy.
            grads.register::<Flex>(parent.id, dy.share());
        }
    }
}

/// Runs the convolution; while gradients are recorded the weights change, so that preparing them would be wasted.
pub(super) fn convolve_tracked<C: CheckpointStrategy, const N: usize>(
    prep: OpsKind<ConvBackward, Flex, ConvState, C, N>,
    [x, weight, bias]: [Tracked<C>; 3],
    base: OptionalTensor<Flex>,
    stride: usize,
    padding: usize,
) -> Tracked<C> {
    let shape = conv_shape(x.primitive(), weight.primitive(), stride, padding);
    match prep {
        OpsKind::Tracked(mut prep) => {
            let needs_x = weight.is_tracked() || bias.is_tracked();
            let state = ConvState {
                x: needs_x.then(|| prep.checkpoint(&x)),
                weight: x.is_tracked().then(|| prep.checkpoint(&weight)),
                shape,
            };
            let inputs = [x, weight, bias].map(|input| input.into_primitive());
            prep.finish(state, conv_forward(inputs, base, &shape, false))
        }
        OpsKind::UnTracked(prep) => {
            let inputs = [x, weight, bias].map(|input| input.into_primitive());
            prep.finish(conv_forward(inputs, base, &shape, true))
        }
    }
}
