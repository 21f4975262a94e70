//! Gradients of the CPU kernels of [`ops`](super::ops).
mod conv;
mod linear;
mod norm;

use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::checkpoint::{retro_forward::RetroForward, state::BackwardStates};
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, NodeGuard, Ops, OpsKind};
use burn::backend::autodiff::{Autodiff, NodeId};
use burn::backend::flex::FlexTensor;
use burn::backend::{Flex, tensor::FloatTensor};
use crossfade_kernels::{attention, concat, elementwise};
use std::sync::Arc;

use super::flex::{Contiguous, OutputBuffer};
use super::ops::{
    DropoutMask, FusedOps, OptionalTensor, apply_dropout, attention_forward, attention_shape, norm_forward, repeat2x2,
    sum_pool2x2,
};
use conv::{ConvBackward, convolve_tracked};
use linear::{LinearBackward, linear_tracked};
use norm::norm_tracked;

/// A tensor for which gradients may be recorded.
pub(super) type Tracked<C> = FloatTensor<Autodiff<Flex, C>>;

/// The output of node `id`, which the checkpointer kept or recomputes.
pub(super) fn retrieve(checkpointer: &mut Checkpointer, id: NodeId) -> Contiguous {
    Contiguous::new(checkpointer.retrieve_node_output::<FlexTensor>(id))
}

/// Computes the result of a cheap operation a second time, with exactly the same bits.
///
/// With `train.recompute` the results of operations that cost little compared to a convolution are not kept for the
/// backward pass. This saves much memory for little time.
#[derive(Debug)]
struct Recompute {
    inputs: Vec<NodeId>,
    what: CheapOp,
}

#[derive(Debug)]
enum CheapOp {
    Norm { groups: usize, silu: bool },
    Concat,
    Silu,
    Linear(LinearOp),
}

impl RetroForward for Recompute {
    fn forward(&self, states: &mut BackwardStates, out_node: NodeId) {
        let mut inputs =
            self.inputs.iter().map(|id| states.get_state::<FlexTensor>(id)).collect::<Vec<_>>().into_iter();
        let mut next = || inputs.next().expect("as many as the operation was recorded with");
        let out = match &self.what {
            CheapOp::Norm { groups, silu } => {
                let [x, gamma, beta] = std::array::from_fn(|_| Contiguous::new(next()));
                let modulation = inputs.next().map(Contiguous::new);
                norm_forward(&x, &gamma, &beta, modulation.as_ref(), *groups, *silu).0
            }
            CheapOp::Concat => Flex::concat(next(), next()),
            CheapOp::Silu => Flex::fused_silu(next()),
            CheapOp::Linear(op) => op.run(next()),
        };
        states.save(out_node, out);
    }
}

#[derive(Debug)]
struct AttentionBackward;

#[derive(Clone, Debug)]
struct AttentionState {
    qkv: NodeId,
    /// The output of the attention. Keeping it costs no memory, because the next layer keeps it too.
    out: FlexTensor,
    log_sums: Arc<Vec<f32>>,
    heads: usize,
}

impl Backward<Flex, 1> for AttentionBackward {
    type State = AttentionState;

    fn backward(self, ops: Ops<AttentionState, 1>, grads: &mut Gradients, checkpointer: &mut Checkpointer) {
        let dy = Contiguous::new(grads.consume::<Flex>(&ops.node));
        let (qkv, out) = (retrieve(checkpointer, ops.state.qkv), Contiguous::new(ops.state.out));
        let shape = attention_shape(&qkv, ops.state.heads);
        let mut dqkv = OutputBuffer::new(qkv.values().len());
        attention::backward(qkv.values(), out.values(), dy.values(), &ops.state.log_sums, shape, dqkv.values());
        if let [Some(parent)] = ops.parents {
            grads.register::<Flex>(parent.id, dqkv.into_tensor(qkv.shape()));
        }
    }
}

#[derive(Debug)]
struct ConcatBackward;

impl Backward<Flex, 2> for ConcatBackward {
    /// The numbers of channels of both inputs.
    type State = [usize; 2];

