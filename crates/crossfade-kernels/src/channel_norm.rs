//! Layer normalisation over the channels of every position, with a gain: (x − mean)/√(variance + ε)·g.
use crate::simd::{Isa, Kernel, Simd};
use crate::team::Share;
use crate::workspace::Workspace;
use rayon::prelude::*;

/// Positions that are computed together: all of their channels fit the cache.
const STRIP: usize = 64;

/// Added to the variance.
const EPSILON: f32 = 1e-5;

/// The forward pass. `stats` receives mean and 1/√(variance + ε) of every position, for the backward pass.
///
/// # Shapes
/// `x`, `out` `[n, c, positions]`, `gain` `[c]`, `stats` `[n, 2, positions]`.
pub fn forward(x: &[f32], gain: &[f32], positions: usize, out: &mut [f32], stats: &mut [f32]) {
    let size = gain.len() * positions;
    assert!(x.len() == out.len() && stats.len() * gain.len() == 2 * x.len());
    if x.is_empty() {
        return;
    }
    let samples = out.par_chunks_mut(size).zip(x.par_chunks(size)).zip(stats.par_chunks_mut(2 * positions));
    samples.share(|((out, x), stats)| Isa::detect().run(Forward { x, gain, positions, out, stats }));
}

struct Forward<'a> {
    x: &'a [f32],
    gain: &'a [f32],
    positions: usize,
    out: &'a mut [f32],
    stats: &'a mut [f32],
}

impl Kernel for Forward<'_> {
    type Output = ();

    // Plain loops: the compiler turns them into vectors of the instruction set in which it compiles `run`.
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let n = self.positions;
        let (means, rstds) = self.stats.split_at_mut(n);
        let inverse_c = 1.0 / self.gain.len() as f32;
        for first in (0..n).step_by(STRIP) {
            let at = first..(first + STRIP).min(n);
            let (mean, rstd) = (&mut means[at.clone()], &mut rstds[at.clone()]);
            mean.fill(0.0);
            rstd.fill(0.0);
            for row in self.x.chunks_exact(n) {
                mean.iter_mut().zip(&row[at.clone()]).for_each(|(m, x)| *m += x);
            }
            mean.iter_mut().for_each(|m| *m *= inverse_c);
            for row in self.x.chunks_exact(n) {
                let row = row[at.clone()].iter().zip(&*mean);
                rstd.iter_mut().zip(row).for_each(|(v, (x, m))| *v += (x - m) * (x - m));
            }
            rstd.iter_mut().for_each(|v| *v = 1.0 / (*v * inverse_c + EPSILON).sqrt());
            for ((row, out), gain) in self.x.chunks_exact(n).zip(self.out.chunks_exact_mut(n)).zip(self.gain) {
                let row = row[at.clone()].iter().zip(&*mean).zip(&*rstd);
                out[at.clone()].iter_mut().zip(row).for_each(|(o, ((x, m), r))| *o = (x - m) * (r * gain));
            }
        }
    }
}

/// The backward pass: the gradients by `x` and by `gain`, from `dy` and the `stats` of the forward pass.
///
/// # Shapes
/// `x`, `dy`, `dx` `[n, c, positions]`, `gain`, `dgain` `[c]`, `stats` `[n, 2, positions]`.
pub fn backward(
    [x, dy]: [&[f32]; 2],
    gain: &[f32],
    stats: &[f32],
    positions: usize,
    dx: &mut [f32],
    dgain: &mut [f32],
) {
    let (c, size) = (gain.len(), gain.len() * positions);
    assert!(x.len() == dy.len() && x.len() == dx.len() && dgain.len() == c && stats.len() * c == 2 * x.len());
    dgain.fill(0.0);
    if x.is_empty() {
        return;
    }
    let sums = &mut *Workspace::take(x.len() / positions);
    let samples = dx.par_chunks_mut(size).zip(x.par_chunks(size)).zip(dy.par_chunks(size));
    let samples = samples.zip(stats.par_chunks(2 * positions)).zip(sums.par_chunks_mut(c));
    samples.share(|((((dx, x), dy), stats), sums)| {
        Isa::detect().run(Backward { x, dy, gain, stats, positions, dx, sums });
    });
    for sums in sums.chunks_exact(c) {
        dgain.iter_mut().zip(sums).for_each(|(total, sum)| *total += sum);
    }
}

struct Backward<'a> {
    x: &'a [f32],
    dy: &'a [f32],
    gain: &'a [f32],
    stats: &'a [f32],
    positions: usize,
    dx: &'a mut [f32],
    /// Σ dy·x̂ over the positions, for every channel.
    sums: &'a mut [f32],
}

