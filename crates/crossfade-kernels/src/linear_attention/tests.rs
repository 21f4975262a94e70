use super::*;
use crate::testing::{assert_close, numbers, pools};

fn run(isa: Isa, qkv: &[f32], dout: &[f32], shape: LinearAttentionShape) -> [Vec<f32>; 2] {
    let (mut out, mut saved) = (vec![9.0; shape.out_len()], vec![9.0; shape.saved_len()]);
    forward_at(isa, qkv, shape, &mut out, &mut saved);
    let mut dqkv = vec![9.0; qkv.len()];
    backward_at(isa, qkv, dout, &saved, shape, &mut dqkv);
    [out, dqkv]
}

/// Result and gradient in f64, written out in full.
fn exact(qkv: &[f32], dout: &[f32], shape: LinearAttentionShape) -> [Vec<f64>; 2] {
    let (d, n) = (shape.d, shape.positions);
    let f = |x: &[f32]| x.iter().map(|&x| f64::from(x)).collect::<Vec<_>>();
    let (mut out, mut grad) = (vec![0.0; shape.out_len()], vec![0.0; qkv.len()]);
    for head in 0..shape.n * shape.heads {
        let [q, k, v] = split_qkv(qkv, &shape, head).map(f);
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
fn every_instruction_set_agrees_with_f64() {
    for (n, heads, d, positions) in [(1, 1, 1, 1), (2, 1, 3, 5), (1, 2, 32, 64), (2, 2, 7, 33), (1, 1, 40, 70)] {
        let shape = LinearAttentionShape { n, heads, d, positions };
        let qkv: Vec<f32> = numbers(1, 3 * shape.out_len()).iter().map(|x| 2.0 * x).collect();
        let dout = numbers(2, shape.out_len());
        let [out, dqkv] = exact(&qkv, &dout, shape);
        let size = |x: &[f64]| x.iter().fold(1e-9, |a: f64, b| a.max(b.abs()));
        // The values are small: they are compared relative to the largest.
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
fn bits_depend_neither_on_batch_nor_on_threads() {
    let shape = LinearAttentionShape { n: 3, heads: 2, d: 16, positions: 49 };
    let (qkv, dout) = (numbers(1, 3 * shape.out_len()), numbers(2, shape.out_len()));
    let [one, two, three] = pools(|| run(Isa::detect(), &qkv, &dout, shape));
    assert!(one == two && one == three);
    let per = shape.out_len() / 3;
    let alone = LinearAttentionShape { n: 1, ..shape };
    let [out, dqkv] = run(Isa::detect(), &qkv[3 * per..6 * per], &dout[per..2 * per], alone);
    assert!(out == one[0][per..2 * per] && dqkv == one[1][3 * per..6 * per]);
}
