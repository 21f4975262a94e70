//! Reads and writes NumPy's `.npz` (a zip of `.npy` arrays), with limits when reading.
use super::super::npy::{Header, parse};
use crate::error::{Error, Result};
use crate::files::write_whole;
use crate::limits::{self, Archive, NPY_HEADER, NPZ_ARRAY, NPZ_ENTRIES, NPZ_TEXT};
use std::io::{BufWriter, Read, Seek, Write};
use std::path::{Path, PathBuf};
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

/// Bytes of numbers that are decoded at a time.
const BLOCK: u64 = 1 << 16;

/// An archive of arrays.
pub(super) struct Npz {
    path: PathBuf,
    archive: Archive,
}

impl Npz {
    pub(super) fn open(path: &Path) -> Result<Self> {
        let bad = |e| Error::file(path, format!("not a readable npz: {e}"));
        let archive = limits::open_zip(path, &NPZ_ENTRIES, bad)?;
        Ok(Self { path: path.to_path_buf(), archive })
    }

    fn bad(&self, name: &str, reason: impl std::fmt::Display) -> Error {
        Error::file(&self.path, format!("array {name}: {reason}"))
    }

    /// Names of the arrays, in the order of the file.
    pub(super) fn names(&self) -> Vec<String> {
        let names = (0..self.archive.len()).filter_map(|i| self.archive.name_for_index(i));
        names
            .filter_map(std::result::Result::ok)
            .filter_map(|name| name.strip_suffix(".npy").map(str::to_owned))
            .collect()
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.archive.index_for_name(&format!("{name}.npy")).is_some()
    }

    /// The header of an array, and the position of its bytes in the file if they are not compressed.
    pub(super) fn header(&mut self, name: &str) -> Result<(Header, Option<u64>)> {
        let path = self.path.clone();
        let bad = |reason: String| Error::file(&path, format!("array {name}: {reason}"));
        let mut entry = self.archive.by_name(&format!("{name}.npy")).map_err(|e| bad(e.to_string()))?;
        let position = entry.data_start().filter(|_| entry.compression() == CompressionMethod::Stored);
        let size = entry.size();
        let head = limits::take(entry.by_ref(), NPY_HEADER.max + 16).map_err(|e| bad(e.to_string()))?;
        let header = parse(&head).map_err(bad)?;
        // Kinds look like `<f8`: byte order, type and width in bytes.
        let width: u64 = header.kind[2..].parse().unwrap_or(0);
        if (header.len as u64).checked_mul(width).and_then(|n| n.checked_add(header.start)) != Some(size) {
            return Err(bad(format!("{size} bytes do not hold {:?} of {}", header.shape, header.kind)));
        }
        Ok((header, position))
    }

    /// The bytes of an array, without its header.
    pub(super) fn bytes(&mut self, name: &str, limit: u64) -> Result<(Header, Vec<u8>)> {
        let (header, _) = self.header(name)?;
        let path = self.path.clone();
        let bad = |reason: String| Error::file(&path, format!("array {name}: {reason}"));
        let entry = self.archive.by_name(&format!("{name}.npy")).map_err(|e| bad(e.to_string()))?;
        if entry.size() > limit {
            return Err(bad(format!("{} bytes, more than the limit of {limit}", entry.size())));
        }
        let declared = entry.size();
        let mut bytes = limits::take_sized(entry, declared).map_err(|e| bad(e.to_string()))?;
        if bytes.len() as u64 != declared {
            return Err(bad(format!("{} bytes where {declared} were declared", bytes.len())));
        }
        bytes.drain(..header.start as usize);
        Ok((header, bytes))
    }

