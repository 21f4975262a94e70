//! Self-attention over image positions, softmax(qᵀk/√d)·v, a strip of positions at a time.
//!
//! Scores of all keys against `TILE` queries lie in work space, never the whole matrix. Lanes are neighbouring queries
//! (backward: neighbouring keys), so the softmax needs no sums across lanes and no image is transposed.
use crate::product::{Matrix, matmul};
use crate::simd::{Isa, Kernel, MAX_LANES, Simd};
use crate::team::Share;
use crate::workspace::Workspace;
use rayon::prelude::*;

/// Queries (backward: keys) computed together: whole vectors of every instruction set.
pub(crate) const TILE: usize = 32;

/// Sizes of an attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttentionShape {
    /// Samples.
    pub n: usize,
    /// Heads a sample.
    pub heads: usize,
    /// Channels of q, of k and of v a head.
    pub d: usize,
    /// Positions of the image.
    pub positions: usize,
}

impl AttentionShape {
    /// Numbers of the result.
    pub fn out_len(&self) -> usize {
        self.n * self.heads * self.d * self.positions
    }

    /// Queries of all heads and samples.
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

/// `out` and, for the backward pass, the logarithm of every query's sum of exponentials.
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
        let room = &mut *Workspace::take((2 * d + positions) * TILE);
        isa.run(Forward { qkv, shape, out, log_sums, room });
    });
}

/// One head of one sample.
struct Forward<'a> {
    qkv: &'a [f32],
    shape: AttentionShape,
    out: &'a mut [f32],
    log_sums: &'a mut [f32],
    room: &'a mut [f32],
}

impl Kernel for Forward<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let (d, n) = (self.shape.d, self.shape.positions);
        let [_, k, v] = parts(self.qkv, n);
        let (q, rest) = self.room.split_at_mut(d * TILE);
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

/// Where q, k and v begin; rows of each are 3n apart.
fn parts(qkv: &[f32], n: usize) -> [&[f32]; 3] {
    [qkv, &qkv[n..], &qkv[2 * n..]]
}

/// Columns `first..first + TILE` of a matrix with `n` columns, zeros beyond its end.
fn pack(rows: &[f32], stride: usize, first: usize, n: usize, out: &mut [f32]) {
    let count = (n - first).min(TILE);
    for (out, row) in out.chunks_exact_mut(TILE).zip(rows.chunks(stride)) {
        out[..count].copy_from_slice(&row[first..first + count]);
        out[count..].fill(0.0);
    }
}

/// Scores `[keys, TILE]` become exponentials that no longer sum to 1: their sums are returned as inverses and logarithms.
#[inline(always)]
fn softmax<S: Simd>(s: S, scores: &mut [f32], scale: f32, log_sums: &mut [f32], inverse: &mut [f32; TILE]) {
    // Sums over this many keys are added up, then those sums: rounding grows with the root of neither.
    const BLOCK: usize = 64;
    for lane in (0..TILE).step_by(S::LANES) {
        let mut top = s.splat(f32::NEG_INFINITY);
        for row in scores.chunks_exact(TILE) {
            top = s.max(top, s.load(&row[lane..]));
        }
        let (mut sum, factor) = (s.splat(0.0), s.splat(scale));
        for block in scores.chunks_mut(BLOCK * TILE) {
            let mut part = s.splat(0.0);
            for row in block.chunks_exact_mut(TILE) {
                let e = s.exp(s.mul(s.sub(s.load(&row[lane..]), top), factor));
                s.store(e, &mut row[lane..]);
                part = s.add(part, e);
            }
            sum = s.add(sum, part);
        }
        let (mut tops, mut sums) = ([0.0; MAX_LANES], [0.0; MAX_LANES]);
        s.store(top, &mut tops);
        s.store(sum, &mut sums);
        for i in 0..S::LANES {
            inverse[lane + i] = 1.0 / sums[i];
            if let Some(log_sum) = log_sums.get_mut(lane + i) {
                *log_sum = tops[i] * scale + sums[i].ln();
            }
        }
    }
}

/// The gradient by `qkv`, from `dout` and what the forward pass gave.
///
/// # Shapes
/// As in [`forward`]; `dout` like `out`, `dqkv` like `qkv`.
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
        let room = &mut *Workspace::take(Backward::room(&shape));
        isa.run(Backward { qkv, out, dout, log_sums, shape, dqkv, room });
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
    room: &'a mut [f32],
}

impl Backward<'_> {
    fn room(shape: &AttentionShape) -> usize {
        let (d, n, padded) = (shape.d, shape.positions, shape.padded());
        n + (3 * d + 2 * n) * TILE + (TILE + d) * padded
    }
}

impl Kernel for Backward<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let (d, n, padded) = (self.shape.d, self.shape.positions, self.shape.padded());
        let [q, k, v] = parts(self.qkv, n);
        let (delta, room) = self.room.split_at_mut(n);
        let (k_strip, room) = room.split_at_mut(d * TILE);
        let (v_strip, room) = room.split_at_mut(d * TILE);
        let (result, room) = room.split_at_mut(d * TILE);
        let (p, room) = room.split_at_mut(n * TILE);
        let (ds, room) = room.split_at_mut(n * TILE);
        let (turned, dq) = room.split_at_mut(TILE * padded);
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
            through_softmax(s, p, ds, self.log_sums, delta, self.shape.scale());
            matmul(s, [d, n, TILE], Matrix::new(self.dout, n), Matrix::new(p, TILE), result, TILE, false);
            unpack(result, &mut self.dqkv[2 * n..], 3 * n, first, count);
            matmul(s, [d, n, TILE], Matrix::new(q, 3 * n), Matrix::new(ds, TILE), result, TILE, false);
            unpack(result, &mut self.dqkv[n..], 3 * n, first, count);
            turn(ds, n, turned, padded);
            let keys = Matrix::new(&k[first..], 3 * n);
            matmul(s, [d, count, padded], keys, Matrix::new(turned, padded), dq, padded, true);
        }
        for (row, dq) in self.dqkv.chunks_exact_mut(3 * n).zip(dq.chunks_exact(padded)) {
            row[..n].copy_from_slice(&dq[..n]);
        }
    }
}

