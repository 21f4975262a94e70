//! Two directories with files of the same names.
use std::collections::HashMap;
use std::path::{Path, PathBuf};

use super::super::folder::Folder;
use super::matched;
use crate::error::Result;

/// Every image with the map of its name; maps without an image are left out.
pub fn list(images: &Path, labels: &Path) -> Result<Vec<(PathBuf, PathBuf)>> {
    let maps = Folder::open(labels)?;
    let by_name: HashMap<PathBuf, &PathBuf> = maps.files().iter().map(|path| (path.with_extension(""), path)).collect();
    matched(images, |path| by_name.get(&path.with_extension("")).map(|map| labels.join(map)))
}
