//! Atomic writing of files, and reading with a size limit.
use std::borrow::Cow;
use std::fs::{self, File, OpenOptions};
use std::hash::{BuildHasher, RandomState};
use std::io::{BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::{Error, Result};

/// Writes `bytes` to `path` atomically.
pub fn write_atomic(path: impl AsRef<Path>, bytes: &[u8]) -> Result<()> {
    write_whole(path.as_ref(), |file| file.write_all(bytes))
}

/// Lets `write` fill the file `path` atomically: a reader sees the old file or the complete new one, even after a
/// crash. The data goes to a temporary file in the same directory, is flushed to the disk and then renamed; on
/// failure the temporary file is removed.
pub(crate) fn write_whole(path: &Path, write: impl FnOnce(&mut BufWriter<File>) -> std::io::Result<()>) -> Result<()> {
    let temporary = temporary_name(path)?;
    let written = write_synced(&temporary, write).and_then(|()| fs::rename(&temporary, path));
    if let Err(source) = written {
        // The first error is the one to report; the temporary file may not even have been created.
        let _ = fs::remove_file(&temporary);
        return Err(Error::io(path)(source));
    }
    sync_directory(path)
}

/// A name for a temporary file in the directory of `path`, unique among processes and threads.
fn temporary_name(path: &Path) -> Result<PathBuf> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let name = path.file_name().ok_or_else(|| Error::request(format!("{} is not a file name", path.display())))?;
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    // A process id is not enough: containers that share a directory may run processes with the same id.
    let random = RandomState::new().hash_one(std::process::id());
    let temporary = format!(".{}.{random:016x}.{count}.tmp", name.to_string_lossy());
    Ok(path.with_file_name(temporary))
}

/// Writes a new file and flushes it to the disk, so that the rename never exposes an empty file after a power
/// failure.
fn write_synced(path: &Path, write: impl FnOnce(&mut BufWriter<File>) -> std::io::Result<()>) -> std::io::Result<()> {
    let file = OpenOptions::new().write(true).create_new(true).open(path)?;
    // Callers write small pieces, such as single rows of an image.
    let mut file = BufWriter::with_capacity(1 << 20, file);
    write(&mut file)?;
    file.into_inner()?.sync_all()
}

/// Makes the rename itself durable; only Unix can open a directory for that.
fn sync_directory(path: &Path) -> Result<()> {
    if cfg!(unix) {
        let directory = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(directory).and_then(|d| d.sync_all()).map_err(Error::io(directory))?;
    }
    Ok(())
}

/// A field of a CSV file, quoted if necessary (RFC 4180).
pub(crate) fn csv_field(text: &str) -> Cow<'_, str> {
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\"")).into()
    } else {
        text.into()
    }
}

/// Reads a complete file of at most `limit` bytes.
pub(crate) fn read_limited(path: &Path, limit: u64) -> Result<Vec<u8>> {
    let file = File::open(path).map_err(Error::io(path))?;
    let length = file.metadata().map_err(Error::io(path))?.len();
    let too_large = || Error::file(path, format!("larger than the limit of {} MiB", limit >> 20));
    if length > limit {
        return Err(too_large());
    }
    let mut bytes = Vec::with_capacity(length as usize);
    // The file may have grown since its length was read, so the limit is enforced while reading too.
    file.take(limit + 1).read_to_end(&mut bytes).map_err(Error::io(path))?;
    if bytes.len() as u64 > limit { Err(too_large()) } else { Ok(bytes) }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_write_leaves_nothing_and_a_good_one_replaces() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.bin");
        write_atomic(&path, b"old").unwrap();
        write_atomic(&path, b"new").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");

        // A directory with something in it cannot be replaced by a file.
        let occupied = dir.path().join("occupied");
        fs::create_dir(&occupied).unwrap();
        fs::write(occupied.join("x"), b"x").unwrap();
        assert!(write_atomic(&occupied, b"bytes").is_err());
        assert!(write_atomic(dir.path().join("absent/file"), b"bytes").is_err());
        let mut names: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["a.bin", "occupied"]);
    }

    #[test]
    fn reading_stops_at_the_limit() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.bin");
        fs::write(&path, [7; 100]).unwrap();
        assert_eq!(read_limited(&path, 100).unwrap().len(), 100);
        assert!(read_limited(&path, 99).unwrap_err().to_string().contains("a.bin"));
    }
}
