//! A safetensors file, written aside and renamed.
//!
//! By hand, because the crate's writer keeps metadata in a hash map: its files differ from run to run, ours do not.
use super::source::TensorF32;
use crate::error::{Error, Result};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

/// Write `tensors` as F32 in the order of their names, with `metadata` and `format = "pt"`.
pub(super) fn safetensors(
    output: &Path,
    tensors: &BTreeMap<&str, &TensorF32>,
    metadata: &[(String, String)],
) -> Result<()> {
    let Some(name) = output.file_name() else {
        return Err(Error::request(format!("{}: not the name of a file", output.display())));
    };
    let partial = output.with_file_name(format!(".{}.{}.partial", name.to_string_lossy(), std::process::id()));
    let file = File::create(&partial).map_err(Error::io(output))?;
    let aside = Aside(partial);
    write(file, &header(tensors, metadata), tensors).map_err(Error::io(output))?;
    std::fs::rename(&aside.0, output).map_err(Error::io(output))
}

/// The unfinished file; gone when this is dropped, unless it was renamed.
struct Aside(PathBuf);

impl Drop for Aside {
    fn drop(&mut self) {
        // after the rename there is nothing to remove
        let _ = std::fs::remove_file(&self.0);
    }
}

fn header(tensors: &BTreeMap<&str, &TensorF32>, metadata: &[(String, String)]) -> Vec<u8> {
    let mut notes: BTreeMap<&str, &str> = metadata.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
    notes.insert("format", "pt");
    let mut entries: BTreeMap<&str, Value> = BTreeMap::from([("__metadata__", json!(notes))]);
    let mut start = 0;
    for (name, tensor) in tensors {
        let end = start + 4 * tensor.data.len();
        entries.insert(name, json!({ "dtype": "F32", "shape": tensor.shape, "data_offsets": [start, end] }));
        start = end;
    }
    let mut bytes = json!(entries).to_string().into_bytes();
    bytes.resize(bytes.len().next_multiple_of(8), b' ');
    bytes
}

fn write(file: File, header: &[u8], tensors: &BTreeMap<&str, &TensorF32>) -> std::io::Result<()> {
    let mut file = BufWriter::with_capacity(1 << 20, file);
    file.write_all(&(header.len() as u64).to_le_bytes())?;
    file.write_all(header)?;
    for value in tensors.values().flat_map(|tensor| &tensor.data) {
        file.write_all(&value.to_le_bytes())?;
    }
    file.into_inner()?.sync_all()
}
