//! Batch normalisation: every channel is normalised by its mean and variance over all samples and positions.
use crate::norm::{sum, sum_and_moment};
use crate::simd::{Isa, Kernel, Simd, map, map2};
use crate::team::Share;
use rayon::prelude::*;

/// Mean and (biased) variance of every channel.
///
/// # Shapes
/// `x` `[n, c, positions]` to `[c]`.
pub fn moments(x: &[f32], c: usize, positions: usize) -> Vec<[f32; 2]> {
    let isa = Isa::detect();
    let mut moments = vec![[0.0; 2]; c];
    moments.par_iter_mut().enumerate().share(|(channel, to)| *to = isa.run(Moments { x, c, positions, channel }));
    moments
}

/// The planes of one channel in all samples.
fn planes(x: &[f32], c: usize, positions: usize, channel: usize) -> impl Iterator<Item = &[f32]> {
    x.chunks_exact(positions).skip(channel).step_by(c)
}

struct Moments<'a> {
    x: &'a [f32],
    c: usize,
    positions: usize,
    channel: usize,
}

impl Kernel for Moments<'_> {
    type Output = [f32; 2];

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> [f32; 2] {
        let planes = || planes(self.x, self.c, self.positions, self.channel);
        let count = (self.x.len() / self.c) as f64;
        let mut total = 0.0;
        for plane in planes() {
            total += sum(
                s,
                plane,
                #[inline(always)]
                |x| x,
            );
        }
        let mean = (total / count) as f32;
        let m = s.splat(mean);
        let mut squares = 0.0;
        for plane in planes() {
            // The incomplete vector is summed separately: its padding of zeros would count as values.
            let (whole, rest) = plane.split_at(plane.len() / S::LANES * S::LANES);
            squares += sum(
                s,
                whole,
                #[inline(always)]
                |x| {
                    let d = s.sub(x, m);
                    s.mul(d, d)
                },
            );
            squares += rest.iter().map(|x| f64::from(x - mean).powi(2)).sum::<f64>();
        }
        [mean, (squares / count) as f32]
    }
}

/// out = x·scale + shift, with scale and shift of the channel.
///
/// # Shapes
/// `x`, `out` `[n, c, positions]`, `affine` `[c]` of scale and shift.
pub fn apply(x: &[f32], affine: &[[f32; 2]], positions: usize, out: &mut [f32]) {
    assert!(x.len() == out.len() && x.len().is_multiple_of((affine.len() * positions).max(1)));
    let isa = Isa::detect();
    let planes = out.par_chunks_mut(positions).zip(x.par_chunks(positions)).enumerate();
    planes.share(|(i, (out, x))| isa.run(Apply { x, affine: affine[i % affine.len()], out }));
}

struct Apply<'a> {
    x: &'a [f32],
    affine: [f32; 2],
    out: &'a mut [f32],
}

impl Kernel for Apply<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let [scale, shift] = self.affine.map(|v| s.splat(v));
        map(
            s,
            self.x,
            self.out,
            #[inline(always)]
            |x| s.fma(x, scale, shift),
        );
    }
}

/// The gradients by x, γ and β of γ(x − mean)·rstd + β where mean and rstd are those of the batch.
///
/// # Shapes
/// `x`, `dy`, `dx` `[n, c, positions]`; `stats` `[c]` of mean and rstd; `gamma`, `dgamma`, `dbeta` `[c]`.
pub fn backward(
    [x, dy]: [&[f32]; 2],
    stats: &[[f32; 2]],
    gamma: &[f32],
    positions: usize,
    dx: &mut [f32],
    [dgamma, dbeta]: [&mut [f32]; 2],
) {
    let c = gamma.len();
    assert!(x.len() == dy.len() && x.len() == dx.len() && stats.len() == c && dgamma.len() == c && dbeta.len() == c);
    let (isa, count) = (Isa::detect(), (x.len() / c) as f64);
    // dx = a·dy + b·x + e, with the coefficients a, b and e of the channel.
    let mut coefficients = vec![[0.0; 3]; c];
    let channels = coefficients.par_iter_mut().zip(dgamma).zip(dbeta).zip(stats).enumerate();
    channels.share(|(channel, (((to, dgamma), dbeta), &[mean, rstd]))| {
        let [sum_dy, sum_dy_x] = isa.run(Sums { x, dy, c, positions, channel, mean });
        let (rstd, gamma) = (f64::from(rstd), f64::from(gamma[channel]));
        (*dbeta, *dgamma) = (sum_dy as f32, (sum_dy_x * rstd) as f32);
        let slope = -gamma * rstd.powi(3) * sum_dy_x / count;
        *to = [gamma * rstd, slope, -gamma * rstd * sum_dy / count - slope * f64::from(mean)].map(|v| v as f32);
    });
    let planes = dx.par_chunks_mut(positions).zip(x.par_chunks(positions)).zip(dy.par_chunks(positions));
    planes.enumerate().share(|(i, ((dx, x), dy))| isa.run(Backward { x, dy, coefficients: coefficients[i % c], dx }));
}

