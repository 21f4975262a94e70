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

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(width: usize, values: &[f64], bits: &[u8]) -> (Map, Mask) {
        let height = values.len() / width;
        let bits = bits.iter().map(|b| *b == 1).collect();
        (Map { width, height, values: values.to_vec() }, Mask { width, height, bits })
    }

    #[track_caller]
    fn near(a: f64, b: f64) {
        assert!((a - b).abs() < 1e-12, "{a} and {b}");
    }

    #[test]
    fn similarity_is_that_of_means_and_covariances_and_has_its_sign() {
        let of = |values: &[f64], bits: &[u8]| {
            let (map, mask) = pair(values.len(), values, bits);
            similarity(&map, &mask, &(0..values.len()).collect::<Vec<_>>())
        };
        // Means 1/2 and 1/3, variances 1/4 and 1/3, covariance ±1/4.
        near(of(&[0.0, 0.5, 1.0], &[0, 0, 1]), 72.0 / 91.0);
        near(of(&[1.0, 0.5, 0.0], &[0, 0, 1]), -72.0 / 91.0);
        // Means 1/4 and 1/2, variances 1/48 and 1/3, covariance 1/12.
        near(of(&[0.125, 0.375, 0.125, 0.375], &[0, 1, 0, 1]), {
            let (xx, yy, xy) = (0.0625 / 3.0, 1.0 / 3.0, 0.25 / 3.0);
            4.0 * 0.25 * 0.5 * xy / ((0.0625 + 0.25) * (xx + yy))
        });
        // Without a covariance the block is alike only if neither side varies.
        assert_eq!(of(&[0.5, 0.5], &[0, 0]), 1.0);
        assert_eq!(of(&[1.0], &[1]), 1.0);
        assert_eq!(of(&[0.0, 1.0], &[0, 0]), 0.0);
        assert_eq!(of(&[0.5, 0.5], &[1, 0]), 0.0);
    }

    #[test]
    fn the_object_is_bright_and_the_background_dark() {
        // Object 0.5 and 1: mean 3/4, deviation √(1/8). Background 0.2, reversed 0.8, without spread.
        let (map, mask) = pair(4, &[0.5, 1.0, 0.2, 0.2], &[1, 1, 0, 0]);
        let bright = 1.5 / (0.5625 + 1.0 + 0.125f64.sqrt());
        let dark = 1.6 / (0.64 + 1.0);
        near(object(&map, &mask, 0.5), 0.5 * bright + 0.5 * dark);
        near(object(&map, &mask, 0.25), 0.25 * bright + 0.75 * dark);
        // One pixel has no deviation.
        let (map, mask) = pair(3, &[0.5, 0.2, 0.2], &[1, 0, 0]);
        near(object(&map, &mask, 1.0 / 3.0), (1.0 / 1.25 + 2.0 * dark) / 3.0);
    }

    #[test]
    fn blocks_meet_at_the_centroid_and_weigh_as_their_areas() {
        let mask = |width: usize, bits: &[u8]| pair(width, &vec![0.0; bits.len()], bits).1;
        assert_eq!(centroid(&mask(4, &[0, 0, 0, 1, 0, 0, 0, 0])), (4, 1));
        assert_eq!(centroid(&mask(3, &[0, 0, 0, 0, 0, 0, 0, 1, 1])), (3, 3), "2.5 is rounded up");
        assert_eq!(centroid(&mask(3, &[1, 0, 1, 0, 0, 0, 1, 0, 1])), (2, 2));
        // Centroid (1, 1) of a 3x3 image: blocks of 1, 2, 2 and 4 pixels. The map equals the mask but for one block of 2.
        let bits = [1, 0, 0, 0, 0, 0, 0, 0, 0];
        let (mut map, mask) = pair(3, &[1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0], &bits);
        near(region(&map, &mask), 1.0);
        map.values[2] = 1.0;
        near(region(&map, &mask), 7.0 / 9.0);
        map.values[8] = 1.0;
        near(region(&map, &mask), 3.0 / 9.0);
    }

    #[test]
    fn the_measure_is_the_mean_of_both_and_never_negative() {
        let values = [0.9, 0.1, 0.4, 0.8, 0.2, 0.3];
        let (map, mask) = pair(3, &values, &[1, 0, 0, 1, 0, 0]);
        near(s_measure(&map, &mask), 0.5 * object(&map, &mask, 1.0 / 3.0) + 0.5 * region(&map, &mask));
        let mean = values.iter().sum::<f64>() / 6.0;
        near(s_measure(&map, &pair(3, &values, &[0; 6]).1), 1.0 - mean);
        near(s_measure(&map, &pair(3, &values, &[1; 6]).1), mean);
        let (map, mask) = pair(4, &[1.0, 0.0, 1.0, 0.0, 1.0, 0.0, 1.0, 0.0], &[0, 1, 0, 1, 0, 1, 0, 1]);
        assert_eq!(s_measure(&map, &mask), 0.0);
    }
}
