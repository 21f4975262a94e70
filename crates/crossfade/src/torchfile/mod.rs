//! Files of PyTorch (`.pt`, `.pth`) and other programs' safetensors: read as named tensors, never executed.
//!
//! [`convert`](crate::convert) maps their names to ours; networks with published weights (encoders, LPIPS, Inception) read
//! them directly.
mod container;
mod element;
mod scan;
mod source;

pub use source::{Source, TensorF32, read, read_pt, read_safetensors};

/// Which copy of the trained weights to take from a file that holds both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Weights {
    /// The moving average.
    #[default]
    Ema,
    /// The weights under training.
    Model,
}

impl Weights {
    /// The prefix of their names.
    pub fn prefix(self) -> &'static str {
        match self {
            Self::Ema => "ema.",
            Self::Model => "model.",
        }
    }
}
