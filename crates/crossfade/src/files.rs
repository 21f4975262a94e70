//! Atomic writing of files, folders that do not stay behind empty, and locks on the folders of runs.
use std::borrow::Cow;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::hash::{BuildHasher, DefaultHasher, Hash, Hasher, RandomState};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::{Error, Result, Shown, visible};
use crate::limits::take;

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
    let name = path.file_name().ok_or_else(|| Error::request(format!("{} is not a file name", path.shown())))?;
    let mut hasher = DefaultHasher::new();
    name.as_encoded_bytes().hash(&mut hasher);
    let owned = path.with_file_name(format!(".crossfade-{:016x}.tmp", hasher.finish()));
    if let Some(file) = claimed(&owned) {
        return Ok((owned, file));
    }
    // A process id is not enough: containers that share a directory may run processes with the same id.
    let random = RandomState::new().hash_one(COUNT.fetch_add(1, Ordering::Relaxed));
    let second = path.with_file_name(format!(".crossfade-{:016x}-{random:016x}.tmp", hasher.finish()));
    let file = OpenOptions::new().write(true).create_new(true).open(&second).map_err(Error::io(path))?;
    Ok((second, file))
}

/// The file `path`, empty and locked: a new one, or what a killed process has left. None if another process is writing it.
fn claimed(path: &Path) -> Option<File> {
    match OpenOptions::new().write(true).create_new(true).open(path) {
        Ok(file) => match file.try_lock() {
            Ok(()) => is_at(&file, path).then_some(file),
            // File systems without locks can still be written to; only what was left there is not recognised.
            Err(TryLockError::Error(_)) => Some(file),
            Err(TryLockError::WouldBlock) => None,
        },
        // A pipe of this name is not ours, and opening it would wait for a reader.
        Err(_) if !fs::symlink_metadata(path).is_ok_and(|found| found.is_file()) => None,
        Err(_) => {
            let file = OpenOptions::new().write(true).open(path).ok()?;
            file.try_lock().ok()?;
            // Its writer may have ended and renamed it before it was locked here: then it is a result, not a temporary file.
            (is_at(&file, path) && file.set_len(0).is_ok()).then_some(file)
        }
    }
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
#[derive(Debug)]
pub struct Folder(Vec<PathBuf>);

impl Folder {
    /// Creates `path` and the folders above it, where they do not exist.
    pub fn create(path: &Path) -> Result<Self> {
        let mut created = Self(vec![]);
        created.add(path)?;
        Ok(created)
    }

    /// The folders of files that are about to be written.
    pub fn of<'a>(files: impl IntoIterator<Item = &'a Path>) -> Result<Self> {
        let mut created = Self(vec![]);
        let folders = files.into_iter().filter_map(Path::parent).filter(|folder| !folder.as_os_str().is_empty());
        for folder in folders {
            created.add(folder)?;
        }
        Ok(created)
    }

    fn add(&mut self, path: &Path) -> Result<()> {
        let missing = |folder: &&Path| !folder.as_os_str().is_empty() && !folder.exists();
        let mut missing: Vec<PathBuf> = path.ancestors().take_while(missing).map(Path::to_path_buf).collect();
        missing.reverse();
        // Noted before they are created, so that what a failure in the middle leaves is removed too.
        self.0.extend(missing);
        fs::create_dir_all(path).map_err(Error::io(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // Innermost first. Removing fails where something was written, which is the usual case.
        self.0.iter().rev().for_each(|folder| {
            let _ = fs::remove_dir(folder);
        });
    }
}

/// Keeps other processes from writing to the folder of a run while this exists. The system releases the lock when the process
/// ends, however it ends, so none is ever stale; what a killed process leaves is a file without a lock.
#[must_use = "the lock is released when this is dropped"]
#[derive(Debug)]
pub struct FolderLock {
    path: PathBuf,
    /// The open file is the lock.
    _file: File,
    /// Dropped last: the folder is removed if it was created for this and nothing else was written into it.
    _folder: Folder,
}

impl FolderLock {
    /// Locks `folder`, which is created if it does not exist, by the file `.lock` in it, which tells the process and the host;
    /// an error if it is locked already.
    pub fn take(folder: &Path) -> Result<Self> {
        let path = folder.join(".lock");
        loop {
            let created = Folder::create(folder)?;
            let options = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
            let mut file = options.map_err(Error::io(&path))?;
            match file.try_lock() {
                // The owner before may have removed the file after it was opened here: a lock on it keeps nobody away.
                Ok(()) if !is_at(&file, &path) => (),
                Ok(()) => {
                    let owner = format!("process {} on {}\n", std::process::id(), host());
                    file.set_len(0).and_then(|()| file.write_all(owner.as_bytes())).map_err(Error::io(&path))?;
                    return Ok(Self { path, _file: file, _folder: created });
                }
                Err(TryLockError::WouldBlock) => {
                    let owner = take(&file, 200).map_err(Error::io(&path))?;
                    let owner = String::from_utf8_lossy(&owner).trim().to_owned();
                    let owner = if owner.is_empty() { "another process" } else { &visible(&owner) };
                    let problem = format!("is in use by {owner}; wait until it has ended or choose another directory");
                    return Err(Error::request(format!("{} {problem}", folder.shown())));
                }
                // File systems without locks can still be trained on.
                Err(TryLockError::Error(_)) => return Ok(Self { path, _file: file, _folder: created }),
            }
        }
    }
}

impl Drop for FolderLock {
    fn drop(&mut self) {
        // Before the lock is released, so that nobody else's file is removed.
        let _ = fs::remove_file(&self.path);
    }
}

/// Whether `path` is still this file.
fn is_at(file: &File, path: &Path) -> bool {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        let id = |data: &fs::Metadata| (data.dev(), data.ino());
        matches!((&file.metadata(), &fs::metadata(path)), (Ok(a), Ok(b)) if id(a) == id(b))
    }
    #[cfg(not(unix))]
    {
        let _ = file;
        path.exists()
    }
}

/// The name of this machine, as far as the system tells it.
fn host() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    if name.trim().is_empty() { "this machine".into() } else { name.trim().to_owned() }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn names(dir: &Path) -> Vec<String> {
        let mut names: Vec<_> =
            fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

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
        assert_eq!(names(dir.path()), ["a.bin", "occupied"]);
    }

    /// D11: what a killed process has left is removed by the next one that writes the same file, and nothing else is.
    #[test]
    fn a_temporary_file_of_a_killed_run_is_removed_by_the_next_write_of_the_same_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.png");
        let (left, file) = temporary(&path).unwrap();
        drop(file);
        assert!(left.exists());
        write_atomic(dir.path().join("b.png"), b"b").unwrap();
        assert!(left.exists(), "another file does not own it");
        write_atomic(&path, b"a").unwrap();
        assert_eq!(names(dir.path()), ["a.png", "b.png"]);
        // One that is being written at this moment is left alone, and both writes end well.
        let (busy, _file) = temporary(&path).unwrap();
        write_atomic(&path, b"again").unwrap();
        assert!(busy.exists());
        assert_eq!(fs::read(&path).unwrap(), b"again");
    }

    /// D16: the temporary name is not longer than the longest names that the file system takes.
    #[test]
    fn the_longest_names_can_be_written() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(format!("{}.png", "n".repeat(251)));
        write_atomic(&path, b"x").unwrap();
        assert_eq!(fs::read(path).unwrap(), b"x");
    }

    /// D15.
    #[test]
    fn folders_that_stay_empty_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        drop(Folder::of([at("a/b/1.png"), at("a/c/2.png"), at("d/3.png")].iter().map(PathBuf::as_path)).unwrap());
        assert_eq!(names(dir.path()), [""; 0]);
        let folder = Folder::of([at("a/b/1.png"), at("a/c/2.png")].iter().map(PathBuf::as_path)).unwrap();
        write_atomic(at("a/c/2.png"), b"x").unwrap();
        drop(folder);
        assert_eq!(names(&at("a")), ["c"], "what holds something stays");
        fs::create_dir(at("own")).unwrap();
        drop(Folder::create(&at("own")).unwrap());
        assert!(at("own").exists(), "a folder of the user stays");
    }

    /// D5.
    #[test]
    fn a_folder_is_locked_once_and_a_lock_without_an_owner_does_not_count() {
        let dir = tempfile::tempdir().unwrap();
        let run = dir.path().join("run");
        let lock = FolderLock::take(&run).unwrap();
        let message = FolderLock::take(&run).unwrap_err().to_string();
        assert!(message.contains(&format!("process {} on", std::process::id())), "{message}");
        drop(lock);
        assert!(!run.exists(), "a lock alone leaves nothing");
        // A killed process leaves the file, but not the lock.
        fs::create_dir(&run).unwrap();
        fs::write(run.join(".lock"), "process 1 on elsewhere\n").unwrap();
        drop(FolderLock::take(&run).unwrap());
        assert_eq!(names(&run), [""; 0]);
    }
}
