//! Gradients of the fast operations, written by hand.
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::autodiff::{Autodiff, NodeId};
use burn::backend::flex::FlexTensor;
use burn::backend::{Flex, tensor::FloatTensor};
use crossfade_kernels::conv::{self, ConvShape};
use crossfade_kernels::norm::{self, NormGrads, NormTail};
use crossfade_kernels::{attention, elementwise};
use std::sync::Arc;

use super::flex::{Dense, room, tensor};
use super::ops::{
    FusedOps, Maybe, attention_forward, attention_shape, conv_shape, doubled, halved, norm_forward, norm_shape,
};

type Tracked<C> = FloatTensor<Autodiff<Flex, C>>;

fn retrieve(checkpointer: &mut Checkpointer, id: NodeId) -> Dense {
    Dense::new(checkpointer.retrieve_node_output::<FlexTensor>(id))
}

/// Inputs are x, weight and bias.
#[derive(Debug)]
struct ConvBackward;

/// x is kept only if weights or bias learn, the weights only if x wants a gradient.
#[derive(Clone, Debug)]
struct ConvState {
    x: Option<NodeId>,
    weight: Option<NodeId>,
    shape: ConvShape,
}

impl Backward<Flex, 3> for ConvBackward {
    type State = ConvState;

    fn backward(self, ops: Ops<ConvState, 3>, grads: &mut Gradients, checkpointer: &mut Checkpointer) {
        let shape = ops.state.shape;
        let dy = Dense::new(grads.consume::<Flex>(&ops.node));
        let x = ops.state.x.map(|id| retrieve(checkpointer, id));
        let weight = ops.state.weight.map(|id| retrieve(checkpointer, id));
        let [to_x, to_weight, to_bias] = ops.parents;
        if let (Some(parent), Some(weight)) = (to_x, weight) {
            let mut dx = room(shape.x_len());
            conv::backward_input(dy.values(), weight.values(), &shape, &mut dx);
            grads.register::<Flex>(parent.id, tensor(dx, [shape.n, shape.ci, shape.h, shape.w]));
        }
        if let Some(x) = x {
            let (mut dw, mut db) = (room(shape.weight_len()), room(shape.co));
            conv::backward_weight(x.values(), dy.values(), &shape, &mut dw, Some(&mut db));
            if let Some(parent) = to_weight {
                grads.register::<Flex>(parent.id, tensor(dw, [shape.co, shape.ci, shape.kernel, shape.kernel]));
            }
            if let Some(parent) = to_bias {
                grads.register::<Flex>(parent.id, tensor(db, [shape.co]));
            }
        }
    }
}

/// Inputs are x, γ, β and, if N = 4, the modulation.
#[derive(Debug)]
struct NormBackward;

#[derive(Clone, Debug)]
struct NormState<const N: usize> {
    inputs: [NodeId; N],
    stats: Arc<Vec<[f32; 2]>>,
    groups: usize,
    silu: bool,
}

impl<const N: usize> Backward<Flex, N> for NormBackward {
    type State = NormState<N>;

    fn backward(self, ops: Ops<NormState<N>, N>, grads: &mut Gradients, checkpointer: &mut Checkpointer) {
        let state = ops.state;
        let dy = Dense::new(grads.consume::<Flex>(&ops.node));
        let inputs = state.inputs.map(|id| retrieve(checkpointer, id));
        let (x, modulation) = (&inputs[0], inputs.get(3));
        let shape = norm_shape(x, state.groups);
        let tail = NormTail {
            gamma: inputs[1].values(),
            beta: inputs[2].values(),
            scale_shift: modulation.map(Dense::values),
            silu: state.silu,
        };
        let mut results: Vec<Vec<f32>> = inputs.iter().map(|input| room(input.values().len())).collect();
        let [dx, gamma, beta, rest @ ..] = results.as_mut_slice() else { unreachable!("a norm has three inputs") };
        let out = NormGrads { x: dx, gamma, beta, scale_shift: rest.first_mut().map(Vec::as_mut_slice) };
        norm::backward(x.values(), dy.values(), tail, &state.stats, shape, out);
        for ((parent, values), input) in ops.parents.into_iter().zip(results).zip(&inputs) {
            if let Some(parent) = parent {
                grads.register::<Flex>(parent.id, tensor(values, input.shape()));
            }
        }
    }
}

