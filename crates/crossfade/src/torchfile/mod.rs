//! Reads PyTorch files (`.pt`, `.pth`) and safetensors files of other programs as named tensors, without executing
//! anything.
//!
//! [`convert`](crate::convert) maps their names to ours. Networks with published weights (encoders, LPIPS, Inception)
//! read them directly.
mod container;
mod element;
mod scan;
mod source;

#[doc(hidden)]
pub use scan::scan as scan_pickle;
pub use source::{Source, TensorF32, read, read_pt, read_safetensors};

/// Which copy of the trained weights to take from a file that contains both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Weights {
    /// The exponential moving average.
    #[default]
    Ema,
    /// The weights that the optimiser updates.
    Model,
}

impl Weights {
    /// The prefix of their names in our checkpoints.
    pub fn prefix(self) -> &'static str {
        match self {
            Self::Ema => "ema.",
            Self::Model => "model.",
        }
    }
}
