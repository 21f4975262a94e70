//! What an autoencoder keeps of images.
use super::{AutoencoderCheckpoint, Latent};
use crate::checkpoint::{Checkpoint, Opened, Weights, newest};
use crate::config::is_autoencoder;
use crate::data::folder::Folder;
use crate::data::planes::append_planes;
use crate::data::{DataConfig, Dataset, Filter, Fit, Image, contact_sheet};
use crate::engine::{Device, from_vec};
use crate::error::{Error, Result};
use crate::files::write_atomic;
use super::to_images;
use serde::Serialize;
use std::path::{Path, PathBuf};

/// Most pairs on the sheet.
const SHEET: usize = 16;

/// Images and what came back.
#[derive(Clone, Debug, Serialize)]
pub struct Reconstruction {
    /// Name and PSNR in dB of each image.
    pub images: Vec<(String, f64)>,
    /// Their mean.
    pub mean_psnr: f64,
    /// Side of an image over side of its latent.
    pub factor: usize,
    /// Numbers of an image over numbers of its latent.
    pub compression: f64,
    /// Originals above what came back.
    pub sheet: PathBuf,
}

/// The autoencoder of a checkpoint: of its own training, or of a run on its latents.
fn open(path: &Path, weights: Weights, device: &Device) -> Result<Latent> {
    let path = newest(path)?;
    if is_autoencoder(&Opened::open(&path)?.config) {
        let checkpoint = AutoencoderCheckpoint::open(&path)?;
        let net = checkpoint.autoencoder(weights, device)?;
        return Ok(Latent::new(checkpoint.config.autoencoder, net, 1.0, device));
    }
    let latent = Latent::of(&Checkpoint::open(&path)?, device)?;
    latent.ok_or_else(|| Error::file(&path, "is a network on pixels: there is no autoencoder in it"))
}

/// Images to look at.
pub struct Originals<'a> {
    /// A folder or a file.
    pub path: &'a Path,
    /// No more than this many of them.
    pub limit: usize,
    /// Cut square and resized to this side; none to take them as they are.
    pub resolution: Option<usize>,
}

impl Originals<'_> {
    fn open(&self, channels: usize) -> Result<Box<dyn Dataset>> {
        match self.resolution {
            _ if !self.path.is_dir() => Ok(Box::new(One::open(self.path)?)),
            None => Ok(Box::new(Folder::open(self.path)?)),
            Some(side) => {
                let (fit, filter) = (Fit::default(), Filter::default());
                DataConfig::Folder { path: self.path.to_path_buf(), fit, filter }.open(side, channels)
            }
        }
    }
}

/// Sends images through the autoencoder of `checkpoint` and writes what comes back into `out`.
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
        return Err(Error::file(out, "holds the images themselves; choose another place for the results"));
    }
    std::fs::create_dir_all(out).map_err(Error::io(out))?;
    let (mut found, mut above, mut below) = (vec![], vec![], vec![]);
    for i in 0..count {
        let original = set.get(i)?.with_channels(latent.image_channels()).into_owned();
        let back = round_trip(&latent, &original);
        found.push((set.name(i), original.psnr(&back)));
        write_atomic(out.join(format!("{i:06}.png")), &back.encode_png(&[("source", &set.name(i))])?)?;
        if above.len() < SHEET {
            above.push(original);
            below.push(back);
        }
        progress(i + 1, count);
    }
    let sheet = out.join("sheet.png");
    write_atomic(&sheet, &pairs(&above, &below).encode_png(&[])?)?;
    let config = latent.config();
    Ok(Reconstruction {
        mean_psnr: found.iter().map(|(_, psnr)| psnr).sum::<f64>() / count as f64,
        factor: latent.factor(),
        compression: (config.channels * latent.factor().pow(2)) as f64 / config.latent as f64,
        images: found,
        sheet,
    })
}

/// Originals above what came back, eight to a row.
pub(crate) fn pairs(above: &[Image], below: &[Image]) -> Image {
    let rows = above.chunks(8).zip(below.chunks(8)).flat_map(|(a, b)| [a, b].concat());
    let side = above.first().map_or(64, |image| image.width);
    contact_sheet(&rows.collect::<Vec<_>>(), above.len().clamp(1, 8), 2, (64 / side).max(1))
}

/// An image through encoder and decoder; edges are repeated to a multiple of the factor and cut off again.
fn round_trip(latent: &Latent, image: &Image) -> Image {
    let f = latent.factor();
    let (width, height) = (image.width.next_multiple_of(f), image.height.next_multiple_of(f));
    let mut planes = vec![];
    append_planes(&framed(image, width, height), false, &mut planes);
    let x = from_vec(planes, [1, image.channels, height, width], &latent.device);
    let back = to_images(latent.decode(latent.encode_mode(x)));
    framed(&back[0], image.width, image.height)
}

/// The image from its top left corner, cut or with its last row and column repeated.
fn framed(image: &Image, width: usize, height: usize) -> Image {
    let c = image.channels;
    let at =
        |x: usize, y: usize| &image.pixels[(y.min(image.height - 1) * image.width + x.min(image.width - 1)) * c..][..c];
    let pixels = (0..height).flat_map(|y| (0..width).flat_map(move |x| at(x, y).iter().copied()));
    Image::new(width, height, c, pixels.collect())
}

/// A set of one file.
struct One(PathBuf, Image);

impl One {
    fn open(path: &Path) -> Result<Self> {
        Ok(Self(path.to_path_buf(), Image::read(path)?))
    }
}

impl Dataset for One {
    fn len(&self) -> usize {
        1
    }
    fn get(&self, _: usize) -> Result<Image> {
        Ok(self.1.clone())
    }
    fn name(&self, _: usize) -> String {
        self.0.display().to_string()
    }
    fn describe(&self) -> String {
        self.name(0)
    }
}
