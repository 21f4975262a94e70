//! A dataset with a cache of its decoded images.
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use crate::data::{Dataset, Image, LabelMap};
use crate::error::Result;

/// Size limit of the cache in bytes.
const LIMIT: usize = 512 << 20;

/// An image, with its map if the dataset has maps.
pub(super) struct Decoded {
    pub image: Image,
    pub label: Option<LabelMap>,
}

pub(super) struct Cache {
    pub dataset: Arc<dyn Dataset>,
    /// One entry per image, or none at all if nothing is cached.
    entries: Vec<OnceLock<Decoded>>,
    bytes: AtomicUsize,
}

impl Cache {
    /// Caches decoded images, up to 512 MiB, if `keep` is set and the dataset is not in memory anyway.
    pub fn new(dataset: Arc<dyn Dataset>, keep: bool) -> Self {
        let entries = if keep && !dataset.in_memory() { dataset.len() } else { 0 };
        Self { entries: (0..entries).map(|_| OnceLock::new()).collect(), bytes: AtomicUsize::new(0), dataset }
    }

    /// Calls `f` with image `index`, from the cache if possible. A closure, because a full cache has nothing to
    /// borrow from.
    pub fn with<T>(&self, index: usize, f: impl FnOnce(&Decoded) -> T) -> Result<T> {
        let entry = self.entries.get(index);
        if let Some(found) = entry.and_then(OnceLock::get) {
            return Ok(f(found));
        }
        let found = Decoded { image: self.dataset.get(index)?, label: self.dataset.label(index)? };
        let result = f(&found);
        let size = found.image.pixels.len() + found.label.as_ref().map_or(0, |label| 2 * label.values.len());
        if let Some(entry) = entry
            // Not exact: every thread may exceed the limit by one image, which does no harm.
            && self.bytes.fetch_add(size, Ordering::Relaxed) < LIMIT
        {
            // Another thread may have stored the same image meanwhile; both are equal, so the failure does not
            // matter.
            let _ = entry.set(found);
        }
        Ok(result)
    }
}
