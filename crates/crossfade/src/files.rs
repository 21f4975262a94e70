//! Atomic writing of files, folders that do not stay behind empty, and locks on the folders of runs.
use std::borrow::Cow;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::hash::{BuildHasher, DefaultHasher, Hash, Hasher, RandomState};
use std::io::{BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::{Error, Result, visible};

/// Writes `bytes` to `path` atomically.
pub fn write_atomic(path: impl AsRef<Path>, bytes: &[u8]) -> Result<()> {
    write_whole(path.as_ref(), |file| file.write_all(bytes))
}

/// Lets `write` fill the file `path` atomically: a reader sees the old file or the complete new one, even after a
/// crash. The data goes to a temporary file in the same directory, is flushed to the disk and then renamed; on
/// failure the temporary file is removed.
pub(crate) fn write_whole(path: &Path, write: impl FnOnce(&mut BufWriter<File>) -> std::io::Result<()>) -> Result<()> {
    let (temporary, file) = temporary(path)?;
    let written = write_synced(&file, write).and_then(|()| fs::rename(&temporary, path));
    if let Err(source) = written {
        // The first error is the one to report.
        let _ = fs::remove_file(&temporary);
        return Err(Error::io(path)(source));
    }
    sync_directory(path)
}

/// A new temporary file in the directory of `path`, locked.
///
/// Its name is a function of that of the file, so that what a killed run has left is removed by the next one that writes the
/// same file; and it is short, so that every name that the file system takes can be written. Only a file that another process
/// is writing at this moment, which holds its lock, gets a second one.
fn temporary(path: &Path) -> Result<(PathBuf, File)> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let name = path.file_name().ok_or_else(|| Error::request(format!("{} is not a file name", path.display())))?;
    let mut hasher = DefaultHasher::new();
    name.as_encoded_bytes().hash(&mut hasher);
    let owned = path.with_file_name(format!(".crossfade-{:016x}.tmp", hasher.finish()));
    let create = |path: &Path| OpenOptions::new().write(true).create_new(true).open(path);
    let is_left = |path: &Path| OpenOptions::new().write(true).open(path).is_ok_and(|old| old.try_lock().is_ok());
    let created = match create(&owned) {
        Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists && is_left(&owned) => {
            fs::remove_file(&owned).and_then(|()| create(&owned))
        }
        other => other,
    };
    let (temporary, file) = match created {
        Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {
            // A process id is not enough: containers that share a directory may run processes with the same id.
            let random = RandomState::new().hash_one(COUNT.fetch_add(1, Ordering::Relaxed));
            let second = path.with_file_name(format!(".crossfade-{:016x}-{random:016x}.tmp", hasher.finish()));
            let file = create(&second).map_err(Error::io(path))?;
            (second, file)
        }
        other => (owned, other.map_err(Error::io(path))?),
    };
    // File systems without locks can still be written to; only what was left there is not recognised.
    let _ = file.try_lock();
    Ok((temporary, file))
}

/// Writes a new file and flushes it to the disk, so that the rename never exposes an empty file after a power
/// failure.
fn write_synced(file: &File, write: impl FnOnce(&mut BufWriter<File>) -> std::io::Result<()>) -> std::io::Result<()> {
    // Callers write small pieces, such as single rows of an image.
    let mut file = BufWriter::with_capacity(1 << 20, file.try_clone()?);
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

/// A folder for results. When this is dropped, the folders that were created for it are removed again if they are still
/// empty, so that a failed command leaves nothing behind.
#[must_use = "an empty folder is removed when this is dropped"]
pub struct Folder(Vec<PathBuf>);

impl Folder {
    /// Creates `path` and the folders above it, where they do not exist.
    pub fn create(path: &Path) -> Result<Self> {
        let missing = |folder: &&Path| !folder.as_os_str().is_empty() && !folder.exists();
        let created = Self(path.ancestors().take_while(missing).map(Path::to_path_buf).collect());
        fs::create_dir_all(path).map_err(Error::io(path))?;
        Ok(created)
    }

    /// The folder of a file that is about to be written.
    pub fn of(file: &Path) -> Result<Self> {
        let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
        folder.map_or(Ok(Self(vec![])), Self::create)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // Innermost first. Removing fails where something was written, which is the usual case.
        let _ = self.0.iter().try_for_each(fs::remove_dir);
    }
}

/// Keeps other processes from writing to the folder of a run while this exists. The system releases the lock when the process
/// ends, however it ends, so none is ever stale.
#[must_use = "the lock is released when this is dropped"]
pub struct FolderLock(#[allow(dead_code, reason = "the open file is the lock")] File);

impl FolderLock {
    /// Locks `folder` by the file `.lock` in it, which tells the process and the host; an error if it is locked already.
    pub fn take(folder: &Path) -> Result<Self> {
        let path = folder.join(".lock");
        let options = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
        let mut file = options.map_err(Error::io(&path))?;
        match file.try_lock() {
            Ok(()) => {
                let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
                let owner = format!("process {} on {}\n", std::process::id(), host.trim());
                file.set_len(0).and_then(|()| file.write_all(owner.as_bytes())).map_err(Error::io(&path))?;
                Ok(Self(file))
            }
            Err(TryLockError::WouldBlock) => {
                let mut owner = String::new();
                let _ = (&mut file).take(200).read_to_string(&mut owner);
                let owner = visible(owner.trim()).into_owned();
                let problem = format!("is in use by {owner}; wait until it has ended or choose another directory");
                Err(Error::request(format!("{} {problem}", folder.display())))
            }
            // File systems without locks can still be trained on.
            Err(TryLockError::Error(_)) => Ok(Self(file)),
        }
    }
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
}