/// Scores become p = e^(scale·score − log_sum), dp becomes ds = scale·p(dp − δ).
#[inline(always)]
fn through_softmax<S: Simd>(s: S, scores: &mut [f32], dp: &mut [f32], log_sums: &[f32], delta: &[f32], scale: f32) {
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

/// The opposite of [`pack`], for `count` columns.
fn unpack(strip: &[f32], rows: &mut [f32], stride: usize, first: usize, count: usize) {
    for (strip, row) in strip.chunks_exact(TILE).zip(rows.chunks_mut(stride)) {
        row[first..first + count].copy_from_slice(&strip[..count]);
    }
}

/// `[n, TILE]` to `[TILE, padded]`, zeros beyond n.
fn turn(x: &[f32], n: usize, out: &mut [f32], padded: usize) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_close, numbers, pools};

    fn run(isa: Isa, qkv: &[f32], dout: &[f32], shape: AttentionShape) -> [Vec<f32>; 2] {
        let (mut out, mut log_sums) = (vec![9.0; shape.out_len()], vec![9.0; shape.rows()]);
        forward_at(isa, qkv, shape, &mut out, &mut log_sums);
        let mut dqkv = vec![9.0; qkv.len()];
        backward_at(isa, qkv, &out, dout, &log_sums, shape, &mut dqkv);
        [out, dqkv]
    }

    /// Attention and its gradient, written out in f64.
    fn exact(qkv: &[f32], dout: &[f32], shape: AttentionShape) -> [Vec<f64>; 2] {
        let (d, n) = (shape.d, shape.positions);
        let (mut all, mut gradients) = (vec![], vec![]);
        for (qkv, dout) in qkv.chunks_exact(3 * d * n).zip(dout.chunks_exact(d * n)) {
            let at = |part: usize, c: usize, i: usize| f64::from(qkv[(3 * c + part) * n + i]);
            let dout = |c: usize, i: usize| f64::from(dout[c * n + i]);
            let (mut out, mut grad) = (vec![0.0; d * n], vec![0.0; 3 * d * n]);
            let scale = 1.0 / (d as f64).sqrt();
            for i in 0..n {
                let scores: Vec<f64> =
                    (0..n).map(|j| scale * (0..d).map(|c| at(0, c, i) * at(1, c, j)).sum::<f64>()).collect();
                let top = scores.iter().copied().fold(f64::MIN, f64::max);
                let sum: f64 = scores.iter().map(|s| (s - top).exp()).sum();
                let p: Vec<f64> = scores.iter().map(|s| (s - top).exp() / sum).collect();
                let dp: Vec<f64> = (0..n).map(|j| (0..d).map(|c| dout(c, i) * at(2, c, j)).sum()).collect();
                let mean: f64 = p.iter().zip(&dp).map(|(p, dp)| p * dp).sum();
                for j in 0..n {
                    let ds = scale * p[j] * (dp[j] - mean);
                    for c in 0..d {
                        out[c * n + i] += p[j] * at(2, c, j);
                        grad[3 * c * n + i] += ds * at(1, c, j);
                        grad[(3 * c + 1) * n + j] += ds * at(0, c, i);
                        grad[(3 * c + 2) * n + j] += p[j] * dout(c, i);
                    }
                }
            }
            all.extend(out);
            gradients.extend(grad);
        }
        [all, gradients]
    }

    #[test]
    fn every_path_follows_the_formulas() {
        for (n, heads, d, positions) in [(1, 1, 1, 1), (2, 1, 3, 5), (1, 2, 64, 64), (2, 2, 7, 33), (1, 1, 40, 150)] {
            let shape = AttentionShape { n, heads, d, positions };
            let qkv: Vec<f32> = numbers(1, 3 * shape.out_len()).iter().map(|x| 2.0 * x).collect();
            let dout = numbers(2, shape.out_len());
            let [out, dqkv] = exact(&qkv, &dout, shape);
            for isa in Isa::available() {
                let [got, grad] = run(isa, &qkv, &dout, shape);
                assert_close(&got, &out, 2e-6, &format!("{isa:?} {shape:?}"));
                assert_close(&grad, &dqkv, 5e-6, &format!("gradient, {isa:?} {shape:?}"));
            }
        }
    }

    #[test]
    fn neither_batch_nor_threads_change_a_bit() {
        let shape = AttentionShape { n: 3, heads: 2, d: 16, positions: 49 };
        let (qkv, dout) = (numbers(1, 3 * shape.out_len()), numbers(2, shape.out_len()));
        let [one, two, three] = pools(|| run(Isa::detect(), &qkv, &dout, shape));
        assert!(one == two && one == three);
        let per = shape.out_len() / 3;
        let alone = AttentionShape { n: 1, ..shape };
        let [out, dqkv] = run(Isa::detect(), &qkv[3 * per..6 * per], &dout[per..2 * per], alone);
        assert!(out == one[0][per..2 * per] && dqkv == one[1][3 * per..6 * per]);
    }
}