/// Σ dy and Σ dy·(x − mean) of one channel.
struct Sums<'a> {
    x: &'a [f32],
    dy: &'a [f32],
    c: usize,
    positions: usize,
    channel: usize,
    mean: f32,
}

impl Kernel for Sums<'_> {
    type Output = [f64; 2];

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> [f64; 2] {
        let of = |x| planes(x, self.c, self.positions, self.channel);
        let mut result = [0.0; 2];
        for (x, dy) in of(self.x).zip(of(self.dy)) {
            let (sum, moment) = sum_and_moment(s, dy, x, self.mean);
            result = [result[0] + sum, result[1] + moment];
        }
        result
    }
}

/// dx = a·dy + b·x + e of one plane.
struct Backward<'a> {
    x: &'a [f32],
    dy: &'a [f32],
    coefficients: [f32; 3],
    dx: &'a mut [f32],
}

impl Kernel for Backward<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let [a, b, e] = self.coefficients.map(|v| s.splat(v));
        map2(
            s,
            self.x,
            self.dy,
            self.dx,
            #[inline(always)]
            |x, dy| s.fma(a, dy, s.fma(b, x, e)),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_close, numbers, pools};

    const EPSILON: f64 = 1e-3;

    /// The output, dx, dgamma and dbeta.
    fn run(n: usize, c: usize, positions: usize) -> [Vec<f32>; 4] {
        let (x, dy) = (numbers(1, n * c * positions), numbers(2, n * c * positions));
        let (gamma, beta) = (numbers(3, c), numbers(4, c));
        let stats: Vec<[f32; 2]> = (moments(&x, c, positions).iter())
            .map(|&[mean, variance]| [mean, (1.0 / (f64::from(variance) + EPSILON).sqrt()) as f32])
            .collect();
        let affine: Vec<[f32; 2]> = (stats.iter().zip(gamma.iter().zip(&beta)))
            .map(|([mean, rstd], (gamma, beta))| [gamma * rstd, beta - mean * gamma * rstd])
            .collect();
        let (mut out, mut dx) = (vec![9.0; x.len()], vec![9.0; x.len()]);
        apply(&x, &affine, positions, &mut out);
        let (mut dgamma, mut dbeta) = (vec![9.0; c], vec![9.0; c]);
        backward([&x, &dy], &stats, &gamma, positions, &mut dx, [&mut dgamma, &mut dbeta]);
        [out, dx, dgamma, dbeta]
    }

    fn exact(n: usize, c: usize, positions: usize) -> [Vec<f64>; 4] {
        let f = |v: Vec<f32>| v.into_iter().map(f64::from).collect::<Vec<_>>();
        let (x, dy) = (f(numbers(1, n * c * positions)), f(numbers(2, n * c * positions)));
        let (gamma, beta) = (f(numbers(3, c)), f(numbers(4, c)));
        let mut result = [vec![0.0; x.len()], vec![0.0; x.len()], vec![0.0; c], vec![0.0; c]];
        for k in 0..c {
            let places: Vec<usize> = (0..x.len()).filter(|i| i / positions % c == k).collect();
            let mean_of = |g: &dyn Fn(usize) -> f64| places.iter().map(|&i| g(i)).sum::<f64>() / places.len() as f64;
            let mean = mean_of(&|i| x[i]);
            let rstd = 1.0 / (mean_of(&|i| (x[i] - mean).powi(2)) + EPSILON).sqrt();
            let hat = |i: usize| (x[i] - mean) * rstd;
            let (total, along) = (mean_of(&|i| dy[i]), mean_of(&|i| dy[i] * hat(i)));
            for &i in &places {
                result[0][i] = gamma[k] * hat(i) + beta[k];
                result[1][i] = gamma[k] * rstd * (dy[i] - total - hat(i) * along);
            }
            result[2][k] = along * places.len() as f64;
            result[3][k] = total * places.len() as f64;
        }
        result
    }

    #[test]
    fn the_kernels_agree_with_f64() {
        for (n, c, positions) in [(2, 1, 1), (3, 16, 49), (4, 5, 1000), (1, 8, 64)] {
            for (i, (got, exact)) in run(n, c, positions).iter().zip(&exact(n, c, positions)).enumerate() {
                assert_close(got, exact, 1e-5, &format!("{n} {c} {positions}, result {i}"));
            }
        }
    }

    #[test]
    fn bits_do_not_depend_on_threads() {
        let [one, two, three] = pools(|| run(5, 16, 100));
        assert!(one == two && one == three);
    }
}