    /// Shape and values of an array of f8, f4 or i8.
    pub(super) fn numbers(&mut self, name: &str) -> Result<(Vec<usize>, Vec<f64>)> {
        let (header, _) = self.header(name)?;
        let decode: fn(&[u8]) -> Vec<f64> = match header.kind.as_str() {
            "<f8" => |bytes| bytes.as_chunks().0.iter().map(|&b| f64::from_le_bytes(b)).collect(),
            "<f4" => |bytes| bytes.as_chunks().0.iter().map(|&b| f64::from(f32::from_le_bytes(b))).collect(),
            "<i8" => |bytes| bytes.as_chunks().0.iter().map(|&b| i64::from_le_bytes(b) as f64).collect(),
            kind => return Err(self.bad(name, format!("holds {kind}, expected f8, f4 or i8"))),
        };
        NPZ_ARRAY.check((header.len as u64).saturating_mul(8)).map_err(|why| self.bad(name, why))?;
        let path = self.path.clone();
        let bad = |reason: String| Error::file(&path, format!("array {name}: {reason}"));
        let mut entry = self.archive.by_name(&format!("{name}.npy")).map_err(|e| bad(e.to_string()))?;
        std::io::copy(&mut entry.by_ref().take(header.start), &mut std::io::sink()).map_err(|e| bad(e.to_string()))?;
        // Block by block, so that a large array is in memory once.
        let mut values = Vec::with_capacity(header.len);
        loop {
            let block = limits::take(entry.by_ref(), BLOCK - 1).map_err(|e| bad(e.to_string()))?;
            values.extend(decode(&block));
            if block.is_empty() || values.len() > header.len {
                break;
            }
        }
        match values.len() == header.len {
            true => Ok((header.shape, values)),
            false => Err(bad(format!("{} numbers where {} were declared", values.len(), header.len))),
        }
    }

    /// A text stored as bytes, if it is there.
    pub(super) fn text(&mut self, name: &str) -> Result<Option<String>> {
        if !self.has(name) {
            return Ok(None);
        }
        let (_, bytes) = self.bytes(name, NPZ_TEXT.max)?;
        String::from_utf8(bytes).map(Some).map_err(|_| self.bad(name, "no text"))
    }
}

/// The values of an array to write.
#[derive(Clone, Copy)]
pub(super) enum Values<'a> {
    F64(&'a [f64]),
    I64(i64),
    Text(&'a str),
}

/// Writes arrays to an npz atomically.
pub(super) fn write(path: &Path, arrays: &[(&str, &[usize], Values)]) -> Result<()> {
    write_whole(path, |file| write_arrays(file, arrays))
}

fn write_arrays<W: Write + Seek>(file: &mut BufWriter<W>, arrays: &[(&str, &[usize], Values)]) -> std::io::Result<()> {
    let mut zip = ZipWriter::new(file);
    // Uncompressed, so that readers can map the arrays; `large_file` allows arrays over 4 GiB.
    let options = SimpleFileOptions::default().compression_method(CompressionMethod::Stored).large_file(true);
    for (name, shape, values) in arrays {
        zip.start_file(format!("{name}.npy"), options)?;
        let kind = match values {
            Values::F64(_) => "<f8",
            Values::I64(_) => "<i8",
            Values::Text(_) => "|u1",
        };
        zip.write_all(&npy_header(kind, shape))?;
        match values {
            Values::F64(values) => {
                for block in values.chunks(1 << 13) {
                    zip.write_all(&block.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>())?;
                }
            }
            Values::I64(value) => zip.write_all(&value.to_le_bytes())?,
            Values::Text(text) => zip.write_all(text.as_bytes())?,
        }
    }
    zip.finish()?;
    Ok(())
}

/// The header of format 1.0. NumPy requires its total length to be a multiple of 64, for memory mapping.
fn npy_header(kind: &str, shape: &[usize]) -> Vec<u8> {
    let sides: String = shape.iter().map(|n| format!("{n},")).collect();
    let mut text = format!("{{'descr': '{kind}', 'fortran_order': False, 'shape': ({sides}), }}");
    text += &" ".repeat((64 - (text.len() + 11) % 64) % 64);
    text.push('\n');
    let mut header = b"\x93NUMPY\x01\x00".to_vec();
    header.extend((text.len() as u16).to_le_bytes());
    header.extend(text.as_bytes());
    header
}
