//! Which output belongs to which target.
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::picture::Picture;
use crate::data::IMAGE_ENDINGS;
use crate::error::{Error, Result};

/// An output and what it should have been.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pair {
    /// What both are called.
    pub name: String,
    /// The output.
    pub output: PathBuf,
    /// The target.
    pub target: PathBuf,
}

/// All pairs in the order of their names; the pictures are read when they are needed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pairs {
    /// The pairs, at least one.
    pub pairs: Vec<Pair>,
    /// Where the outputs are.
    pub outputs: PathBuf,
    /// Where the targets are.
    pub targets: PathBuf,
}

impl Pairs {
    /// Pairs two files, or the files of two folders by their paths without ending. `suffix` is what the names of outputs
    /// end in and those of targets do not.
    pub fn open(outputs: &Path, targets: &Path, suffix: &str) -> Result<Self> {
        let pairs = match (outputs.is_dir(), targets.is_dir()) {
            (false, false) => {
                let name = outputs.file_stem().unwrap_or_default().to_string_lossy().into_owned();
                vec![Pair { name, output: outputs.into(), target: targets.into() }]
            }
            (true, true) => join(list(outputs, suffix)?, list(targets, "")?, outputs, targets)?,
            _ => {
                let (a, b) = (outputs.display(), targets.display());
                return Err(Error::request(format!("{a} and {b} must both be folders or both be files that exist")));
            }
        };
        Ok(Self { pairs, outputs: outputs.into(), targets: targets.into() })
    }
}

impl Pair {
    /// Both pictures, of one size.
    pub fn load(&self) -> Result<(Picture, Picture)> {
        let (output, target) = (Picture::load(&self.output)?, Picture::load(&self.target)?);
        if (output.width, output.height, output.channels) != (target.width, target.height, target.channels) {
            let (is, should) = (output.sizes(), target.sizes());
            return Err(self.error(format!("is {is}, but its target {} is {should}", self.target.display())));
        }
        Ok((output, target))
    }

    /// An error that names the output.
    pub(super) fn error(&self, message: impl Into<String>) -> Error {
        Error::file(&self.output, message)
    }
}

/// Files by their path below `root` without ending and `suffix`.
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
                    let message = format!("has the same name as {}; which one is meant?", other.display());
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

/// Every output with its target; all that lack a partner are one error.
fn join(
    outputs: BTreeMap<String, PathBuf>,
    mut targets: BTreeMap<String, PathBuf>,
    outputs_root: &Path,
    targets_root: &Path,
) -> Result<Vec<Pair>> {
    let (mut pairs, mut alone) = (vec![], vec![]);
    for (name, output) in outputs {
        match targets.remove(&name) {
            Some(target) => pairs.push(Pair { name, output, target }),
            None => alone.push(format!("{}: no target in {}", output.display(), targets_root.display())),
        }
    }
    let unmet = targets.values().map(|target| format!("{}: no output in {}", target.display(), outputs_root.display()));
    alone.extend(unmet);
    if alone.is_empty() {
        return Ok(pairs);
    }
    let more = alone.len().saturating_sub(10);
    alone.truncate(10);
    let more = if more > 0 { format!("\nand {more} more") } else { String::new() };
    Err(Error::request(format!("files are paired by name, and some have no partner:\n{}{more}", alone.join("\n"))))
}
