//! The structure measure: Fan et al., "Structure-measure: A New Way to Evaluate Foreground Maps", 2017.
use super::super::maps::{Map, Mask};

/// α of equation 1.
const ALPHA: f64 = 0.5;

/// S = α S_object + (1 − α) S_region, at least zero.
pub(super) fn s_measure(map: &Map, mask: &Mask) -> f64 {
    let share = mask.count() as f64 / mask.bits.len() as f64;
    let mean = map.values.iter().sum::<f64>() / map.values.len() as f64;
    if share == 0.0 {
        1.0 - mean
    } else if share == 1.0 {
        mean
    } else {
        (ALPHA * object(map, mask, share) + (1.0 - ALPHA) * region(map, mask)).max(0.0)
    }
}

/// Equations 4 and 5: how bright and uniform the map is on the object, and how dark and uniform on the background.
fn object(map: &Map, mask: &Mask, share: f64) -> f64 {
    let score = |side: bool| {
        let values = || {
            map.values.iter().zip(&mask.bits).filter(|(_, b)| **b == side).map(|(&v, _)| if side { v } else { 1.0 - v })
        };
        let n = values().count() as f64;
        let mean = values().sum::<f64>() / n;
        let variance = if n > 1.0 { values().map(|v| (v - mean).powi(2)).sum::<f64>() / (n - 1.0) } else { 0.0 };
        2.0 * mean / (mean * mean + 1.0 + variance.sqrt() + f64::EPSILON)
    };
    share * score(true) + (1.0 - share) * score(false)
}

/// Equation 7: the similarity of the four blocks that meet at the object's centroid, weighted by their areas.
fn region(map: &Map, mask: &Mask) -> f64 {
    let (width, height) = (map.width, map.height);
    let (cx, cy) = centroid(mask);
    let area = (width * height) as f64;
    let (columns, rows) = ([0..cx, cx..width], [0..cy, cy..height]);
    let blocks = rows.iter().flat_map(|y| columns.iter().map(move |x| (x.clone(), y.clone())));
    blocks
        .map(|(x, y)| {
            let indices: Vec<usize> = y.flat_map(|y| x.clone().map(move |x| y * width + x)).collect();
            if indices.is_empty() { 0.0 } else { indices.len() as f64 / area * similarity(map, mask, &indices) }
        })
        .sum()
}

/// The centroid of the object in columns and rows, counted from one and rounded as in the authors' MATLAB code.
fn centroid(mask: &Mask) -> (usize, usize) {
    let (mut n, mut x, mut y) = (0, 0, 0);
    for (i, _) in mask.bits.iter().enumerate().filter(|(_, b)| **b) {
        n += 1;
        x += i % mask.width + 1;
        y += i / mask.width + 1;
    }
    ((x as f64 / n as f64).round() as usize, (y as f64 / n as f64).round() as usize)
}

/// Equation 6, a structural similarity without constants.
fn similarity(map: &Map, mask: &Mask, block: &[usize]) -> f64 {
    let n = block.len() as f64;
    let pairs = || block.iter().map(|&i| (map.values[i], f64::from(mask.bits[i])));
    // Divided once at the end: the mean of a block of ones must be exactly one, or the comparison with zero below
    // fails.
    let (x, y) = pairs().fold((0.0, 0.0), |(x, y), (a, b)| (x + a, y + b));
    let (x, y) = (x / n, y / n);
    let mut sums = (0.0, 0.0, 0.0);
    for (a, b) in pairs() {
        sums = (sums.0 + (a - x) * (a - x), sums.1 + (b - y) * (b - y), sums.2 + (a - x) * (b - y));
    }
    let denominator = n - 1.0 + f64::EPSILON;
    let (xx, yy, xy) = (sums.0 / denominator, sums.1 / denominator, sums.2 / denominator);
    let (alpha, beta) = (4.0 * x * y * xy, (x * x + y * y) * (xx + yy));
    if alpha != 0.0 { alpha / (beta + f64::EPSILON) } else { f64::from(beta == 0.0) }
}
