//! Training (Alg. 1). `run_loop.rs` is the loop that all kinds of training share; `diffusion.rs` is a training step of
//! a diffusion network, `autoencoder.rs` one of an autoencoder; `distill.rs` trains students of a trained network.
mod autoencoder;
mod batch;
mod contribution;
mod diffusion;
mod distill;
mod events;
mod fine_tune;
#[doc(hidden)]
pub mod log;
mod mean;
mod optimiser;
mod run_loop;
mod sheet;
mod start;
mod state;
mod teacher;

pub use crate::checkpoint::RunDir;
pub use autoencoder::{AutoencoderReport, Event, train_autoencoder};
pub use batch::{Prepared, drops_label, prepare};
pub use diffusion::{StepReport, classes, images, train};
pub use distill::{DistillRequest, Distillation, Stage, StageSummary};
pub use fine_tune::{FineTuning, fine_tuning_of, with_classes_of};
pub use optimiser::Gradients;
pub use state::TrainState;

use crate::error::Result;
use std::path::{Path, PathBuf};

/// How a run ended.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Summary {
    /// Steps done.
    pub step: u64,
    /// Whether it was stopped before its last step.
    pub stopped: bool,
    /// The last checkpoint.
    #[serde(serialize_with = "crate::error::serialize_path")]
    pub checkpoint: PathBuf,
    /// The errors of damaged checkpoints that were skipped on resume.
    pub passed_over: Vec<String>,
}

/// Reads the loss curve of a log: (step, loss).
pub fn loss_curve(log: &Path) -> Result<Vec<(f64, f64)>> {
    log::read(log)
}

/// The duration of a run's steps in seconds, estimated from its log; none without a log.
pub(crate) fn seconds_of(log: &Path, plan: &crate::config::TrainConfig) -> Option<f64> {
    log::seconds(log, plan.batch * plan.accumulate)
}
