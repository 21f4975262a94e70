//! CPU kernels that only the conditional networks use, and their gradients.
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::autodiff::{Autodiff, NodeId};
use burn::backend::flex::FlexTensor;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, Dispatch, Flex, backend_extension};
use burn::tensor::Tensor;
use crossfade_kernels::linear_attention::{self, LinearAttentionShape};
use crossfade_kernels::planes::{self, LineMap};
use crossfade_kernels::{batch_norm, channel_norm};
use std::sync::{Arc, OnceLock};

use super::autodiff::{Tracked, retrieve};
use super::flex::{Contiguous, OutputBuffer};

/// A linear map of the columns and one of the rows of every channel, such as bilinear resizing or pooling; shared with the
/// backward pass.
#[derive(Clone, Debug)]
pub struct SeparableMap(Arc<[LineMap; 2]>);

impl SeparableMap {
    /// R x Cᵀ: `rows` (R) has as many outputs as the result has rows, `columns` (C) as many as it has columns.
    pub fn new(rows: LineMap, columns: LineMap) -> Self {
        Self(Arc::new([rows, columns]))
    }

    fn apply(&self, x: FlexTensor) -> FlexTensor {
        let x = Contiguous::new(x);
        let [rows, columns] = &*self.0;
        let [b, c, _, _] = x.dims();
        let size = [rows.to(), columns.to()];
        let mut out = OutputBuffer::new(b * c * size[0] * size[1]);
        planes::map(x.values(), rows, columns, out.values());
        out.into_tensor([b, c, size[0], size[1]])
    }
}

/// Mean and variance of every channel of a batch, filled in by [`batch_norm`]. Extension operations of the engine can
/// return only one tensor, so these leave the operation through a shared argument.
#[derive(Clone, Debug, Default)]
pub struct BatchMoments(Arc<OnceLock<Vec<[f32; 2]>>>);

impl BatchMoments {
    /// The means and the biased variances of all channels.
    pub fn split(&self) -> [Vec<f32>; 2] {
        [0, 1].map(|i| self.0.get().into_iter().flatten().map(|moments| moments[i]).collect())
    }
}

/// Differentiable operations on the CPU backend.
#[backend_extension(Flex, Autodiff)]
pub trait ConditionOps: Backend {
    /// Attention at linear cost.
    fn linear_attention_kernel(qkv: FloatTensor<Self>, heads: usize) -> FloatTensor<Self>;
    /// Normalisation over the channels of every pixel.
    fn channel_norm_kernel(x: FloatTensor<Self>, gain: FloatTensor<Self>) -> FloatTensor<Self>;
    /// Normalisation over the batch, whose moments go into `moments`.
    fn batch_norm_kernel(
        x: FloatTensor<Self>,
        gamma: FloatTensor<Self>,
        beta: FloatTensor<Self>,
        epsilon: f64,
        moments: BatchMoments,
    ) -> FloatTensor<Self>;
    /// Linear maps of columns and rows.
    fn separable_map_kernel(x: FloatTensor<Self>, map: SeparableMap) -> FloatTensor<Self>;
}

/// # Shapes
/// `qkv` `[B, 3C, H, W]`, channels ordered {q, k, v}, head, channel, to `[B, C, H, W]`.
pub(crate) fn linear_attention(qkv: Tensor<4>, heads: usize) -> Tensor<4> {
    Tensor::from_dispatch(Dispatch::linear_attention_kernel(qkv.into_dispatch(), heads))
}

/// # Shapes
/// `x` `[B, C, H, W]` to the same, `gain` `[1, C, 1, 1]`.
pub(crate) fn channel_norm(x: Tensor<4>, gain: Tensor<4>) -> Tensor<4> {
    Tensor::from_dispatch(Dispatch::channel_norm_kernel(x.into_dispatch(), gain.into_dispatch()))
}

/// Batch normalisation by the statistics of this batch, which are returned.
///
/// # Shapes
/// `x` `[B, C, H, W]` to the same, `gamma` and `beta` `[C]`.
pub(crate) fn batch_norm(x: Tensor<4>, gamma: Tensor<1>, beta: Tensor<1>, epsilon: f64) -> (Tensor<4>, BatchMoments) {
    let moments = BatchMoments::default();
    let (x, gamma, beta) = (x.into_dispatch(), gamma.into_dispatch(), beta.into_dispatch());
    (Tensor::from_dispatch(Dispatch::batch_norm_kernel(x, gamma, beta, epsilon, moments.clone())), moments)
}

/// # Shapes
/// `x` `[B, C, H, W]` to `[B, C, H', W']`.
pub(crate) fn separable_map(x: Tensor<4>, map: SeparableMap) -> Tensor<4> {
    Tensor::from_dispatch(Dispatch::separable_map_kernel(x.into_dispatch(), map))
}

fn attention_shape(qkv: &Contiguous, heads: usize) -> LinearAttentionShape {
    let [n, c3, h, w] = qkv.dims();
    LinearAttentionShape { n, heads, d: c3 / 3 / heads, positions: h * w }
}

