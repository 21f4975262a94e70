//! Mean absolute error.
use super::super::maps::{Map, Mask};

/// The mean absolute difference of a map and its mask.
pub(super) fn mae(map: &Map, mask: &Mask) -> f64 {
    let error = |(&v, &salient): (&f64, &bool)| if salient { 1.0 - v } else { v };
    map.values.iter().zip(&mask.bits).map(error).sum::<f64>() / map.values.len() as f64
}
