//! NYU Depth v2 in the layout of BTS (§6.7): scenes of `rgb_NNNNN.jpg` with `sync_depth_NNNNN.png`.
use std::path::{Path, PathBuf};

use super::super::Split;
use super::super::folder::Folder;
use super::directory;
use crate::error::{Error, Result};

pub fn list(root: &Path, split: Split) -> Result<Vec<(PathBuf, PathBuf)>> {
    let part = match split {
        Split::Train => "train",
        Split::Test => "test",
    };
    let root = directory(root, &[part, &format!("official_splits/{part}")])?;
    let mut pairs = Vec::new();
    for path in Folder::open(&root)?.files() {
        let number = path.file_stem().and_then(|name| name.to_str()).and_then(|name| name.strip_prefix("rgb_"));
        if let Some(number) = number {
            let depth = root.join(path).with_file_name(format!("sync_depth_{number}.png"));
            if !depth.is_file() {
                return Err(Error::file(depth, "is missing beside its image"));
            }
            pairs.push((root.join(path), depth));
        }
    }
    Ok(pairs)
}