    fn backward(self, ops: Ops<[usize; 2], 2>, grads: &mut Gradients, _: &mut Checkpointer) {
        let dy = Contiguous::new(grads.consume::<Flex>(&ops.node));
        let [n, _, h, w] = dy.dims();
        let sizes = ops.state.map(|c| c * h * w);
        let mut buffers = sizes.map(|size| OutputBuffer::new(n * size));
        let [a, b] = &mut buffers;
        concat::split(dy.values(), sizes, a.values(), b.values());
        for ((parent, buffer), c) in ops.parents.into_iter().zip(buffers).zip(ops.state) {
            if let Some(parent) = parent {
                grads.register::<Flex>(parent.id, buffer.into_tensor([n, c, h, w]));
            }
        }
    }
}

#[derive(Debug)]
struct SiluBackward;

impl Backward<Flex, 1> for SiluBackward {
    type State = NodeId;

    fn backward(self, ops: Ops<NodeId, 1>, grads: &mut Gradients, checkpointer: &mut Checkpointer) {
        let dy = Contiguous::new(grads.consume::<Flex>(&ops.node));
        let x = retrieve(checkpointer, ops.state);
        let mut dx = OutputBuffer::new(x.values().len());
        elementwise::silu_backward(x.values(), dy.values(), dx.values());
        if let [Some(parent)] = ops.parents {
            grads.register::<Flex>(parent.id, dx.into_tensor(x.shape()));
        }
    }
}

/// Gradient of operations that are linear in their only input, so that the input need not be kept.
#[derive(Debug)]
struct LinearOpBackward;

#[derive(Clone, Debug)]
enum LinearOp {
    AvgPool,
    Upsample,
    Dropout(DropoutMask),
}

impl Backward<Flex, 1> for LinearOpBackward {
    type State = LinearOp;

    fn backward(self, ops: Ops<LinearOp, 1>, grads: &mut Gradients, _: &mut Checkpointer) {
        let dy = Contiguous::new(grads.consume::<Flex>(&ops.node));
        let dx = match ops.state {
            LinearOp::AvgPool => repeat2x2(dy, 0.25),
            LinearOp::Upsample => sum_pool2x2(dy, 1.0),
            LinearOp::Dropout(mask) => apply_dropout(dy, &mask),
        };
        if let [Some(parent)] = ops.parents {
            grads.register::<Flex>(parent.id, dx);
        }
    }
}

impl LinearOp {
    fn run(&self, x: FlexTensor) -> FlexTensor {
        match self {
            Self::AvgPool => Flex::avg_pool2x2(x),
            Self::Upsample => Flex::upsample2x(x),
            Self::Dropout(mask) => Flex::dropout_masked(x, mask.clone()),
        }
    }
}

fn linear_op<C: CheckpointStrategy>(x: Tracked<C>, op: LinearOp) -> Tracked<C> {
    let node = x.node();
    let recompute = Recompute { inputs: vec![node.id()], what: CheapOp::Linear(op.clone()) };
    // `memory_bound`: with `train.recompute` the result is dropped and computed again.
    let prep = LinearOpBackward.prepare::<C>([node]).memory_bound().retro_forward(recompute).parents([&x]).stateful();
    let y = op.run(x.into_primitive());
    match prep {
        OpsKind::Tracked(prep) => prep.finish(op, y),
        OpsKind::UnTracked(prep) => prep.finish(y),
    }
}

impl<C: CheckpointStrategy> FusedOps for Autodiff<Flex, C> {
    fn convolve(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        base: OptionalTensor<Self>,
        stride: usize,
        padding: usize,
    ) -> FloatTensor<Self> {
        let nodes = [x.node(), weight.node(), bias.node()];
        let inputs = [x, weight, bias];
        match base {
            OptionalTensor::Some(base) => {
                let [x, weight, bias] = nodes;
                let prep = ConvBackward.prepare::<C>([x, weight, bias, base.node()]).compute_bound().stateful();
                convolve_tracked::<C, 4>(prep, inputs, OptionalTensor::Some(base.into_primitive()), stride, padding)
            }
            OptionalTensor::None => {
                let prep = ConvBackward.prepare::<C>(nodes).compute_bound().stateful();
                convolve_tracked::<C, 3>(prep, inputs, OptionalTensor::None, stride, padding)
            }
        }
    }

