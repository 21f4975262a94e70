//! Attention at a cost linear in the positions: y = (v kᵀ/N)·q with q softmax over its channels and scaled by d^(−½), k
//! softmax over the positions.
//!
//! Lanes are neighbouring positions, a strip of `TILE` at a time; only d x d numbers a head connect the strips.
use crate::attention::TILE;
use crate::product::{Matrix, matmul};
use crate::simd::{Isa, Kernel, Simd, map, map2, update};
use crate::team::Share;
use crate::workspace::Workspace;
use rayon::prelude::*;

/// Sizes of a linear attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinearAttentionShape {
    /// Samples.
    pub n: usize,
    /// Heads a sample.
    pub heads: usize,
    /// Channels of q, of k and of v a head.
    pub d: usize,
    /// Positions of the image.
    pub positions: usize,
}

impl LinearAttentionShape {
    /// Numbers of the result.
    pub fn out_len(&self) -> usize {
        self.n * self.heads * self.head()
    }

    /// Numbers of what the backward pass wants to know.
    pub fn saved_len(&self) -> usize {
        self.n * self.heads * self.saved()
    }

    fn head(&self) -> usize {
        self.d * self.positions
    }

    /// A head's logarithms of k's sums and its context.
    fn saved(&self) -> usize {
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

/// `out`, and in `saved` what the backward pass wants to know.
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
    let heads = out.par_chunks_mut(shape.head()).zip(saved.par_chunks_mut(shape.saved())).enumerate();
    heads.share(|(i, (out, saved))| {
        let [q, k, v] = parts(qkv, &shape, i);
        let room = &mut *Workspace::take(2 * shape.d * TILE + TILE * shape.padded());
        isa.run(Forward { q, k, v, shape, out, saved, room });
    });
}

/// q, k and v of a head, counted over all samples.
fn parts<'a>(qkv: &'a [f32], shape: &LinearAttentionShape, head: usize) -> [&'a [f32]; 3] {
    let (sample, head, size) = (head / shape.heads, head % shape.heads, shape.head());
    std::array::from_fn(|part| &qkv[((3 * sample + part) * shape.heads + head) * size..][..size])
}

struct Forward<'a> {
    q: &'a [f32],
    k: &'a [f32],
    v: &'a [f32],
    shape: LinearAttentionShape,
    out: &'a mut [f32],
    saved: &'a mut [f32],
    room: &'a mut [f32],
}

impl Kernel for Forward<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let LinearAttentionShape { d, positions: n, .. } = self.shape;
        let padded = self.shape.padded();
        let (strip, room) = self.room.split_at_mut(d * TILE);
        let (result, turned) = room.split_at_mut(d * TILE);
        let (log_sums, context) = self.saved.split_at_mut(d);
        for (row, top) in self.k.chunks_exact(n).zip(&mut *log_sums) {
            *top = row.iter().copied().fold(f32::MIN, f32::max);
        }
        context.fill(0.0);
        let mut sums = vec![0.0f64; d];
        for first in (0..n).step_by(TILE) {
            let count = (n - first).min(TILE);
            exponentials(s, self.k, n, first, log_sums, strip);
            for (row, sum) in strip.chunks_exact(TILE).zip(&mut sums) {
                *sum += f64::from(row[..count].iter().sum::<f32>());
            }
            turn(strip, turned, padded);
            let v = Matrix::new(&self.v[first..], n);
            matmul(s, [d, count, padded], v, Matrix::new(turned, padded), context, padded, true);
        }
        for row in context.chunks_exact_mut(padded) {
            row.iter_mut().zip(&sums).for_each(|(c, sum)| *c = (f64::from(*c) / (sum * n as f64)) as f32);
        }
        log_sums.iter_mut().zip(&sums).for_each(|(top, sum)| *top = (f64::from(*top) + sum.ln()) as f32);
        for first in (0..n).step_by(TILE) {
            pack(self.q, n, first, strip);
            softmax(s, strip, self.shape.scale());
            matmul(s, [d, d, TILE], Matrix::new(context, padded), Matrix::new(strip, TILE), result, TILE, false);
            unpack(result, n, first, self.out);
        }
    }
}

/// Columns `first..first + TILE` of rows of `n`, zeros beyond their end.
#[inline(always)]
fn pack(rows: &[f32], n: usize, first: usize, out: &mut [f32]) {
    let count = (n - first).min(TILE);
    for (out, row) in out.chunks_exact_mut(TILE).zip(rows.chunks_exact(n)) {
        out[..count].copy_from_slice(&row[first..first + count]);
        out[count..].fill(0.0);
    }
}

/// The opposite of [`pack`].
#[inline(always)]
fn unpack(strip: &[f32], n: usize, first: usize, rows: &mut [f32]) {
    let count = (n - first).min(TILE);
    for (strip, row) in strip.chunks_exact(TILE).zip(rows.chunks_exact_mut(n)) {
        row[first..first + count].copy_from_slice(&strip[..count]);
    }
}

/// e^(k − offset) of a strip, each row with its own offset.
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

