//! The weighted F-measure: Margolin, Zelnik-Manor and Tal, "How to Evaluate Foreground Maps?", 2014.
use super::super::maps::{Map, Mask};

/// Side and standard deviation of the Gaussian that smooths errors on the object.
const SIDE: usize = 7;
const SIGMA: f64 = 5.0;

/// F_β^ω with β = 1; zero if the mask is empty.
pub(super) fn weighted_f(map: &Map, mask: &Mask) -> f64 {
    let salient = mask.count() as f64;
    if salient == 0.0 {
        return 0.0;
    }
    let nearest = nearest(mask);
    let errors: Vec<f64> = map.values.iter().zip(&mask.bits).map(|(&v, &b)| (v - f64::from(b)).abs()).collect();
    // Outside the object every pixel gets the error of the nearest object pixel, so that smoothing does not lower the
    // errors near the object's border.
    let extended: Vec<f64> = nearest.iter().map(|&(_, i)| errors[i]).collect();
    let smooth = Smooth::new(&extended, mask.width, mask.height);
    let (mut object_error, mut background_error) = (0.0, 0.0);
    for (i, &error) in errors.iter().enumerate() {
        if mask.bits[i] {
            object_error += error.min(smooth.at(i));
        } else {
            // Equation 9: false alarms far from the object count up to twice as much.
            background_error += error * (2.0 - libm::exp(0.5f64.ln() / 5.0 * (nearest[i].0 as f64).sqrt()));
        }
    }
    let (hits, recall) = (salient - object_error, 1.0 - object_error / salient);
    let precision = hits / (f64::EPSILON + hits + background_error);
    2.0 * recall * precision / (f64::EPSILON + recall + precision)
}

/// Convolution with a Gaussian of `SIDE` x `SIDE` pixels, with zeros outside the image.
struct Smooth<'a> {
    values: &'a [f64],
    width: usize,
    height: usize,
    kernel: [f64; SIDE],
}

impl<'a> Smooth<'a> {
    fn new(values: &'a [f64], width: usize, height: usize) -> Self {
        let r = (SIDE / 2) as f64;
        let gaussian: [f64; SIDE] = std::array::from_fn(|i| libm::exp(-(i as f64 - r).powi(2) / (2.0 * SIGMA * SIGMA)));
        let sum: f64 = gaussian.iter().sum();
        Self { values, width, height, kernel: gaussian.map(|k| k / sum) }
    }

    fn at(&self, i: usize) -> f64 {
        let (x, y, r) = (i % self.width, i / self.width, SIDE / 2);
        let rows = y.saturating_sub(r)..(y + r + 1).min(self.height);
        let columns = x.saturating_sub(r)..(x + r + 1).min(self.width);
        let row =
            |v: usize| columns.clone().map(|u| self.kernel[u + r - x] * self.values[v * self.width + u]).sum::<f64>();
        rows.map(|v| self.kernel[v + r - y] * row(v)).sum()
    }
}

/// For each pixel the squared distance to the nearest set pixel, and its index. Of equally near ones it is the one in
/// the leftmost column, and of those the topmost, as scipy chooses. The mask must not be empty.
#[allow(clippy::needless_range_loop, reason = "the row is the second index of every column")]
fn nearest(mask: &Mask) -> Vec<(i64, usize)> {
    let (width, height) = (mask.width, mask.height);
    let vertical: Vec<Vec<Option<usize>>> = (0..width).map(|x| nearest_rows(mask, x)).collect();
    let mut all = Vec::with_capacity(width * height);
    for y in 0..height {
        // The squared distance is (x − u)² + f_u, one parabola for each column u. The minimum over u is their lower
        // envelope, found in linear time (Felzenszwalb and Huttenlocher 2012).
        let height_of = |u: usize| vertical[u][y].map(|row| (row.abs_diff(y) as i64).pow(2));
        let mut envelope: Vec<(usize, i64)> = Vec::new(); // a column, and the first x at which it is the nearest
        for (u, f_u) in (0..width).filter_map(|u| height_of(u).map(|f| (u, f))) {
            let mut first = 0;
            while let Some(&(v, start)) = envelope.last() {
                let f_v = height_of(v).unwrap_or_default();
                let (a, b) = (u as i64, v as i64);
                first = ((f_u + a * a - f_v - b * b).div_euclid(2 * (a - b)) + 1).max(0);
                if first > start {
                    break;
                }
                envelope.pop();
                first = 0;
            }
            envelope.push((u, first));
        }
        let mut at = 0;
        for x in 0..width {
            while envelope.get(at + 1).is_some_and(|next| next.1 <= x as i64) {
                at += 1;
            }
            let u = envelope[at].0;
            let row = vertical[u][y].unwrap_or_default();
            all.push((row.abs_diff(y).pow(2) as i64 + u.abs_diff(x).pow(2) as i64, row * width + u));
        }
    }
    all
}

/// For each row the nearest set row of column `x`; the upper one of two equally near ones.
fn nearest_rows(mask: &Mask, x: usize) -> Vec<Option<usize>> {
    let rows: Vec<usize> = (0..mask.height).filter(|y| mask.bits[y * mask.width + x]).collect();
    let mut next = 0;
    let nearest = |y: usize| {
        while next + 1 < rows.len() && rows[next + 1].abs_diff(y) < rows[next].abs_diff(y) {
            next += 1;
        }
        rows.get(next).copied()
    };
    (0..mask.height).map(nearest).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::{Purpose, Stream};

    #[test]
    fn the_nearest_pixel_is_the_nearest() {
        for case in 0..40 {
            let mut random = Stream::new(3, case, 0, Purpose::Lab);
            let (width, height) = (1 + random.below(14) as usize, 1 + random.below(14) as usize);
            let mut bits: Vec<bool> = (0..width * height).map(|_| random.uniform() < 0.1).collect();
            bits[random.below((width * height) as u64) as usize] = true;
            let set: Vec<usize> = (0..bits.len()).filter(|&i| bits[i]).collect();
            for (i, found) in nearest(&Mask { width, height, bits }).into_iter().enumerate() {
                let squared =
                    |j: usize| (i % width).abs_diff(j % width).pow(2) + (i / width).abs_diff(j / width).pow(2);
                let best = set.iter().map(|&j| (squared(j), j % width, j / width)).min();
                assert_eq!(Some((found.0 as usize, found.1 % width, found.1 / width)), best, "case {case}");
            }
        }
    }
}
