//! Zips, whose directories are counted while they are read: the reader of zips keeps some hundred bytes of each entry before
//! anybody can ask it how many there are.
use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use zip::ZipArchive;
use zip::result::ZipError;

use super::{Limit, open};
use crate::error::{Error, Result};

/// The first bytes of an entry of the directory.
const ENTRY: u32 = u32::from_be_bytes(*b"PK\x01\x02");
/// The end of the directory is also read where its end is searched, so that some entries count twice.
const TWICE: u64 = 4096;
/// Nothing is counted any more.
const NO_LIMIT: u64 = u64::MAX;

/// An open zip.
pub type Archive = ZipArchive<BufReader<Counted>>;

/// A file in which entries of the directory of a zip are counted.
pub struct Counted {
    file: File,
    /// The last four bytes.
    last: u32,
    /// How many more may come.
    left: Arc<AtomicU64>,
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let n = self.file.read(buffer)?;
        let left = self.left.load(Ordering::Relaxed);
        if left == NO_LIMIT {
            return Ok(n);
        }
        let mut found = 0;
        for &byte in &buffer[..n] {
            self.last = self.last << 8 | u32::from(byte);
            found += u64::from(self.last == ENTRY);
        }
        self.left.store(left.saturating_sub(found), Ordering::Relaxed);
        if found > left { Err(std::io::Error::other("too many entries")) } else { Ok(n) }
    }
}

impl Seek for Counted {
    fn seek(&mut self, to: SeekFrom) -> std::io::Result<u64> {
        self.last = 0;
        self.file.seek(to)
    }
}

/// Opens a zip with at most `limit` entries; `problem` is told of one that cannot be read.
pub fn open_zip(path: &Path, limit: &Limit, problem: impl FnOnce(ZipError) -> Error) -> Result<Archive> {
    let left = Arc::new(AtomicU64::new(limit.max + TWICE));
    let file = Counted { file: open(path)?, last: 0, left: Arc::clone(&left) };
    let too_many = |why| Error::file(path, why);
    let archive = ZipArchive::new(BufReader::new(file)).map_err(|e| match left.load(Ordering::Relaxed) {
        0 => too_many(limit.reason("the number of its entries")),
        _ => problem(e),
    })?;
    limit.check(archive.len() as u64).map_err(too_many)?;
    left.store(NO_LIMIT, Ordering::Relaxed);
    Ok(archive)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::limits::Unit;
    use std::io::Write;

    #[test]
    fn entries_are_counted_before_they_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.zip");
        let mut zip = zip::ZipWriter::new(File::create(&path).unwrap());
        for k in 0..6000 {
            zip.start_file(format!("{k}"), zip::write::SimpleFileOptions::default()).unwrap();
            zip.write_all(b"PK\x01\x02 is no entry here").unwrap();
        }
        zip.finish().unwrap();
        let opened = |max| open_zip(&path, &Limit { name: "a test", max, unit: Unit::Count }, |e| panic!("{e}"));
        let mut archive = opened(6000).unwrap();
        let mut text = String::new();
        archive.by_index(5999).unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(text, "PK\x01\x02 is no entry here");
        // Above the limit by little, and by so much that the directory is not read to its end.
        for max in [5999, 1000] {
            let message = opened(max).err().unwrap().to_string();
            assert!(message.contains("a.zip") && message.contains(&format!("the limit of {max}")), "{message}");
        }
    }
}
