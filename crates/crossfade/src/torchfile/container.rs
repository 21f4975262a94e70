//! Recognises the format of a file and checks that its pickles are harmless, before the tensor reader opens it.
use super::scan::scan;
use crate::error::{Error, Result};
use crate::limits::{self, PICKLE, TORCH_ENTRIES};
use std::path::Path;

/// Position of the magic string `ustar` in a tar header.
const TAR_MAGIC_AT: usize = 257;
/// The magic number 0x1950a86a20f9469cfc6c of legacy files, as pickle protocols 2 and 0 write it.
const LEGACY_MAGIC: [&[u8]; 2] =
    [&[0x6c, 0xfc, 0x9c, 0x46, 0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19], b"119547037146038801333356"];
/// A legacy file starts with five pickles: magic number, version, system, the object, the keys of its storages.
const LEGACY_PICKLES: usize = 5;

/// A file whose weights can be read.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Container {
    /// `torch.save`, zip or legacy container; its pickles have been checked.
    Torch,
    /// A safetensors file.
    Safetensors,
}

/// Recognises the format of `path` by its content, and refuses pickles that refer to anything but tensors and plain
/// values.
pub(super) fn inspect(path: &Path) -> Result<Container> {
    let file = limits::open(path)?;
    let header = limits::take(&file, TAR_MAGIC_AT as u64 + 4).map_err(Error::io(path))?;

    if header.starts_with(b"PK\x03\x04") || header.starts_with(b"PK\x05\x06") {
        scan_pickle(path, &zip_pickle(path)?)?;
        return Ok(Container::Torch);
    }
    if header.get(TAR_MAGIC_AT..) == Some(b"ustar") {
        return Err(Error::file(
            path,
            "a tar container, as PyTorch wrote before version 0.1.10; load it with a current PyTorch and save it again",
        ));
    }
    // The magic number is itself pickled, so a few opcodes may precede it.
    let window = &header[..header.len().min(64)];
    if LEGACY_MAGIC.iter().any(|magic| window.windows(magic.len()).any(|w| w == *magic)) {
        let bytes = head(path)?;
        (0..LEGACY_PICKLES).try_fold(0, |at, _| Ok::<_, Error>(at + scan_pickle(path, &bytes[at..])?))?;
        return Ok(Container::Torch);
    }
    if header.get(8) == Some(&b'{') {
        return Ok(Container::Safetensors);
    }
    if matches!(header.first(), Some(0x80 | b'(' | b'}' | b']' | b'c')) {
        scan_pickle(path, &head(path)?)?;
        return Err(Error::file(
            path,
            "a plain pickle, which cannot hold tensors; expected a file written by torch.save",
        ));
    }
    Err(Error::file(path, "not a checkpoint: neither a file written by torch.save nor safetensors"))
}

fn scan_pickle(path: &Path, bytes: &[u8]) -> Result<usize> {
    scan(bytes).map_err(|message| Error::file(path, message))
}

/// The first bytes of a file, up to the size limit of a pickle.
fn head(path: &Path) -> Result<Vec<u8>> {
    limits::take(limits::open(path)?, PICKLE.max).map_err(Error::io(path))
}

/// The `data.pkl` of a zip container. There must be exactly one: with several, the scan and the tensor reader might
/// take different ones.
fn zip_pickle(path: &Path) -> Result<Vec<u8>> {
    let damaged =
        |error: &dyn std::fmt::Display| Error::file(path, format!("damaged or truncated zip archive: {error}"));
    let mut archive = limits::open_zip(path, &TORCH_ENTRIES, |e| damaged(&e))?;
    let names = archive.file_names().collect::<zip::result::ZipResult<Vec<_>>>().map_err(|e| damaged(&e))?;
    let pickles: Vec<usize> =
        (0..names.len()).filter(|&i| names[i] == "data.pkl" || names[i].ends_with("/data.pkl")).collect();
    let [index] = pickles[..] else {
        return Err(Error::file(path, format!("not a checkpoint: a zip archive with {} data.pkl", pickles.len())));
    };
    // The checksum is left to the tensor reader: checking it here would refuse files saved with compute_crc32=False.
    let options = zip::ZipReadOptions::new().ignore_crc32(true);
    let entry = archive.by_index_with_options(index, options).map_err(|e| damaged(&e))?;
    let bytes = limits::take(entry, PICKLE.max).map_err(|e| damaged(&e))?;
    PICKLE.check(bytes.len() as u64).map_err(|why| Error::file(path, why))?;
    Ok(bytes)
}
