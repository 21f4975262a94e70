//! Gradients of the fast operations, written by hand.
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::checkpoint::{retro_forward::RetroForward, state::BackwardStates};
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, NodeGuard, Ops, OpsKind};
use burn::backend::autodiff::{Autodiff, NodeId};
use burn::backend::flex::FlexTensor;
use burn::backend::{Flex, tensor::FloatTensor};
use crossfade_kernels::conv::{self, ConvShape};
use crossfade_kernels::norm::{self, NormGrads, NormTail};
use crossfade_kernels::{attention, concat, elementwise, linear};
use std::sync::Arc;

use super::flex::{Dense, Room};
use super::ops::{
    DropMask, FusedOps, Maybe, attention_forward, attention_shape, conv_forward, conv_shape, doubled, dropped, halved,
    linear_shape, norm_forward, norm_shape,
};

pub(super) type Tracked<C> = FloatTensor<Autodiff<Flex, C>>;

pub(super) fn retrieve(checkpointer: &mut Checkpointer, id: NodeId) -> Dense {
    Dense::new(checkpointer.retrieve_node_output::<FlexTensor>(id))
}

/// An operation that costs little beside a convolution: when memory matters more than time, its result is not kept for the
/// backward pass but computed again, to the same bits.
#[derive(Debug)]
struct Again {
    inputs: Vec<NodeId>,
    what: Light,
}

#[derive(Debug)]
enum Light {
    Norm { groups: usize, silu: bool },
    Concat,
    Silu,
    Map(Map),
}

impl RetroForward for Again {
    fn forward(&self, states: &mut BackwardStates, out_node: NodeId) {
        let mut inputs =
            self.inputs.iter().map(|id| states.get_state::<FlexTensor>(id)).collect::<Vec<_>>().into_iter();
        let mut next = || inputs.next().expect("as many as the operation was recorded with");
        let out = match &self.what {
            Light::Norm { groups, silu } => {
                let [x, gamma, beta] = std::array::from_fn(|_| Dense::new(next()));
                let modulation = inputs.next().map(Dense::new);
                norm_forward(&x, &gamma, &beta, modulation.as_ref(), *groups, *silu).0
            }
            Light::Concat => Flex::concat(next(), next()),
            Light::Silu => Flex::fused_silu(next()),
            Light::Map(map) => map.run(next()),
        };
        states.save(out_node, out);
    }
}

/// Inputs are x, weight, bias and, if N = 4, what the result was added to.
#[derive(Debug)]
struct ConvBackward;

/// x is kept only if weights or bias learn, the weights only if x wants a gradient.
#[derive(Clone, Debug)]
struct ConvState {
    x: Option<NodeId>,
    weight: Option<NodeId>,
    shape: ConvShape,
}

impl<const N: usize> Backward<Flex, N> for ConvBackward {
    type State = ConvState;

    fn backward(self, ops: Ops<ConvState, N>, grads: &mut Gradients, checkpointer: &mut Checkpointer) {
        let shape = ops.state.shape;
        let dy = Dense::new(grads.consume::<Flex>(&ops.node));
        let x = ops.state.x.map(|id| retrieve(checkpointer, id));
        let weight = ops.state.weight.map(|id| retrieve(checkpointer, id));
        let mut parents = ops.parents.into_iter();
        let [to_x, to_weight, to_bias, to_base] = std::array::from_fn(|_| parents.next().flatten());
        if let (Some(parent), Some(weight)) = (to_x, weight) {
            let mut dx = Room::new(shape.x_len());
            conv::backward_input(dy.values(), weight.values(), &shape, dx.values());
            grads.register::<Flex>(parent.id, dx.tensor([shape.n, shape.ci, shape.h, shape.w]));
        }
        if let Some(x) = x {
            let (mut dw, mut db) = (Room::new(shape.weight_len()), Room::new(shape.co));
            conv::backward_weight(x.values(), dy.values(), &shape, dw.values(), Some(db.values()));
            if let Some(parent) = to_weight {
                grads.register::<Flex>(parent.id, dw.tensor([shape.co, shape.ci, shape.kernel, shape.kernel]));
            }
            if let Some(parent) = to_bias {
                grads.register::<Flex>(parent.id, db.tensor([shape.co]));
            }
        }
        if let Some(parent) = to_base {
            grads.register::<Flex>(parent.id, dy.share());
        }
    }
}