fn norm_tracked<C: CheckpointStrategy, const N: usize>(
    inputs: [Tracked<C>; N],
    groups: usize,
    silu: bool,
) -> Tracked<C> {
    let nodes: [_; N] = std::array::from_fn(|i| inputs[i].node());
    match NormBackward.prepare::<C>(nodes).compute_bound().stateful() {
        OpsKind::Tracked(mut prep) => {
            let ids: [_; N] = std::array::from_fn(|i| prep.checkpoint(&inputs[i]));
            let inputs = inputs.map(|input| Dense::new(input.into_primitive()));
            let (out, stats) = norm_forward(&inputs[0], &inputs[1], &inputs[2], inputs.get(3), groups, silu);
            let state = NormState { inputs: ids, stats: Arc::new(stats), groups, silu };
            prep.finish(state, tensor(out, inputs[0].shape()))
        }
        OpsKind::UnTracked(prep) => {
            let inputs = inputs.map(|input| Dense::new(input.into_primitive()));
            let (out, _) = norm_forward(&inputs[0], &inputs[1], &inputs[2], inputs.get(3), groups, silu);
            prep.finish(tensor(out, inputs[0].shape()))
        }
    }
}

#[derive(Debug)]
struct AttentionBackward;

#[derive(Clone, Debug)]
struct AttentionState {
    qkv: NodeId,
    /// The output, which the next layer keeps anyway.
    out: FlexTensor,
    log_sums: Arc<Vec<f32>>,
    heads: usize,
}

impl Backward<Flex, 1> for AttentionBackward {
    type State = AttentionState;

    fn backward(self, ops: Ops<AttentionState, 1>, grads: &mut Gradients, checkpointer: &mut Checkpointer) {
        let dy = Dense::new(grads.consume::<Flex>(&ops.node));
        let (qkv, out) = (retrieve(checkpointer, ops.state.qkv), Dense::new(ops.state.out));
        let shape = attention_shape(&qkv, ops.state.heads);
        let mut dqkv = room(qkv.values().len());
        attention::backward(qkv.values(), out.values(), dy.values(), &ops.state.log_sums, shape, &mut dqkv);
        if let [Some(parent)] = ops.parents {
            grads.register::<Flex>(parent.id, tensor(dqkv, qkv.shape()));
        }
    }
}

#[derive(Debug)]
struct SiluBackward;

impl Backward<Flex, 1> for SiluBackward {
    type State = NodeId;

    fn backward(self, ops: Ops<NodeId, 1>, grads: &mut Gradients, checkpointer: &mut Checkpointer) {
        let dy = Dense::new(grads.consume::<Flex>(&ops.node));
        let x = retrieve(checkpointer, ops.state);
        let mut dx = room(x.values().len());
        elementwise::silu_backward(x.values(), dy.values(), &mut dx);
        if let [Some(parent)] = ops.parents {
            grads.register::<Flex>(parent.id, tensor(dx, x.shape()));
        }
    }
}

/// Of either change of size; each undoes the other but for a factor.
#[derive(Debug)]
struct ResampleBackward;

#[derive(Clone, Copy, Debug)]
enum Resample {
    Halve,
    Double,
}

impl Backward<Flex, 1> for ResampleBackward {
    type State = Resample;

    fn backward(self, ops: Ops<Resample, 1>, grads: &mut Gradients, _: &mut Checkpointer) {
        let dy = Dense::new(grads.consume::<Flex>(&ops.node));
        let dx = match ops.state {
            Resample::Halve => doubled(dy, 0.25),
            Resample::Double => halved(dy, 1.0),
        };
        if let [Some(parent)] = ops.parents {
            grads.register::<Flex>(parent.id, dx);
        }
    }
}

