//! Group normalisation (Wu and He 2018, arXiv:1803.08494), alone or followed by scale and shift from an embedding and by
//! SiLU, each in one pass over memory, forward and backward.
mod sums;
#[cfg(test)]
mod tests;

pub(crate) use sums::{sum, sum_and_moment};

use crate::CHUNK;
use crate::simd::{Isa, Kernel, Simd, map, map2, update};
use crate::team::Share;
use crate::workspace::Workspace;
use rayon::prelude::*;
use sums::statistics;

/// Shape of a normalised tensor `[n, c, hw]` whose channels form `groups` groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NormShape {
    /// Samples.
    pub n: usize,
    /// Channels, a multiple of `groups`.
    pub c: usize,
    /// Positions: height times width.
    pub hw: usize,
    /// Groups of channels that share mean and variance.
    pub groups: usize,
}

impl NormShape {
    /// Number of floats in the tensor.
    pub fn len(&self) -> usize {
        self.n * self.c * self.hw
    }

    /// Whether the tensor has no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Floats in a group.
    fn group_len(&self) -> usize {
        self.c / self.groups * self.hw
    }

    /// Groups that a thread takes at a time.
    fn groups_per_task(&self) -> usize {
        (CHUNK / self.group_len()).max(1)
    }
}

/// The operations after x̂ = (x − mean)·rstd: z = (γ x̂ + β)(1 + scale) + shift, then y = z or y = SiLU(z).
#[derive(Clone, Copy, Debug)]
pub struct NormTail<'a> {
    /// γ, `[c]`.
    pub gamma: &'a [f32],
    /// β, `[c]`.
    pub beta: &'a [f32],
    /// Scales, then shifts, of the channels of every sample: `[n, 2c]`.
    pub scale_shift: Option<&'a [f32]>,
    /// Whether y = SiLU(z).
    pub silu: bool,
}

impl NormTail<'_> {
    fn check(&self, shape: &NormShape) {
        let NormShape { n, c, groups, .. } = *shape;
        assert!(groups > 0 && c % groups == 0, "{c} channels in {groups} groups");
        assert!(self.gamma.len() == c && self.beta.len() == c, "γ and β must have {c} channels");
        assert!(
            self.scale_shift.is_none_or(|m| m.len() == 2 * n * c),
            "scale and shift must have the shape [{n}, 2·{c}]"
        );
    }

    /// 1 + scale and shift of one channel of one sample.
    fn modulation(&self, sample: usize, channel: usize) -> (f32, f32) {
        let c = self.gamma.len();
        self.scale_shift.map_or((1.0, 0.0), |m| (1.0 + m[sample * 2 * c + channel], m[sample * 2 * c + c + channel]))
    }

    /// (a, b) with z = (x − mean)·rstd·a + b.
    fn affine(&self, sample: usize, channel: usize) -> (f32, f32) {
        let (scale, shift) = self.modulation(sample, channel);
        (self.gamma[channel] * scale, self.beta[channel] * scale + shift)
    }
}

/// The forward pass. `stats` receives mean and 1/√(variance + epsilon) of every group, for the backward pass.
///
/// # Shapes
/// `x`, `out` `[n, c, hw]`; `stats` `[n·groups]`.
pub fn forward(x: &[f32], tail: NormTail, epsilon: f32, shape: NormShape, out: &mut [f32], stats: &mut [[f32; 2]]) {
    forward_at(Isa::detect(), x, tail, epsilon, shape, out, stats);
}

fn forward_at(
    isa: Isa,
    x: &[f32],
    tail: NormTail,
    epsilon: f32,
    shape: NormShape,
    out: &mut [f32],
    stats: &mut [[f32; 2]],
) {
    tail.check(&shape);
    assert!(x.len() == shape.len() && out.len() == shape.len() && stats.len() == shape.n * shape.groups);
    if shape.is_empty() {
        return;
    }
    let (per_task, size) = (shape.groups_per_task(), shape.groups_per_task() * shape.group_len());
    let parts = out.par_chunks_mut(size).zip(x.par_chunks(size)).zip(stats.par_chunks_mut(per_task));
    parts.enumerate().share(|(i, ((out, x), stats))| {
        isa.run(Forward { x, tail, epsilon, shape, out, stats, first: i * per_task });
    });
}