fn convolve_tracked<C: CheckpointStrategy, const N: usize>(
    prep: OpsKind<ConvBackward, Flex, ConvState, C, N>,
    [x, weight, bias]: [Tracked<C>; 3],
    base: Maybe<Flex>,
    stride: usize,
    padding: usize,
) -> Tracked<C> {
    let shape = conv_shape(x.primitive(), weight.primitive(), stride, padding);
    match prep {
        OpsKind::Tracked(mut prep) => {
            let learns = weight.is_tracked() || bias.is_tracked();
            let state = ConvState {
                x: learns.then(|| prep.checkpoint(&x)),
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
        let mut results: Vec<Room> = inputs.iter().map(|input| Room::new(input.values().len())).collect();
        let [dx, gamma, beta, rest @ ..] = results.as_mut_slice() else { unreachable!("a norm has three inputs") };
        let scale_shift = rest.first_mut().map(Room::values);
        let out = NormGrads { x: dx.values(), gamma: gamma.values(), beta: beta.values(), scale_shift };
        norm::backward(x.values(), dy.values(), tail, &state.stats, shape, out);
        for ((parent, result), input) in ops.parents.into_iter().zip(results).zip(&inputs) {
            if let Some(parent) = parent {
                grads.register::<Flex>(parent.id, result.tensor(input.shape()));
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
    let run = |inputs: [Tracked<C>; N]| {
        let inputs = inputs.map(|input| Dense::new(input.into_primitive()));
        norm_forward(&inputs[0], &inputs[1], &inputs[2], inputs.get(3), groups, silu)
    };
    let again = Again { inputs: nodes.iter().map(NodeGuard::id).collect(), what: Light::Norm { groups, silu } };
    let prep = NormBackward.prepare::<C>(nodes).memory_bound().retro_forward(again).parents(&inputs);
    match prep.stateful() {
        OpsKind::Tracked(mut prep) => {
            let ids: [_; N] = std::array::from_fn(|i| prep.checkpoint(&inputs[i]));
            let (out, stats) = run(inputs);
            prep.finish(NormState { inputs: ids, stats: Arc::new(stats), groups, silu }, out)
        }
        OpsKind::UnTracked(prep) => prep.finish(run(inputs).0),
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
        let mut dqkv = Room::new(qkv.values().len());
        attention::backward(qkv.values(), out.values(), dy.values(), &ops.state.log_sums, shape, dqkv.values());
        if let [Some(parent)] = ops.parents {
            grads.register::<Flex>(parent.id, dqkv.tensor(qkv.shape()));
        }
    }
}

/// Inputs are x, weight and, if N = 3, the bias.
#[derive(Debug)]
struct LinearBackward;

impl<const N: usize> Backward<Flex, N> for LinearBackward {
    type State = [NodeId; 2];

    fn backward(self, ops: Ops<[NodeId; 2], N>, grads: &mut Gradients, checkpointer: &mut Checkpointer) {
        let dy = Dense::new(grads.consume::<Flex>(&ops.node));
        let [x, weight] = ops.state.map(|id| retrieve(checkpointer, id));
        let shape = linear_shape(&x, &weight);
        let mut rooms = [shape.n * shape.cin, shape.cout * shape.cin, shape.cout].map(Room::new);
        let [dx, dw, db] = &mut rooms;
        linear::backward(x.values(), weight.values(), dy.values(), shape, dx.values(), dw.values(), db.values());
        let shapes = [x.shape(), weight.shape(), [shape.cout].into()];
        for ((parent, room), shape) in ops.parents.into_iter().zip(rooms).zip(shapes) {
            if let Some(parent) = parent {
                grads.register::<Flex>(parent.id, room.tensor(shape));
            }
        }
    }
}

fn linear_tracked<C: CheckpointStrategy, const N: usize>(
    prep: OpsKind<LinearBackward, Flex, [NodeId; 2], C, N>,
    x: Tracked<C>,
    weight: Tracked<C>,
    bias: Maybe<Flex>,
) -> Tracked<C> {
    match prep {
        OpsKind::Tracked(mut prep) => {
            let ids = [prep.checkpoint(&x), prep.checkpoint(&weight)];
            prep.finish(ids, Flex::linear(x.into_primitive(), weight.into_primitive(), bias))
        }
        OpsKind::UnTracked(prep) => prep.finish(Flex::linear(x.into_primitive(), weight.into_primitive(), bias)),
    }
}

#[derive(Debug)]
struct ConcatBackward;

impl Backward<Flex, 2> for ConcatBackward {
    /// Channels of both.
    type State = [usize; 2];

    fn backward(self, ops: Ops<[usize; 2], 2>, grads: &mut Gradients, _: &mut Checkpointer) {
        let dy = Dense::new(grads.consume::<Flex>(&ops.node));
        let [n, _, h, w] = dy.dims();
        let sizes = ops.state.map(|c| c * h * w);
        let mut rooms = sizes.map(|size| Room::new(n * size));
        let [a, b] = &mut rooms;
        concat::split(dy.values(), sizes, a.values(), b.values());
        for ((parent, room), c) in ops.parents.into_iter().zip(rooms).zip(ops.state) {
            if let Some(parent) = parent {
                grads.register::<Flex>(parent.id, room.tensor([n, c, h, w]));
            }
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
        let mut dx = Room::new(x.values().len());
        elementwise::silu_backward(x.values(), dy.values(), dx.values());
        if let [Some(parent)] = ops.parents {
            grads.register::<Flex>(parent.id, dx.tensor(x.shape()));
        }
    }
}

/// Of the operations that are linear in their only input, and so need nothing of it.
#[derive(Debug)]
struct MapBackward;

#[derive(Clone, Debug)]
enum Map {
    Halve,
    Double,
    Drop(DropMask),
}

impl Backward<Flex, 1> for MapBackward {
    type State = Map;

    fn backward(self, ops: Ops<Map, 1>, grads: &mut Gradients, _: &mut Checkpointer) {
        let dy = Dense::new(grads.consume::<Flex>(&ops.node));
        let dx = match ops.state {
            Map::Halve => doubled(dy, 0.25),
            Map::Double => halved(dy, 1.0),
            Map::Drop(mask) => dropped(dy, &mask),
        };
        if let [Some(parent)] = ops.parents {
            grads.register::<Flex>(parent.id, dx);
        }
    }
}

impl Map {
    fn run(&self, x: FlexTensor) -> FlexTensor {
        match self {
            Self::Halve => Flex::halve(x),
            Self::Double => Flex::double(x),
            Self::Drop(mask) => Flex::drop_some(x, mask.clone()),
        }
    }
}

fn mapped<C: CheckpointStrategy>(x: Tracked<C>, map: Map) -> Tracked<C> {
    let node = x.node();
    let again = Again { inputs: vec![node.id()], what: Light::Map(map.clone()) };
    let prep = MapBackward.prepare::<C>([node]).memory_bound().retro_forward(again).parents([&x]).stateful();
    let y = map.run(x.into_primitive());
    match prep {
        OpsKind::Tracked(prep) => prep.finish(map, y),
        OpsKind::UnTracked(prep) => prep.finish(y),
    }
}

impl<C: CheckpointStrategy> FusedOps for Autodiff<Flex, C> {
    fn convolve(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        base: Maybe<Self>,
        stride: usize,
        padding: usize,
    ) -> FloatTensor<Self> {
        let nodes = [x.node(), weight.node(), bias.node()];
        let inputs = [x, weight, bias];
        match base {
            Maybe::Some(base) => {
                let [x, weight, bias] = nodes;
                let prep = ConvBackward.prepare::<C>([x, weight, bias, base.node()]).compute_bound().stateful();
                convolve_tracked::<C, 4>(prep, inputs, Maybe::Some(base.into_primitive()), stride, padding)
            }
            Maybe::None => {
                let prep = ConvBackward.prepare::<C>(nodes).compute_bound().stateful();
                convolve_tracked::<C, 3>(prep, inputs, Maybe::None, stride, padding)
            }
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
                let (out, log_sums) = attention_forward(&Dense::new(qkv.into_primitive()), heads);
                let state = AttentionState { qkv: id, out: out.clone(), log_sums: Arc::new(log_sums), heads };
                prep.finish(state, out)
            }
            OpsKind::UnTracked(prep) => prep.finish(Flex::self_attention(qkv.into_primitive(), heads)),
        }
    }

    fn linear(x: FloatTensor<Self>, weight: FloatTensor<Self>, bias: Maybe<Self>) -> FloatTensor<Self> {
        match bias {
            Maybe::Some(bias) => {
                let nodes = [x.node(), weight.node(), bias.node()];
                let prep = LinearBackward.prepare::<C>(nodes).compute_bound().stateful();
                linear_tracked::<C, 3>(prep, x, weight, Maybe::Some(bias.into_primitive()))
            }
            Maybe::None => {
                let prep = LinearBackward.prepare::<C>([x.node(), weight.node()]).compute_bound().stateful();
                linear_tracked::<C, 2>(prep, x, weight, Maybe::None)
            }
        }
    }

    fn concat(a: FloatTensor<Self>, b: FloatTensor<Self>) -> FloatTensor<Self> {
        let nodes = [a.node(), b.node()];
        let again = Again { inputs: nodes.iter().map(NodeGuard::id).collect(), what: Light::Concat };
        let prep = ConcatBackward.prepare::<C>(nodes).memory_bound().retro_forward(again).parents([&a, &b]).stateful();
        let (a, b) = (a.into_primitive(), b.into_primitive());
        let channels = [a.layout().shape()[1], b.layout().shape()[1]];
        let out = Flex::concat(a, b);
        match prep {
            OpsKind::Tracked(prep) => prep.finish(channels, out),
            OpsKind::UnTracked(prep) => prep.finish(out),
        }
    }

    fn drop_some(x: FloatTensor<Self>, mask: DropMask) -> FloatTensor<Self> {
        mapped::<C>(x, Map::Drop(mask))
    }

    fn fused_silu(x: FloatTensor<Self>) -> FloatTensor<Self> {
        let node = x.node();
        let again = Again { inputs: vec![node.id()], what: Light::Silu };
        match SiluBackward.prepare::<C>([node]).memory_bound().retro_forward(again).parents([&x]).stateful() {
            OpsKind::Tracked(mut prep) => {
                let id = prep.checkpoint(&x);
                prep.finish(id, Flex::fused_silu(x.into_primitive()))
            }
            OpsKind::UnTracked(prep) => prep.finish(Flex::fused_silu(x.into_primitive())),
        }
    }

    fn halve(x: FloatTensor<Self>) -> FloatTensor<Self> {
        mapped::<C>(x, Map::Halve)
    }

    fn double(x: FloatTensor<Self>) -> FloatTensor<Self> {
        mapped::<C>(x, Map::Double)
    }
}
