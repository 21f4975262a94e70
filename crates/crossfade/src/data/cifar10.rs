//! CIFAR-10 in its binary and its Python layout.
use std::fs;
use std::path::{Path, PathBuf};

use super::cifar_pickle::cifar_batch;
use super::{Classes, Dataset, Image, Split};
use crate::error::{Error, Result, Shown};
use crate::limits;

const SIDE: usize = 32;
/// Bytes of an image: the red plane, then the green one, then the blue one.
pub(super) const IMAGE: usize = 3 * SIDE * SIDE;
/// Bytes of a record of the binary layout: the label, then the image.
const RECORD: usize = 1 + IMAGE;

/// The names of the classes, as in `batches.meta`.
const NAMES: [&str; 10] = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"];

/// The batches of one split, held in memory.
pub struct Cifar10 {
    directory: PathBuf,
    batches: Vec<BatchFile>,
}

struct BatchFile {
    name: String,
    content: BatchContent,
}

/// The images and labels of a batch.
pub(super) struct BatchContent {
    /// Planar images, one after the other.
    pub planes: Vec<u8>,
    /// The class of each image, from 0 to 9; none if the file has no labels.
    pub labels: Option<Vec<u8>>,
}

impl Cifar10 {
    /// Reads the batches found in `path`, or in `cifar-10-batches-bin` or `-py` below it. Fewer than five training
    /// batches are accepted.
    pub fn open(path: &Path, split: Split) -> Result<Self> {
        let below = ["cifar-10-batches-bin", "cifar-10-batches-py"].map(|name| path.join(name));
        for directory in std::iter::once(path.to_path_buf()).chain(below.into_iter().filter(|p| p.is_dir())) {
            let names = batch_names(&directory, split)?;
            if !names.is_empty() {
                let batches = names.into_iter().map(|name| BatchFile::read(&directory, name)).collect::<Result<_>>()?;
                return Ok(Self { directory, batches });
            }
        }
        let wanted = match split {
            Split::Train => "data_batch_1.bin to data_batch_5.bin, or data_batch_1 to data_batch_5",
            Split::Test => "test_batch.bin or test_batch",
        };
        Err(Error::file(path, format!("no CIFAR-10 batches here: expected {wanted}")))
    }

    /// The batch of image `index`, and the image's position in it.
    fn locate(&self, mut index: usize) -> (&BatchFile, usize) {
        for batch in &self.batches {
            if index < batch.len() {
                return (batch, index);
            }
            index -= batch.len();
        }
        panic!("image {index} beyond the end of the set")
    }
}

/// The batch files of a directory in order: the binary ones, or else the pickled ones.
fn batch_names(directory: &Path, split: Split) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(directory).map_err(Error::io(directory))? {
        names.push(entry.map_err(Error::io(directory))?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    // Other files of the archive, such as `batches.meta`, are not batches.
    let wanted = |name: &str, ending: &str| match (split, name.strip_suffix(ending)) {
        (Split::Train, Some(stem)) => stem.strip_prefix("data_batch_").is_some_and(|n| n.parse::<u32>().is_ok()),
        (Split::Test, Some(stem)) => stem == "test_batch",
        (_, None) => false,
    };
    let (binary, other): (Vec<_>, Vec<_>) = names.into_iter().partition(|name| wanted(name, ".bin"));
    Ok(if binary.is_empty() { other.into_iter().filter(|name| wanted(name, "")).collect() } else { binary })
}

impl BatchFile {
    fn read(directory: &Path, name: String) -> Result<Self> {
        let path = directory.join(&name);
        let bytes = limits::read(&path, &limits::CIFAR_FILE)?;
        let content = if name.ends_with(".bin") { from_records(&bytes) } else { cifar_batch(&bytes) };
        let content = content.map_err(|message| Error::file(&path, message))?;
        if let Some(label) = content.labels.iter().flatten().find(|label| **label as usize >= NAMES.len()) {
            return Err(Error::file(&path, format!("a label is {label}, CIFAR-10 has 0 to 9")));
        }
        Ok(Self { content, name })
    }

    fn len(&self) -> usize {
        self.content.planes.len() / IMAGE
    }
}

/// The images and labels of the binary layout.
fn from_records(bytes: &[u8]) -> std::result::Result<BatchContent, String> {
    if bytes.is_empty() || !bytes.len().is_multiple_of(RECORD) {
        return Err(format!(
            "{} bytes are no whole number of {RECORD}-byte CIFAR-10 records; fetch the file again",
            bytes.len()
        ));
    }
    // The binary layout has no magic number; wrong labels show that the file is something else of a fitting size.
    if let Some(record) = bytes.chunks_exact(RECORD).position(|r| r[0] > 9) {
        return Err(format!("record {record} has label {}, CIFAR-10 has 0 to 9", bytes[record * RECORD]));
    }
    let planes = bytes.chunks_exact(RECORD).flat_map(|r| &r[1..]).copied().collect();
    Ok(BatchContent { planes, labels: Some(bytes.chunks_exact(RECORD).map(|r| r[0]).collect()) })
}

impl Dataset for Cifar10 {
    fn len(&self) -> usize {
        self.batches.iter().map(BatchFile::len).sum()
    }

    fn get(&self, index: usize) -> Result<Image> {
        let (batch, position_in_batch) = self.locate(index);
        let planes = &batch.content.planes[position_in_batch * IMAGE..][..IMAGE];
        let area = SIDE * SIDE;
        let pixels = (0..area).flat_map(|i| [planes[i], planes[area + i], planes[2 * area + i]]).collect();
        Ok(Image::new(SIDE, SIDE, 3, pixels))
    }

    fn name(&self, index: usize) -> String {
        let (batch, position_in_batch) = self.locate(index);
        format!("{} #{position_in_batch}", self.directory.join(&batch.name).shown())
    }

    fn classes(&self) -> Result<Option<Classes>> {
        let labels: Option<Vec<&Vec<u8>>> = self.batches.iter().map(|batch| batch.content.labels.as_ref()).collect();
        let Some(labels) = labels else { return Ok(None) };
        let of = labels.into_iter().flatten().map(|&label| u32::from(label)).collect();
        Classes::new(of, Some(NAMES.map(String::from).to_vec()), &self.directory.shown()).map(Some)
    }

    fn describe(&self) -> String {
        let names: Vec<_> = self.batches.iter().map(|b| b.name.as_str()).collect();
        format!("CIFAR-10 in {}: {} images of {}", self.directory.shown(), self.len(), names.join(", "))
    }

    fn in_memory(&self) -> bool {
        true
    }
}
