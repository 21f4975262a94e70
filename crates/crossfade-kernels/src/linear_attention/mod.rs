//! Attention whose cost is linear in the number of positions (Shen et al. 2021, arXiv:1812.01243): y = (v k'ᵀ/N)·q', where
//! q' is the softmax of q over its channels times d^(−½), k' the softmax of k over the positions, and N the number of
//! positions.
//!
//! Lanes are neighbouring positions, a strip of `TILE` at a time. The only connection of the strips is the context v k'ᵀ/N,
//! d x d numbers for each head.
#[cfg(test)]
mod tests;

use crate::attention::TILE;
use crate::product::{Matrix, matmul};
use crate::simd::{Isa, Kernel, Simd, map, map2, update};
use crate::team::Share;
use crate::workspace::Workspace;
use rayon::prelude::*;

/// Shape of a linear attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinearAttentionShape {
    /// Samples.
    pub n: usize,
    /// Heads of each sample.
    pub heads: usize,
    /// Channels of q, of k and of v in each head.
    pub d: usize,
    /// Positions of the image.
    pub positions: usize,
}

impl LinearAttentionShape {
    /// Number of floats in the result.
    pub fn out_len(&self) -> usize {
        self.n * self.heads * self.head_len()
    }

    /// Number of floats that are saved for the backward pass.
    pub fn saved_len(&self) -> usize {
        self.n * self.heads * self.head_saved_len()
    }

    fn head_len(&self) -> usize {
        self.d * self.positions
    }

    /// Floats saved for a head: the logarithms of the sums of k's exponentials, and the context.
    fn head_saved_len(&self) -> usize {
        self.d + self.d * self.padded()
    }

    /// Channels rounded up to whole strips.
    fn padded(&self) -> usize {
        self.d.next_multiple_of(TILE)
    }

    fn scale(&self) -> f32 {
        (1.0 / (self.d as f64).sqrt()) as f32
    }
}

/// The forward pass. `saved` receives what the backward pass needs.
///
/// # Shapes
/// `qkv` `[n, 3, heads, d, positions]` with q, k, v along the second axis, `out` `[n, heads, d, positions]`, `saved`
/// `[saved_len]`.
pub fn forward(qkv: &[f32], shape: LinearAttentionShape, out: &mut [f32], saved: &mut [f32]) {
    forward_at(Isa::detect(), qkv, shape, out, saved);
}

fn forward_at(isa: Isa, qkv: &[f32], shape: LinearAttentionShape, out: &mut [f32], saved: &mut [f32]) {
    assert!(qkv.len() == 3 * out.len() && out.len() == shape.out_len() && saved.len() == shape.saved_len());
    if out.is_empty() {
        return;
    }
    let heads = out.par_chunks_mut(shape.head_len()).zip(saved.par_chunks_mut(shape.head_saved_len())).enumerate();
    heads.share(|(i, (out, saved))| {
        let [q, k, v] = split_qkv(qkv, &shape, i);
        let scratch = &mut *Workspace::take(2 * shape.d * TILE + TILE * shape.padded());
        isa.run(Forward { q, k, v, shape, out, saved, scratch });
    });
}

/// q, k and v of a head; `head` counts the heads of all samples.
fn split_qkv<'a>(qkv: &'a [f32], shape: &LinearAttentionShape, head: usize) -> [&'a [f32]; 3] {
    let (sample, head, size) = (head / shape.heads, head % shape.heads, shape.head_len());
    std::array::from_fn(|part| &qkv[((3 * sample + part) * shape.heads + head) * size..][..size])
}

struct Forward<'a> {
    q: &'a [f32],
    k: &'a [f32],
    v: &'a [f32],
    shape: LinearAttentionShape,
    out: &'a mut [f32],
    saved: &'a mut [f32],
    scratch: &'a mut [f32],
}

impl Kernel for Forward<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let LinearAttentionShape { d, positions: n, .. } = self.shape;
        let padded = self.shape.padded();
        let (strip, rest) = self.scratch.split_at_mut(d * TILE);
        let (result, transposed) = rest.split_at_mut(d * TILE);
        let (log_sums, context) = self.saved.split_at_mut(d);
        for (row, largest) in self.k.chunks_exact(n).zip(&mut *log_sums) {
            *largest = row.iter().copied().fold(f32::MIN, f32::max);
        }
        context.fill(0.0);
        let mut sums = vec![0.0f64; d];
        for first in (0..n).step_by(TILE) {
            let count = (n - first).min(TILE);
            exponentials(s, self.k, n, first, log_sums, strip);
            for (row, sum) in strip.chunks_exact(TILE).zip(&mut sums) {
                *sum += f64::from(row[..count].iter().sum::<f32>());
            }
            transpose(strip, transposed, padded);
            let v = Matrix::new(&self.v[first..], n);
            matmul(s, [d, count, padded], v, Matrix::new(transposed, padded), context, padded, true);
        }
        for row in context.chunks_exact_mut(padded) {
            row.iter_mut().zip(&sums).for_each(|(c, sum)| *c = (f64::from(*c) / (sum * n as f64)) as f32);
        }
        log_sums.iter_mut().zip(&sums).for_each(|(max, sum)| *max = (f64::from(*max) + sum.ln()) as f32);
        for first in (0..n).step_by(TILE) {
            pack(self.q, n, first, strip);
            softmax(s, strip, self.shape.scale());
            matmul(s, [d, d, TILE], Matrix::new(context, padded), Matrix::new(strip, TILE), result, TILE, false);
            unpack(result, n, first, self.out);
        }
    }
}

