//! Opens image sets from a user's argument: a folder, a zip, CIFAR-10, an npz of images or of statistics, or a part
//! of one.
use super::Statistics;
use super::npz::Npz;
use crate::data::{Classes, DataConfig, Dataset, Filter, Fit, Image, Split};
use crate::error::{Error, Result, Shown};
use crate::limits::{self, IMAGE_PIXELS, NPZ_IMAGES};
use std::io::{Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::{Path, PathBuf};

/// An image set, or its stored statistics.
pub enum Input {
    /// The images.
    Images(Box<dyn Dataset>),
    /// Statistics of the images.
    Statistics(Box<Statistics>),
}

/// Opens `PATH`, `PATH:train`, `PATH:test`, each with `[START:END]` for a part.
///
/// A path is a folder or a zip of images, a directory of CIFAR-10 (with the split given), an npz of images (u8, as N,
/// H, W, C, under `arr_0` or the first name) or an npz of statistics (`mu` and `sigma`).
pub fn open(text: &str) -> Result<Input> {
    let (place, part) = split_range(text)?;
    let images = match place.rsplit_once(':') {
        Some((path, "train")) => cifar10(path, Split::Train)?,
        Some((path, "test")) => cifar10(path, Split::Test)?,
        _ => {
            let path = Path::new(place);
            let extension = path.extension().map(|e| e.to_string_lossy().to_lowercase());
            if extension.as_deref() == Some("npz") && path.is_file() {
                let names = Npz::open(path)?.names();
                if names.iter().any(|name| name == "mu") {
                    if part.is_some() {
                        return Err(Error::request(format!("{text}: statistics have no parts to choose from")));
                    }
                    return Ok(Input::Statistics(Box::new(Statistics::load(path)?)));
                }
                Box::new(NpzImages::open(path, &names)?)
            } else {
                files(path)?
            }
        }
    };
    Ok(Input::Images(match part {
        Some(range) => Box::new(Part::new(images, range, text)?),
        None => images,
    }))
}

/// Splits `text` into the path and the range in brackets at its end.
fn split_range(text: &str) -> Result<(&str, Option<Range<usize>>)> {
    let Some((place, range)) = text.strip_suffix(']').and_then(|t| t.rsplit_once('[')) else {
        return Ok((text, None));
    };
    let bad = || Error::request(format!("{text}: a part is written [START:END], as in {place}[0:256]"));
    let (start, end) = range.split_once(':').ok_or_else(bad)?;
    let number = |t: &str, default: usize| if t.is_empty() { Ok(default) } else { t.parse().map_err(|_| bad()) };
    Ok((place, Some(number(start, 0)?..number(end, usize::MAX)?)))
}

fn cifar10(path: &str, split: Split) -> Result<Box<dyn Dataset>> {
    DataConfig::Cifar10 { path: path.into(), split }.source(0)
}

fn files(path: &Path) -> Result<Box<dyn Dataset>> {
    if !path.exists() {
        return Err(Error::request(format!("{}: no such file or directory", path.shown())));
    }
    let (fit, filter) = (Fit::default(), Filter::default());
    if path.is_file() {
        return DataConfig::Zip { path: path.into(), fit, filter }.source(0);
    }
    let batches = ["", "cifar-10-batches-bin", "cifar-10-batches-py"].map(|below| path.join(below));
    let is_cifar = |dir: &PathBuf| {
        ["test_batch", "test_batch.bin", "data_batch_1", "data_batch_1.bin"].iter().any(|f| dir.join(f).is_file())
    };
    // CIFAR-10 stores training and test images side by side; mixing them up would spoil a comparison.
    if batches.iter().any(is_cifar) {
        let path = path.shown();
        return Err(Error::request(format!("{path} holds CIFAR-10: say {path}:train or {path}:test")));
    }
    DataConfig::Folder { path: path.into(), fit, filter }.source(0)
}

/// A contiguous part of a set.
struct Part {
    set: Box<dyn Dataset>,
    range: Range<usize>,
}

impl Part {
    fn new(set: Box<dyn Dataset>, range: Range<usize>, text: &str) -> Result<Self> {
        let range = range.start..range.end.min(set.len());
        if range.is_empty() {
            return Err(Error::request(format!("{text}: no images in this part; there are {}", set.len())));
        }
        Ok(Self { set, range })
    }
}

impl Dataset for Part {
    fn len(&self) -> usize {
        self.range.len()
    }

    fn get(&self, index: usize) -> Result<Image> {
        self.set.get(self.range.start + index)
    }

    fn name(&self, index: usize) -> String {
        self.set.name(self.range.start + index)
    }

    fn describe(&self) -> String {
        format!("{}, part {}:{}", self.set.describe(), self.range.start, self.range.end)
    }

    fn classes(&self) -> Result<Option<Classes>> {
        let part = |classes: Classes| Classes { of: classes.of[self.range.clone()].to_vec(), ..classes };
        Ok(self.set.classes()?.map(part))
    }

    fn in_memory(&self) -> bool {
        self.set.in_memory()
    }
}

/// Images in an array of bytes, read in place if it is not compressed.
struct NpzImages {
    path: PathBuf,
    key: String,
    /// N, H, W, C
    shape: [usize; 4],
    bytes: Bytes,
}

enum Bytes {
    /// In the file, starting at this byte.
    Stored(u64),
    Unpacked(Vec<u8>),
}

impl NpzImages {
    fn open(path: &Path, names: &[String]) -> Result<Self> {
        let key = names.iter().find(|name| *name == "arr_0").or(names.first());
        let key = key.ok_or_else(|| Error::file(path, "holds no arrays"))?.clone();
        let mut file = Npz::open(path)?;
        let (header, place) = file.header(&key)?;
        let sides = match header.shape[..] {
            [n, h, w, c] if header.kind == "|u1" && header.len > 0 && matches!(c, 1 | 3) => {
                let pixels = IMAGE_PIXELS.check((h as u64).saturating_mul(w as u64));
                pixels.map_err(|why| Error::file(path, format!("array {key}: images of {w}x{h} pixels: {why}")))?;
                [n, h, w, c]
            }
            _ => {
                let message = format!(
                    "array {key} holds {} of shape {:?}; expected images as |u1 (uint8) of shape N, H, W, 1 or 3, or \
                     statistics as mu and sigma",
                    header.kind, header.shape
                );
                return Err(Error::file(path, message));
            }
        };
        let bytes = match place {
            Some(place) => {
                // The directory may state any size.
                let length = path.metadata().map_err(Error::io(path))?.len();
                let end = place.saturating_add(header.start).saturating_add(header.len as u64);
                if end > length {
                    let message = format!("array {key} ends at byte {end}, the file at {length}; fetch it again");
                    return Err(Error::file(path, message));
                }
                Bytes::Stored(place + header.start)
            }
            None => {
                NPZ_IMAGES.check(header.len as u64).map_err(|why| {
                    let advice = "save it with np.savez, uncompressed, and it is read in place";
                    Error::file(path, format!("array {key}: {why}; {advice}"))
                })?;
                Bytes::Unpacked(file.bytes(&key, u64::MAX)?.1)
            }
        };
        Ok(Self { path: path.to_path_buf(), key, shape: sides, bytes })
    }

    fn size(&self) -> usize {
        self.shape[1..].iter().product()
    }
}

impl Dataset for NpzImages {
    fn len(&self) -> usize {
        self.shape[0]
    }

    fn get(&self, index: usize) -> Result<Image> {
        let ([_, h, w, c], size) = (self.shape, self.size());
        let pixels = match &self.bytes {
            Bytes::Unpacked(bytes) => bytes[index * size..][..size].to_vec(),
            Bytes::Stored(start) => {
                let mut pixels = vec![0; size];
                // Opened for every image, so that threads do not share a file position.
                let mut file = limits::open(&self.path)?;
                file.seek(SeekFrom::Start(start + (index * size) as u64)).map_err(Error::io(&self.path))?;
                file.read_exact(&mut pixels).map_err(Error::io(&self.path))?;
                pixels
            }
        };
        Ok(Image::new(w, h, c, pixels))
    }

    fn name(&self, index: usize) -> String {
        format!("{}: {}[{index}]", self.path.shown(), self.key)
    }

    fn describe(&self) -> String {
        let [n, h, w, c] = self.shape;
        format!("npz {}: {n} images of {h}x{w}x{c}", self.path.shown())
    }
}
