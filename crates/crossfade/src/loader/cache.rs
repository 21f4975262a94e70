//! A set with what has been decoded of it.
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use crate::data::{Dataset, Image, LabelMap};
use crate::error::Result;

/// Most bytes of decoded images kept in memory.
const LIMIT: usize = 512 << 20;

/// An image with its map, if the set has maps.
pub(super) struct Decoded {
    pub image: Image,
    pub label: Option<LabelMap>,
}

pub(super) struct Cache {
    pub dataset: Arc<dyn Dataset>,
    /// One place an image, or none at all.
    places: Vec<OnceLock<Decoded>>,
    bytes: AtomicUsize,
}

impl Cache {
    /// Keeps decoded images, up to 512 MiB, if `keep` is set and the set does not lie in memory anyway.
    pub fn new(dataset: Arc<dyn Dataset>, keep: bool) -> Self {
        let places = if keep && !dataset.in_memory() { dataset.len() } else { 0 };
        Self { places: (0..places).map(|_| OnceLock::new()).collect(), bytes: AtomicUsize::new(0), dataset }
    }

    /// Calls `f` with image `index`.
    pub fn with<T>(&self, index: usize, f: impl FnOnce(&Decoded) -> T) -> Result<T> {
        let place = self.places.get(index);
        if let Some(found) = place.and_then(OnceLock::get) {
            return Ok(f(found));
        }
        let found = Decoded { image: self.dataset.get(index)?, label: self.dataset.label(index)? };
        let result = f(&found);
        let size = found.image.pixels.len() + found.label.as_ref().map_or(0, |label| 2 * label.values.len());
        if let Some(place) = place
            && self.bytes.fetch_add(size, Ordering::Relaxed) < LIMIT
        {
            // Another thread may have been faster with the same image.
            let _ = place.set(found);
        }
        Ok(result)
    }
}
