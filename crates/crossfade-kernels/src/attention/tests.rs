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
fn every_instruction_set_agrees_with_f64() {
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
fn bits_depend_neither_on_batch_nor_on_threads() {
    let shape = AttentionShape { n: 3, heads: 2, d: 16, positions: 49 };
    let (qkv, dout) = (numbers(1, 3 * shape.out_len()), numbers(2, shape.out_len()));
    let [one, two, three] = pools(|| run(Isa::detect(), &qkv, &dout, shape));
    assert!(one == two && one == three);
    let per = shape.out_len() / 3;
    let alone = AttentionShape { n: 1, ..shape };
    let [out, dqkv] = run(Isa::detect(), &qkv[3 * per..6 * per], &dout[per..2 * per], alone);
    assert!(out == one[0][per..2 * per] && dqkv == one[1][3 * per..6 * per]);
}
