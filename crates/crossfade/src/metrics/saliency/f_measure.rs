//! The F-measure of saliency, which weights precision more than recall (Achanta et al. 2009).

/// β², the value that later papers use as well.
const BETA_SQUARED: f64 = 0.3;

/// F_β = (1 + β²) P R / (β² P + R), zero if both are zero.
pub(super) fn f_measure(precision: f64, recall: f64) -> f64 {
    let denominator = BETA_SQUARED * precision + recall;
    if denominator == 0.0 { 0.0 } else { (1.0 + BETA_SQUARED) * precision * recall / denominator }
}
