//! The weighted F-measure: Margolin, Zelnik-Manor and Tal, "How to Evaluate Foreground Maps?", 2014.
use super::super::maps::{Map, Mask};

/// Side and deviation of the Gaussian that lets errors on the object depend on those around them.
const SIDE: usize = 7;
const SIGMA: f64 = 5.0;

/// F_β^ω with β = 1; zero if nothing is salient.
pub fn weighted_f(map: &Map, mask: &Mask) -> f64 {
    let salient = mask.count() as f64;
    if salient == 0.0 {
        return 0.0;
    }
    let nearest = nearest(mask);
    let errors: Vec<f64> = map.values.iter().zip(&mask.bits).map(|(&v, &b)| (v - f64::from(b)).abs()).collect();
    // Beside the object, the error of the nearest pixel on it, so that smoothing does not pull errors down at its rim.
    let spread: Vec<f64> = nearest.iter().map(|&(_, i)| errors[i]).collect();
    let smooth = Smooth::new(&spread, mask.width, mask.height);
    let (mut on, mut beside) = (0.0, 0.0);
    for (i, &error) in errors.iter().enumerate() {
        if mask.bits[i] {
            on += error.min(smooth.at(i));
        } else {
            // Equation 9: false alarms far from the object weigh up to twice as much.
            beside += error * (2.0 - libm::exp(0.5f64.ln() / 5.0 * (nearest[i].0 as f64).sqrt()));
        }
    }
    let (hits, recall) = (salient - on, 1.0 - on / salient);
    let precision = hits / (f64::EPSILON + hits + beside);
    2.0 * recall * precision / (f64::EPSILON + recall + precision)
}

/// The Gaussian of `SIDE` x `SIDE` pixels; zero outside the image.
struct Smooth<'a> {
    values: &'a [f64],
    width: usize,
    height: usize,
    kernel: [f64; SIDE],
}

impl<'a> Smooth<'a> {
    fn new(values: &'a [f64], width: usize, height: usize) -> Self {
        let r = (SIDE / 2) as f64;
        let bell: [f64; SIDE] = std::array::from_fn(|i| libm::exp(-(i as f64 - r).powi(2) / (2.0 * SIGMA * SIGMA)));
        let sum: f64 = bell.iter().sum();
        Self { values, width, height, kernel: bell.map(|k| k / sum) }
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

/// For each pixel the nearest set pixel: the squared distance to it, and its index. Of equally near ones, the one in the
/// leftmost column and of those the topmost, as scipy chooses. The mask must not be empty.
fn nearest(mask: &Mask) -> Vec<(usize, usize)> {
    let (width, height) = (mask.width, mask.height);
    // The nearest set row in the same column.
    let mut vertical = vec![usize::MAX; width * height];
    for x in 0..width {
        let rows: Vec<usize> = (0..height).filter(|y| mask.bits[y * width + x]).collect();
        let mut next = 0;
        for y in 0..height {
            while next + 1 < rows.len() && rows[next + 1].abs_diff(y) < rows[next].abs_diff(y) {
                next += 1;
            }
            vertical[y * width + x] = rows.get(next).copied().unwrap_or(usize::MAX);
        }
    }
    let find = |i: usize| {
        let (x, y) = (i % width, i / width);
        let mut best = (usize::MAX, i);
        let offer = |u: usize, best: &mut (usize, usize), ties: bool| {
            let row = vertical[y * width + u];
            if row != usize::MAX {
                let squared = row.abs_diff(y).pow(2) + u.abs_diff(x).pow(2);
                if squared < best.0 || ties && squared == best.0 {
                    *best = (squared, row * width + u);
                }
            }
        };
        let mut d = 0;
        while d < width && d * d <= best.0 {
            if x + d < width {
                offer(x + d, &mut best, false);
            }
            if d <= x {
                offer(x - d, &mut best, true);
            }
            d += 1;
        }
        best
    };
    (0..width * height).map(find).collect()
}