    fn norm(
        x: FloatTensor<Self>,
        gamma: FloatTensor<Self>,
        beta: FloatTensor<Self>,
        modulation: OptionalTensor<Self>,
        groups: usize,
        silu: bool,
    ) -> FloatTensor<Self> {
        match modulation {
            OptionalTensor::Some(modulation) => norm_tracked::<C, 4>([x, gamma, beta, modulation], groups, silu),
            OptionalTensor::None => norm_tracked::<C, 3>([x, gamma, beta], groups, silu),
        }
    }

    fn self_attention(qkv: FloatTensor<Self>, heads: usize) -> FloatTensor<Self> {
        // `compute_bound`: always kept, because recomputing attention costs too much.
        match AttentionBackward.prepare::<C>([qkv.node()]).compute_bound().stateful() {
            OpsKind::Tracked(mut prep) => {
                let id = prep.checkpoint(&qkv);
                let (out, log_sums) = attention_forward(&Contiguous::new(qkv.into_primitive()), heads);
                let state = AttentionState { qkv: id, out: out.clone(), log_sums: Arc::new(log_sums), heads };
                prep.finish(state, out)
            }
            OpsKind::UnTracked(prep) => prep.finish(Flex::self_attention(qkv.into_primitive(), heads)),
        }
    }

    fn linear(x: FloatTensor<Self>, weight: FloatTensor<Self>, bias: OptionalTensor<Self>) -> FloatTensor<Self> {
        match bias {
            OptionalTensor::Some(bias) => {
                let nodes = [x.node(), weight.node(), bias.node()];
                let prep = LinearBackward.prepare::<C>(nodes).compute_bound().stateful();
                linear_tracked::<C, 3>(prep, x, weight, OptionalTensor::Some(bias.into_primitive()))
            }
            OptionalTensor::None => {
                let prep = LinearBackward.prepare::<C>([x.node(), weight.node()]).compute_bound().stateful();
                linear_tracked::<C, 2>(prep, x, weight, OptionalTensor::None)
            }
        }
    }

    fn concat(a: FloatTensor<Self>, b: FloatTensor<Self>) -> FloatTensor<Self> {
        let nodes = [a.node(), b.node()];
        let recompute = Recompute { inputs: nodes.iter().map(NodeGuard::id).collect(), what: CheapOp::Concat };
        let prep =
            ConcatBackward.prepare::<C>(nodes).memory_bound().retro_forward(recompute).parents([&a, &b]).stateful();
        let (a, b) = (a.into_primitive(), b.into_primitive());
        let channels = [a.layout().shape()[1], b.layout().shape()[1]];
        let out = Flex::concat(a, b);
        match prep {
            OpsKind::Tracked(prep) => prep.finish(channels, out),
            OpsKind::UnTracked(prep) => prep.finish(out),
        }
    }

    fn dropout_masked(x: FloatTensor<Self>, mask: DropoutMask) -> FloatTensor<Self> {
        linear_op::<C>(x, LinearOp::Dropout(mask))
    }

    fn fused_silu(x: FloatTensor<Self>) -> FloatTensor<Self> {
        let node = x.node();
        let recompute = Recompute { inputs: vec![node.id()], what: CheapOp::Silu };
        match SiluBackward.prepare::<C>([node]).memory_bound().retro_forward(recompute).parents([&x]).stateful() {
            OpsKind::Tracked(mut prep) => {
                let id = prep.checkpoint(&x);
                prep.finish(id, Flex::fused_silu(x.into_primitive()))
            }
            OpsKind::UnTracked(prep) => prep.finish(Flex::fused_silu(x.into_primitive())),
        }
    }

    fn avg_pool2x2(x: FloatTensor<Self>) -> FloatTensor<Self> {
        linear_op::<C>(x, LinearOp::AvgPool)
    }

    fn upsample2x(x: FloatTensor<Self>) -> FloatTensor<Self> {
        linear_op::<C>(x, LinearOp::Upsample)
    }
}
