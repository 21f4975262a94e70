//! Reads weights by name, and folds each batch norm into the convolution before it.
use crate::error::{Error, Result};
use crate::limits::{self, INCEPTION_FILE};
use crate::torchfile::{TensorF32, Weights, read};
use crossfade_kernels::channels_last::{Conv, Window};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The ε of every batch norm, TensorFlow's default and not PyTorch's.
const EPS: f64 = 1e-3;

/// The tensors of a file.
pub(super) struct Reader {
    path: PathBuf,
    tensors: BTreeMap<String, TensorF32>,
    pub(super) hash: String,
}

impl Reader {
    pub(super) fn open(path: &Path) -> Result<Self> {
        // Any tensors could stand in the file, and all of them would be read.
        let length = limits::open(path)?.metadata().map_err(Error::io(path))?.len();
        INCEPTION_FILE.check(length).map_err(|why| Error::file(path, why))?;
        let tensors = read(path, Weights::Model)?.tensors;
        Ok(Self { path: path.to_path_buf(), tensors, hash: crate::digest::sha256_file(path)? })
    }

    /// A tensor that may be missing; if present it must have this shape and be finite.
    pub(super) fn optional(&mut self, name: &str, shape: &[usize]) -> Result<Option<Vec<f32>>> {
        let Some(tensor) = self.tensors.remove(name) else { return Ok(None) };
        if tensor.shape != shape {
            let message = format!("{name} has the shape {:?}, not {shape:?}: not FID's Inception", tensor.shape);
            return Err(Error::file(&self.path, message));
        }
        if !tensor.data.iter().all(|v| v.is_finite()) {
            return Err(Error::file(
                &self.path,
                format!("{name} holds values that are no numbers; fetch the file again"),
            ));
        }
        Ok(Some(tensor.data))
    }

    fn tensor(&mut self, name: &str, shape: &[usize]) -> Result<Vec<f32>> {
        self.optional(name, shape)?.ok_or_else(|| {
            let message = format!("has no tensor {name}: not the Inception network of FID (2015-12-05)");
            Error::file(&self.path, message)
        })
    }

    /// y = γ (w ∗ x − μ)/√(σ² + ε) + β as one convolution, tuned for images of about `side` rows.
    pub(super) fn conv(&mut self, name: &str, ci: usize, co: usize, window: Window, side: usize) -> Result<Conv> {
        let [kh, kw] = window.kernel;
        let mut weight = self.tensor(&format!("{name}.conv.weight"), &[co, ci, kh, kw])?;
        let mut norm = |part: &str| self.tensor(&format!("{name}.bn.{part}"), &[co]);
        let (gamma, beta) = (norm("weight")?, norm("bias")?);
        let (mean, variance) = (norm("running_mean")?, norm("running_var")?);
        let mut bias = vec![0.0; co];
        for (o, kernel) in weight.chunks_exact_mut(ci * kh * kw).enumerate() {
            // Folded in f64 and rounded once.
            let scale = f64::from(gamma[o]) / (f64::from(variance[o]) + EPS).sqrt();
            kernel.iter_mut().for_each(|w| *w = (f64::from(*w) * scale) as f32);
            bias[o] = (f64::from(beta[o]) - f64::from(mean[o]) * scale) as f32;
        }
        Ok(Conv::new(&weight, &bias, ci, window, side))
    }
}
