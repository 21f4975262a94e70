//! Two directories with files of the same names.
use std::collections::HashMap;
use std::path::{Path, PathBuf};

use super::super::folder::Folder;
use super::matched;
use crate::error::{Error, Result, Shown};

/// Pairs every image with the map of the same name; maps without an image are ignored.
pub fn list(images: &Path, labels: &Path) -> Result<Vec<(PathBuf, PathBuf)>> {
    let maps = Folder::open(labels)?;
    let mut by_name = HashMap::new();
    for path in maps.files() {
        // Compared without extension, because images are often JPEG and maps PNG.
        if let Some(other) = by_name.insert(path.with_extension(""), path) {
            let problem = format!("has the same name as {}; which map is meant?", other.shown());
            return Err(Error::file(labels.join(path), problem));
        }
    }
    matched(images, |path| by_name.get(&path.with_extension("")).map(|map| labels.join(map)))
}
