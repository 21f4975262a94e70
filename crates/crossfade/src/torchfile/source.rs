//! The weights of a checkpoint as named f32 tensors, with limits on what a file may claim.
use super::container::{Container, inspect};
use super::{Weights, element};
use crate::error::{Error, Result};
use crate::limits::{TORCH_MEMORY, TORCH_SHARING, TORCH_TENSORS};
use crate::tensorfile::TensorFile;
use pytorch_reader::{PickleValue, PytorchReader, Tensor};
use safetensors::tensor::TensorInfo;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;

/// One tensor, row-major.
#[derive(Debug, Clone, PartialEq)]
pub struct TensorF32 {
    /// Sizes of the dimensions, outermost first; empty for a scalar.
    pub shape: Vec<usize>,
    /// Values in row-major order, rounded to f32 if they were stored with more bits.
    pub data: Vec<f32>,
    /// The type in the file: `f64`, `f32`, `f16`, `bf16`, `i64`, ..., `bool`.
    pub dtype: &'static str,
}

impl TensorF32 {
    /// Whether the file stored floats. Integer and bool tensors are index tables and counters, never weights: they
    /// can be read and are reported, but are not converted.
    pub(crate) fn is_float(&self) -> bool {
        self.dtype.contains('f')
    }
}

/// The selected weights of a file.
#[derive(Debug, Clone)]
pub struct Source {
    /// Every tensor of the selected state dict by its name there (without `ema_model.`).
    pub tensors: BTreeMap<String, TensorF32>,
    /// The trainer's step, if the file has it.
    pub step: Option<i64>,
    /// Which copy of the weights this is.
    pub weights: Weights,
}

/// Reads a checkpoint of either format, which is recognised by its content and not by its name.
pub fn read(path: &Path, which: Weights) -> Result<Source> {
    match inspect(path)? {
        Container::Torch => read_torch(path, which),
        Container::Safetensors => read_safetensors(path, which),
    }
}

/// Reads a file written by `torch.save`: a trainer's dictionary, a state dict, or a state dict under `model` or
/// `state_dict`.
///
/// Nothing is executed, and a file that refers to anything but tensors and plain values is refused.
///
/// [`PytorchReader`] opens files itself, so it only gets those that `inspect` has opened within the limits and scanned. Tensors
/// are read one by one, after their sizes were compared with the limits.
pub fn read_pt(path: &Path, which: Weights) -> Result<Source> {
    match inspect(path)? {
        Container::Torch => read_torch(path, which),
        Container::Safetensors => Err(Error::file(path, "a safetensors file, expected one written by torch.save")),
    }
}

fn read_torch(path: &Path, which: Weights) -> Result<Source> {
    let damaged =
        |e: pytorch_reader::PytorchError| Error::file(path, format!("damaged or unsupported checkpoint: {e}"));
    let root = PytorchReader::read_pickle_data(path, None).map_err(damaged)?;
    // Only the structure has been read so far, so odd files are refused before any tensor is loaded.
    let key = state_dict_key(&root, which).map_err(|message| Error::file(path, message))?;
    let step = match &root {
        PickleValue::Dict(root) => {
            root.get("step").and_then(|step| if let PickleValue::Int(n) = step { Some(*n) } else { None })
        }
        _ => None,
    };
    let reader = match key {
        Some(key) => PytorchReader::with_top_level_key(path, key),
        None => PytorchReader::new(path),
    };
    let mut tensors: BTreeMap<String, Tensor> = reader.map_err(damaged)?.into_tensors().into_iter().collect();
    choose_copy(path, &mut tensors, which, key.is_some())?;
    let sizes = tensors.values().map(|t| (t.num_elements(), t.byte_len()));
    check_size(path, sizes)?;

    let mut read = BTreeMap::new();
    for (name, tensor) in tensors {
        let bytes = tensor.read().map_err(|e| Error::file(path, format!("damaged checkpoint: {e}")))?;
        let (dtype, data) = element::from_torch(tensor.dtype(), &bytes);
        read.insert(name, TensorF32 { shape: tensor.shape().to_vec(), data, dtype });
    }
    Ok(Source { tensors: read, step, weights: which })
}

