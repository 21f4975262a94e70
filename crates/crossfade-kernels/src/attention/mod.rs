//! Self-attention over the positions of an image, softmax(qᵀk/√d)·v, a strip of positions at a time.
//!
//! Only the scores of all keys against `TILE` queries are in memory at once, never the whole matrix. Lanes are neighbouring
//! queries (in the backward pass neighbouring keys), so that the softmax needs no sums across lanes and the input need not
//! be transposed.
#[cfg(test)]
mod tests;

use crate::product::{Matrix, matmul};
use crate::simd::{Isa, Kernel, MAX_LANES, Simd};
use crate::team::Share;
use crate::workspace::Workspace;
use rayon::prelude::*;

/// Queries (in the backward pass keys) of a strip: a multiple of the vectors of every instruction set.
pub(crate) const TILE: usize = 32;

/// Shape of an attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttentionShape {
    /// Samples.
    pub n: usize,
    /// Heads of each sample.
    pub heads: usize,
    /// Channels of q, of k and of v in each head.
    pub d: usize,
    /// Positions of the image.
    pub positions: usize,
}

impl AttentionShape {
    /// Number of floats in the result.
    pub fn out_len(&self) -> usize {
        self.n * self.heads * self.d * self.positions
    }

    /// Number of queries of all heads and samples.
    pub fn rows(&self) -> usize {
        self.n * self.heads * self.positions
    }

    fn scale(&self) -> f32 {
        (1.0 / (self.d as f64).sqrt()) as f32
    }

    /// Positions rounded up to whole strips.
    fn padded(&self) -> usize {
        self.positions.next_multiple_of(TILE)
    }
}

/// The forward pass. `log_sums` receives the logarithm of every query's sum of exponentials, for the backward pass.
///
/// # Shapes
/// `qkv` `[n, heads, d, 3, positions]` with q, k, v along the fourth axis, `out` `[n, heads, d, positions]`,
/// `log_sums` `[n, heads, positions]`.
pub fn forward(qkv: &[f32], shape: AttentionShape, out: &mut [f32], log_sums: &mut [f32]) {
    forward_at(Isa::detect(), qkv, shape, out, log_sums);
}

fn forward_at(isa: Isa, qkv: &[f32], shape: AttentionShape, out: &mut [f32], log_sums: &mut [f32]) {
    let (d, positions) = (shape.d, shape.positions);
    assert!(qkv.len() == 3 * shape.out_len() && out.len() == shape.out_len() && log_sums.len() == shape.rows());
    if out.is_empty() {
        return;
    }
    let heads = out.par_chunks_mut(d * positions).zip(qkv.par_chunks(3 * d * positions));
    heads.zip(log_sums.par_chunks_mut(positions)).share(|((out, qkv), log_sums)| {
        let scratch = &mut *Workspace::take((2 * d + positions) * TILE);
        isa.run(Forward { qkv, shape, out, log_sums, scratch });
    });
}

/// One head of one sample.
struct Forward<'a> {
    qkv: &'a [f32],
    shape: AttentionShape,
    out: &'a mut [f32],
    log_sums: &'a mut [f32],
    scratch: &'a mut [f32],
}

impl Kernel for Forward<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let (d, n) = (self.shape.d, self.shape.positions);
        let [_, k, v] = split_qkv(self.qkv, n);
        let (q, rest) = self.scratch.split_at_mut(d * TILE);
        let (o, scores) = rest.split_at_mut(d * TILE);
        for first in (0..n).step_by(TILE) {
            pack(self.qkv, 3 * n, first, n, q);
            matmul(s, [n, d, TILE], Matrix::transposed(k, 3 * n), Matrix::new(q, TILE), scores, TILE, false);
            let mut inverse = [0.0; TILE];
            softmax(s, scores, self.shape.scale(), &mut self.log_sums[first..], &mut inverse);
            matmul(s, [d, n, TILE], Matrix::new(v, 3 * n), Matrix::new(scores, TILE), o, TILE, false);
            for (row, out) in o.chunks_exact_mut(TILE).zip(self.out.chunks_exact_mut(n)) {
                row.iter_mut().zip(&inverse).for_each(|(o, factor)| *o *= factor);
                let out = &mut out[first..];
                let count = out.len().min(TILE);
                out[..count].copy_from_slice(&row[..count]);
            }
        }
    }
}