/// Copies the columns `first..first + TILE` of rows of `n`, with zeros beyond their end.
#[inline(always)]
fn pack(rows: &[f32], n: usize, first: usize, out: &mut [f32]) {
    let count = (n - first).min(TILE);
    for (out, row) in out.chunks_exact_mut(TILE).zip(rows.chunks_exact(n)) {
        out[..count].copy_from_slice(&row[first..first + count]);
        out[count..].fill(0.0);
    }
}

/// The inverse of [`pack`].
#[inline(always)]
fn unpack(strip: &[f32], n: usize, first: usize, rows: &mut [f32]) {
    let count = (n - first).min(TILE);
    for (strip, row) in strip.chunks_exact(TILE).zip(rows.chunks_exact_mut(n)) {
        row[first..first + count].copy_from_slice(&strip[..count]);
    }
}

/// e^(k − offset) of a strip; each row has its own offset.
#[inline(always)]
fn exponentials<S: Simd>(s: S, k: &[f32], n: usize, first: usize, offsets: &[f32], out: &mut [f32]) {
    let count = (n - first).min(TILE);
    for ((out, row), offset) in out.chunks_exact_mut(TILE).zip(k.chunks_exact(n)).zip(offsets) {
        let offset = s.splat(*offset);
        map(
            s,
            &row[first..first + count],
            &mut out[..count],
            #[inline(always)]
            |k| s.exp(s.sub(k, offset)),
        );
        out[count..].fill(0.0);
    }
}

/// Replaces every column of a strip by its softmax times `scale`.
#[inline(always)]
fn softmax<S: Simd>(s: S, strip: &mut [f32], scale: f32) {
    for lane in (0..TILE).step_by(S::LANES) {
        let mut largest = s.splat(f32::NEG_INFINITY);
        for row in strip.chunks_exact(TILE) {
            largest = s.max(largest, s.load(&row[lane..]));
        }
        let mut sum = s.splat(0.0);
        for row in strip.chunks_exact_mut(TILE) {
            let e = s.exp(s.sub(s.load(&row[lane..]), largest));
            s.store(e, &mut row[lane..]);
            sum = s.add(sum, e);
        }
        let factor = s.div(s.splat(scale), sum);
        for row in strip.chunks_exact_mut(TILE) {
            s.store(s.mul(s.load(&row[lane..]), factor), &mut row[lane..]);
        }
    }
}

/// Transposes `[d, TILE]` to `[TILE, padded]`, with zeros beyond d.
#[inline(always)]
fn transpose(strip: &[f32], out: &mut [f32], padded: usize) {
    let d = strip.len() / TILE;
    for (j, row) in out.chunks_exact_mut(padded).enumerate() {
        row[..d].iter_mut().zip(strip[j..].iter().step_by(TILE)).for_each(|(o, x)| *o = *x);
        row[d..].fill(0.0);
    }
}

/// The gradient by `qkv`, from `dout` and what the forward pass saved.
///
/// # Shapes
/// Those of [`forward`]; `dout` like `out`, `dqkv` like `qkv`.
pub fn backward(qkv: &[f32], dout: &[f32], saved: &[f32], shape: LinearAttentionShape, dqkv: &mut [f32]) {
    backward_at(Isa::detect(), qkv, dout, saved, shape, dqkv);
}

