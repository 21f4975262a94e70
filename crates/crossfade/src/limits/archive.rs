//! Zips, whose directories are counted while they are read: the reader of zips keeps some hundred bytes of each entry before
//! anybody can ask it how many there are.
use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use zip::ZipArchive;
use zip::result::ZipError;

use super::{Limit, open};
use crate::error::{Error, Result};

/// The first bytes of an entry of the directory.
const ENTRY: &[u8] = b"PK\x01\x02";
/// The first bytes of the record that tells the number of entries with 64 bits.
const RECORD: &[u8] = b"PK\x06\x06";
/// The bytes of that record up to the number, which are fewer than those of an entry: after the first four its size (8), two
/// versions (2 each), the number of this disk and of that of the directory (4 each), the number of entries on this disk (8) and
/// on all (8).
const RECORD_BYTES: usize = 40;
/// The end of the directory is also read where its end is searched.
const SEARCHED: u64 = 4096;
/// Nothing is counted any more.
const NO_LIMIT: u64 = u64::MAX;

/// An open zip.
pub type Archive = ZipArchive<BufReader<Counted>>;

/// A file in which entries of the directory of a zip are counted.
pub struct Counted {
    file: File,
    /// The last bytes, too few for a record.
    last: Vec<u8>,
    limit: Limit,
    count: Arc<Count>,
}

/// What a file shares with those who opened it.
struct Count {
    /// How many more entries may be read.
    left: AtomicU64,
    /// The reason why no more is read.
    refused: OnceLock<String>,
}

impl Counted {
    /// Nothing more is read.
    fn refuse<T>(&self, why: String) -> std::io::Result<T> {
        Err(std::io::Error::other(self.count.refused.get_or_init(|| why).clone()))
    }
}

/// The number of entries that a record declares, for which the reader of zips makes room. Records that it does not accept, because
/// there is more than one disk, are what else the file contains: numbers, for example.
fn declared(bytes: &[u8]) -> Option<u64> {
    let number = |at: usize| Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
    let is_record = bytes.starts_with(RECORD) && bytes.get(16..20)? == [0; 4] && number(24)? == number(32)?;
    is_record.then(|| number(32)).flatten()
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let n = self.file.read(buffer)?;
        let left = self.count.left.load(Ordering::Relaxed);
        if left == NO_LIMIT {
            return Ok(n);
        }
        self.last.extend(&buffer[..n]);
        let mut found = 0;
        for bytes in self.last.windows(RECORD_BYTES) {
            if bytes.starts_with(ENTRY) {
                found += 1;
            } else if declared(bytes).is_some_and(|number| number > self.limit.max) {
                return self.refuse(self.limit.reason("the number of its entries"));
            }
        }
        let kept = self.last.len().saturating_sub(RECORD_BYTES - 1);
        self.last.drain(..kept);
        self.count.left.store(left.saturating_sub(found), Ordering::Relaxed);
        if found > left { self.refuse(self.limit.reason("the number of its entries")) } else { Ok(n) }
    }
}

impl Seek for Counted {
    fn seek(&mut self, to: SeekFrom) -> std::io::Result<u64> {
        self.last.clear();
        self.file.seek(to)
    }
}

/// Opens a zip with at most `limit` entries; `problem` is told of one that cannot be read.
pub fn open_zip(path: &Path, limit: &Limit, problem: impl FnOnce(ZipError) -> Error) -> Result<Archive> {
    let file = open(path)?;
    // A directory is searched for its first entry before it is read.
    let left = AtomicU64::new(limit.max.saturating_mul(2).saturating_add(SEARCHED).min(NO_LIMIT - 1));
    let count = Arc::new(Count { left, refused: OnceLock::new() });
    let file = Counted { file, last: vec![], limit: *limit, count: Arc::clone(&count) };
    let too_many = |why| Error::file(path, why);
    let archive = ZipArchive::new(BufReader::new(file)).map_err(|e| match count.refused.get() {
        Some(why) => too_many(why.clone()),
        None => problem(e),
    })?;
    limit.check(archive.len() as u64).map_err(too_many)?;
    count.left.store(NO_LIMIT, Ordering::Relaxed);
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
        // The same where the number is said with 64 bits, and where it is not true: whoever believed it would make room for that
        // many.
        let bytes = std::fs::read(&path).unwrap();
        let (rest, end) = bytes.split_at(bytes.len() - 22);
        let stated = |number: u64| {
            let (size, start) = (&end[12..16], &end[16..20]);
            let record = [
                &b"PK\x06\x06\x2c\0\0\0\0\0\0\0\x2d\0\x2d\0\0\0\0\0\0\0\0\0"[..],
                &[number.to_le_bytes(); 2].concat(),
                &[size, &[0; 4], start, &[0; 4]].concat(),
            ];
            let locator = [b"PK\x06\x07\0\0\0\0".as_slice(), &(rest.len() as u64).to_le_bytes(), &[1, 0, 0, 0]];
            let last = [&end[..8], &[0xff; 12], &end[20..]].concat();
            std::fs::write(&path, [rest, &record.concat(), &locator.concat(), &last].concat()).unwrap();
        };
        stated(6000);
        assert_eq!(opened(6000).unwrap().len(), 6000);
        for (number, max, problem) in [
            (5000, 2000, "the number of its entries is more than the limit of 2000"),
            (1 << 40, 1 << 50, "b.zip: "),
            (u64::MAX, 6000, "the number of its entries is more than the limit of 6000"),
        ] {
            stated(number);
            let limit = Limit { name: "a test", max, unit: Unit::Count };
            let message = open_zip(&path, &limit, |e| Error::file("b.zip", e.to_string())).err().unwrap().to_string();
            assert!(message.contains(problem), "{message}");
        }
        // What looks like such a record is part of an entry here.
        let mut zip = zip::ZipWriter::new(File::create(&path).unwrap());
        let stored = zip::write::SimpleFileOptions::default().compression_method(zip::CompressionMethod::Stored);
        zip.start_file("numbers", stored).unwrap();
        zip.write_all(&[b"PK\x06\x06".as_slice(), &[0xc0; 60]].concat()).unwrap();
        zip.finish().unwrap();
        assert_eq!(opened(6000).unwrap().len(), 1);
        std::fs::write(&path, bytes).unwrap();
        // Above the limit by little, and by so much that the directory is not read to its end.
        for max in [5999, 1000] {
            let message = opened(max).err().unwrap().to_string();
            assert!(message.contains("a.zip") && message.contains(&format!("the limit of {max}")), "{message}");
        }
    }
}
