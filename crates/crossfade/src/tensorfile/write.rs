//! Writing safetensors files. It is done by hand because the writer of the `safetensors` crate keeps its metadata in a
//! hash map, whose order differs from run to run: the same weights would not give the same file.
use std::collections::BTreeMap;
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;

use flate2::Crc;
use serde_json::{Value, json};

use super::{CHECKSUM, Element, HostTensor};
use crate::error::Result;
use crate::files::write_whole;

/// A borrowed tensor: name, shape, values in row-major order.
pub(crate) type TensorView<'a> = (&'a str, &'a [usize], &'a [f32]);

/// The header's key for its text entries; all other keys are names of tensors.
const METADATA: &str = "__metadata__";

/// Writes tensors and metadata to a safetensors file, sorted by name.
///
/// The file is written atomically, and equal content gives equal bytes.
pub fn save_tensors(path: &Path, tensors: &[HostTensor], metadata: &BTreeMap<String, String>) -> Result<()> {
    let views = tensors.iter().map(|(name, shape, values)| (name.as_str(), shape.as_slice(), values.as_slice()));
    write_tensors(path, &views.collect::<Vec<_>>(), metadata)
}

/// As [`save_tensors`], with the type in which each tensor is stored, by its name.
pub(crate) fn save_tensors_as(
    path: &Path,
    tensors: &[HostTensor],
    metadata: &BTreeMap<String, String>,
    element: &dyn Fn(&str) -> Element,
) -> Result<()> {
    let views = tensors.iter().map(|(name, shape, values)| (name.as_str(), shape.as_slice(), values.as_slice()));
    write(path, &views.collect::<Vec<_>>(), metadata, element)
}

/// As [`save_tensors`], for borrowed tensors.
pub(crate) fn write_tensors(path: &Path, tensors: &[TensorView], metadata: &BTreeMap<String, String>) -> Result<()> {
    write(path, tensors, metadata, &|_| Element::F32)
}

fn write(
    path: &Path,
    tensors: &[TensorView],
    metadata: &BTreeMap<String, String>,
    element: &dyn Fn(&str) -> Element,
) -> Result<()> {
    let mut sorted = tensors.to_vec();
    // Sorted, so that the file does not depend on the order in which layers are listed.
    sorted.sort_by_key(|(name, ..)| *name);
    // The header comes first in the file, so the checksum in it needs a separate pass over the values.
    let mut crc = Crc::new();
    let encoded = || sorted.iter().flat_map(|(name, _, values)| blocks(values, element(name)));
    encoded().for_each(|bytes| crc.update(&bytes));
    let mut metadata = metadata.clone();
    metadata.insert(CHECKSUM.to_owned(), format!("{:08x}", crc.sum()));
    for (name, shape, values) in &sorted {
        assert_eq!(shape.iter().product::<usize>(), values.len(), "{name} has the shape {shape:?}");
    }
    let shapes: Vec<_> = sorted.iter().map(|(name, shape, _)| (*name, *shape, element(name))).collect();
    let header = header(&shapes, &metadata);
    write_whole(path, |file| {
        file.write_all(&header)?;
        encoded().try_for_each(|bytes| file.write_all(&bytes))
    })
}

/// Writes one tensor that need not fit into memory. `rows(first)` returns the values of any number of rows, starting
/// with row `first`.
pub(crate) fn write_rows(
    path: &Path,
    name: &str,
    shape: &[usize],
    metadata: &BTreeMap<String, String>,
    rows: &mut dyn FnMut(usize) -> Result<Vec<f32>>,
) -> Result<()> {
    // The checksum is known only after the last row: its place in the header is filled in then.
    let with_checksum = |sum: u32| {
        let mut metadata = metadata.clone();
        metadata.insert(CHECKSUM.to_owned(), format!("{sum:08x}"));
        header(&[(name, shape, Element::F32)], &metadata)
    };
    let mut crc = Crc::new();
    let width: usize = shape[1..].iter().product();
    // The closure can only return I/O errors, so the caller's own error leaves it through this variable.
    let mut failure = None;
    let written = write_whole(path, |file| {
        file.write_all(&with_checksum(0))?;
        let mut row = 0;
        while row < shape[0] {
            let values = rows(row).map_err(|e| {
                failure = Some(e);
                std::io::Error::other("no more rows")
            })?;
            assert!(!values.is_empty() && values.len().is_multiple_of(width), "rows of {width} values");
            row += values.len() / width;
            blocks(&values, Element::F32).try_for_each(|bytes| {
                crc.update(&bytes);
                file.write_all(&bytes)
            })?;
        }
        file.seek(SeekFrom::Start(0))?;
        file.write_all(&with_checksum(crc.sum()))
    });
    failure.map_or(written, Err)
}

/// The little-endian bytes of `values` in blocks, so that no second copy of a large tensor is needed.
fn blocks(values: &[f32], element: Element) -> impl Iterator<Item = Vec<u8>> {
    values.chunks(1 << 14).map(move |block| element.encode(block))
}

/// The length and the JSON header, padded with spaces so that the tensors after it are aligned to 8 bytes.
fn header(sorted: &[(&str, &[usize], Element)], metadata: &BTreeMap<String, String>) -> Vec<u8> {
    let mut entries: BTreeMap<&str, Value> = BTreeMap::from([(METADATA, json!(metadata))]);
    let mut start = 0;
    for (name, shape, element) in sorted {
        let end = start + element.size() * shape.iter().product::<usize>();
        let entry = json!({ "dtype": element.tag(), "shape": shape, "data_offsets": [start, end] });
        assert!(entries.insert(name, entry).is_none(), "two tensors are named {name}");
        start = end;
    }
    let mut bytes = json!(entries).to_string().into_bytes();
    bytes.resize(bytes.len().next_multiple_of(8), b' ');
    [&(bytes.len() as u64).to_le_bytes(), bytes.as_slice()].concat()
}