/// The forward pass of some neighbouring groups, beginning with number `first` of the tensor.
struct Forward<'a> {
    x: &'a [f32],
    tail: NormTail<'a>,
    epsilon: f32,
    shape: NormShape,
    out: &'a mut [f32],
    stats: &'a mut [[f32; 2]],
    first: usize,
}

impl Kernel for Forward<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let (len, hw) = (self.shape.group_len(), self.shape.hw);
        let groups = self.x.chunks_exact(len).zip(self.out.chunks_exact_mut(len)).zip(self.stats);
        for (i, ((x, out), stats)) in groups.enumerate() {
            let (mean, rstd) = statistics(s, x, self.epsilon);
            *stats = [mean, rstd];
            let (sample, channel) = sample_and_channel(self.first + i, &self.shape);
            for (k, (x, out)) in x.chunks_exact(hw).zip(out.chunks_exact_mut(hw)).enumerate() {
                let (a, b) = self.tail.affine(sample, channel + k);
                let (mean, a, b) = (s.splat(mean), s.splat(a * rstd), s.splat(b));
                if self.tail.silu {
                    map(
                        s,
                        x,
                        out,
                        #[inline(always)]
                        |x| {
                            let z = s.fma(s.sub(x, mean), a, b);
                            s.mul(z, s.sigmoid(z))
                        },
                    );
                } else {
                    map(
                        s,
                        x,
                        out,
                        #[inline(always)]
                        |x| s.fma(s.sub(x, mean), a, b),
                    );
                }
            }
        }
    }
}

/// The sample and the first channel of a group.
fn sample_and_channel(group: usize, shape: &NormShape) -> (usize, usize) {
    (group / shape.groups, group % shape.groups * (shape.c / shape.groups))
}

/// Where the backward pass writes the gradients. `scale_shift` is present if it is in the [`NormTail`].
#[derive(Debug)]
pub struct NormGrads<'a> {
    /// Gradient by x, `[n, c, hw]`.
    pub x: &'a mut [f32],
    /// Gradient by γ, `[c]`.
    pub gamma: &'a mut [f32],
    /// Gradient by β, `[c]`.
    pub beta: &'a mut [f32],
    /// Gradient by scale and shift, `[n, 2c]`.
    pub scale_shift: Option<&'a mut [f32]>,
}

/// The backward pass: all gradients, from `dy` and the `stats` of the forward pass.
///
/// # Shapes
/// `x`, `dy` `[n, c, hw]`; `stats` `[n·groups]`.
pub fn backward(x: &[f32], dy: &[f32], tail: NormTail, stats: &[[f32; 2]], shape: NormShape, grads: NormGrads) {
    backward_at(Isa::detect(), x, dy, tail, stats, shape, grads);
}

fn backward_at(
    isa: Isa,
    x: &[f32],
    dy: &[f32],
    tail: NormTail,
    stats: &[[f32; 2]],
    shape: NormShape,
    grads: NormGrads,
) {
    tail.check(&shape);
    let NormShape { n, c, groups, .. } = shape;
    assert!(x.len() == shape.len() && dy.len() == shape.len() && stats.len() == n * groups);
    assert!(grads.x.len() == shape.len() && grads.gamma.len() == c && grads.beta.len() == c);
    assert_eq!(grads.scale_shift.as_ref().map(|g| g.len()), tail.scale_shift.map(<[f32]>::len));
    grads.gamma.fill(0.0);
    grads.beta.fill(0.0);
    if shape.is_empty() {
        return;
    }
    let per_task = shape.groups_per_task();
    let (size, channels) = (per_task * shape.group_len(), per_task * c / groups);
    // Σ dz and Σ dz·x̂ over the positions of every channel of every sample.
    let sums = &mut *Workspace::take(2 * n * c);
    let parts = grads.x.par_chunks_mut(size).zip(x.par_chunks(size)).zip(dy.par_chunks(size));
    let parts = parts.zip(stats.par_chunks(per_task)).zip(sums.par_chunks_mut(2 * channels));
    parts.enumerate().share(|(i, ((((dx, x), dy), stats), sums))| {
        isa.run(Backward { x, dy, tail, stats, shape, dx, sums, first: i * per_task });
    });
    let mut modulation = grads.scale_shift;
    for (i, sums) in sums.chunks_exact(2).enumerate() {
        let (sample, channel) = (i / c, i % c);
        let (scale, _) = tail.modulation(sample, channel);
        grads.beta[channel] += scale * sums[0];
        grads.gamma[channel] += scale * sums[1];
        if let Some(grad) = &mut modulation {
            grad[sample * 2 * c + channel] = tail.gamma[channel] * sums[1] + tail.beta[channel] * sums[0];
            grad[sample * 2 * c + c + channel] = sums[0];
        }
    }
}