/// The slices in which q, k and v begin; the rows of each are 3n apart.
fn split_qkv(qkv: &[f32], n: usize) -> [&[f32]; 3] {
    [qkv, &qkv[n..], &qkv[2 * n..]]
}

/// Copies the columns `first..first + TILE` of a matrix with `n` columns, with zeros beyond its end.
fn pack(rows: &[f32], stride: usize, first: usize, n: usize, out: &mut [f32]) {
    let count = (n - first).min(TILE);
    for (out, row) in out.chunks_exact_mut(TILE).zip(rows.chunks(stride)) {
        out[..count].copy_from_slice(&row[first..first + count]);
        out[count..].fill(0.0);
    }
}

/// Replaces the scores `[keys, TILE]` by their exponentials. These are not divided by their sums yet: the caller multiplies
/// the (smaller) result with the inverses of the sums.
#[inline(always)]
fn softmax<S: Simd>(s: S, scores: &mut [f32], scale: f32, log_sums: &mut [f32], inverse: &mut [f32; TILE]) {
    // Summed in blocks of this many keys, then over blocks: the rounding error grows less than in one long chain.
    const BLOCK: usize = 64;
    for lane in (0..TILE).step_by(S::LANES) {
        let mut largest = s.splat(f32::NEG_INFINITY);
        for row in scores.chunks_exact(TILE) {
            largest = s.max(largest, s.load(&row[lane..]));
        }
        let (mut sum, factor) = (s.splat(0.0), s.splat(scale));
        for block in scores.chunks_mut(BLOCK * TILE) {
            let mut part = s.splat(0.0);
            for row in block.chunks_exact_mut(TILE) {
                let e = s.exp(s.mul(s.sub(s.load(&row[lane..]), largest), factor));
                s.store(e, &mut row[lane..]);
                part = s.add(part, e);
            }
            sum = s.add(sum, part);
        }
        let (mut maxima, mut sums) = ([0.0; MAX_LANES], [0.0; MAX_LANES]);
        s.store(largest, &mut maxima);
        s.store(sum, &mut sums);
        for i in 0..S::LANES {
            inverse[lane + i] = 1.0 / sums[i];
            if let Some(log_sum) = log_sums.get_mut(lane + i) {
                *log_sum = maxima[i] * scale + sums[i].ln();
            }
        }
    }
}

/// The gradient by `qkv`, from `dout` and the results of the forward pass.
///
/// # Shapes
/// Those of [`forward`]; `dout` like `out`, `dqkv` like `qkv`.
pub fn backward(qkv: &[f32], out: &[f32], dout: &[f32], log_sums: &[f32], shape: AttentionShape, dqkv: &mut [f32]) {
    backward_at(Isa::detect(), qkv, out, dout, log_sums, shape, dqkv);
}

fn backward_at(
    isa: Isa,
    qkv: &[f32],
    out: &[f32],
    dout: &[f32],
    log_sums: &[f32],
    shape: AttentionShape,
    dqkv: &mut [f32],
) {
    let (d, n) = (shape.d, shape.positions);
    assert!(qkv.len() == 3 * shape.out_len() && dqkv.len() == qkv.len() && log_sums.len() == shape.rows());
    assert!(out.len() == shape.out_len() && dout.len() == out.len());
    if out.is_empty() {
        return;
    }
    let heads = dqkv.par_chunks_mut(3 * d * n).zip(qkv.par_chunks(3 * d * n)).zip(out.par_chunks(d * n));
    let heads = heads.zip(dout.par_chunks(d * n)).zip(log_sums.par_chunks(n));
    heads.share(|((((dqkv, qkv), out), dout), log_sums)| {
        let scratch = &mut *Workspace::take(Backward::scratch_len(&shape));
        isa.run(Backward { qkv, out, dout, log_sums, shape, dqkv, scratch });
    });
}

/// One head of one sample.
struct Backward<'a> {
    qkv: &'a [f32],
    out: &'a [f32],
    dout: &'a [f32],
    log_sums: &'a [f32],
    shape: AttentionShape,
    dqkv: &'a mut [f32],
    scratch: &'a mut [f32],
}

impl Backward<'_> {
    fn scratch_len(shape: &AttentionShape) -> usize {
        let (d, n, padded) = (shape.d, shape.positions, shape.padded());
        n + (3 * d + 2 * n) * TILE + (TILE + d) * padded
    }
}

