//! Safetensors files: written whole and the same byte for byte, read tensor by tensor with limits.
//!
//! Written by hand, because the crate's writer keeps metadata in a hash map: its files differ from run to run.
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use flate2::Crc;
use safetensors::tensor::{Dtype, Metadata, TensorInfo};
use serde_json::{Value, json};

use crate::error::{Error, Result};
use crate::files::write_whole;

/// A tensor on the host: name, shape, values in row-major order.
pub type HostTensor = (String, Vec<usize>, Vec<f32>);

/// Shapes and values by name.
pub type TensorMap = BTreeMap<String, (Vec<usize>, Vec<f32>)>;

/// A tensor, borrowed.
pub(crate) type TensorView<'a> = (&'a str, &'a [usize], &'a [f32]);

/// Longest header that is read from a file; the largest network of this toolkit needs 0.2 MB.
const HEADER_LIMIT: u64 = 16 << 20;

/// Where the header keeps its text entries, among the names of tensors.
const METADATA: &str = "__metadata__";

/// The text entry with the checksum of all numbers in the order of the file.
const CHECKSUM: &str = "crc32";

/// Writes tensors, in the order of their names, and metadata to a safetensors file.
///
/// The file appears whole or not at all, and the same content gives the same bytes.
pub fn save_tensors(path: &Path, tensors: &[HostTensor], metadata: &BTreeMap<String, String>) -> Result<()> {
    let views = tensors.iter().map(|(name, shape, values)| (name.as_str(), shape.as_slice(), values.as_slice()));
    write_tensors(path, &views.collect::<Vec<_>>(), metadata)
}

/// [`save_tensors`] for tensors that lie elsewhere.
pub(crate) fn write_tensors(path: &Path, tensors: &[TensorView], metadata: &BTreeMap<String, String>) -> Result<()> {
    let mut sorted = tensors.to_vec();
    sorted.sort_by_key(|(name, ..)| *name);
    let mut crc = Crc::new();
    sorted.iter().flat_map(|(.., values)| blocks(values)).for_each(|bytes| crc.update(&bytes));
    let mut metadata = metadata.clone();
    metadata.insert(CHECKSUM.to_owned(), format!("{:08x}", crc.sum()));
    for (name, shape, values) in &sorted {
        assert_eq!(shape.iter().product::<usize>(), values.len(), "{name} has the shape {shape:?}");
    }
    let shapes: Vec<_> = sorted.iter().map(|(name, shape, _)| (*name, *shape)).collect();
    let header = header(&shapes, &metadata);
    write_whole(path, |file| {
        file.write_all(&header)?;
        sorted.iter().flat_map(|(.., values)| blocks(values)).try_for_each(|bytes| file.write_all(&bytes))
    })
}

/// Writes one tensor that need not fit into memory: `rows` gives the values of the rows that begin at the one it is
/// asked for, as many as it likes.
pub(crate) fn write_rows(
    path: &Path,
    name: &str,
    shape: &[usize],
    metadata: &BTreeMap<String, String>,
    rows: &mut dyn FnMut(usize) -> Result<Vec<f32>>,
) -> Result<()> {
    let header = header(&[(name, shape)], metadata);
    let width: usize = shape[1..].iter().product();
    let mut failed = None;
    let written = write_whole(path, |file| {
        file.write_all(&header)?;
        let mut row = 0;
        while row < shape[0] {
            let values = rows(row).map_err(|e| {
                failed = Some(e);
                std::io::Error::other("no more rows")
            })?;
            assert!(!values.is_empty() && values.len().is_multiple_of(width), "rows of {width} values");
            row += values.len() / width;
            blocks(&values).try_for_each(|bytes| file.write_all(&bytes))?;
        }
        Ok(())
    });
    failed.map_or(written, Err)
}

/// The bytes of `values`, some at a time.
fn blocks(values: &[f32]) -> impl Iterator<Item = Vec<u8>> {
    values.chunks(1 << 14).map(|block| block.iter().flat_map(|v| v.to_le_bytes()).collect())
}

