//! Reconstruction of images by an autoencoder.
use super::to_images;
use super::{AutoencoderCheckpoint, Latent};
use crate::checkpoint::{Checkpoint, Opened, Weights, newest};
use crate::config::is_autoencoder;
use crate::data::folder::Folder;
use crate::data::planes::append_planes;
use crate::data::{DataConfig, Dataset, Filter, Fit, Image, contact_sheet};
use crate::engine::{Device, from_vec};
use crate::error::{Error, Result, Shown};
use crate::files::{self, write_atomic};
use crate::limits::AUTOENCODER_PIXELS;
use serde::Serialize;
use std::path::{Path, PathBuf};

/// The largest number of image pairs on the sheet.
const SHEET: usize = 16;

/// The result of a reconstruction.
#[derive(Clone, Debug, Serialize)]
pub struct Reconstruction {
    /// Name and PSNR in dB of each image.
    pub images: Vec<(String, f64)>,
    /// Mean PSNR in dB.
    pub mean_psnr: f64,
    /// The side of an image divided by the side of its latent.
    pub factor: usize,
    /// The number of values of an image divided by that of its latent.
    pub compression: f64,
    /// The path of the contact sheet: originals above their reconstructions.
    #[serde(serialize_with = "crate::error::serialize_path")]
    pub sheet: PathBuf,
}

/// Opens the autoencoder of a checkpoint, which is that of the autoencoder itself or of a latent diffusion network.
fn open(path: &Path, weights: Weights, device: &Device) -> Result<Latent> {
    let path = newest(path)?;
    if is_autoencoder(&Opened::open(&path)?.config) {
        let checkpoint = AutoencoderCheckpoint::open(&path)?;
        let net = checkpoint.autoencoder(weights, device)?;
        return Ok(Latent::new(checkpoint.config.autoencoder, net, 1.0, device));
    }
    let latent = Latent::of(&Checkpoint::open(&path)?, device)?;
    latent.ok_or_else(|| Error::file(&path, "holds a network on pixels, without an autoencoder"))
}

/// The images to reconstruct.
pub struct Originals<'a> {
    /// A folder or a file.
    pub path: &'a Path,
    /// The largest number of images.
    pub limit: usize,
    /// Images are cropped to squares and resized to this side; none to leave them as they are.
    pub resolution: Option<usize>,
}

impl Originals<'_> {
    fn open(&self, channels: usize) -> Result<Box<dyn Dataset>> {
        match self.resolution {
            _ if !self.path.is_dir() => Ok(Box::new(SingleFile::open(self.path)?)),
            None => Ok(Box::new(Folder::open(self.path)?)),
            Some(side) => {
                let (fit, filter) = (Fit::default(), Filter::default());
                DataConfig::Folder { path: self.path.to_path_buf(), fit, filter }.open(side, channels)
            }
        }
    }
}

/// Encodes and decodes images with the autoencoder of `checkpoint` and writes the results into `out`.
pub fn reconstruct(
    checkpoint: &Path,
    weights: Weights,
    originals: &Originals,
    out: &Path,
    device: &Device,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<Reconstruction> {
    let latent = open(checkpoint, weights, device)?;
    let set = originals.open(latent.image_channels())?;
    let count = set.len().min(originals.limit.max(1));
    if originals.path.canonicalize().is_ok_and(|path| out.canonicalize().is_ok_and(|out| out == path)) {
        return Err(Error::file(out, "is the directory of the originals; choose another one for the results"));
    }
    let _folder = files::Folder::create(out)?;
    let (mut psnrs, mut originals_shown, mut results_shown) = (vec![], vec![], vec![]);
    for i in 0..count {
        let original = set.get(i)?.with_channels(latent.image_channels()).into_owned();
        AUTOENCODER_PIXELS.check((original.width * original.height) as u64).map_err(|why| {
            Error::file(set.name(i), format!("{why}; cut it, or make a folder smaller with --resolution"))
        })?;
        let result = round_trip(&latent, &original).map_err(|e| Error::file(checkpoint, e.to_string()))?;
        psnrs.push((set.name(i), original.psnr(&result)));
        write_atomic(out.join(format!("{i:06}.png")), &result.encode_png(&[("source", &set.name(i))])?)?;
        if originals_shown.len() < SHEET {
            originals_shown.push(original);
            results_shown.push(result);
        }
        progress(i + 1, count);
    }
    let sheet = out.join("sheet.png");
    write_atomic(&sheet, &pairs(&originals_shown, &results_shown).encode_png(&[])?)?;
    let config = latent.config();
    Ok(Reconstruction {
        mean_psnr: psnrs.iter().map(|(_, psnr)| psnr).sum::<f64>() / count as f64,
        factor: latent.factor(),
        compression: (config.channels * latent.factor().pow(2)) as f64 / config.latent as f64,
        images: psnrs,
        sheet,
    })
}

/// A contact sheet with originals above their reconstructions, eight to a row.
pub(crate) fn pairs(originals: &[Image], results: &[Image]) -> Image {
    let rows = originals.chunks(8).zip(results.chunks(8)).flat_map(|(a, b)| [a, b].concat());
    let side = originals.first().map_or(64, |image| image.width);
    contact_sheet(&rows.collect::<Vec<_>>(), originals.len().clamp(1, 8), 2, (64 / side).max(1))
}

/// Encodes and decodes an image. It is padded by repeating its edges to a multiple of the factor; the padding is cut off
/// again.
fn round_trip(latent: &Latent, image: &Image) -> Result<Image> {
    let f = latent.factor();
    let (width, height) = (image.width.next_multiple_of(f), image.height.next_multiple_of(f));
    let mut planes = vec![];
    append_planes(&resized_canvas(image, width, height), false, &mut planes);
    let x = from_vec(planes, [1, image.channels, height, width], &latent.device);
    let decoded = to_images(latent.decode(latent.encode_mode(x)))?;
    Ok(resized_canvas(&decoded[0], image.width, image.height))
}

/// Crops or pads an image at its right and bottom; the padding repeats the last row and column.
fn resized_canvas(image: &Image, width: usize, height: usize) -> Image {
    let c = image.channels;
    let at =
        |x: usize, y: usize| &image.pixels[(y.min(image.height - 1) * image.width + x.min(image.width - 1)) * c..][..c];
    let pixels = (0..height).flat_map(|y| (0..width).flat_map(move |x| at(x, y).iter().copied()));
    Image::new(width, height, c, pixels.collect())
}

/// A dataset of one image file.
struct SingleFile(PathBuf, Image);

impl SingleFile {
    fn open(path: &Path) -> Result<Self> {
        Ok(Self(path.to_path_buf(), Image::read(path)?))
    }
}

impl Dataset for SingleFile {
    fn len(&self) -> usize {
        1
    }
    fn get(&self, _: usize) -> Result<Image> {
        Ok(self.1.clone())
    }
    fn name(&self, _: usize) -> String {
        self.0.shown()
    }
    fn describe(&self) -> String {
        self.name(0)
    }
}