fn backward_at(isa: Isa, qkv: &[f32], dout: &[f32], saved: &[f32], shape: LinearAttentionShape, dqkv: &mut [f32]) {
    assert!(qkv.len() == 3 * dout.len() && dout.len() == shape.out_len() && dqkv.len() == qkv.len());
    assert_eq!(saved.len(), shape.saved_len());
    if dout.is_empty() {
        return;
    }
    let (head, part) = (shape.head_len(), shape.heads * shape.head_len());
    dqkv.par_chunks_mut(3 * part).enumerate().share(|(sample, dqkv)| {
        let (dq, rest) = dqkv.split_at_mut(part);
        let (dk, dv) = rest.split_at_mut(part);
        let heads = dq.par_chunks_mut(head).zip(dk.par_chunks_mut(head)).zip(dv.par_chunks_mut(head));
        heads.enumerate().share(|(i, ((dq, dk), dv))| {
            let i = sample * shape.heads + i;
            let [q, k, v] = split_qkv(qkv, &shape, i);
            let (dout, saved) =
                (&dout[i * head..][..head], &saved[i * shape.head_saved_len()..][..shape.head_saved_len()]);
            let scratch = &mut *Workspace::take(3 * shape.d * TILE + (TILE + shape.d) * shape.padded());
            isa.run(Backward { q, k, v, dout, saved, shape, dq, dk, dv, scratch });
        });
    });
}

struct Backward<'a> {
    q: &'a [f32],
    k: &'a [f32],
    v: &'a [f32],
    dout: &'a [f32],
    saved: &'a [f32],
    shape: LinearAttentionShape,
    dq: &'a mut [f32],
    dk: &'a mut [f32],
    dv: &'a mut [f32],
    scratch: &'a mut [f32],
}

impl Kernel for Backward<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let LinearAttentionShape { d, positions: n, .. } = self.shape;
        let (padded, scale) = (self.shape.padded(), self.shape.scale());
        let (log_sums, context) = self.saved.split_at(d);
        let (a, rest) = self.scratch.split_at_mut(d * TILE);
        let (b, rest) = rest.split_at_mut(d * TILE);
        let (result, rest) = rest.split_at_mut(d * TILE);
        let (transposed, dcontext) = rest.split_at_mut(TILE * padded);
        dcontext.fill(0.0);
        for first in (0..n).step_by(TILE) {
            let count = (n - first).min(TILE);
            pack(self.q, n, first, a);
            softmax(s, a, scale);
            transpose(a, transposed, padded);
            let dout = Matrix::new(&self.dout[first..], n);
            matmul(s, [d, count, padded], dout, Matrix::new(transposed, padded), dcontext, padded, true);
            pack(self.dout, n, first, b);
            matmul(s, [d, d, TILE], Matrix::transposed(context, padded), Matrix::new(b, TILE), result, TILE, false);
            softmax_backward(s, a, result, scale);
            unpack(result, n, first, self.dq);
        }
        // The backward pass of the softmax of k subtracts Σ_n dk'·k', which equals Σ_e dcontext·context.
        let mut means = vec![0.0f32; d];
        for (context, dcontext) in context.chunks_exact(padded).zip(dcontext.chunks_exact_mut(padded)) {
            means.iter_mut().zip(context.iter().zip(&*dcontext)).for_each(|(m, (c, dc))| *m += c * dc);
            dcontext.iter_mut().for_each(|dc| *dc /= n as f32);
        }
        for first in (0..n).step_by(TILE) {
            exponentials(s, self.k, n, first, log_sums, a);
            pack(self.v, n, first, b);
            matmul(s, [d, d, TILE], Matrix::new(dcontext, padded), Matrix::new(a, TILE), result, TILE, false);
            unpack(result, n, first, self.dv);
            matmul(s, [d, d, TILE], Matrix::transposed(dcontext, padded), Matrix::new(b, TILE), result, TILE, false);
            for ((k, dk), mean) in a.chunks_exact(TILE).zip(result.chunks_exact_mut(TILE)).zip(&means) {
                let mean = s.splat(*mean);
                update(
                    s,
                    dk,
                    k,
                    #[inline(always)]
                    |dk, k| s.mul(k, s.sub(dk, mean)),
                );
            }
            unpack(result, n, first, self.dk);
        }
    }
}

/// Replaces dq' by dq = q'(dq' − Σ dq' p) in every column, where q' = scale·p.
#[inline(always)]
fn softmax_backward<S: Simd>(s: S, q: &[f32], dq: &mut [f32], scale: f32) {
    let (mut means, inverse) = ([0.0f32; TILE], s.splat(1.0 / scale));
    for (q, dq) in q.chunks_exact(TILE).zip(dq.chunks_exact(TILE)) {
        means.iter_mut().zip(q.iter().zip(dq)).for_each(|(m, (q, dq))| *m += q * dq);
    }
    for (q, dq) in q.chunks_exact(TILE).zip(dq.chunks_exact_mut(TILE)) {
        let mut centred = [0.0f32; TILE];
        map2(
            s,
            dq,
            &means,
            &mut centred,
            #[inline(always)]
            |dq, mean| s.sub(dq, s.mul(mean, inverse)),
        );
        map2(
            s,
            q,
            &centred,
            dq,
            #[inline(always)]
            |q, dq| s.mul(q, dq),
        );
    }
}