fn resampled<C: CheckpointStrategy>(x: Tracked<C>, how: Resample) -> Tracked<C> {
    let prep = ResampleBackward.prepare::<C>([x.node()]).compute_bound().stateful();
    let x = x.into_primitive();
    let y = match how {
        Resample::Halve => Flex::halve(x),
        Resample::Double => Flex::double(x),
    };
    match prep {
        OpsKind::Tracked(prep) => prep.finish(how, y),
        OpsKind::UnTracked(prep) => prep.finish(y),
    }
}

impl<C: CheckpointStrategy> FusedOps for Autodiff<Flex, C> {
    fn convolve(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        stride: usize,
        padding: usize,
    ) -> FloatTensor<Self> {
        let prep = ConvBackward.prepare::<C>([x.node(), weight.node(), bias.node()]).compute_bound().stateful();
        let run = |x: Tracked<C>, weight: Tracked<C>, bias: Tracked<C>| {
            Flex::convolve(x.into_primitive(), weight.into_primitive(), bias.into_primitive(), stride, padding)
        };
        match prep {
            OpsKind::Tracked(mut prep) => {
                let learns = weight.is_tracked() || bias.is_tracked();
                let state = ConvState {
                    x: learns.then(|| prep.checkpoint(&x)),
                    weight: x.is_tracked().then(|| prep.checkpoint(&weight)),
                    shape: conv_shape(x.primitive(), weight.primitive(), stride, padding),
                };
                prep.finish(state, run(x, weight, bias))
            }
            OpsKind::UnTracked(prep) => prep.finish(run(x, weight, bias)),
        }
    }

    fn norm(
        x: FloatTensor<Self>,
        gamma: FloatTensor<Self>,
        beta: FloatTensor<Self>,
        modulation: Maybe<Self>,
        groups: usize,
        silu: bool,
    ) -> FloatTensor<Self> {
        match modulation {
            Maybe::Some(modulation) => norm_tracked::<C, 4>([x, gamma, beta, modulation], groups, silu),
            Maybe::None => norm_tracked::<C, 3>([x, gamma, beta], groups, silu),
        }
    }

    fn self_attention(qkv: FloatTensor<Self>, heads: usize) -> FloatTensor<Self> {
        match AttentionBackward.prepare::<C>([qkv.node()]).compute_bound().stateful() {
            OpsKind::Tracked(mut prep) => {
                let id = prep.checkpoint(&qkv);
                let qkv = Dense::new(qkv.into_primitive());
                let [b, c3, h, w] = qkv.dims();
                let (out, log_sums) = attention_forward(&qkv, heads);
                let out = tensor(out, [b, c3 / 3, h, w]);
                let state = AttentionState { qkv: id, out: out.clone(), log_sums: Arc::new(log_sums), heads };
                prep.finish(state, out)
            }
            OpsKind::UnTracked(prep) => prep.finish(Flex::self_attention(qkv.into_primitive(), heads)),
        }
    }

    fn fused_silu(x: FloatTensor<Self>) -> FloatTensor<Self> {
        match SiluBackward.prepare::<C>([x.node()]).compute_bound().stateful() {
            OpsKind::Tracked(mut prep) => {
                let id = prep.checkpoint(&x);
                prep.finish(id, Flex::fused_silu(x.into_primitive()))
            }
            OpsKind::UnTracked(prep) => prep.finish(Flex::fused_silu(x.into_primitive())),
        }
    }

    fn halve(x: FloatTensor<Self>) -> FloatTensor<Self> {
        resampled::<C>(x, Resample::Halve)
    }

    fn double(x: FloatTensor<Self>) -> FloatTensor<Self> {
        resampled::<C>(x, Resample::Double)
    }
}
