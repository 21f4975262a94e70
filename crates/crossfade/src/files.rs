//! Writing of files that is atomic and durable, folders that do not stay behind empty, and locks on the folders of runs.
mod lock;

use std::borrow::Cow;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::hash::{BuildHasher, DefaultHasher, Hash, Hasher, RandomState};
use std::io::{BufWriter, ErrorKind, Write};
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crate::error::{Error, Result, Shown};

pub use lock::FolderLock;

/// Writes `bytes` to `path` atomically.
pub fn write_atomic(path: impl AsRef<Path>, bytes: &[u8]) -> Result<()> {
    write_whole(path.as_ref(), |file| file.write_all(bytes))
}

/// Lets `write` fill the file `path` atomically: a reader sees the old file or the complete new one, even after a crash or a
/// power failure. The data goes to a temporary file in the same directory, is flushed to the disk and then renamed, and the
/// directory is flushed too; on failure the temporary file is removed.
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

/// Files that are flushed at the same time.
const FLUSHES: usize = 8;

/// Writes several files, each as [`write_atomic`] does. They are flushed at the same time: the file system then needs one
/// transaction for all that wait, where one file after the other takes some milliseconds for each.
pub fn write_all(files: &[(PathBuf, Vec<u8>)]) -> Result<()> {
    let next = AtomicUsize::new(0);
    let work = || -> Result<()> {
        while let Some((path, bytes)) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
            write_atomic(path, bytes)?;
        }
        Ok(())
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..FLUSHES.min(files.len())).map(|_| scope.spawn(work)).collect();
        let ends = threads.into_iter().map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic)));
        // All of them have ended before the first error is returned, so that none writes afterwards.
        ends.collect::<Vec<_>>().into_iter().collect()
    })
}

/// Processes that may write the same file at a time and whose temporary files are still recognised when they were killed.
const WRITERS: u32 = 8;

/// A new temporary file in the directory of `path`, locked.
///
/// Its name is a function of that of the file, so that what a killed run has left is removed by the next one that writes the
/// same file; and it is short, so that every name that the file system takes can be written. Only a file that another process
/// is writing at this moment, which holds its lock, gets a further one, with a number.
fn temporary(path: &Path) -> Result<(PathBuf, File)> {
    let name = path.file_name().ok_or_else(|| Error::request(format!("{} is not a file name", path.shown())))?;
    let mut hasher = DefaultHasher::new();
    name.as_encoded_bytes().hash(&mut hasher);
    let first = format!(".crossfade-{:016x}", hasher.finish());
    let place = |n: u32| path.with_file_name(if n == 0 { format!("{first}.tmp") } else { format!("{first}-{n}.tmp") });
    for n in 0..WRITERS {
        if let Some(file) = claimed(&place(n)).map_err(Error::io(path))? {
            // Others that wrote at the same time may have been killed; usually there were none.
            (n + 1..WRITERS).map(place).take_while(|next| next.exists()).for_each(|next| {
                if let Some(_locked) = left(&next) {
                    let _ = fs::remove_file(next);
                }
            });
            return Ok((place(n), file));
        }
    }
    // A process id is not enough: containers that share a directory may run processes with the same id.
    let random = path.with_file_name(format!("{first}-{:016x}.tmp", RandomState::new().hash_one(std::process::id())));
    let file = OpenOptions::new().write(true).create_new(true).open(&random).map_err(Error::io(path))?;
    Ok((random, file))
}

/// The file `path`, empty and locked: a new one, or what a killed process has left. None if another process is writing it.
fn claimed(path: &Path) -> std::io::Result<Option<File>> {
    match OpenOptions::new().write(true).create_new(true).open(path) {
        Ok(file) => match file.try_lock() {
            Ok(()) => Ok(is_at(&file, path).then_some(file)),
            // File systems without locks can still be written to; only what was left there is not recognised.
            Err(TryLockError::Error(_)) => Ok(Some(file)),
            Err(TryLockError::WouldBlock) => Ok(None),
        },
        Err(e) if e.kind() == ErrorKind::AlreadyExists => Ok(left(path).filter(|file| file.set_len(0).is_ok())),
        Err(e) => Err(e),
    }
}

