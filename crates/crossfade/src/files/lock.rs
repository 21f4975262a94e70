//! Locks on the folders of runs.
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::Write;
use std::path::{Path, PathBuf};

use super::{Folder, is_at};
use crate::error::{Error, Result, Shown, visible};
use crate::limits::take;

/// Keeps other processes from writing to the folder of a run while this exists. The system releases the lock when the process
/// ends, however it ends, so none is ever stale; what a killed process leaves is a file without a lock.
#[must_use = "the lock is released when this is dropped"]
#[derive(Debug)]
pub struct FolderLock {
    path: PathBuf,
    /// The open file is the lock.
    file: File,
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
            let file = options.map_err(Error::io(&path))?;
            match file.try_lock() {
                // The owner before may have removed the file after it was opened here: a lock on it keeps nobody away.
                Ok(()) if !is_at(&file, &path) => (),
                Ok(()) => {
                    let owner = format!("process {} on {}\n", std::process::id(), host());
                    // The lock exists from here on, so that an error removes its file.
                    let mut lock = Self { path, file, _folder: created };
                    let written = lock.file.set_len(0).and_then(|()| lock.file.write_all(owner.as_bytes()));
                    written.map_err(Error::io(&lock.path))?;
                    return Ok(lock);
                }
                Err(TryLockError::WouldBlock) => {
                    let owner = take(&file, 200).map_err(Error::io(&path))?;
                    let owner = String::from_utf8_lossy(&owner).trim().to_owned();
                    let owner = if owner.is_empty() { "another process" } else { &visible(&owner) };
                    let problem = format!("is in use by {owner}; wait until it has ended or choose another directory");
                    return Err(Error::request(format!("{} {problem}", folder.shown())));
                }
                // File systems without locks can still be trained on.
                Err(TryLockError::Error(_)) => return Ok(Self { path, file, _folder: created }),
            }
        }
    }
}

impl FolderLock {
    /// Removes the file that a killed process has left in the folder of a finished run, which nobody locks again. A lock that
    /// somebody holds stays.
    pub(crate) fn remove_left(folder: &Path) {
        if folder.join(".lock").exists() {
            let _ = Self::take(folder);
        }
    }
}

impl Drop for FolderLock {
    fn drop(&mut self) {
        // Before the lock is released, so that nobody else's file is removed.
        let _ = fs::remove_file(&self.path);
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
        assert_eq!(fs::read_dir(&run).unwrap().count(), 0);
        let held = FolderLock::take(&run).unwrap();
        FolderLock::remove_left(&run);
        assert!(run.join(".lock").exists(), "somebody holds it");
        drop(held);
        fs::write(run.join(".lock"), "process 1 on elsewhere\n").unwrap();
        FolderLock::remove_left(&run);
        assert_eq!(fs::read_dir(&run).unwrap().count(), 0);
    }
}
