//! A directory of image files.
use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::sheet::is_sheet_name;
use super::{Classes, Dataset, Image, is_image_name};
use crate::error::{Error, Result, Shown};

/// PNG, JPEG and WebP files under a directory, ordered by the bytes of their relative paths.
///
/// Names that begin with a dot are skipped, and so is the contact sheet that `crossfade sample` leaves beside its numbered
/// images: it would be counted as one of them. Links to files are followed, links to directories are not, so there are no
/// loops.
pub struct Folder {
    root: PathBuf,
    files: Vec<PathBuf>,
    ignored: usize,
}

impl Folder {
    /// Lists the directory; an error if it has no images.
    pub fn open(root: &Path) -> Result<Self> {
        let mut set = Self { root: root.to_path_buf(), files: Vec::new(), ignored: 0 };
        let mut pending = vec![PathBuf::new()];
        while let Some(directory) = pending.pop() {
            set.list(&directory, &mut pending)?;
        }
        set.leave_out_sheets();
        if set.files.is_empty() {
            return Err(Error::file(root, "no PNG, JPEG or WebP files here or in directories below"));
        }
        // The order of a directory listing depends on the file system; the order of bytes does not depend on the
        // locale either.
        set.files.sort_by(|a, b| a.as_os_str().as_encoded_bytes().cmp(b.as_os_str().as_encoded_bytes()));
        Ok(set)
    }

    /// The files, relative to the directory.
    pub fn files(&self) -> &[PathBuf] {
        &self.files
    }

    /// Contact sheets are known by their name, in directories that also hold images named by numbers.
    fn leave_out_sheets(&mut self) {
        let is_numbered = |path: &&PathBuf| {
            let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
            stem.len() >= 6 && stem.bytes().all(|byte| byte.is_ascii_digit())
        };
        let parents: HashSet<_> = self.files.iter().filter(is_numbered).map(|path| path.parent()).collect();
        let is_sheet = |path: &PathBuf| {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            is_sheet_name(name) && parents.contains(&path.parent())
        };
        let kept: Vec<PathBuf> = self.files.iter().filter(|path| !is_sheet(path)).cloned().collect();
        self.ignored += self.files.len() - kept.len();
        self.files = kept;
    }

    fn list(&mut self, directory: &Path, pending: &mut Vec<PathBuf>) -> Result<()> {
        let full = self.root.join(directory);
        for entry in fs::read_dir(&full).map_err(Error::io(&full))? {
            let entry = entry.map_err(Error::io(&full))?;
            let path = directory.join(entry.file_name());
            let name = entry.file_name().to_string_lossy().into_owned();
            let kind = entry.file_type().map_err(Error::io(entry.path()))?;
            if name.starts_with('.') {
                self.ignored += 1;
            } else if kind.is_dir() {
                pending.push(path);
            } else if is_image_name(&name) && (kind.is_file() || kind.is_symlink() && !entry.path().is_dir()) {
                // A dangling link stays in the list, so that reading it fails with an error instead of silently
                // giving a smaller set.
                self.files.push(path);
            } else {
                self.ignored += 1;
            }
        }
        Ok(())
    }
}

impl Dataset for Folder {
    fn len(&self) -> usize {
        self.files.len()
    }

    fn get(&self, index: usize) -> Result<Image> {
        Image::read(&self.root.join(&self.files[index]))
    }

    fn name(&self, index: usize) -> String {
        self.files[index].shown()
    }

    /// The directories directly below the root, if every image is in one of them.
    fn classes(&self) -> Result<Option<Classes>> {
        // With `/` on every system, as in a zip.
        let parts = |path: &PathBuf| path.iter().map(|part| part.to_string_lossy()).collect::<Vec<_>>().join("/");
        let paths: Vec<String> = self.files.iter().map(parts).collect();
        Classes::of_directories(paths.iter().map(String::as_str), &self.root.shown())
    }

    fn describe(&self) -> String {
        let ignored = match self.ignored {
            0 => String::new(),
            n => format!(" ({n} other entries ignored)"),
        };
        format!("folder {}: {} images{ignored}", self.root.shown(), self.len())
    }
}
