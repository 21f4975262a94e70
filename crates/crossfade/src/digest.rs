//! SHA-256 digests in hexadecimal.
use crate::data::Dataset;
use crate::error::{Error, Result};
use crate::limits;
use rayon::prelude::*;
use sha2::{Digest, Sha256};
use std::io::Read;
use std::path::Path;

/// Computes the digest of bytes that arrive in pieces.
#[derive(Default)]
pub struct Hasher(Sha256);

impl Hasher {
    /// Appends bytes.
    pub fn update(&mut self, bytes: impl AsRef<[u8]>) {
        self.0.update(bytes);
    }

    /// The digest of everything appended so far.
    pub fn finish(self) -> String {
        self.0.finalize().iter().map(|b| format!("{b:02x}")).collect()
    }
}

/// The digest of `bytes`.
pub fn sha256(bytes: &[u8]) -> String {
    let mut hasher = Hasher::default();
    hasher.update(bytes);
    hasher.finish()
}

/// The digest of a file, read in blocks of 1 MiB.
pub fn sha256_file(path: &Path) -> Result<String> {
    let mut file = limits::open(path)?;
    let (mut hasher, mut block) = (Hasher::default(), vec![0; 1 << 20]);
    loop {
        match file.read(&mut block).map_err(Error::io(path))? {
            0 => return Ok(hasher.finish()),
            n => hasher.update(&block[..n]),
        }
    }
}

/// Images of a set that are compared by their content; of a larger set, as many that are spread over it.
const COMPARED: usize = 1024;

/// The digest of a set of images, by which others of the same description are told apart: the number of images, all names and
/// classes, and pixels and maps of [`COMPARED`] images.
pub fn of_images(set: &dyn Dataset) -> Result<String> {
    let content = |index: usize| -> Result<String> {
        let mut hasher = Hasher::default();
        let image = set.get(index)?;
        hasher.update(format!("{index} {} {} {}", image.width, image.height, image.channels));
        hasher.update(&image.pixels);
        if let Some(map) = set.label(index)? {
            hasher.update(format!("map {} {}", map.width, map.height));
            map.values.iter().for_each(|value| hasher.update(value.to_le_bytes()));
        }
        Ok(hasher.finish())
    };
    let (count, compared) = (set.len(), set.len().min(COMPARED));
    let contents = (0..compared).into_par_iter().map(|k| content(k * count / compared)).collect::<Result<Vec<_>>>()?;
    let mut hasher = Hasher::default();
    hasher.update(format!("{count} images"));
    contents.iter().for_each(|content| hasher.update(content));
    (0..count).for_each(|index| hasher.update(format!("{:?}", set.name(index))));
    if let Some(classes) = set.classes()? {
        hasher.update(format!("{:?}", classes.names));
        classes.of.iter().for_each(|class| hasher.update(class.to_le_bytes()));
    }
    Ok(hasher.finish())
}
