//! MNIST, Fashion-MNIST and similar sets: IDX files of 8-bit grey images, gzipped or not.
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

use flate2::bufread::GzDecoder;

use super::{Classes, Dataset, Image};
use crate::error::{Error, Result, Shown};
use crate::limits::{self, IDX_FILE, IDX_PIXELS};

/// Two zero bytes, then the codes for 8-bit unsigned values and three dimensions.
const MAGIC: [u8; 4] = [0, 0, 8, 3];
/// The same for the labels, which have one dimension.
const LABELS_MAGIC: [u8; 4] = [0, 0, 8, 1];

/// An IDX3 file, held in memory.
pub struct Idx {
    path: PathBuf,
    height: usize,
    width: usize,
    pixels: Vec<u8>,
}

impl Idx {
    /// Reads an IDX file of images; for a directory, the file of the training images in it.
    pub fn open(path: &Path) -> Result<Self> {
        let path = if path.is_dir() { train_images(path)? } else { path.to_path_buf() };
        let reader = unpacked(&path)?;
        Self::read(path, reader)
    }

    fn read(path: PathBuf, mut reader: impl Read) -> Result<Self> {
        let mut header = [0u8; 16];
        reader
            .read_exact(&mut header)
            .map_err(|e| Error::file(&path, format!("too short for an IDX file of images ({e})")))?;
        if header[..4] != MAGIC {
            return Err(Error::file(
                &path,
                format!("not an IDX file of 8-bit images: it begins with {:02x?}, not {MAGIC:02x?}", &header[..4]),
            ));
        }
        let size = |at: usize| u64::from(u32::from_be_bytes([0, 1, 2, 3].map(|i| header[at + i])));
        let (count, height, width) = (size(4), size(8), size(12));
        let area = height * width;
        let all = count.saturating_mul(area);
        let limits = || if all == 0 { Err("nothing is in it".into()) } else { IDX_FILE.check(all) };
        IDX_PIXELS
            .check(area)
            .and_then(|()| limits())
            .map_err(|why| Error::file(&path, format!("claims {count} images of {width}x{height}: {why}")))?;
        let expected = count * area;
        let pixels = limits::take_sized(reader, expected).map_err(|e| Error::file(&path, format!("damaged: {e}")))?;
        let got = pixels.len() as u64;
        if got != expected {
            let how = if got < expected { "fewer" } else { "more" };
            return Err(Error::file(
                &path,
                format!("{how} bytes than {count} images of {width}x{height} take; fetch the file again"),
            ));
        }
        Ok(Self { path, height: height as usize, width: width as usize, pixels })
    }
}

/// The content of a file that may be gzipped.
fn unpacked(path: &Path) -> Result<Box<dyn Read>> {
    let file = limits::open(path)?;
    let mut plain = BufReader::new(file);
    // Recognised by the content: some programs unpack downloads but keep the name.
    let gzipped = std::io::BufRead::fill_buf(&mut plain).map_err(Error::io(path))?.starts_with(&[0x1f, 0x8b]);
    Ok(if gzipped { Box::new(GzDecoder::new(plain)) } else { Box::new(plain) })
}

/// The file of labels beside a file of images: `…-images-idx3-…` has `…-labels-idx1-…`, gzipped or not.
fn labels_beside(images: &Path) -> Option<PathBuf> {
    let name = images.file_name()?.to_str()?.replace("images", "labels").replace("idx3", "idx1");
    let plain = name.strip_suffix(".gz").unwrap_or(&name);
    let near = [plain.to_string(), format!("{plain}.gz")].map(|name| images.with_file_name(name));
    near.into_iter().find(|path| path.is_file() && path != images)
}

/// The `count` labels of an IDX1 file.
fn read_labels(path: &Path, count: usize) -> Result<Vec<u32>> {
    let bytes =
        limits::take(unpacked(path)?, 8 + count as u64).map_err(|e| Error::file(path, format!("damaged: {e}")))?;
    let Some((header, labels)) = bytes.split_at_checked(8).filter(|(header, _)| header.starts_with(&LABELS_MAGIC))
    else {
        return Err(Error::file(
            path,
            format!("not an IDX file of 8-bit labels: it must begin with {LABELS_MAGIC:02x?}"),
        ));
    };
    let claimed = u32::from_be_bytes([4, 5, 6, 7].map(|i| header[i])) as usize;
    if claimed != count || labels.len() != count {
        return Err(Error::file(path, format!("holds {claimed} labels, but there are {count} images")));
    }
    Ok(labels.iter().map(|&label| u32::from(label)).collect())
}

fn train_images(directory: &Path) -> Result<PathBuf> {
    let names = ["train-images-idx3-ubyte", "train-images.idx3-ubyte"];
    names
        .iter()
        .flat_map(|name| [directory.join(name), directory.join(format!("{name}.gz"))])
        .find(|path| path.is_file())
        .ok_or_else(|| Error::file(directory, "no train-images-idx3-ubyte(.gz) in this directory"))
}

impl Dataset for Idx {
    fn len(&self) -> usize {
        self.pixels.len() / (self.height * self.width)
    }

    fn get(&self, index: usize) -> Result<Image> {
        let area = self.height * self.width;
        Ok(Image::new(self.width, self.height, 1, self.pixels[index * area..][..area].to_vec()))
    }

    fn name(&self, index: usize) -> String {
        format!("{} #{index}", self.path.shown())
    }

    /// Those of the file of labels beside the images.
    fn classes(&self) -> Result<Option<Classes>> {
        let Some(path) = labels_beside(&self.path) else { return Ok(None) };
        Classes::new(read_labels(&path, self.len())?, None, &path.shown()).map(Some)
    }

    fn describe(&self) -> String {
        format!("IDX file {}: {} images", self.path.shown(), self.len())
    }

    fn in_memory(&self) -> bool {
        true
    }
}