/// The backward pass of some neighbouring groups, beginning with number `first` of the tensor.
struct Backward<'a> {
    x: &'a [f32],
    dy: &'a [f32],
    tail: NormTail<'a>,
    stats: &'a [[f32; 2]],
    shape: NormShape,
    dx: &'a mut [f32],
    sums: &'a mut [f32],
    first: usize,
}

impl Kernel for Backward<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let (len, hw) = (self.shape.group_len(), self.shape.hw);
        let channels = self.shape.c / self.shape.groups;
        let groups = self.x.chunks_exact(len).zip(self.dy.chunks_exact(len)).zip(self.dx.chunks_exact_mut(len));
        let groups = groups.zip(self.stats).zip(self.sums.chunks_exact_mut(2 * channels));
        for (i, ((((x, dy), dx), &[mean, rstd]), sums)) in groups.enumerate() {
            let (sample, channel) = sample_and_channel(self.first + i, &self.shape);
            // Σ a dz and Σ a dz x̂ over the group.
            let (mut sum_dz, mut sum_dz_x_hat) = (0.0f64, 0.0f64);
            for k in 0..channels {
                let at = k * hw..(k + 1) * hw;
                let (a, b) = self.tail.affine(sample, channel + k);
                let dx = &mut dx[at.clone()];
                if self.tail.silu {
                    silu_backward(s, &x[at.clone()], &dy[at.clone()], dx, mean, a * rstd, b);
                } else {
                    dx.copy_from_slice(&dy[at.clone()]);
                }
                let (sum, moment) = sum_and_moment(s, dx, &x[at], mean);
                (sums[2 * k], sums[2 * k + 1]) = (sum as f32, (moment * f64::from(rstd)) as f32);
                sum_dz += f64::from(a) * sum;
                sum_dz_x_hat += f64::from(a) * moment * f64::from(rstd);
            }
            // dx = rstd·(a dz − mean(a dz) − x̂ mean(a dz x̂)), means over the group.
            let count = len as f64;
            let constant = s.splat((-sum_dz / count * f64::from(rstd)) as f32);
            let slope = s.splat((-sum_dz_x_hat / count * f64::from(rstd) * f64::from(rstd)) as f32);
            let mean = s.splat(mean);
            for k in 0..channels {
                let at = k * hw..(k + 1) * hw;
                let a = s.splat(self.tail.affine(sample, channel + k).0 * rstd);
                update(
                    s,
                    &mut dx[at.clone()],
                    &x[at],
                    #[inline(always)]
                    |dz, x| s.fma(a, dz, s.fma(s.sub(x, mean), slope, constant)),
                );
            }
        }
    }
}

/// dz = dy·σ(z)(1 + z(1 − σ(z))) with z = (x − mean)·a + b.
#[inline(always)]
fn silu_backward<S: Simd>(s: S, x: &[f32], dy: &[f32], dz: &mut [f32], mean: f32, a: f32, b: f32) {
    let (mean, a, b) = (s.splat(mean), s.splat(a), s.splat(b));
    map2(
        s,
        x,
        dy,
        dz,
        #[inline(always)]
        |x, dy| {
            let z = s.fma(s.sub(x, mean), a, b);
            s.mul(dy, s.silu_derivative(z))
        },
    );
}
