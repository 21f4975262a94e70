//! A cache of convolution weights in the order in which the kernels compute, for networks that no longer change.
//!
//! An entry belongs to the memory of a weight tensor, to which it holds a weak reference. That makes the address a safe key:
//! the backend writes in place only to memory that nothing else refers to, so the weights cannot have changed, and memory
//! with a reference left is not given to another tensor.
use burn::tensor::Bytes;
use crossfade_kernels::conv::{ConvShape, Prepared};
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};

use super::flex::Contiguous;

/// Tiles of 4x4 pixels up to which the cache is used: of a batch, and of an image that is alone. With more of them bringing
/// the weights into order takes too small a share of the time to be worth the memory.
const MAX_TILES: [usize; 2] = [16, 64];

/// Bytes of prepared weights beyond which no more are kept; they take as much memory as the weights themselves.
const MAX_BYTES: usize = 96 << 20;

struct Entry {
    weight: Weak<Bytes>,
    /// None until the weights are used a second time, which those of a network in training never are.
    prepared: Option<Arc<Prepared>>,
}

/// By address of the memory and sizes of the convolution.
static ENTRIES: LazyLock<Mutex<HashMap<(usize, ConvShape), Entry>>> = LazyLock::new(Mutex::default);

/// The prepared weights for a convolution of `shape`, if it pays, they have been used before and there is buffer for them.
pub fn prepared(weight: &Contiguous, shape: &ConvShape) -> Option<Arc<Prepared>> {
    let bytes = |shape: &ConvShape| 4 * shape.weight_len();
    if shape.n * shape.h.div_ceil(4) * shape.w.div_ceil(4) > MAX_TILES[usize::from(shape.n == 1)] {
        return None;
    }
    let memory = weight.memory()?;
    // Prepared weights serve batches of any size.
    let key = (Arc::as_ptr(&memory).addr(), ConvShape { n: 0, ..*shape });
    let mut entries = ENTRIES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(Entry { prepared: Some(prepared), .. }) = entries.get(&key) {
        return Some(prepared.clone());
    }
    let kept: usize =
        entries.iter().filter(|(_, entry)| entry.prepared.is_some()).map(|((_, shape), _)| bytes(shape)).sum();
    let again = entries.contains_key(&key) && kept + bytes(shape) <= MAX_BYTES;
    entries.retain(|_, entry| entry.weight.strong_count() > 0);
    // Unlocked while preparing: the kernel's threads may meanwhile start another convolution, which locks too.
    drop(entries);
    let prepared = again.then(|| Arc::new(Prepared::new(weight.values(), &key.1)));
    let mut entries = ENTRIES.lock().unwrap_or_else(PoisonError::into_inner);
    entries.insert(key, Entry { weight: Arc::downgrade(&memory), prepared: prepared.clone() });
    prepared
}