/// Every column of a strip becomes its softmax times `scale`.
#[inline(always)]
fn softmax<S: Simd>(s: S, strip: &mut [f32], scale: f32) {
    for lane in (0..TILE).step_by(S::LANES) {
        let mut top = s.splat(f32::NEG_INFINITY);
        for row in strip.chunks_exact(TILE) {
            top = s.max(top, s.load(&row[lane..]));
        }
        let mut sum = s.splat(0.0);
        for row in strip.chunks_exact_mut(TILE) {
            let e = s.exp(s.sub(s.load(&row[lane..]), top));
            s.store(e, &mut row[lane..]);
            sum = s.add(sum, e);
        }
        let factor = s.div(s.splat(scale), sum);
        for row in strip.chunks_exact_mut(TILE) {
            s.store(s.mul(s.load(&row[lane..]), factor), &mut row[lane..]);
        }
    }
}

/// `[d, TILE]` to `[TILE, padded]`, zeros beyond d.
#[inline(always)]
fn turn(strip: &[f32], out: &mut [f32], padded: usize) {
    let d = strip.len() / TILE;
    for (j, row) in out.chunks_exact_mut(padded).enumerate() {
        row[..d].iter_mut().zip(strip[j..].iter().step_by(TILE)).for_each(|(o, x)| *o = *x);
        row[d..].fill(0.0);
    }
}

/// The gradient by `qkv`, from `dout` and what the forward pass saved.
///
/// # Shapes
/// As in [`forward`]; `dout` like `out`, `dqkv` like `qkv`.
pub fn backward(qkv: &[f32], dout: &[f32], saved: &[f32], shape: LinearAttentionShape, dqkv: &mut [f32]) {
    backward_at(Isa::detect(), qkv, dout, saved, shape, dqkv);
}

