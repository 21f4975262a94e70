//! The enhanced-alignment measure of binary maps: Fan et al., "Enhanced-alignment Measure for Binary Foreground Map
//! Evaluation", 2018.
use super::curves::Overlap;

/// E of a binary map, computed from its overlap with the mask.
///
/// The published formula divides by the number of pixels, the authors' code by one less. This follows the code,
/// because published values do.
pub(super) fn e_measure(overlap: &Overlap) -> f64 {
    let Overlap { hits, false_alarms, salient, pixels } = *overlap;
    let n = pixels as f64;
    let found = (hits + false_alarms) as f64;
    let sum = if salient == 0 {
        n - found
    } else if salient == pixels {
        found
    } else {
        let (mean_map, mean_mask) = (found / n, salient as f64 / n);
        // φ of equation 2, ξ of equation 3 and f(ξ) of equation 4. Both images are binary, so each pixel is one of
        // four cases.
        let enhanced = |map: f64, mask: f64| {
            let (a, b) = (map - mean_map, mask - mean_mask);
            let alignment = 2.0 * a * b / (a * a + b * b + f64::EPSILON);
            (alignment + 1.0).powi(2) / 4.0
        };
        let misses = salient - hits;
        hits as f64 * enhanced(1.0, 1.0)
            + false_alarms as f64 * enhanced(1.0, 0.0)
            + misses as f64 * enhanced(0.0, 1.0)
            + (pixels - hits - false_alarms - misses) as f64 * enhanced(0.0, 0.0)
    };
    sum / (n - 1.0 + f64::EPSILON)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// E over the pixels themselves, as the paper writes it, with the division of the authors' code.
    fn by_pixels(map: &[f64], mask: &[f64]) -> f64 {
        let n = map.len() as f64;
        let mean = |values: &[f64]| values.iter().sum::<f64>() / n;
        let enhanced = |(a, b): (&f64, &f64)| {
            let (a, b) = (a - mean(map), b - mean(mask));
            (1.0 + 2.0 * a * b / (a * a + b * b + f64::EPSILON)).powi(2) / 4.0
        };
        map.iter().zip(mask).map(enhanced).sum::<f64>() / (n - 1.0)
    }

    #[test]
    fn four_counts_are_as_good_as_all_pixels() {
        for (hits, false_alarms, salient, pixels) in [(3, 2, 5, 12), (0, 4, 5, 12), (5, 0, 5, 12), (1, 0, 7, 9)] {
            let mask: Vec<f64> = (0..pixels).map(|i| f64::from(i < salient)).collect();
            let map: Vec<f64> =
                (0..pixels).map(|i| f64::from(i < hits || (salient..salient + false_alarms).contains(&i))).collect();
            let found = e_measure(&Overlap { hits, false_alarms, salient, pixels });
            assert!((found - by_pixels(&map, &mask)).abs() < 1e-12, "{found} for {hits} {false_alarms}");
        }
        let of = |hits, false_alarms, salient| e_measure(&Overlap { hits, false_alarms, salient, pixels: 5 });
        // Nothing is salient: pixels that are not found are right. All are: those that are found.
        assert_eq!((of(0, 2, 0), of(3, 0, 5)), (0.75, 0.75));
    }
}