impl Kernel for Backward<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let (d, n, padded) = (self.shape.d, self.shape.positions, self.shape.padded());
        let [q, k, v] = split_qkv(self.qkv, n);
        let (delta, rest) = self.scratch.split_at_mut(n);
        let (k_strip, rest) = rest.split_at_mut(d * TILE);
        let (v_strip, rest) = rest.split_at_mut(d * TILE);
        let (result, rest) = rest.split_at_mut(d * TILE);
        let (p, rest) = rest.split_at_mut(n * TILE);
        let (ds, rest) = rest.split_at_mut(n * TILE);
        let (transposed, dq) = rest.split_at_mut(TILE * padded);
        dq.fill(0.0);
        // δ_i = Σ_j p_ij dp_ij = Σ_d out_di dout_di.
        delta.fill(0.0);
        for (out, dout) in self.out.chunks_exact(n).zip(self.dout.chunks_exact(n)) {
            delta.iter_mut().zip(out).zip(dout).for_each(|((delta, o), d)| *delta += o * d);
        }
        for first in (0..n).step_by(TILE) {
            let count = (n - first).min(TILE);
            pack(k, 3 * n, first, n, k_strip);
            pack(v, 3 * n, first, n, v_strip);
            // Rows are queries, lanes are keys.
            matmul(s, [n, d, TILE], Matrix::transposed(q, 3 * n), Matrix::new(k_strip, TILE), p, TILE, false);
            matmul(s, [n, d, TILE], Matrix::transposed(self.dout, n), Matrix::new(v_strip, TILE), ds, TILE, false);
            softmax_backward(s, p, ds, self.log_sums, delta, self.shape.scale());
            matmul(s, [d, n, TILE], Matrix::new(self.dout, n), Matrix::new(p, TILE), result, TILE, false);
            unpack(result, &mut self.dqkv[2 * n..], 3 * n, first, count);
            matmul(s, [d, n, TILE], Matrix::new(q, 3 * n), Matrix::new(ds, TILE), result, TILE, false);
            unpack(result, &mut self.dqkv[n..], 3 * n, first, count);
            transpose(ds, n, transposed, padded);
            let keys = Matrix::new(&k[first..], 3 * n);
            matmul(s, [d, count, padded], keys, Matrix::new(transposed, padded), dq, padded, true);
        }
        for (row, dq) in self.dqkv.chunks_exact_mut(3 * n).zip(dq.chunks_exact(padded)) {
            row[..n].copy_from_slice(&dq[..n]);
        }
    }
}

/// Replaces the scores by p = e^(scale·score − log_sum), and dp by ds = scale·p(dp − δ).
#[inline(always)]
fn softmax_backward<S: Simd>(s: S, scores: &mut [f32], dp: &mut [f32], log_sums: &[f32], delta: &[f32], scale: f32) {
    let factor = s.splat(scale);
    let rows = scores.chunks_exact_mut(TILE).zip(dp.chunks_exact_mut(TILE)).zip(log_sums.iter().zip(delta));
    for ((scores, dp), (log_sum, delta)) in rows {
        let (log_sum, delta) = (s.splat(-log_sum), s.splat(*delta));
        for (score, dp) in scores.chunks_exact_mut(S::LANES).zip(dp.chunks_exact_mut(S::LANES)) {
            let p = s.exp(s.fma(s.load(score), factor, log_sum));
            s.store(p, score);
            s.store(s.mul(s.mul(p, factor), s.sub(s.load(dp), delta)), dp);
        }
    }
}

/// The inverse of [`pack`], for `count` columns.
fn unpack(strip: &[f32], rows: &mut [f32], stride: usize, first: usize, count: usize) {
    for (strip, row) in strip.chunks_exact(TILE).zip(rows.chunks_mut(stride)) {
        row[first..first + count].copy_from_slice(&strip[..count]);
    }
}

/// Transposes `[n, TILE]` to `[TILE, padded]`, with zeros beyond n.
fn transpose(x: &[f32], n: usize, out: &mut [f32], padded: usize) {
    const BLOCK: usize = 16;
    for first in (0..n).step_by(BLOCK) {
        let count = (n - first).min(BLOCK);
        for j in 0..TILE {
            let row = &mut out[j * padded + first..][..count];
            row.iter_mut().zip(x[first * TILE + j..].iter().step_by(TILE)).for_each(|(o, x)| *o = *x);
        }
    }
    for row in out.chunks_exact_mut(padded) {
        row[n..].fill(0.0);
    }
}