/// Reads a safetensors file with the names of a state dict.
pub fn read_safetensors(path: &Path, which: Weights) -> Result<Source> {
    let file = TensorFile::open(path)?;
    let mut names: BTreeMap<String, String> = file.shapes().into_iter().map(|(n, _)| (n.clone(), n)).collect();
    choose_copy(path, &mut names, which, false)?;
    let infos: Vec<&TensorInfo> = names.values().map(|name| file.info(name)).collect::<Result<_>>()?;
    check_size(path, infos.iter().map(|i| (i.shape.iter().product(), i.data_offsets.1 - i.data_offsets.0)))?;

    let mut tensors = BTreeMap::new();
    for (name, stored) in names {
        let (info, bytes) = file.bytes(&stored)?;
        let (dtype, data) = element::from_safetensors(info.dtype, &bytes).ok_or_else(|| {
            Error::file(path, format!("tensor {name} has type {:?}, which cannot be converted", info.dtype))
        })?;
        tensors.insert(name, TensorF32 { shape: info.shape.clone(), data, dtype });
    }
    Ok(Source { tensors, step: None, weights: which })
}

/// The top-level key of the wanted state dict; `None` if it is the root itself.
fn state_dict_key(root: &PickleValue, which: Weights) -> std::result::Result<Option<&'static str>, String> {
    let PickleValue::Dict(root) = root else {
        return Err("not a checkpoint: holds no dictionary".into());
    };
    let keys: &[&'static str] = match which {
        Weights::Model => &["model", "state_dict"],
        Weights::Ema => &["ema"],
    };
    for &key in keys {
        // A key `model` may also hold settings, so tensors are required.
        if let Some(PickleValue::Dict(dict)) = root.get(key)
            && dict.values().any(is_tensor)
        {
            return check_flat(dict).map(|()| Some(key));
        }
    }
    if root.values().any(is_tensor) {
        return check_flat(root).map(|()| None);
    }
    let mut found: Vec<&str> = root.keys().map(String::as_str).collect();
    found.sort_unstable();
    found.truncate(20);
    Err(match which {
        Weights::Ema => {
            format!("holds no EMA weights (its keys: {}); convert the model weights instead", found.join(", "))
        }
        Weights::Model => format!("no tensors under model, state_dict or at the top (its keys: {})", found.join(", ")),
    })
}

fn is_tensor(value: &PickleValue) -> bool {
    matches!(value, PickleValue::Unsupported(name) if name == "torch.Tensor")
}

fn holds_tensor(value: &PickleValue) -> bool {
    match value {
        PickleValue::List(items) => items.iter().any(holds_tensor),
        PickleValue::Dict(dict) => dict.values().any(holds_tensor),
        other => is_tensor(other),
    }
}

/// Refuses nested dictionaries: joined with dots, two of their paths could give the same name, and either tensor
/// might be taken.
fn check_flat(dict: &HashMap<String, PickleValue>) -> std::result::Result<(), String> {
    match dict.iter().find(|(_, value)| !is_tensor(value) && holds_tensor(value)) {
        Some((key, _)) => {
            Err(format!("not a state dict: {key:?} holds further tensors inside; save the state dict alone"))
        }
        None => Ok(()),
    }
}

/// An EMA state dict contains both copies, `online_model.*` and `ema_model.*`: keeps the wanted one, without its
/// prefix.
fn choose_copy<T>(path: &Path, tensors: &mut BTreeMap<String, T>, which: Weights, under_key: bool) -> Result<()> {
    let prefix = match which {
        Weights::Model => "online_model.",
        Weights::Ema => "ema_model.",
    };
    if tensors.keys().any(|name| name.starts_with(prefix)) {
        let all = std::mem::take(tensors);
        tensors.extend(all.into_iter().filter_map(|(name, t)| Some((name.strip_prefix(prefix)?.to_string(), t))));
    } else if which == Weights::Ema && !under_key {
        return Err(Error::file(
            path,
            "holds no EMA weights (no ema_model.* names); convert the model weights instead",
        ));
    }
    if tensors.is_empty() {
        return Err(Error::file(path, "holds no tensors"));
    }
    Ok(())
}

/// Refuses files that would take more memory than their size justifies; `sizes` are (elements, bytes in the file).
fn check_size(path: &Path, sizes: impl Iterator<Item = (usize, usize)>) -> Result<()> {
    let file = std::fs::metadata(path).map_err(Error::io(path))?.len();
    let (mut count, mut f32_bytes, mut claimed) = (0u64, 0u64, 0u64);
    for (elements, bytes) in sizes {
        count += 1;
        // Saturating, because the numbers come from the file.
        f32_bytes = f32_bytes.saturating_add(elements as u64 * 4);
        claimed = claimed.saturating_add(bytes as u64);
    }
    let refused = |why: String| Error::file(path, why);
    TORCH_TENSORS.check(count).map_err(refused)?;
    TORCH_MEMORY.check(f32_bytes).map_err(refused)?;
    let shared = TORCH_SHARING.check(claimed.div_ceil(file.max(1)));
    shared.map_err(|why| refused(format!("its tensors claim {claimed} bytes, but the file has only {file}: {why}")))
}
