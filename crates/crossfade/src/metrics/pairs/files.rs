//! Pairs output files with their target files.
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::super::metric::Sample;
use super::super::raster::Raster;
use crate::data::IMAGE_ENDINGS;
use crate::error::{Error, Result, Shown};

/// The files of an output and of its target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageFiles {
    /// The name that both files have.
    pub name: String,
    /// The file of the output.
    pub output: PathBuf,
    /// The file of the target.
    pub target: PathBuf,
}

/// All pairs, sorted by name; the images are read only when they are needed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PairedFiles {
    /// The pairs, at least one.
    pub pairs: Vec<ImageFiles>,
    /// The folder of the outputs, or the one file.
    pub outputs: PathBuf,
    /// The folder of the targets, or the one file.
    pub targets: PathBuf,
}

impl PairedFiles {
    /// Pairs two files, or the files of two folders by their relative paths without extension. `suffix` is what the
    /// names of outputs end in and those of targets do not.
    pub fn open(outputs: &Path, targets: &Path, suffix: &str) -> Result<Self> {
        let pairs = match (outputs.is_dir(), targets.is_dir()) {
            (false, false) => {
                let name = outputs.file_stem().unwrap_or_default().to_string_lossy().into_owned();
                vec![ImageFiles { name, output: outputs.into(), target: targets.into() }]
            }
            (true, true) => join(list(outputs, suffix)?, list(targets, "")?, outputs, targets)?,
            _ => {
                let (a, b) = (outputs.shown(), targets.shown());
                return Err(Error::request(format!("{a} and {b} must both be folders or both be files that exist")));
            }
        };
        Ok(Self { pairs, outputs: outputs.into(), targets: targets.into() })
    }
}

impl ImageFiles {
    /// Reads both images, which must have the same size.
    pub fn load(&self) -> Result<Sample> {
        let (output, target) = (Raster::load(&self.output)?, Raster::load(&self.target)?);
        if output.size() != target.size() {
            let (is, should) = (output.describe_size(), target.describe_size());
            let message = format!("is {is}, but its target {} is {should}", self.target.shown());
            return Err(Error::file(&self.output, message));
        }
        Ok(Sample { name: self.name.clone(), origin: self.output.clone(), output, target: Some(target), class: None })
    }
}

/// The image files below `root`, by their relative path without extension and `suffix`.
fn list(root: &Path, suffix: &str) -> Result<BTreeMap<String, PathBuf>> {
    let mut found: BTreeMap<String, PathBuf> = BTreeMap::new();
    let mut pending = vec![PathBuf::new()];
    while let Some(folder) = pending.pop() {
        let full = root.join(&folder);
        for entry in fs::read_dir(&full).map_err(Error::io(&full))? {
            let entry = entry.map_err(Error::io(&full))?;
            let (path, name) = (folder.join(entry.file_name()), entry.file_name().to_string_lossy().into_owned());
            let ending = name.rsplit_once('.').map(|(_, ending)| ending.to_ascii_lowercase());
            if name.starts_with('.') {
                continue;
            } else if entry.file_type().map_err(Error::io(entry.path()))?.is_dir() {
                pending.push(path);
            } else if ending.is_some_and(|e| e == "npy" || IMAGE_ENDINGS.contains(&e.as_str())) {
                let stem = path.with_extension("").to_string_lossy().into_owned();
                let stem = stem.strip_suffix(suffix).ok_or_else(|| {
                    Error::file(root.join(&path), format!("its name does not end in {suffix:?} as --suffix says"))
                })?;
                if let Some(other) = found.insert(stem.to_owned(), root.join(&path)) {
                    let message = format!("has the same name as {}; which one is meant?", other.shown());
                    return Err(Error::file(root.join(&path), message));
                }
            }
        }
    }
    if found.is_empty() {
        return Err(Error::file(root, "no PNG, JPEG, WebP or npy files here or in folders below"));
    }
    Ok(found)
}

/// Pairs every output with its target. All files without a partner are reported in one error.
fn join(
    outputs: BTreeMap<String, PathBuf>,
    mut targets: BTreeMap<String, PathBuf>,
    outputs_root: &Path,
    targets_root: &Path,
) -> Result<Vec<ImageFiles>> {
    let (mut pairs, mut unpaired) = (vec![], vec![]);
    for (name, output) in outputs {
        match targets.remove(&name) {
            Some(target) => pairs.push(ImageFiles { name, output, target }),
            None => unpaired.push(format!("{}: no target in {}", output.shown(), targets_root.shown())),
        }
    }
    let unused = targets.values().map(|target| format!("{}: no output in {}", target.shown(), outputs_root.shown()));
    unpaired.extend(unused);
    if unpaired.is_empty() {
        return Ok(pairs);
    }
    let more = unpaired.len().saturating_sub(10);
    unpaired.truncate(10);
    let more = if more > 0 { format!("\nand {more} more") } else { String::new() };
    Err(Error::request(format!("files are paired by name, and some have no partner:\n{}{more}", unpaired.join("\n"))))
}
