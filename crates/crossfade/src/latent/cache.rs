//! Encoded images on disk: mean and log-variance of the latents of every image and of its mirror image. Each epoch
//! draws new latents from them, as if the images were encoded again.
use super::Latent;
use crate::data::planes::append_planes;
use crate::data::{Dataset, Image, content_digest};
use crate::digest::Hasher;
use crate::engine::{Device, from_vec, to_host};
use crate::error::{Error, Result};
use crate::files::Folder;
use crate::nn::Posterior;
use crate::nn::weights::collect;
use crate::ranks::{self, Packed, Unpacked};
use crate::tensorfile::{Element, TensorFile, write_rows};
use rayon::prelude::*;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

/// The tensor of the file: one row per image, then one row per mirror image.
const MOMENTS: &str = "moments";
/// The metadata entry that identifies the images and the autoencoder.
const CONTENT: &str = "content";
/// Images per batch of the encoder.
const BATCH: usize = 16;

/// An open cache file.
pub struct LatentCache {
    file: TensorFile,
    images: usize,
    mirrored: bool,
    row: [usize; 3],
}

impl LatentCache {
    /// Opens the file at `path`. If it does not exist, all images of `set` are encoded into it first; `progress` is
    /// called with (rows done, all rows). All ranks call this and share the encoding; the first one writes.
    pub fn open(
        path: &Path,
        set: &dyn Dataset,
        latent: &Latent,
        mirrored: bool,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<Self> {
        let images = content_digest(set)?;
        let content = format!("{} ({images}) mirrored {mirrored} by {}", set.describe(), fingerprint(latent));
        let (first, group) = (set.get(0)?, ranks::current());
        if !group.decided(path.exists())? {
            encode(path, set, &first, latent, mirrored, &content, progress)?;
            // The file is complete when any rank goes on.
            group.wait()?;
        }
        let file = TensorFile::open(path)?;
        // A stale cache would train silently on the wrong latents.
        if file.metadata().get(CONTENT) != Some(&content) {
            let message = "holds latents of other images or of another autoencoder; remove it, or name another file as \
                           latent.cache";
            return Err(Error::file(path, message));
        }
        // Whoever can write the notes of a file can write anything into its header, too.
        let wanted = shape(set, &first, latent, mirrored);
        match file.shapes().as_slice() {
            [(name, shape)] if name == MOMENTS && *shape == wanted && file.element(name)? == Element::F32 => {
                file.verify()?;
                Ok(Self { file, images: set.len(), mirrored, row: [wanted[1], wanted[2], wanted[3]] })
            }
            other => {
                let found: Vec<_> = other.iter().take(3).collect();
                let message = format!("holds {found:?} in place of latents of the shape {wanted:?} in F32; remove it");
                Err(Error::file(path, message))
            }
        }
    }

    /// The stored posteriors of these images, each mirrored or not.
    pub fn posterior(&self, images: &[(usize, bool)], device: &Device) -> Result<Posterior> {
        let mut values = vec![];
        for &(index, flipped) in images {
            assert!(index < self.images && (self.mirrored || !flipped), "image {index} is not in the cache");
            let row = index + if flipped { self.images } else { 0 };
            values.extend(self.file.read_rows(MOMENTS, row, 1)?);
        }
        let [c, h, w] = self.row;
        Ok(Posterior::new(from_vec(values, [images.len(), c, h, w], device)))
    }
}

/// The shape of the tensor: means and log-variances of all images, of which `first` is one.
fn shape(set: &dyn Dataset, first: &Image, latent: &Latent, mirrored: bool) -> [usize; 4] {
    let (rows, f) = (set.len() * if mirrored { 2 } else { 1 }, latent.factor());
    [rows, 2 * latent.latent_channels(), first.height / f, first.width / f]
}

fn encode(
    path: &Path,
    set: &dyn Dataset,
    first: &Image,
    latent: &Latent,
    mirrored: bool,
    content: &str,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<()> {
    let (count, group) = (set.len(), ranks::current());
    let shape = shape(set, first, latent, mirrored);
    let rows = shape[0];
    // A batch contains either images or mirror images.
    let batches: Vec<Range<usize>> = [0..count, count..rows]
        .into_iter()
        .flat_map(|part| part.clone().step_by(BATCH).map(move |row| row..(row + BATCH).min(part.end)))
        .collect();
    // Each rank encodes one batch of a round; all of them come to the first rank in their order.
    let mut rounds = batches.chunks(group.size());
    let mut round = |progress: &mut dyn FnMut(usize, usize)| -> Result<Vec<f32>> {
        let round = rounds.next().unwrap_or_default();
        let mut packed = Packed::default();
        if let Some(batch) = round.get(group.rank()) {
            packed.f32s(&encoded(batch.clone(), set, latent, first)?);
        }
        let received = group.to_first(packed.0)?;
        progress(round.last().map_or(rows, |batch| batch.end), rows);
        let own = received.iter().filter(|part| !part.is_empty()).map(|part| Unpacked(part).f32s());
        Ok(own.collect::<Result<Vec<_>>>()?.concat())
    };
    if !group.is_first() {
        return (0..batches.len().div_ceil(group.size())).try_for_each(|_| round(progress).map(|_| ()));
    }
    let _folder = Folder::of([path])?;
    let metadata = BTreeMap::from([(CONTENT.to_string(), content.to_string())]);
    write_rows(path, MOMENTS, &shape, &metadata, &mut |_| round(progress))
}

/// The moments of a batch of images: rows of the file, of which those after the images are their mirror images.
fn encoded(rows: Range<usize>, set: &dyn Dataset, latent: &Latent, first: &Image) -> Result<Vec<f32>> {
    let (count, size) = (set.len(), rows.len());
    let images = rows.into_par_iter().map(|row| {
        let mut planes = vec![];
        // The encoder is not equivariant to mirroring, so mirror images have to be encoded themselves.
        append_planes(&set.get(row % count)?, row >= count, &mut planes);
        Ok(planes)
    });
    let images: Vec<Vec<f32>> = images.collect::<Result<_>>()?;
    let shape = [size, first.channels, first.height, first.width];
    Ok(to_host(latent.posterior(from_vec(images.concat(), shape, &latent.device)).moments()))
}

/// A digest of the autoencoder: its configuration and its weights.
pub(super) fn fingerprint(latent: &Latent) -> String {
    let mut hasher = Hasher::default();
    hasher.update(format!("{:?}", latent.config));
    for (name, shape, values) in collect(&latent.net) {
        hasher.update(format!("{name} {shape:?}"));
        values.iter().for_each(|value| hasher.update(value.to_le_bytes()));
    }
    hasher.finish()
}