fn attention_forward(qkv: FlexTensor, heads: usize) -> (FlexTensor, Vec<f32>) {
    let qkv = Contiguous::new(qkv);
    let shape = attention_shape(&qkv, heads);
    let [b, c3, h, w] = qkv.dims();
    let (mut out, mut saved) = (OutputBuffer::new(shape.out_len()), vec![0.0; shape.saved_len()]);
    linear_attention::forward(qkv.values(), shape, out.values(), &mut saved);
    (out.into_tensor([b, c3 / 3, h, w]), saved)
}

fn channel_norm_forward(x: FlexTensor, gain: FlexTensor) -> (FlexTensor, Vec<f32>) {
    let (x, gain) = (Contiguous::new(x), Contiguous::new(gain));
    let [b, _, h, w] = x.dims();
    let (mut out, mut stats) = (OutputBuffer::new(x.values().len()), vec![0.0; 2 * b * h * w]);
    channel_norm::forward(x.values(), gain.values(), h * w, out.values(), &mut stats);
    (out.into_tensor(x.shape()), stats)
}

/// The result, and mean and 1/√(variance + ε) of every channel.
fn batch_norm_forward(inputs: [FlexTensor; 3], epsilon: f64, moments: &BatchMoments) -> (FlexTensor, Vec<[f32; 2]>) {
    let [x, gamma, beta] = inputs.map(Contiguous::new);
    let [_, c, h, w] = x.dims();
    // The cell is always empty here, since every call of `batch_norm` creates a new one.
    let found = moments.0.get_or_init(|| batch_norm::moments(x.values(), c, h * w));
    let rstd = |variance: f32| (1.0 / (f64::from(variance) + epsilon).sqrt()) as f32;
    let stats: Vec<[f32; 2]> = found.iter().map(|&[mean, variance]| [mean, rstd(variance)]).collect();
    let channels = stats.iter().zip(gamma.values().iter().zip(beta.values()));
    let affine: Vec<[f32; 2]> =
        channels.map(|([mean, rstd], (gamma, beta))| [gamma * rstd, beta - mean * gamma * rstd]).collect();
    let mut out = OutputBuffer::new(x.values().len());
    // Normalisation and affine map are folded into one multiply-add per value: one pass over the memory.
    batch_norm::apply(x.values(), &affine, h * w, out.values());
    (out.into_tensor(x.shape()), stats)
}

impl ConditionOps for Flex {
    fn linear_attention_kernel(qkv: FloatTensor<Self>, heads: usize) -> FloatTensor<Self> {
        attention_forward(qkv, heads).0
    }

    fn channel_norm_kernel(x: FloatTensor<Self>, gain: FloatTensor<Self>) -> FloatTensor<Self> {
        channel_norm_forward(x, gain).0
    }

    fn batch_norm_kernel(
        x: FloatTensor<Self>,
        gamma: FloatTensor<Self>,
        beta: FloatTensor<Self>,
        epsilon: f64,
        moments: BatchMoments,
    ) -> FloatTensor<Self> {
        batch_norm_forward([x, gamma, beta], epsilon, &moments).0
    }

    fn separable_map_kernel(x: FloatTensor<Self>, map: SeparableMap) -> FloatTensor<Self> {
        map.apply(x)
    }
}

#[derive(Debug)]
struct AttentionBackward;

#[derive(Clone, Debug)]
struct AttentionState {
    qkv: NodeId,
    saved: Arc<Vec<f32>>,
    heads: usize,
}

impl Backward<Flex, 1> for AttentionBackward {
    type State = AttentionState;

    fn backward(self, ops: Ops<AttentionState, 1>, grads: &mut Gradients, checkpointer: &mut Checkpointer) {
        let dy = Contiguous::new(grads.consume::<Flex>(&ops.node));
        let qkv = retrieve(checkpointer, ops.state.qkv);
        let shape = attention_shape(&qkv, ops.state.heads);
        let mut dqkv = OutputBuffer::new(qkv.values().len());
        linear_attention::backward(qkv.values(), dy.values(), &ops.state.saved, shape, dqkv.values());
        if let [Some(parent)] = ops.parents {
            grads.register::<Flex>(parent.id, dqkv.into_tensor(qkv.shape()));
        }
    }
}

#[derive(Debug)]
struct ChannelNormBackward;

#[derive(Clone, Debug)]
struct ChannelNormState {
    inputs: [NodeId; 2],
    stats: Arc<Vec<f32>>,
}

impl Backward<Flex, 2> for ChannelNormBackward {
    type State = ChannelNormState;

    fn backward(self, ops: Ops<ChannelNormState, 2>, grads: &mut Gradients, checkpointer: &mut Checkpointer) {
        let dy = Contiguous::new(grads.consume::<Flex>(&ops.node));
        let [x, gain] = ops.state.inputs.map(|id| retrieve(checkpointer, id));
        let [_, _, h, w] = x.dims();
        let (mut dx, mut dgain) = (OutputBuffer::new(x.values().len()), OutputBuffer::new(gain.values().len()));
        let pair = [x.values(), dy.values()];
        channel_norm::backward(pair, gain.values(), &ops.state.stats, h * w, dx.values(), dgain.values());
        let results = [(dx, x.shape()), (dgain, gain.shape())];
        for (parent, (buffer, shape)) in ops.parents.into_iter().zip(results) {
            if let Some(parent) = parent {
                grads.register::<Flex>(parent.id, buffer.into_tensor(shape));
            }
        }
    }
}

