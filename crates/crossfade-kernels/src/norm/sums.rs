//! Sums over the values of a group or channel, shared by the normalisations.
use crate::simd::Simd;

/// Mean and 1/√(variance + epsilon). The variance is summed in a second pass over differences to the mean: the difference
/// of E(x²) and E(x)² would cancel.
#[inline(always)]
pub(super) fn statistics<S: Simd>(s: S, x: &[f32], epsilon: f32) -> (f32, f32) {
    let count = x.len() as f64;
    let mean = (sum(
        s,
        x,
        #[inline(always)]
        |x| x,
    ) / count) as f32;
    let m = s.splat(mean);
    // The last, incomplete vector is summed separately: its padding of zeros would count as values.
    let tail = x.len() / S::LANES * S::LANES;
    let square = |x| {
        let d = s.sub(x, m);
        s.mul(d, d)
    };
    let rest = x[tail..].iter().map(|&x| f64::from(x - mean) * f64::from(x - mean)).sum::<f64>();
    let variance = (sum(s, &x[..tail], square) + rest) / count;
    (mean, (1.0 / (variance + f64::from(epsilon)).sqrt()) as f32)
}

/// Σ f(x), in f32 within blocks and in f64 over blocks. The last vector is padded with zeros, so it adds f(0) for each
/// missing lane.
#[inline(always)]
pub(crate) fn sum<S: Simd>(s: S, x: &[f32], f: impl Fn(S::V) -> S::V) -> f64 {
    const BLOCK: usize = 2048;
    let mut total = 0.0;
    for block in x.chunks(BLOCK) {
        let mut acc = [s.splat(0.0); 4];
        let mut quads = block.chunks_exact(4 * S::LANES);
        for quad in quads.by_ref() {
            for (acc, x) in acc.iter_mut().zip(quad.chunks_exact(S::LANES)) {
                *acc = s.add(*acc, f(s.load(x)));
            }
        }
        for (acc, x) in acc.iter_mut().zip(quads.remainder().chunks(S::LANES)) {
            let x = if x.len() == S::LANES { s.load(x) } else { s.load_part(x) };
            *acc = s.add(*acc, f(x));
        }
        total += f64::from(s.sum(s.add(s.add(acc[0], acc[1]), s.add(acc[2], acc[3]))));
    }
    total
}

/// Σ dz and Σ dz·(x − mean).
#[inline(always)]
pub(crate) fn sum_and_moment<S: Simd>(s: S, dz: &[f32], x: &[f32], mean: f32) -> (f64, f64) {
    const BLOCK: usize = 1024;
    let mean = s.splat(mean);
    let (mut sum, mut moment) = (0.0, 0.0);
    for (dz, x) in dz.chunks(BLOCK).zip(x.chunks(BLOCK)) {
        let (mut a, mut b) = ([s.splat(0.0); 2], [s.splat(0.0); 2]);
        for (i, (dz, x)) in dz.chunks(S::LANES).zip(x.chunks(S::LANES)).enumerate() {
            // dz is zero in the padding of the last vector, so it adds nothing.
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
