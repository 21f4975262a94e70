//! What is measured on a trained network so that it samples better: the weights of its two heads over t (§10.3), and the
//! times of sampling (§10.6).
mod blend;
mod search;
mod times;

pub use blend::{Calibration, calibrate};
pub use times::{Fit, Score, TimesConfig, fit_grid, fit_times};
