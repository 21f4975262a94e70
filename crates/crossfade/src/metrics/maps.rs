//! Shared by the metrics of saliency, edges and regions: grey maps, masks, thresholds, and pairing of maps with their
//! ground truth by name.
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use rayon::prelude::*;

use crate::data::Image;
use crate::error::{Error, Result, Shown};
use crate::limits::MAP_PIXELS;

/// A grey map, top row first, with values from 0 to 1.
#[derive(Clone, Debug, PartialEq)]
pub struct Map {
    /// Number of columns.
    pub width: usize,
    /// Number of rows.
    pub height: usize,
    /// `height * width` values.
    pub values: Vec<f64>,
}

/// A binary image, top row first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mask {
    /// Number of columns.
    pub width: usize,
    /// Number of rows.
    pub height: usize,
    /// `height * width` pixels.
    pub bits: Vec<bool>,
}

impl Map {
    /// Reads a map or a mask from an image file.
    pub fn read(path: &Path) -> Result<Image> {
        let image = Image::read(path)?;
        MAP_PIXELS.check((image.width * image.height) as u64).map_err(|why| Error::file(path, why))?;
        Ok(image)
    }

    /// A grey image as a map: byte / 255.
    pub fn of(image: &Image) -> Self {
        let grey = image.with_channels(1);
        let values = grey.pixels.iter().map(|&v| f64::from(v) / 255.0).collect();
        Self { width: grey.width, height: grey.height, values }
    }

    /// The mask of pixels that are at least `threshold`.
    pub fn at_least(&self, threshold: f64) -> Mask {
        let bits = self.values.iter().map(|&v| v >= threshold).collect();
        Mask { width: self.width, height: self.height, bits }
    }
}

impl Mask {
    /// The number of pixels that are set.
    pub fn count(&self) -> usize {
        self.bits.iter().filter(|&&b| b).count()
    }
}

/// The thresholds k / (n + 1), with the rounding of MATLAB's `linspace`. The rounding matters: 85 / 255 is less than
/// the second of five thresholds.
pub(super) fn levels(n: usize) -> Vec<f64> {
    let first = 1.0 / (n + 1) as f64;
    let last = 1.0 - first;
    // The last threshold is not computed by the formula but set exactly, as `linspace` does.
    let inner = (0..n.saturating_sub(1)).map(|k| first + k as f64 * (last - first) / (n - 1) as f64);
    inner.chain([last]).collect()
}

/// Refuses a number of thresholds outside 1 to 999.
pub(super) fn check_thresholds(n: usize) -> Result<()> {
    if !(1..=999).contains(&n) {
        return Err(Error::request(format!("{n} thresholds: must be 1 to 999")));
    }
    Ok(())
}

/// Measures the pairs in parallel; calls `progress(done, total)` after each.
pub(super) fn each<T: Send>(
    files: &[MapFiles],
    progress: &mut (dyn FnMut(usize, usize) + Send),
    measure: impl Fn(&MapFiles) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    let progress = Mutex::new((0, progress));
    let counted = |pair: &MapFiles| -> Result<T> {
        let measured = measure(pair)?;
        if let Ok(mut progress) = progress.lock() {
            progress.0 += 1;
            let done = progress.0;
            (progress.1)(done, files.len());
        }
        Ok(measured)
    };
    files.par_iter().map(counted).collect()
}

/// The files of a map and of its ground truth.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MapFiles {
    /// The name of both files, without extension.
    pub name: String,
    /// The file of the map.
    pub map: PathBuf,
    /// The file of the ground truth.
    pub truth: PathBuf,
}

/// Pairs the files of two folders by their names without extension, sorted by name. Two files instead of folders are
/// one pair.
///
/// Every file must have its partner: a metric over a part of the dataset would silently be another number.
pub(super) fn paired_maps(
    maps: &Path,
    map_endings: &[&str],
    truths: &Path,
    truth_endings: &[&str],
) -> Result<Vec<MapFiles>> {
    if maps.is_file() && truths.is_file() {
        let name = maps.file_stem().map(|s| s.to_string_lossy().into_owned()).unwrap_or_default();
        return Ok(vec![MapFiles { name, map: maps.into(), truth: truths.into() }]);
    }
    let (left, mut right) = (list(maps, map_endings)?, list(truths, truth_endings)?);
    let mut pairs = Vec::new();
    for (name, map) in left {
        let truth = right.remove(&name).ok_or_else(|| {
            Error::file(&map, format!("there is no file of this name, with whatever ending, in {}", truths.shown()))
        })?;
        pairs.push(MapFiles { name, map, truth });
    }
    match right.values().next() {
        Some(unpaired) => Err(Error::file(
            unpaired,
            format!(
                "there is no map for it in {}, and for {} more; measure all images or take the others out",
                maps.shown(),
                right.len() - 1
            ),
        )),
        None => Ok(pairs),
    }
}

/// The files of a folder with one of the extensions, by name without extension.
fn list(folder: &Path, endings: &[&str]) -> Result<BTreeMap<String, PathBuf>> {
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(folder).map_err(Error::io(folder))? {
        let path = entry.map_err(Error::io(folder))?.path();
        let ending = path.extension().map(|e| e.to_string_lossy().to_ascii_lowercase()).unwrap_or_default();
        let name = path.file_stem().map(|s| s.to_string_lossy().into_owned()).unwrap_or_default();
        if name.starts_with('.') || !endings.contains(&ending.as_str()) || path.is_dir() {
            continue;
        }
        if let Some(other) = files.insert(name, path.clone()) {
            return Err(Error::file(path, format!("has the same name as {}; which one is meant?", other.shown())));
        }
    }
    if files.is_empty() {
        return Err(Error::file(folder, format!("no files that end in {} here", endings.join(", "))));
    }
    Ok(files)
}
