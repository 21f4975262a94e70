//! Datasets of images with a map each: a mask, edges, depth or a sketch. One file for each directory layout, which
//! lists pairs of files.
mod bsds;
mod duts;
mod folders;
mod nyu;
mod sketchy;

use std::path::{Path, PathBuf};

use super::folder::Folder;
use super::{Dataset, Image, LabelMap, Split};
use crate::error::{Error, Result, Shown};

/// Image files and the files of their maps.
pub struct Paired {
    layout: &'static str,
    root: PathBuf,
    /// (image, map), ordered by the image's path.
    files: Vec<(PathBuf, PathBuf)>,
    read: fn(&Path) -> Result<LabelMap>,
}

impl Paired {
    /// Images and maps of the same names in two directories and those below.
    pub fn folders(images: &Path, labels: &Path) -> Result<Self> {
        Self::new("image and map folders", images, folders::list(images, labels)?, LabelMap::read)
    }

    /// DUTS: `DUTS-TR/DUTS-TR-Image`, `DUTS-TR/DUTS-TR-Mask`, and the same with TE.
    pub fn duts(root: &Path, split: Split) -> Result<Self> {
        Self::new("DUTS", root, duts::list(root, split)?, LabelMap::read)
    }

    /// BSDS: `images/train` with `groundTruth/train/*.mat`, and the same with val and test.
    pub fn bsds(root: &Path, split: Split) -> Result<Self> {
        Self::new("BSDS", root, bsds::list(root, split)?, bsds::read)
    }

    /// NYU Depth v2 in the layout of BTS: `rgb_NNNNN.jpg` next to `sync_depth_NNNNN.png`.
    pub(crate) fn nyu(root: &Path, split: Split) -> Result<Self> {
        Self::new("NYU Depth", root, nyu::list(root, split)?, LabelMap::read)
    }

    /// SketchyCOCO's objects: `GT/train/CLASS/*.png` with `Sketch/train/CLASS/*.png`.
    pub(crate) fn sketchy(root: &Path, split: Split) -> Result<Self> {
        Self::new("SketchyCOCO", root, sketchy::list(root, split)?, LabelMap::read)
    }

    fn new(
        layout: &'static str,
        root: &Path,
        files: Vec<(PathBuf, PathBuf)>,
        read: fn(&Path) -> Result<LabelMap>,
    ) -> Result<Self> {
        if files.is_empty() {
            return Err(Error::file(root, format!("no pairs of image and map here in the layout of {layout}")));
        }
        Ok(Self { layout, root: root.to_path_buf(), files, read })
    }
}

impl Dataset for Paired {
    fn len(&self) -> usize {
        self.files.len()
    }

    fn get(&self, index: usize) -> Result<Image> {
        Image::read(&self.files[index].0)
    }

    fn label(&self, index: usize) -> Result<Option<LabelMap>> {
        (self.read)(&self.files[index].1).map(Some)
    }

    fn has_labels(&self) -> bool {
        true
    }

    fn name(&self, index: usize) -> String {
        let path = &self.files[index].0;
        path.strip_prefix(&self.root).unwrap_or(path).shown()
    }

    fn describe(&self) -> String {
        format!("{} {}: {} images with maps", self.layout, self.root.shown(), self.len())
    }
}

/// The first existing one of the directories `inner` below `root`. Archives of one dataset differ in their top
/// directories.
fn directory(root: &Path, inner: &[&str]) -> Result<PathBuf> {
    let found = inner.iter().map(|inner| root.join(inner)).find(|path| path.is_dir());
    found.ok_or_else(|| Error::file(root, format!("holds none of the directories {}", inner.join(", "))))
}

/// Pairs every image below `root` with the file that `partner` returns for its relative path. Images without a
/// partner are an error that names the first few.
fn matched(root: &Path, partner: impl Fn(&Path) -> Option<PathBuf>) -> Result<Vec<(PathBuf, PathBuf)>> {
    let folder = Folder::open(root)?;
    let mut unpaired = Vec::new();
    let mut pairs = Vec::new();
    for path in folder.files() {
        match partner(path) {
            Some(label) => pairs.push((root.join(path), label)),
            None => unpaired.push(path.shown()),
        }
    }
    if unpaired.is_empty() {
        return Ok(pairs);
    }
    // Three names are enough to recognise a wrong directory; a dataset may have thousands.
    let first: Vec<&str> = unpaired.iter().take(3).map(String::as_str).collect();
    Err(Error::file(
        root,
        format!("{} images have no map of their name, among them {}", unpaired.len(), first.join(", ")),
    ))
}