#[derive(Debug)]
struct BatchNormBackward;

#[derive(Clone, Debug)]
struct BatchNormState {
    x: NodeId,
    gamma: NodeId,
    stats: Arc<Vec<[f32; 2]>>,
}

impl Backward<Flex, 3> for BatchNormBackward {
    type State = BatchNormState;

    fn backward(self, ops: Ops<BatchNormState, 3>, grads: &mut Gradients, checkpointer: &mut Checkpointer) {
        let dy = Contiguous::new(grads.consume::<Flex>(&ops.node));
        let [x, gamma] = [ops.state.x, ops.state.gamma].map(|id| retrieve(checkpointer, id));
        let [_, c, h, w] = x.dims();
        let mut buffers = [x.values().len(), c, c].map(OutputBuffer::new);
        let [dx, dgamma, dbeta] = &mut buffers;
        let (pair, affine) = ([x.values(), dy.values()], [dgamma.values(), dbeta.values()]);
        batch_norm::backward(pair, &ops.state.stats, gamma.values(), h * w, dx.values(), affine);
        let shapes = [x.shape(), [c].into(), [c].into()];
        for ((parent, buffer), shape) in ops.parents.into_iter().zip(buffers).zip(shapes) {
            if let Some(parent) = parent {
                grads.register::<Flex>(parent.id, buffer.into_tensor(shape));
            }
        }
    }
}

/// The gradient of a linear map is the transposed map.
#[derive(Debug)]
struct SeparableMapBackward;

impl Backward<Flex, 1> for SeparableMapBackward {
    type State = SeparableMap;

    fn backward(self, ops: Ops<SeparableMap, 1>, grads: &mut Gradients, _: &mut Checkpointer) {
        let dy = grads.consume::<Flex>(&ops.node);
        let [rows, columns] = &*ops.state.0;
        if let [Some(parent)] = ops.parents {
            let back = SeparableMap::new(rows.transposed(), columns.transposed());
            grads.register::<Flex>(parent.id, back.apply(dy));
        }
    }
}

impl<C: CheckpointStrategy> ConditionOps for Autodiff<Flex, C> {
    fn linear_attention_kernel(qkv: FloatTensor<Self>, heads: usize) -> FloatTensor<Self> {
        match AttentionBackward.prepare::<C>([qkv.node()]).compute_bound().stateful() {
            OpsKind::Tracked(mut prep) => {
                let id = prep.checkpoint(&qkv);
                let (out, saved) = attention_forward(qkv.into_primitive(), heads);
                prep.finish(AttentionState { qkv: id, saved: Arc::new(saved), heads }, out)
            }
            OpsKind::UnTracked(prep) => prep.finish(attention_forward(qkv.into_primitive(), heads).0),
        }
    }

    fn channel_norm_kernel(x: FloatTensor<Self>, gain: FloatTensor<Self>) -> FloatTensor<Self> {
        match ChannelNormBackward.prepare::<C>([x.node(), gain.node()]).compute_bound().stateful() {
            OpsKind::Tracked(mut prep) => {
                let inputs = [prep.checkpoint(&x), prep.checkpoint(&gain)];
                let (out, stats) = channel_norm_forward(x.into_primitive(), gain.into_primitive());
                prep.finish(ChannelNormState { inputs, stats: Arc::new(stats) }, out)
            }
            OpsKind::UnTracked(prep) => prep.finish(channel_norm_forward(x.into_primitive(), gain.into_primitive()).0),
        }
    }

    fn batch_norm_kernel(
        x: FloatTensor<Self>,
        gamma: FloatTensor<Self>,
        beta: FloatTensor<Self>,
        epsilon: f64,
        moments: BatchMoments,
    ) -> FloatTensor<Self> {
        let nodes = [x.node(), gamma.node(), beta.node()];
        let run = |inputs: [Tracked<C>; 3]| batch_norm_forward(inputs.map(|i| i.into_primitive()), epsilon, &moments);
        match BatchNormBackward.prepare::<C>(nodes).compute_bound().stateful() {
            OpsKind::Tracked(mut prep) => {
                let ids = [prep.checkpoint(&x), prep.checkpoint(&gamma)];
                let (out, stats) = run([x, gamma, beta]);
                prep.finish(BatchNormState { x: ids[0], gamma: ids[1], stats: Arc::new(stats) }, out)
            }
            OpsKind::UnTracked(prep) => prep.finish(run([x, gamma, beta]).0),
        }
    }

    fn separable_map_kernel(x: FloatTensor<Self>, map: SeparableMap) -> FloatTensor<Self> {
        let prep = SeparableMapBackward.prepare::<C>([x.node()]).compute_bound().stateful();
        let y = map.apply(x.into_primitive());
        match prep {
            OpsKind::Tracked(prep) => prep.finish(map, y),
            OpsKind::UnTracked(prep) => prep.finish(y),
        }
    }
}
