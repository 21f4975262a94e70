//! Converts checkpoints of the reference implementation to our safetensors files (§2.7, §4.7, Appendix B).
mod infer;
mod names;

pub use infer::{InferredUnet, infer_unet};
pub use names::{Mapping, WrongShape, map_names};

use crate::error::{Error, Result, Shown, visible};
use crate::tensorfile::{TensorView, write_tensors};
use crate::torchfile::{Source, TensorF32, Weights, read};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

/// The report of a conversion.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// The file written.
    #[serde(serialize_with = "crate::error::serialize_path")]
    pub output: PathBuf,
    /// Which copy of the weights was converted.
    pub weights: Weights,
    /// The trainer's step, if the file has it.
    pub step: Option<i64>,
    /// Number of tensors written.
    pub tensors: usize,
    /// Number of elements of these tensors.
    pub parameters: usize,
    /// Number of tensors by their type in the file; all are written as F32.
    pub dtypes: BTreeMap<String, usize>,
    /// Which tensor became which parameter, and which were ignored for what reason.
    #[serde(flatten)]
    pub mapping: Mapping,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let copy = if self.weights == Weights::Ema { "EMA" } else { "model" };
        write!(f, "{}: {} tensors, {} parameters, {copy} weights", self.output.shown(), self.tensors, self.parameters)?;
        if let Some(step) = self.step {
            write!(f, " of step {step}")?;
        }
        for (dtype, count) in self.dtypes.iter().filter(|(dtype, _)| *dtype != "f32") {
            write!(f, "\n  {count} converted from {dtype}")?;
        }
        let mut reasons: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (name, why) in &self.mapping.ignored {
            reasons.entry(why).or_default().push(name);
        }
        for (why, names) in reasons {
            let more = if names.len() > 3 { ", ..." } else { "" };
            let first: Vec<_> = names.iter().take(3).map(|name| visible(name)).collect();
            write!(f, "\n  {} ignored ({why}): {}{more}", names.len(), first.join(", "))?;
        }
        Ok(())
    }
}

/// Converts the checkpoint `input` to the safetensors file `output` with the parameters `expected` (name and shape).
///
/// The file is written atomically. An error lists every parameter that is missing, has another shape or is not
/// finite.
pub fn convert(
    input: &Path,
    output: &Path,
    which: Weights,
    expected: &[(String, Vec<usize>)],
    metadata: &[(String, String)],
) -> Result<Report> {
    // The input may be the only copy of the weights, so it is never overwritten.
    if let (Ok(from), Ok(to)) = (input.canonicalize(), output.canonicalize())
        && from == to
    {
        return Err(Error::request(format!("{} would be overwritten by its own conversion", input.shown())));
    }
    let source = read(input, which)?;
    convert_source(&source, output, expected, metadata).map_err(|error| match error {
        Error::Request(message) => Error::file(input, message),
        other => other,
    })
}

/// As [`convert`], for weights that have been read already.
pub fn convert_source(
    source: &Source,
    output: &Path,
    expected: &[(String, Vec<usize>)],
    metadata: &[(String, String)],
) -> Result<Report> {
    let mapping = map_names(source, expected);
    let tensors: BTreeMap<&str, &TensorF32> =
        mapping.mapped.iter().map(|(from, to)| (to.as_str(), &source.tensors[from])).collect();
    let mut problems = mapping.problems();
    let broken = tensors.iter().filter(|(_, tensor)| tensor.data.iter().any(|v| !v.is_finite()));
    problems.extend(broken.map(|(name, _)| format!("not finite: {name}")));
    if !problems.is_empty() {
        let count = problems.len();
        let list = problems.join("\n  ");
        return Err(Error::request(format!("{count} parameters do not fit the network:\n  {list}")));
    }

    let mut dtypes = BTreeMap::new();
    for tensor in tensors.values() {
        *dtypes.entry(tensor.dtype.to_string()).or_default() += 1;
    }
    let mut notes: BTreeMap<String, String> = metadata.iter().cloned().collect();
    // Other tools that read safetensors expect this entry.
    notes.insert("format".to_owned(), "pt".to_owned());
    let views = tensors.iter().map(|(&name, t)| (name, t.shape.as_slice(), t.data.as_slice()));
    write_tensors(output, &views.collect::<Vec<TensorView>>(), &notes)?;
    Ok(Report {
        output: output.to_path_buf(),
        weights: source.weights,
        step: source.step,
        tensors: tensors.len(),
        parameters: tensors.values().map(|tensor| tensor.data.len()).sum(),
        dtypes,
        mapping,
    })
}