/// The JSON header after its length, padded so that the numbers after it are aligned.
fn header(sorted: &[(&str, &[usize])], metadata: &BTreeMap<String, String>) -> Vec<u8> {
    let mut entries: BTreeMap<&str, Value> = BTreeMap::from([(METADATA, json!(metadata))]);
    let mut start = 0;
    for (name, shape) in sorted {
        let end = start + 4 * shape.iter().product::<usize>();
        let entry = json!({ "dtype": "F32", "shape": shape, "data_offsets": [start, end] });
        assert!(entries.insert(name, entry).is_none(), "two tensors are named {name}");
        start = end;
    }
    let mut bytes = json!(entries).to_string().into_bytes();
    bytes.resize(bytes.len().next_multiple_of(8), b' ');
    [&(bytes.len() as u64).to_le_bytes(), bytes.as_slice()].concat()
}

/// A safetensors file of which only the header has been read.
#[derive(Debug)]
pub struct TensorFile {
    path: PathBuf,
    file: File,
    start: u64,
    header: Metadata,
}

impl TensorFile {
    /// Opens a file and checks that its header describes all of it.
    pub fn open(path: &Path) -> Result<Self> {
        let mut file = File::open(path).map_err(Error::io(path))?;
        let size = file.metadata().map_err(Error::io(path))?.len();
        let mut length = [0; 8];
        file.read_exact(&mut length).map_err(|_| Error::file(path, "too short for a safetensors file"))?;
        let length = u64::from_le_bytes(length);
        if length > HEADER_LIMIT || length + 8 > size {
            return Err(Error::file(path, format!("no safetensors file: its header would take {length} bytes")));
        }
        let mut bytes = vec![0; length as usize];
        file.read_exact(&mut bytes).map_err(Error::io(path))?;
        // Deserializing also checks that the tensors follow each other without gaps and have the sizes of their shapes.
        let header: Metadata = serde_json::from_slice(&bytes)
            .map_err(|e| Error::file(path, format!("the safetensors header is damaged: {e}")))?;
        let start = length + 8;
        let expected = start.checked_add(header.data_len() as u64);
        if expected != Some(size) {
            let message = format!("{size} bytes where the header describes {expected:?}; the file is cut or damaged");
            return Err(Error::file(path, message));
        }
        Ok(Self { path: path.to_path_buf(), file, start, header })
    }

    /// The text entries of the header.
    pub fn metadata(&self) -> BTreeMap<String, String> {
        self.header.metadata().clone().unwrap_or_default().into_iter().collect()
    }

    /// The checksum that its writer noted: names the weights. None in files of other tools.
    pub fn checksum(&self) -> Option<String> {
        self.metadata().remove(CHECKSUM)
    }

    /// All tensors of f32 numbers, checked against the checksum if there is one.
    pub fn read_all(&self) -> Result<Vec<HostTensor>> {
        self.read_wanted(&|_| true)
    }

    /// Those tensors of f32 numbers whose names are `wanted`, after a check of the whole file.
    pub(crate) fn read_wanted(&self, wanted: &dyn Fn(&str) -> bool) -> Result<Vec<HostTensor>> {
        let mut crc = Crc::new();
        let mut tensors = vec![];
        for (name, shape) in self.shapes() {
            let bytes = self.numbers(&name)?;
            crc.update(&bytes);
            if wanted(&name) {
                tensors.push((name, shape, floats(&bytes)));
            }
        }
        let found = format!("{:08x}", crc.sum());
        match self.checksum() {
            Some(noted) if noted != found => {
                let message = format!("damaged: its numbers have the checksum {found}, {noted} was written");
                Err(Error::file(&self.path, message))
            }
            _ => Ok(tensors),
        }
    }

