//! A zip of image files, read in place.
use std::collections::HashMap;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use zip::read::{ZipArchiveMetadata, ZipReadOptions};

use super::{Classes, Dataset, Image, is_image_name};
use crate::error::{Error, Result, Shown, visible};
use crate::limits::{self, ZIP_ENTRIES, ZIP_IMAGE};

/// PNG, JPEG and WebP entries of a zip, ordered by the bytes of their names. Classes come from EDM's `dataset.json`.
///
/// Nothing is unpacked to disk, so that hostile names such as `../x` have no effect.
pub struct Zip {
    path: PathBuf,
    directory: Arc<ZipArchiveMetadata>,
    /// Index in the central directory and name of every image.
    entries: Vec<(usize, String)>,
    /// Index in the central directory of `dataset.json`.
    labels: Option<usize>,
}

/// The file of EDM's datasets that holds the labels.
const LABELS: &str = "dataset.json";

/// What is read of it. Other keys may hold anything.
#[derive(serde::Deserialize)]
struct DatasetJson {
    /// The class of every file.
    labels: Option<Vec<(String, u32)>>,
    /// The names of the classes; EDM's own files have none.
    classes: Option<Vec<String>>,
}

impl Zip {
    /// Reads the central directory; an error if it has no images.
    pub fn open(path: &Path) -> Result<Self> {
        let bad = |e| Error::file(path, format!("not a readable zip: {e}"));
        let archive = limits::open_zip(path, &ZIP_ENTRIES, bad)?;
        let directory = archive.metadata();
        let (mut entries, mut labels) = (Vec::new(), None);
        for index in 0..directory.len() {
            let name = directory.entry(index).and_then(|e| e.name().map(|n| n.into_owned()));
            let name = name.map_err(|e| Error::file(path, format!("entry {index}: {}", visible(&e.to_string()))))?;
            // Archives made on macOS contain a hidden companion for every image.
            let hidden = name.split('/').any(|part| part.starts_with('.') && part != "." && part != "..");
            let last = name.rsplit('/').next().unwrap_or_default();
            if is_image_name(last) && !hidden && !name.starts_with("__MACOSX/") {
                entries.push((index, name));
            } else if name == LABELS {
                labels = Some(index);
            }
        }
        if entries.is_empty() {
            return Err(Error::file(path, "no PNG, JPEG or WebP files in this zip"));
        }
        entries.sort_by(|a, b| a.1.as_bytes().cmp(b.1.as_bytes()));
        Ok(Self { path: path.to_path_buf(), directory, entries, labels })
    }

    fn read(&self, entry_index: usize, name: &str) -> Result<Vec<u8>> {
        let bad = |reason: String| Error::file(&self.path, format!("{}: {reason}", visible(name)));
        let too_large = || bad(format!("unpacks to more than the limit of {} MiB", ZIP_IMAGE.max >> 20));
        // Every call opens the file again, so that threads do not wait for a shared file position.
        let mut file = BufReader::new(limits::open(&self.path)?);
        let entry = self.directory.entry(entry_index).map_err(|e| bad(e.to_string()))?;
        let declared = entry.size();
        if declared > ZIP_IMAGE.max {
            return Err(too_large());
        }
        let reader = entry.with_reader(&mut file, ZipReadOptions::new()).map_err(|e| bad(e.to_string()))?;
        // The declared size is not trusted, so the limit is enforced while decompressing too.
        let bytes = limits::take(reader, ZIP_IMAGE.max).map_err(|e| bad(e.to_string()))?;
        match bytes.len() as u64 {
            n if n > ZIP_IMAGE.max => Err(too_large()),
            n if n != declared => Err(bad(format!("unpacks to {n} bytes, but {declared} were declared"))),
            _ => Ok(bytes),
        }
    }
}

impl Dataset for Zip {
    fn len(&self) -> usize {
        self.entries.len()
    }

    fn get(&self, index: usize) -> Result<Image> {
        let (entry_index, name) = &self.entries[index];
        let bytes = self.read(*entry_index, name)?;
        Image::decode(&bytes, format!("{}: {}", self.path.shown(), visible(name)))
    }

    fn name(&self, index: usize) -> String {
        visible(&self.entries[index].1).into_owned()
    }

    /// Those of `dataset.json`, or else the first directories of the images' names.
    fn classes(&self) -> Result<Option<Classes>> {
        let origin = self.path.shown();
        let parsed = self.labels.map(|index| -> Result<DatasetJson> {
            let wrong = |e| {
                let advice = "expected \"labels\": [[\"file\", class], …] with whole numbers from 0";
                Error::file(&self.path, format!("{LABELS}: {}; {advice}", visible(&format!("{e}"))))
            };
            serde_json::from_slice(&self.read(index, LABELS)?).map_err(wrong)
        });
        let Some(DatasetJson { labels: Some(labels), classes }) = parsed.transpose()? else {
            return Classes::of_directories(self.entries.iter().map(|(_, name)| name.as_str()), &origin);
        };
        let labels: HashMap<String, u32> =
            labels.into_iter().map(|(name, class)| (name.replace('\\', "/"), class)).collect();
        let class = |(_, name): &(usize, String)| {
            labels
                .get(name)
                .copied()
                .ok_or_else(|| Error::file(&self.path, format!("{LABELS} has no label of {}", visible(name))))
        };
        let of = self.entries.iter().map(class).collect::<Result<_>>()?;
        Classes::new(of, classes, &origin).map(Some)
    }

    fn describe(&self) -> String {
        format!("zip {}: {} images", self.path.shown(), self.len())
    }
}
