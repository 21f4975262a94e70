//! SketchyCOCO's objects (§6.8): photographs under `GT`, sketches with the same names under `Sketch`.
use std::path::{Path, PathBuf};

use super::super::Split;
use super::{directory, folders};
use crate::error::Result;

pub fn list(root: &Path, split: Split) -> Result<Vec<(PathBuf, PathBuf)>> {
    let part = match split {
        Split::Train => "train",
        Split::Test => "val",
    };
    let inner = |kind: &str| directory(root, &[&format!("{kind}/{part}"), &format!("Object/{kind}/{part}")]);
    folders::list(&inner("GT")?, &inner("Sketch")?)
}