    /// Names and shapes of all tensors, in the order of the file.
    pub fn shapes(&self) -> Vec<(String, Vec<usize>)> {
        let names = self.header.offset_keys().into_iter();
        names
            .filter_map(|name| self.header.info(&name).map(|info| info.shape.clone()).map(|shape| (name, shape)))
            .collect()
    }

    /// What the header says of a tensor.
    pub(crate) fn info(&self, name: &str) -> Result<&TensorInfo> {
        self.header.info(name).ok_or_else(|| Error::file(&self.path, format!("has no tensor {name:?}")))
    }

    /// What the header says of a tensor, and its numbers as they are stored.
    pub(crate) fn bytes(&self, name: &str) -> Result<(&TensorInfo, Vec<u8>)> {
        let info = self.info(name)?;
        let (start, end) = info.data_offsets;
        let mut bytes = vec![0; end - start];
        let mut file = &self.file;
        file.seek(SeekFrom::Start(self.start + start as u64)).map_err(Error::io(&self.path))?;
        file.read_exact(&mut bytes).map_err(Error::io(&self.path))?;
        Ok((info, bytes))
    }

    /// The values of `count` rows of a tensor of f32 numbers, from `first` on.
    pub(crate) fn read_rows(&self, name: &str, first: usize, count: usize) -> Result<Vec<f32>> {
        let info = self.info(name)?;
        let row = 4 * info.shape.iter().skip(1).product::<usize>();
        let (start, end) = (info.data_offsets.0 + first * row, info.data_offsets.0 + (first + count) * row);
        if info.dtype != Dtype::F32 || end > info.data_offsets.1 {
            return Err(Error::file(&self.path, format!("tensor {name:?} has no rows {first}..{}", first + count)));
        }
        let mut bytes = vec![0; end - start];
        let mut file = &self.file;
        file.seek(SeekFrom::Start(self.start + start as u64)).map_err(Error::io(&self.path))?;
        file.read_exact(&mut bytes).map_err(Error::io(&self.path))?;
        Ok(bytes.as_chunks().0.iter().map(|&b| f32::from_le_bytes(b)).collect())
    }

    /// The bytes of a tensor that must be of f32 numbers.
    fn numbers(&self, name: &str) -> Result<Vec<u8>> {
        let dtype = self.info(name)?.dtype;
        if dtype != Dtype::F32 {
            return Err(Error::file(&self.path, format!("tensor {name:?} is {dtype:?}; convert the file to F32")));
        }
        Ok(self.bytes(name)?.1)
    }

    /// Shape and values of a tensor of f32 numbers.
    pub fn read(&self, name: &str) -> Result<(Vec<usize>, Vec<f32>)> {
        Ok((self.info(name)?.shape.clone(), floats(&self.numbers(name)?)))
    }
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks().0.iter().map(|&b| f32::from_le_bytes(b)).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use safetensors::SafeTensors;

    fn tensors() -> Vec<HostTensor> {
        let tensor = |name: &str, shape: &[usize], scale: f32| {
            let count = shape.iter().product::<usize>();
            (name.to_owned(), shape.to_vec(), (0..count).map(|i| scale * i as f32).collect())
        };
        vec![
            tensor("b", &[3], -0.5),
            tensor("a.w", &[2, 3], 0.25),
            tensor("scalar", &[], 1.0),
            tensor("none", &[0, 2], 1.0),
        ]
    }

    fn notes() -> BTreeMap<String, String> {
        (0..9).map(|i| (format!("key{i}"), format!("value {i}"))).collect()
    }

