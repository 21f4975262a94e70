//! Group normalisation, alone or followed by the modulation of an embedding and by SiLU, in one pass over memory each way.
use crate::CHUNK;
use crate::simd::{Isa, Kernel, Simd, map, map2, update};
use crate::team::Share;
use crate::workspace::Workspace;
use rayon::prelude::*;

/// Sizes of a normalised tensor `[n, c, hw]` whose channels form `groups` groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NormShape {
    /// Samples.
    pub n: usize,
    /// Channels, a multiple of `groups`.
    pub c: usize,
    /// Positions.
    pub hw: usize,
    /// Groups of channels that share mean and variance.
    pub groups: usize,
}

impl NormShape {
    /// Numbers in the tensor.
    pub fn len(&self) -> usize {
        self.n * self.c * self.hw
    }

    /// Whether there is nothing to normalise.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn group(&self) -> usize {
        self.c / self.groups * self.hw
    }

    /// Groups that a thread takes at a time.
    fn share(&self) -> usize {
        (CHUNK / self.group()).max(1)
    }
}

/// What happens after x̂ = (x − mean)·rstd: z = (γ x̂ + β)(1 + scale) + shift, then y = z or y = SiLU(z).
#[derive(Clone, Copy, Debug)]
pub struct NormTail<'a> {
    /// γ, `[c]`.
    pub gamma: &'a [f32],
    /// β, `[c]`.
    pub beta: &'a [f32],
    /// Scale, then shift, of every sample: `[n, 2c]`.
    pub scale_shift: Option<&'a [f32]>,
    /// Whether y = SiLU(z).
    pub silu: bool,
}

impl NormTail<'_> {
    fn check(&self, shape: &NormShape) {
        let NormShape { n, c, groups, .. } = *shape;
        assert!(groups > 0 && c % groups == 0, "{c} channels in {groups} groups");
        assert!(self.gamma.len() == c && self.beta.len() == c, "the affine map has another number of channels");
        assert!(self.scale_shift.is_none_or(|m| m.len() == 2 * n * c), "the modulation has another shape");
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

/// y of every element. `stats` receives mean and 1/√(variance + epsilon) of every group, as the backward pass wants it.
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
    let (share, size) = (shape.share(), shape.share() * shape.group());
    let parts = out.par_chunks_mut(size).zip(x.par_chunks(size)).zip(stats.par_chunks_mut(share));
    parts.enumerate().share(|(i, ((out, x), stats))| {
        isa.run(Forward { x, tail, epsilon, shape, out, stats, first: i * share });
    });
}

/// Some neighbouring groups, beginning with number `first` of the tensor.
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
        let (len, hw) = (self.shape.group(), self.shape.hw);
        let groups = self.x.chunks_exact(len).zip(self.out.chunks_exact_mut(len)).zip(self.stats);
        for (i, ((x, out), stats)) in groups.enumerate() {
            let (mean, rstd) = statistics(s, x, self.epsilon);
            *stats = [mean, rstd];
            let (sample, channel) = place(self.first + i, &self.shape);
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
fn place(group: usize, shape: &NormShape) -> (usize, usize) {
    (group / shape.groups, group % shape.groups * (shape.c / shape.groups))
}

/// Mean and 1/√(variance + epsilon), the variance from differences to the mean.
#[inline(always)]
fn statistics<S: Simd>(s: S, x: &[f32], epsilon: f32) -> (f32, f32) {
    let count = x.len() as f64;
    let mean = (sum(
        s,
        x,
        #[inline(always)]
        |x| x,
    ) / count) as f32;
    let m = s.splat(mean);
    // The zeros that fill the last vector are taken as `mean`, so that they add nothing.
    let tail = x.len() / S::LANES * S::LANES;
    let square = |x| {
        let d = s.sub(x, m);
        s.mul(d, d)
    };
    let rest = x[tail..].iter().map(|&x| f64::from(x - mean) * f64::from(x - mean)).sum::<f64>();
    let variance = (sum(s, &x[..tail], square) + rest) / count;
    (mean, (1.0 / (variance + f64::from(epsilon)).sqrt()) as f32)
}

/// Σ f(x), in f32 over blocks and in f64 over their sums; f(0) counts for the lanes that fill the last vector.
#[inline(always)]
pub(crate) fn sum<S: Simd>(s: S, x: &[f32], f: impl Fn(S::V) -> S::V) -> f64 {
    const BLOCK: usize = 2048;
    let mut total = 0.0;
    for block in x.chunks(BLOCK) {
        let mut acc = [s.splat(0.0); 4];
        let mut fours = block.chunks_exact(4 * S::LANES);
        for four in fours.by_ref() {
            for (acc, x) in acc.iter_mut().zip(four.chunks_exact(S::LANES)) {
                *acc = s.add(*acc, f(s.load(x)));
            }
        }
        for (acc, x) in acc.iter_mut().zip(fours.remainder().chunks(S::LANES)) {
            let x = if x.len() == S::LANES { s.load(x) } else { s.load_part(x) };
            *acc = s.add(*acc, f(x));
        }
        total += f64::from(s.sum(s.add(s.add(acc[0], acc[1]), s.add(acc[2], acc[3]))));
    }
    total
}

/// Where the gradients go; `scale_shift` as in the tail.
#[derive(Debug)]
pub struct NormGrads<'a> {
    /// Of x, `[n, c, hw]`.
    pub x: &'a mut [f32],
    /// Of γ, `[c]`.
    pub gamma: &'a mut [f32],
    /// Of β, `[c]`.
    pub beta: &'a mut [f32],
    /// Of scale and shift, `[n, 2c]`.
    pub scale_shift: Option<&'a mut [f32]>,
}

