//! Weights of convolutions in the form in which the kernels compute, kept for networks that no longer change.
//!
//! An entry belongs to the memory of a weight tensor and holds it weakly. That memory cannot have been written since,
//! because the backend writes only where nobody else refers to, and its address cannot stand for another tensor.
use burn::tensor::Bytes;
use crossfade_kernels::conv::{ConvShape, Prepared};
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};

use super::flex::Dense;

/// Tiles of 4x4 pixels beyond which bringing weights into order on every call takes too little of the time to be worth
/// memory: in a batch, and in a picture that is alone.
const FEW: [usize; 2] = [16, 64];

/// Bytes of prepared weights beyond which no more are kept. They are as large as the weights.
const BUDGET: usize = 96 << 20;

struct Entry {
    weight: Weak<Bytes>,
    /// None until the weights are used a second time: those of a network in training never are.
    prepared: Option<Arc<Prepared>>,
}

/// By address of the memory and sizes of the convolution.
static ENTRIES: LazyLock<Mutex<HashMap<(usize, ConvShape), Entry>>> = LazyLock::new(Mutex::default);

/// The prepared weights for a convolution of `shape`, if it pays, they have been used before and there is room for them.
pub fn prepared(weight: &Dense, shape: &ConvShape) -> Option<Arc<Prepared>> {
    let bytes = |shape: &ConvShape| 4 * shape.weight_len();
    if shape.n * shape.h.div_ceil(4) * shape.w.div_ceil(4) > FEW[usize::from(shape.n == 1)] {
        return None;
    }
    let memory = weight.memory()?;
    // The number of pictures plays no part.
    let key = (Arc::as_ptr(&memory).addr(), ConvShape { n: 0, ..*shape });
    let mut entries = ENTRIES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(Entry { prepared: Some(prepared), .. }) = entries.get(&key) {
        return Some(prepared.clone());
    }
    let kept: usize =
        entries.iter().filter(|(_, entry)| entry.prepared.is_some()).map(|((_, shape), _)| bytes(shape)).sum();
    let again = entries.contains_key(&key) && kept + bytes(shape) <= BUDGET;
    entries.retain(|_, entry| entry.weight.strong_count() > 0);
    // While a thread waits for the parts of this work it may take up another convolution, which locks too.
    drop(entries);
    let prepared = again.then(|| Arc::new(Prepared::new(weight.values(), &key.1)));
    let mut entries = ENTRIES.lock().unwrap_or_else(PoisonError::into_inner);
    entries.insert(key, Entry { weight: Arc::downgrade(&memory), prepared: prepared.clone() });
    prepared
}