    #[test]
    fn a_file_returns_what_was_written() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.safetensors");
        save_tensors(&path, &tensors(), &notes()).unwrap();
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "something was left aside");
        let file = TensorFile::open(&path).unwrap();
        let mut metadata = file.metadata();
        assert_eq!(metadata.remove(CHECKSUM), file.checksum());
        assert_eq!(metadata, notes());
        assert_eq!(file.read_all().unwrap().len(), tensors().len());
        for (name, shape, values) in tensors() {
            assert_eq!(file.read(&name).unwrap(), (shape, values), "{name}");
        }
        assert!(file.read("stranger").unwrap_err().to_string().contains("stranger"));
        // The format's own reader agrees.
        let bytes = std::fs::read(&path).unwrap();
        let theirs = SafeTensors::deserialize(&bytes).unwrap();
        assert_eq!(theirs.len(), tensors().len());
        assert_eq!(theirs.tensor("b").unwrap().data(), [-0.0f32, -0.5, -1.0].map(f32::to_le_bytes).concat());
        assert_eq!(SafeTensors::read_metadata(&bytes).unwrap().0 % 8, 0, "numbers are not aligned");
    }

    #[test]
    fn a_flipped_bit_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.safetensors");
        save_tensors(&path, &tensors(), &notes()).unwrap();
        let mut bytes = std::fs::read(&path).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        std::fs::write(&path, bytes).unwrap();
        let error = TensorFile::open(&path).unwrap().read_all().unwrap_err().to_string();
        assert!(error.contains("damaged"), "{error}");
    }

    #[test]
    fn the_same_content_gives_the_same_bytes_in_any_order() {
        let dir = tempfile::tempdir().unwrap();
        let bytes = |tensors: &[HostTensor]| {
            let path = dir.path().join("a.safetensors");
            save_tensors(&path, tensors, &notes()).unwrap();
            std::fs::read(path).unwrap()
        };
        let mut reversed = tensors();
        reversed.reverse();
        let first = bytes(&tensors());
        assert_eq!(bytes(&tensors()), first);
        assert_eq!(bytes(&reversed), first);
    }

    /// A file with this header and so many bytes of data.
    fn open(path: &Path, header: &str, data: usize) -> Result<TensorFile> {
        let bytes = [&(header.len() as u64).to_le_bytes(), header.as_bytes(), &vec![0; data]].concat();
        std::fs::write(path, bytes).unwrap();
        TensorFile::open(path)
    }

    #[test]
    fn damaged_files_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.safetensors");
        save_tensors(&path, &tensors(), &notes()).unwrap();
        let good = std::fs::read(&path).unwrap();
        let mut huge = good.clone();
        huge[..8].copy_from_slice(&(1u64 << 40).to_le_bytes());
        let mut garbled = good.clone();
        garbled[8] = b'x';
        for bad in [&good[..good.len() - 4], &good[..20], &good[..4], &huge, &garbled] {
            std::fs::write(&path, bad).unwrap();
            assert!(TensorFile::open(&path).is_err());
        }
    }

    #[test]
    fn headers_that_lie_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.safetensors");
        let entry = |name: &str, shape: &str, offsets: &str| {
            format!(r#""{name}":{{"dtype":"F32","shape":{shape},"data_offsets":{offsets}}}"#)
        };
        let header = |entries: &[String]| format!("{{{}}}", entries.join(","));
        assert!(open(&path, &header(&[entry("a", "[2]", "[0,8]")]), 8).is_ok());
        for (lie, entries) in [
            ("backwards", vec![entry("a", "[2]", "[8,0]")]),
            ("another size", vec![entry("a", "[3]", "[0,8]")]),
            ("overlap", vec![entry("a", "[2]", "[0,8]"), entry("b", "[1]", "[4,8]")]),
            ("gap", vec![entry("a", "[1]", "[4,8]")]),
            ("overflow", vec![entry("a", "[9223372036854775807,4]", "[0,8]")]),
            ("beyond the file", vec![entry("a", "[2305843009213693950]", "[0,9223372036854775800]")]),
        ] {
            assert!(open(&path, &header(&entries), 8).is_err(), "{lie}");
        }
        let half = header(&[entry("a", "[4]", "[0,8]").replace("F32", "F16")]);
        assert!(open(&path, &half, 8).unwrap().read("a").unwrap_err().to_string().contains("F16"));
    }
}