/// The file `path` that a killed process has left, locked. None if its writer lives.
fn left(path: &Path) -> Option<File> {
    // A pipe of this name is not ours, and opening it would wait for a reader.
    if !fs::symlink_metadata(path).is_ok_and(|found| found.is_file()) {
        return None;
    }
    let file = OpenOptions::new().write(true).open(path).ok()?;
    file.try_lock().ok()?;
    // Its writer may have ended and renamed it before it was locked here: then it is a result, not a temporary file.
    is_at(&file, path).then_some(file)
}

/// Writes a new file and flushes it to the disk, so that the rename never exposes an empty file after a power
/// failure.
fn write_synced(file: &File, write: impl FnOnce(&mut BufWriter<File>) -> std::io::Result<()>) -> std::io::Result<()> {
    // Callers write small pieces, such as single rows of an image.
    let mut file = BufWriter::with_capacity(1 << 20, file.try_clone()?);
    write(&mut file)?;
    file.into_inner()?.sync_all()
}

/// Makes the name of `path` durable, which is an entry of its directory; only Unix can open a directory for that.
fn sync_directory(path: &Path) -> Result<()> {
    if cfg!(unix) {
        let directory = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(directory).and_then(|d| d.sync_all()).map_err(Error::io(path))?;
    }
    Ok(())
}

/// Creates the directory `path` and those above it that do not exist, durably.
pub fn create_directories(path: &Path) -> Result<()> {
    let missing = missing(path);
    fs::create_dir_all(path).map_err(Error::io(path))?;
    missing.iter().try_for_each(|created| sync_directory(created))
}

/// The directories of `path` that do not exist, outermost first.
fn missing(path: &Path) -> Vec<PathBuf> {
    let missing = |folder: &&Path| !folder.as_os_str().is_empty() && !folder.exists();
    let mut missing: Vec<PathBuf> = path.ancestors().take_while(missing).map(Path::to_path_buf).collect();
    missing.reverse();
    missing
}

/// Whether files can be created in a directory, which may belong to somebody else.
pub(crate) fn is_writable(directory: &Path) -> bool {
    temporary(&directory.join("probe")).is_ok_and(|(path, _file)| fs::remove_file(path).is_ok())
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
        // Noted before they are created, so that what a failure in the middle leaves is removed too.
        self.0.extend(missing(path));
        create_directories(path)
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

    #[test]
    fn several_files_are_written_and_the_first_problem_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let file = |k: usize| (dir.path().join(format!("{k:02}")), vec![k as u8; k]);
        let files: Vec<_> = (0..30).map(file).collect();
        write_all(&files).unwrap();
        assert!(files.iter().all(|(path, bytes)| fs::read(path).unwrap() == *bytes));
        assert_eq!(names(dir.path()).len(), 30, "nothing hidden is left");
        let absent = dir.path().join("absent/file");
        assert!(write_all(&[file(1), (absent, vec![])]).unwrap_err().to_string().contains("absent"));
        write_all(&[]).unwrap();
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

    /// Writers of the same file at the same time have temporary files of their own; those of killed ones are removed by the next.
    #[test]
    fn temporary_files_of_several_killed_writers_are_removed_by_the_next_write() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.png");
        let killed = [(); 3].map(|()| temporary(&path).unwrap());
        assert_eq!(names(dir.path()).len(), 3);
        drop(killed);
        write_atomic(&path, b"a").unwrap();
        assert_eq!(names(dir.path()), ["a.png"]);
        // More than are counted still find a name.
        let many = [(); WRITERS as usize + 2].map(|()| temporary(&path).unwrap());
        assert_eq!(names(dir.path()).len(), many.len() + 1);
        assert!(is_writable(dir.path()) && !is_writable(&dir.path().join("absent")));
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
}
