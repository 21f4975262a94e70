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
