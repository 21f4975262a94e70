//! A cache of convolution weights in the layout of the kernels, for networks whose weights no longer change.
//!
//! The key of an entry is the address of the weight tensor's memory, to which the entry holds a weak reference. This
//! makes the address a safe key. The backend writes in place only to memory without other references, so the weights
//! cannot have changed; and memory with a reference is not reused for another tensor.
use burn::tensor::Bytes;
use crossfade_kernels::conv::{ConvShape, Prepared};
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};

use super::flex::Contiguous;

/// The cache is used up to this number of 4x4 pixel tiles in the input: for a batch, and for a single image. For
/// larger inputs, transforming the weights takes too small a share of the time to be worth the memory.
const MAX_TILES: [usize; 2] = [16, 64];

/// Limit of the cache in bytes; prepared weights take as much memory as the weights themselves.
const MAX_BYTES: usize = 96 << 20;

struct Entry {
    weight: Weak<Bytes>,
    /// `None` until the weights are used a second time. Weights in training change at every step and never are, so
    /// that nothing is prepared for them.
    prepared: Option<Arc<Prepared>>,
}

/// Keyed by the address of the weights' memory and the sizes of the convolution.
static ENTRIES: LazyLock<Mutex<HashMap<(usize, ConvShape), Entry>>> = LazyLock::new(Mutex::default);

/// The prepared weights for a convolution of `shape`, if it is small enough, the weights have been used before and
/// the cache has space.
pub(crate) fn prepared(weight: &Contiguous, shape: &ConvShape) -> Option<Arc<Prepared>> {
    let bytes = |shape: &ConvShape| 4 * shape.weight_len();
    if shape.n * shape.h.div_ceil(4) * shape.w.div_ceil(4) > MAX_TILES[usize::from(shape.n == 1)] {
        return None;
    }
    let memory = weight.memory()?;
    // Prepared weights do not depend on the batch size.
    let key = (Arc::as_ptr(&memory).addr(), ConvShape { n: 0, ..*shape });
    let mut entries = ENTRIES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(Entry { prepared: Some(prepared), .. }) = entries.get(&key) {
        return Some(prepared.clone());
    }
    let kept: usize =
        entries.iter().filter(|(_, entry)| entry.prepared.is_some()).map(|((_, shape), _)| bytes(shape)).sum();
    let again = entries.contains_key(&key) && kept + bytes(shape) <= MAX_BYTES;
    // Entries of dropped networks are removed here; until then they keep the address from being reused.
    entries.retain(|_, entry| entry.weight.strong_count() > 0);
    // The lock is released during the preparation: it runs on several threads, which may start another convolution
    // and would wait for the lock forever.
    drop(entries);
    let prepared = again.then(|| Arc::new(Prepared::new(weight.values(), &key.1)));
    let mut entries = ENTRIES.lock().unwrap_or_else(PoisonError::into_inner);
    entries.insert(key, Entry { weight: Arc::downgrade(&memory), prepared: prepared.clone() });
    prepared
}