fn backward_at(isa: Isa, qkv: &[f32], dout: &[f32], saved: &[f32], shape: LinearAttentionShape, dqkv: &mut [f32]) {
    assert!(qkv.len() == 3 * dout.len() && dout.len() == shape.out_len() && dqkv.len() == qkv.len());
    assert_eq!(saved.len(), shape.saved_len());
    if dout.is_empty() {
        return;
    }
    let (head, part) = (shape.head(), shape.heads * shape.head());
    dqkv.par_chunks_mut(3 * part).enumerate().share(|(sample, dqkv)| {
        let (dq, rest) = dqkv.split_at_mut(part);
        let (dk, dv) = rest.split_at_mut(part);
        let heads = dq.par_chunks_mut(head).zip(dk.par_chunks_mut(head)).zip(dv.par_chunks_mut(head));
        heads.enumerate().share(|(i, ((dq, dk), dv))| {
            let i = sample * shape.heads + i;
            let [q, k, v] = parts(qkv, &shape, i);
            let (dout, saved) = (&dout[i * head..][..head], &saved[i * shape.saved()..][..shape.saved()]);
            let room = &mut *Workspace::take(3 * shape.d * TILE + (TILE + shape.d) * shape.padded());
            isa.run(Backward { q, k, v, dout, saved, shape, dq, dk, dv, room });
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
    room: &'a mut [f32],
}

impl Kernel for Backward<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let LinearAttentionShape { d, positions: n, .. } = self.shape;
        let (padded, scale) = (self.shape.padded(), self.shape.scale());
        let (log_sums, context) = self.saved.split_at(d);
        let (a, room) = self.room.split_at_mut(d * TILE);
        let (b, room) = room.split_at_mut(d * TILE);
        let (result, room) = room.split_at_mut(d * TILE);
        let (turned, dcontext) = room.split_at_mut(TILE * padded);
        dcontext.fill(0.0);
        for first in (0..n).step_by(TILE) {
            let count = (n - first).min(TILE);
            pack(self.q, n, first, a);
            softmax(s, a, scale);
            turn(a, turned, padded);
            let dout = Matrix::new(&self.dout[first..], n);
            matmul(s, [d, count, padded], dout, Matrix::new(turned, padded), dcontext, padded, true);
            pack(self.dout, n, first, b);
            matmul(s, [d, d, TILE], Matrix::transposed(context, padded), Matrix::new(b, TILE), result, TILE, false);
            through_softmax(s, a, result, scale);
            unpack(result, n, first, self.dq);
        }
        // Σ_n dk'·k' = Σ_e dcontext·context, the mean that the softmax of k takes away.
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

/// With q' = scale·p: dq' becomes dq = q'(dq' − Σ dq' p), columns by columns.
#[inline(always)]
fn through_softmax<S: Simd>(s: S, q: &[f32], dq: &mut [f32], scale: f32) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_close, numbers, pools};

    fn run(isa: Isa, qkv: &[f32], dout: &[f32], shape: LinearAttentionShape) -> [Vec<f32>; 2] {
        let (mut out, mut saved) = (vec![9.0; shape.out_len()], vec![9.0; shape.saved_len()]);
        forward_at(isa, qkv, shape, &mut out, &mut saved);
        let mut dqkv = vec![9.0; qkv.len()];
        backward_at(isa, qkv, dout, &saved, shape, &mut dqkv);
        [out, dqkv]
    }

    /// Both in f64; the gradient through both softmaxes in full.
    fn exact(qkv: &[f32], dout: &[f32], shape: LinearAttentionShape) -> [Vec<f64>; 2] {
        let (d, n) = (shape.d, shape.positions);
        let f = |x: &[f32]| x.iter().map(|&x| f64::from(x)).collect::<Vec<_>>();
        let (mut out, mut grad) = (vec![0.0; shape.out_len()], vec![0.0; qkv.len()]);
        for head in 0..shape.n * shape.heads {
            let [q, k, v] = parts(qkv, &shape, head).map(f);
            let dout = f(&dout[head * d * n..][..d * n]);
            let scale = (d as f64).powf(-0.5);
            let mut p = vec![0.0; d * n];
            for i in 0..n {
                let sum: f64 = (0..d).map(|c| q[c * n + i].exp()).sum();
                (0..d).for_each(|c| p[c * n + i] = q[c * n + i].exp() / sum);
            }
            let mut r = vec![0.0; d * n];
            for c in 0..d {
                let sum: f64 = (0..n).map(|i| k[c * n + i].exp()).sum();
                (0..n).for_each(|i| r[c * n + i] = k[c * n + i].exp() / sum);
            }
            let (mut context, mut dcontext) = (vec![0.0; d * d], vec![0.0; d * d]);
            for (e, c, i) in (0..d * d * n).map(|j| (j / d / n, j / n % d, j % n)) {
                context[e * d + c] += v[e * n + i] * r[c * n + i] / n as f64;
                dcontext[e * d + c] += dout[e * n + i] * scale * p[c * n + i];
            }
            let (mut dp, mut dr, mut dv) = (vec![0.0; d * n], vec![0.0; d * n], vec![0.0; d * n]);
            for (e, c, i) in (0..d * d * n).map(|j| (j / d / n, j / n % d, j % n)) {
                out[head * d * n + e * n + i] += context[e * d + c] * scale * p[c * n + i];
                dp[c * n + i] += scale * context[e * d + c] * dout[e * n + i];
                dr[c * n + i] += dcontext[e * d + c] * v[e * n + i] / n as f64;
                dv[e * n + i] += dcontext[e * d + c] * r[c * n + i] / n as f64;
            }
            let at = |part: usize| ((head / shape.heads * 3 + part) * shape.heads + head % shape.heads) * d * n;
            for (c, i) in (0..d * n).map(|j| (j / n, j % n)) {
                let over_channels: f64 = (0..d).map(|c| dp[c * n + i] * p[c * n + i]).sum();
                let over_positions: f64 = (0..n).map(|i| dr[c * n + i] * r[c * n + i]).sum();
                grad[at(0) + c * n + i] = p[c * n + i] * (dp[c * n + i] - over_channels);
                grad[at(1) + c * n + i] = r[c * n + i] * (dr[c * n + i] - over_positions);
                grad[at(2) + c * n + i] = dv[c * n + i];
            }
        }
        [out, grad]
    }

    #[test]
    fn every_path_follows_the_formulas() {
        for (n, heads, d, positions) in [(1, 1, 1, 1), (2, 1, 3, 5), (1, 2, 32, 64), (2, 2, 7, 33), (1, 1, 40, 70)] {
            let shape = LinearAttentionShape { n, heads, d, positions };
            let qkv: Vec<f32> = numbers(1, 3 * shape.out_len()).iter().map(|x| 2.0 * x).collect();
            let dout = numbers(2, shape.out_len());
            let [out, dqkv] = exact(&qkv, &dout, shape);
            let size = |x: &[f64]| x.iter().fold(1e-9, |a: f64, b| a.max(b.abs()));
            // The values are small: compared at the size of the largest.
            let scaled = |x: &[f64], size: f64| x.iter().map(|x| x / size).collect::<Vec<_>>();
            for isa in Isa::available() {
                let [got, grad] = run(isa, &qkv, &dout, shape);
                for (got, exact, what) in [(got, &out, "result"), (grad, &dqkv, "gradient")] {
                    let size = size(exact);
                    let got: Vec<f32> = got.iter().map(|x| x / size as f32).collect();
                    assert_close(&got, &scaled(exact, size), 1e-5, &format!("{what}, {isa:?} {shape:?}"));
                }
            }
        }
    }

    #[test]
    fn neither_batch_nor_threads_change_a_bit() {
        let shape = LinearAttentionShape { n: 3, heads: 2, d: 16, positions: 49 };
        let (qkv, dout) = (numbers(1, 3 * shape.out_len()), numbers(2, shape.out_len()));
        let [one, two, three] = pools(|| run(Isa::detect(), &qkv, &dout, shape));
        assert!(one == two && one == three);
        let per = shape.out_len() / 3;
        let alone = LinearAttentionShape { n: 1, ..shape };
        let [out, dqkv] = run(Isa::detect(), &qkv[3 * per..6 * per], &dout[per..2 * per], alone);
        assert!(out == one[0][per..2 * per] && dqkv == one[1][3 * per..6 * per]);
    }
}
