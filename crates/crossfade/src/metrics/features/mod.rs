//! Distances between image sets by the features of Inception: FID, KID, precision and recall, and IS.
//!
//! [`Extractor`] computes the features of images by a named [`Protocol`]. [`FeatureSums`] sums them as they arrive,
//! so that FID needs no more memory for a million images than for a hundred. The other metrics keep all features.
mod extract;
pub(super) mod fid;
mod frechet;
mod inception;
pub(super) mod inception_score;
mod input;
mod kept;
pub(super) mod kid;
mod matrix;
mod nearest;
mod npz;
mod numpy_random;
pub(super) mod pixel_frechet;
pub(super) mod precision_recall;
mod protocol;
pub(super) mod random_frechet;
pub mod registry;
mod set_distance;
mod statistics;
mod sums;

pub use extract::{Extractor, Features};
pub use frechet::{FEW, Frechet, Gaussian, GroupedSums, Interval};
pub use inception::{CLASSES, FEATURES, Inception};
pub use inception_score::inception_score;
pub use input::{Input, open};
pub use kid::{Kid, KidConfig, kid};
pub use nearest::{Neighbour, nearest};
pub use numpy_random::RandomState;
pub use precision_recall::{PrecisionRecall, precision_recall};
pub use protocol::Protocol;
pub(crate) use set_distance::class_value;
pub use statistics::Statistics;
pub use sums::FeatureSums;

use super::Report;

/// The seed of torch-fidelity, used for all random draws of these metrics.
pub const SEED: u32 = 2020;

/// The mean over parts and their standard deviation (with n, as in torch-fidelity).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// The mean.
    pub mean: f64,
    /// The standard deviation.
    pub std: f64,
}

impl Spread {
    fn of(values: &[f64]) -> Self {
        let n = values.len() as f64;
        let mean = values.iter().sum::<f64>() / n;
        Self { mean, std: (values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / n).sqrt() }
    }
}

/// Adds protocol and weights to a report, or states that they are not known.
pub fn stated(report: Report, protocol: Option<Protocol>, weights: Option<&str>) -> Report {
    let report = match protocol {
        Some(protocol) => report.with("protocol", protocol).with("resize", protocol.resize()),
        None => report.with("protocol", "unknown: statistics of another program"),
    };
    let network = "Inception-v3 of 2015-12-05, 2048 features, f32; statistics in f64";
    report.with("network", network).with("weights sha256", weights.unwrap_or("unknown"))
}
