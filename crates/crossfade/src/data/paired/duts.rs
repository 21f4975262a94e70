//! DUTS (§6.5): one directory of images and one of masks for each part.
use std::path::{Path, PathBuf};

use super::super::Split;
use super::{directory, folders};
use crate::error::Result;

pub fn list(root: &Path, split: Split) -> Result<Vec<(PathBuf, PathBuf)>> {
    let part = match split {
        Split::Train => "DUTS-TR",
        Split::Test => "DUTS-TE",
    };
    let inner = |kind: &str| directory(root, &[&format!("{part}/{part}-{kind}"), &format!("{part}-{kind}")]);
    folders::list(&inner("Image")?, &inner("Mask")?)
}