impl Kernel for Backward<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let n = self.positions;
        let (means, rstds) = self.stats.split_at(n);
        let inverse_c = 1.0 / self.gain.len() as f32;
        self.sums.fill(0.0);
        for first in (0..n).step_by(STRIP) {
            let at = first..(first + STRIP).min(n);
            let (mean, rstd) = (&means[at.clone()], &rstds[at.clone()]);
            // Σ g dy and Σ g dy x̂ over the channels.
            let (mut sum_dy, mut sum_dy_x_hat) = ([0.0f32; STRIP], [0.0f32; STRIP]);
            let rows = self.x.chunks_exact(n).zip(self.dy.chunks_exact(n)).zip(self.gain.iter().zip(&mut *self.sums));
            for ((x, dy), (gain, sum)) in rows {
                let mut products = [0.0f32; STRIP];
                let row = x[at.clone()].iter().zip(&dy[at.clone()]).zip(mean.iter().zip(rstd));
                let sums = sum_dy.iter_mut().zip(&mut sum_dy_x_hat).zip(&mut products);
                for (((x, dy), (m, r)), ((sum_dy, sum_dy_x_hat), product)) in row.zip(sums) {
                    *product = dy * ((x - m) * r);
                    *sum_dy += gain * dy;
                    *sum_dy_x_hat += gain * *product;
                }
                *sum += pairwise(products);
            }
            let rows = self.x.chunks_exact(n).zip(self.dy.chunks_exact(n)).zip(self.dx.chunks_exact_mut(n));
            for (((x, dy), dx), gain) in rows.zip(self.gain) {
                let row = x[at.clone()].iter().zip(&dy[at.clone()]).zip(mean.iter().zip(rstd));
                let row = row.zip(sum_dy.iter().zip(&sum_dy_x_hat));
                // dx = rstd·(g dy − mean(g dy) − x̂ mean(g dy x̂)), means over the channels.
                for (dx, (((x, dy), (m, r)), (sum_dy, sum_dy_x_hat))) in dx[at.clone()].iter_mut().zip(row) {
                    *dx = r * (gain * dy - inverse_c * (sum_dy + (x - m) * r * sum_dy_x_hat));
                }
            }
        }
    }
}

/// The sum: the upper half is added to the lower one until a single number is left.
#[inline(always)]
fn pairwise(mut x: [f32; STRIP]) -> f32 {
    let mut width = STRIP;
    while width > 1 {
        width /= 2;
        for i in 0..width {
            x[i] += x[i + width];
        }
    }
    x[0]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_close, numbers, pools};

    fn run(n: usize, c: usize, positions: usize) -> [Vec<f32>; 3] {
        let (x, dy, gain) = (numbers(1, n * c * positions), numbers(2, n * c * positions), numbers(3, c));
        let (mut out, mut stats) = (vec![9.0; x.len()], vec![9.0; 2 * n * positions]);
        forward(&x, &gain, positions, &mut out, &mut stats);
        let (mut dx, mut dgain) = (vec![9.0; x.len()], vec![9.0; c]);
        backward([&x, &dy], &gain, &stats, positions, &mut dx, &mut dgain);
        [out, dx, dgain]
    }

    /// The formulas in f64, which are more exact than a gradient by finite differences.
    fn exact(n: usize, c: usize, positions: usize) -> [Vec<f64>; 3] {
        let (x, dy, gain) = (numbers(1, n * c * positions), numbers(2, n * c * positions), numbers(3, c));
        let (mut out, mut dx, mut dgain) = (vec![0.0; x.len()], vec![0.0; x.len()], vec![0.0; c]);
        for place in 0..n * positions {
            let at = |channel: usize| (place / positions * c + channel) * positions + place % positions;
            let values: Vec<f64> = (0..c).map(|k| f64::from(x[at(k)])).collect();
            let mean = values.iter().sum::<f64>() / c as f64;
            let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / c as f64;
            let rstd = 1.0 / (variance + f64::from(EPSILON)).sqrt();
            let hat: Vec<f64> = values.iter().map(|v| (v - mean) * rstd).collect();
            let d: Vec<f64> = (0..c).map(|k| f64::from(dy[at(k)]) * f64::from(gain[k])).collect();
            let total = d.iter().sum::<f64>() / c as f64;
            let along = d.iter().zip(&hat).map(|(d, h)| d * h).sum::<f64>() / c as f64;
            for k in 0..c {
                out[at(k)] = hat[k] * f64::from(gain[k]);
                dx[at(k)] = rstd * (d[k] - total - hat[k] * along);
                dgain[k] += f64::from(dy[at(k)]) * hat[k];
            }
        }
        [out, dx, dgain]
    }

    #[test]
    fn the_kernels_agree_with_f64() {
        for (n, c, positions) in [(1, 2, 1), (3, 16, 49), (2, 33, 200), (1, 8, 64)] {
            for (got, exact) in run(n, c, positions).iter().zip(&exact(n, c, positions)) {
                assert_close(got, exact, 2e-5, &format!("{n} {c} {positions}"));
            }
        }
    }

    #[test]
    fn bits_do_not_depend_on_threads() {
        let [one, two, three] = pools(|| run(5, 16, 100));
        assert!(one == two && one == three);
    }
}
