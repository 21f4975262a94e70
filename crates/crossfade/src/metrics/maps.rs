//! Shared by the metrics of saliency, edges and regions: grey maps, masks, thresholds, and pairing of maps with their
//! ground truth by name.
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use rayon::prelude::*;

use crate::data::Image;
use crate::error::{Error, Result, Shown};
use crate::limits::{MAP_PIXELS, need, sharing};

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

/// What a metric holds of each pixel of a map: distances, weights and errors as 64-bit numbers.
const BYTES: u64 = 80;

impl Map {
    /// Reads a map or a mask from an image file.
    pub fn read(path: &Path) -> Result<Image> {
        let image = Image::read(path)?;
        let pixels = (image.width * image.height) as u64;
        MAP_PIXELS.check(pixels).map_err(|why| Error::file(path, why))?;
        sharing(|| need(pixels * BYTES));
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
        let measured = sharing(|| measure(pair))?;
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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn thresholds_are_evenly_spaced_between_zero_and_one() {
        assert_eq!(levels(1), [0.5]);
        assert_eq!(levels(3), [0.25, 0.5, 0.75]);
        let many = levels(99);
        assert_eq!((many.len(), many[0], many[98]), (99, 0.01, 0.99));
        assert!(many.iter().enumerate().all(|(k, t)| (t - (k + 1) as f64 / 100.0).abs() < 1e-15));
        // As MATLAB's `linspace` rounds.
        assert!(85.0 / 255.0 < levels(5)[1]);
        check_thresholds(1).and(check_thresholds(999)).unwrap();
        assert!(check_thresholds(0).is_err() && check_thresholds(1000).is_err());
    }

    #[test]
    fn maps_are_grey_from_zero_to_one_and_cut_from_the_threshold_on() {
        let map = Map::of(&Image::new(2, 1, 3, vec![255, 255, 255, 0, 0, 255]));
        assert_eq!((map.width, map.height, map.values), (2, 1, vec![1.0, 29.0 / 255.0]));
        let map = Map { width: 3, height: 1, values: vec![0.25, 0.5, 0.75] };
        assert_eq!(map.at_least(0.5), Mask { width: 3, height: 1, bits: vec![false, true, true] });
        assert_eq!(map.at_least(0.5).count(), 2);
    }

    #[test]
    fn all_pairs_are_measured_in_their_order_and_counted() {
        let files: Vec<MapFiles> =
            (0..5).map(|k| MapFiles { name: k.to_string(), map: "a".into(), truth: "b".into() }).collect();
        let mut told = vec![];
        let found = each(&files, &mut |done, all| told.push((done, all)), |files| Ok(files.name.clone())).unwrap();
        assert_eq!(found, ["0", "1", "2", "3", "4"]);
        assert_eq!(told, [(1, 5), (2, 5), (3, 5), (4, 5), (5, 5)]);
        let fails = |files: &MapFiles| if files.name == "3" { Err(Error::request("no")) } else { Ok(()) };
        assert!(each(&files, &mut |_, _| (), fails).is_err());
    }

    #[test]
    fn files_are_paired_by_name_and_everything_else_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let (maps, truths) = (dir.path().join("maps"), dir.path().join("truths"));
        let put = |path: PathBuf| {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, "x").unwrap();
            path
        };
        put(maps.join("b.png"));
        put(maps.join("a.PNG"));
        put(maps.join(".hidden.png"));
        put(maps.join("note.txt"));
        put(maps.join("folder.png/x"));
        put(truths.join("a.mat"));
        let b = put(truths.join("b.mat"));
        let pairs = || paired_maps(&maps, &["png"], &truths, &["mat"]);
        let names: Vec<_> = pairs().unwrap().into_iter().map(|p| (p.name, p.truth)).collect();
        assert_eq!(names, [("a".to_string(), truths.join("a.mat")), ("b".to_string(), b.clone())]);
        put(truths.join("c.mat"));
        put(truths.join("d.mat"));
        assert!(pairs().unwrap_err().to_string().contains("for 1 more"));
        fs::remove_file(&b).unwrap();
        assert!(pairs().unwrap_err().to_string().contains("b.png: there is no file of this name"));
        assert!(
            paired_maps(&maps, &["gif"], &truths, &["mat"])
                .unwrap_err()
                .to_string()
                .contains("no files that end in gif")
        );
        let one = paired_maps(&maps.join("b.png"), &["png"], &truths.join("c.mat"), &["mat"]).unwrap();
        assert_eq!((one.len(), one[0].name.as_str()), (1, "b"));
    }
}