/// All gradients from `dy`, with the `stats` of the forward pass.
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
    let share = shape.share();
    let (size, channels) = (share * shape.group(), share * c / groups);
    // Σ dz and Σ dz·x̂ over the positions of every channel of every sample.
    let sums = &mut *Workspace::take(2 * n * c);
    let parts = grads.x.par_chunks_mut(size).zip(x.par_chunks(size)).zip(dy.par_chunks(size));
    let parts = parts.zip(stats.par_chunks(share)).zip(sums.par_chunks_mut(2 * channels));
    parts.enumerate().share(|(i, ((((dx, x), dy), stats), sums))| {
        isa.run(Backward { x, dy, tail, stats, shape, dx, sums, first: i * share });
    });
    let mut modulation = grads.scale_shift;
    for (i, pair) in sums.chunks_exact(2).enumerate() {
        let (sample, channel) = (i / c, i % c);
        let (scale, _) = tail.modulation(sample, channel);
        grads.beta[channel] += scale * pair[0];
        grads.gamma[channel] += scale * pair[1];
        if let Some(grad) = &mut modulation {
            grad[sample * 2 * c + channel] = tail.gamma[channel] * pair[1] + tail.beta[channel] * pair[0];
            grad[sample * 2 * c + c + channel] = pair[0];
        }
    }
}

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
        let (len, hw) = (self.shape.group(), self.shape.hw);
        let channels = self.shape.c / self.shape.groups;
        let groups = self.x.chunks_exact(len).zip(self.dy.chunks_exact(len)).zip(self.dx.chunks_exact_mut(len));
        let groups = groups.zip(self.stats).zip(self.sums.chunks_exact_mut(2 * channels));
        for (i, ((((x, dy), dx), &[mean, rstd]), sums)) in groups.enumerate() {
            let (sample, channel) = place(self.first + i, &self.shape);
            let (mut total, mut along) = (0.0f64, 0.0f64);
            for k in 0..channels {
                let at = k * hw..(k + 1) * hw;
                let (a, b) = self.tail.affine(sample, channel + k);
                let dx = &mut dx[at.clone()];
                if self.tail.silu {
                    through_silu(s, &x[at.clone()], &dy[at.clone()], dx, mean, a * rstd, b);
                } else {
                    dx.copy_from_slice(&dy[at.clone()]);
                }
                let (sum, moment) = sums_of(s, dx, &x[at], mean);
                (sums[2 * k], sums[2 * k + 1]) = (sum as f32, (moment * f64::from(rstd)) as f32);
                total += f64::from(a) * sum;
                along += f64::from(a) * moment * f64::from(rstd);
            }
            // dx = rstd·(a dz − mean(a dz) − x̂ mean(a dz x̂)), means over the group.
            let count = len as f64;
            let constant = s.splat((-total / count * f64::from(rstd)) as f32);
            let slope = s.splat((-along / count * f64::from(rstd) * f64::from(rstd)) as f32);
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
fn through_silu<S: Simd>(s: S, x: &[f32], dy: &[f32], dz: &mut [f32], mean: f32, a: f32, b: f32) {
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

/// Σ dz and Σ dz·(x − mean).
#[inline(always)]
pub(crate) fn sums_of<S: Simd>(s: S, dz: &[f32], x: &[f32], mean: f32) -> (f64, f64) {
    const BLOCK: usize = 1024;
    let mean = s.splat(mean);
    let (mut sum, mut moment) = (0.0, 0.0);
    for (dz, x) in dz.chunks(BLOCK).zip(x.chunks(BLOCK)) {
        let (mut a, mut b) = ([s.splat(0.0); 2], [s.splat(0.0); 2]);
        for (i, (dz, x)) in dz.chunks(S::LANES).zip(x.chunks(S::LANES)).enumerate() {
            // dz is zero in the lanes that fill the last vector.
            let (dz, x) =
                if dz.len() == S::LANES { (s.load(dz), s.load(x)) } else { (s.load_part(dz), s.load_part(x)) };
            a[i % 2] = s.add(a[i % 2], dz);
            b[i % 2] = s.fma(dz, s.sub(x, mean), b[i % 2]);
        }
        sum += f64::from(s.sum(s.add(a[0], a[1])));
        moment += f64::from(s.sum(s.add(b[0], b[1])));
    }
    (sum, moment)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_close, numbers, pools};

    const SHAPES: [NormShape; 6] = [
        NormShape { n: 1, c: 1, hw: 1, groups: 1 },
        NormShape { n: 3, c: 8, hw: 49, groups: 2 },
        NormShape { n: 2, c: 6, hw: 3, groups: 3 },
        NormShape { n: 2, c: 64, hw: 256, groups: 16 },
        NormShape { n: 1, c: 5, hw: 4099, groups: 1 },
        NormShape { n: 5, c: 1024, hw: 16, groups: 32 },
    ];
    const EPSILON: f32 = 1e-5;

    struct Case {
        shape: NormShape,
        x: Vec<f32>,
        dy: Vec<f32>,
        gamma: Vec<f32>,
        beta: Vec<f32>,
        modulation: Option<Vec<f32>>,
        silu: bool,
    }

    impl Case {
        fn new(shape: NormShape, modulated: bool, silu: bool) -> Self {
            let x = numbers(1, shape.len()).iter().map(|x| 2.0 * x + 1.0).collect();
            let modulation = modulated.then(|| numbers(2, 2 * shape.n * shape.c));
            let (gamma, beta) = (numbers(3, shape.c), numbers(4, shape.c));
            Self { shape, x, dy: numbers(5, shape.len()), gamma, beta, modulation, silu }
        }

        fn tail(&self) -> NormTail<'_> {
            NormTail { gamma: &self.gamma, beta: &self.beta, scale_shift: self.modulation.as_deref(), silu: self.silu }
        }

        /// out, stats, dx, dgamma, dbeta, dmodulation.
        fn run(&self, isa: Isa) -> [Vec<f32>; 6] {
            let NormShape { n, c, groups, .. } = self.shape;
            let (mut out, mut stats) = (vec![9.0; self.x.len()], vec![[9.0; 2]; n * groups]);
            forward_at(isa, &self.x, self.tail(), EPSILON, self.shape, &mut out, &mut stats);
            let (mut dx, mut gamma, mut beta) = (vec![9.0; self.x.len()], vec![9.0; c], vec![9.0; c]);
            let mut modulation = self.modulation.clone();
            let grads =
                NormGrads { x: &mut dx, gamma: &mut gamma, beta: &mut beta, scale_shift: modulation.as_deref_mut() };
            backward_at(isa, &self.x, &self.dy, self.tail(), &stats, self.shape, grads);
            [out, stats.as_flattened().to_vec(), dx, gamma, beta, modulation.unwrap_or_default()]
        }

        /// The same, one number after the other in f64.
        fn exact(&self) -> [Vec<f64>; 6] {
            let NormShape { n, c, hw, groups } = self.shape;
            let f = |v: f32| f64::from(v);
            let (per, count) = (c / groups, (c / groups * hw) as f64);
            let mut result = [
                vec![0.0; self.x.len()],
                vec![0.0; 2 * n * groups],
                vec![0.0; self.x.len()],
                vec![0.0; c],
                vec![0.0; c],
                vec![0.0; self.modulation.as_ref().map_or(0, Vec::len)],
            ];
            for group in 0..n * groups {
                let (sample, at) = (group / groups, group * per * hw);
                let x = &self.x[at..at + per * hw];
                let mean = x.iter().map(|&x| f(x)).sum::<f64>() / count;
                let variance = x.iter().map(|&x| (f(x) - mean).powi(2)).sum::<f64>() / count;
                let rstd = 1.0 / (variance + f(EPSILON)).sqrt();
                (result[1][2 * group], result[1][2 * group + 1]) = (mean, rstd);
                let (mut total, mut along, mut dz) = (0.0, 0.0, vec![]);
                for (i, &x) in x.iter().enumerate() {
                    let channel = group % groups * per + i / hw;
                    let (scale, shift) = self.modulation.as_ref().map_or((1.0, 0.0), |m| {
                        (1.0 + f(m[sample * 2 * c + channel]), f(m[sample * 2 * c + c + channel]))
                    });
                    let hat = (f(x) - mean) * rstd;
                    let normed = f(self.gamma[channel]) * hat + f(self.beta[channel]);
                    let z = normed * scale + shift;
                    let g = 1.0 / (1.0 + (-z).exp());
                    result[0][at + i] = if self.silu { z * g } else { z };
                    let d = f(self.dy[at + i]) * if self.silu { g * (1.0 + z * (1.0 - g)) } else { 1.0 };
                    if self.modulation.is_some() {
                        result[5][sample * 2 * c + channel] += d * normed;
                        result[5][sample * 2 * c + c + channel] += d;
                    }
                    result[3][channel] += d * scale * hat;
                    result[4][channel] += d * scale;
                    let d = d * scale * f(self.gamma[channel]);
                    total += d;
                    along += d * hat;
                    dz.push((d, hat));
                }
                for (i, (d, hat)) in dz.iter().enumerate() {
                    result[2][at + i] = rstd * (d - (total + hat * along) / count);
                }
            }
            result
        }
    }

    #[test]
    fn every_path_follows_the_formulas() {
        for shape in SHAPES {
            for (modulated, silu) in [(false, false), (true, false), (false, true), (true, true)] {
                let case = Case::new(shape, modulated, silu);
                let exact = case.exact();
                for isa in Isa::available() {
                    for (i, (got, exact)) in case.run(isa).iter().zip(&exact).enumerate() {
                        // One element alone has no spread: its gradient is a difference of equal numbers.
                        let limit = if shape.len() == 1 { 1e-3 } else { 4e-6 };
                        assert_close(got, exact, limit, &format!("{isa:?} {shape:?} {modulated} {silu}, result {i}"));
                    }
                }
            }
        }
    }

    #[test]
    fn a_sample_is_alone_in_its_batch() {
        let shape = NormShape { n: 7, c: 12, hw: 81, groups: 3 };
        let (case, per) = (Case::new(shape, true, true), 12 * 81);
        let [out, _, dx, ..] = case.run(Isa::detect());
        let mut alone = Case::new(NormShape { n: 1, ..shape }, true, true);
        alone.x = case.x[4 * per..5 * per].to_vec();
        alone.dy = case.dy[4 * per..5 * per].to_vec();
        alone.modulation = case.modulation.as_ref().map(|m| m[4 * 24..5 * 24].to_vec());
        let [one, _, one_dx, ..] = alone.run(Isa::detect());
        assert!(one == out[4 * per..5 * per] && one_dx == dx[4 * per..5 * per]);
    }

    #[test]
    fn threads_do_not_change_a_bit() {
        let case = Case::new(NormShape { n: 9, c: 64, hw: 100, groups: 16 }, true, true);
        let [one, two, three] = pools(|| case.run(Isa::detect()));
        assert!(one == two && one == three);
    }
}
