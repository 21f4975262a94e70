//! Buffers for intermediate results, reused from call to call: touching fresh pages from the system would cost more time
//! than most kernels take.
use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, PoisonError};

/// A cache line; the type exists for its alignment.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([f32; LINE]);

/// Floats in a cache line.
const LINE: usize = 16;

/// The buffers that nobody uses at the moment.
static POOL: Mutex<Vec<Vec<Line>>> = Mutex::new(Vec::new());

/// Set by `tools/sanitize.sh`: every buffer is an allocation of its own, as large as was asked for and full of NaN. An access
/// beyond its end then leaves the allocation, and whoever reads what nobody wrote gets a NaN.
const FRESH: bool = cfg!(crossfade_fresh_buffers);

/// A buffer of floats, aligned to 64 bytes, which goes back to the pool when it is dropped. Its contents are arbitrary at
/// first: they are left over from the last use.
pub(crate) struct Workspace {
    lines: Vec<Line>,
    len: usize,
    detached: bool,
}

impl Workspace {
    /// Takes a buffer of `len` floats from the pool; allocates only if none is large enough.
    pub(crate) fn take(len: usize) -> Self {
        let count = len.div_ceil(LINE);
        if FRESH {
            return Self { lines: vec![Line([f32::NAN; LINE]); count], len, detached: true };
        }
        let mut pool = POOL.lock().unwrap_or_else(PoisonError::into_inner);
        let fits = |(_, b): &(usize, &Vec<Line>)| b.len() >= count;
        let best = pool.iter().enumerate().filter(fits).min_by_key(|(_, b)| b.len()).map(|(i, _)| i);
        // If none fits, a larger one replaces the largest: the pool never holds more buffers than were in use at once.
        let largest = || pool.iter().enumerate().max_by_key(|(_, b)| b.len()).map(|(i, _)| i);
        let mut lines = best.or_else(largest).map(|i| pool.swap_remove(i)).unwrap_or_default();
        drop(pool);
        if lines.len() < count {
            lines = vec![Line([0.0; LINE]); count];
        }
        Self { lines, len, detached: false }
    }

    /// Copies the contents to memory that is no larger than needed and never goes to the pool, for results that live
    /// long.
    pub(crate) fn detach(self) -> Self {
        let lines = self.lines[..self.len.div_ceil(LINE)].to_vec();
        Self { lines, len: self.len, detached: true }
    }
}

impl Deref for Workspace {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        // SAFETY: `lines` holds at least `len` initialised floats without gaps (repr(C), 64 bytes each).
        unsafe { std::slice::from_raw_parts(self.lines.as_ptr().cast(), self.len) }
    }
}

impl DerefMut for Workspace {
    fn deref_mut(&mut self) -> &mut [f32] {
        // SAFETY: as in `deref`; the exclusive borrow of `self` covers `lines`.
        unsafe { std::slice::from_raw_parts_mut(self.lines.as_mut_ptr().cast(), self.len) }
    }
}

impl Drop for Workspace {
    fn drop(&mut self) {
        if !self.detached {
            POOL.lock().unwrap_or_else(PoisonError::into_inner).push(std::mem::take(&mut self.lines));
        }
    }
}

/// A pointer into an array whose elements are written by several tasks.
///
/// Whoever makes one promises that the tasks which use it write disjoint elements and read none that another task writes.
#[derive(Clone, Copy)]
pub(crate) struct Shared(*mut f32);

// SAFETY: the maker's promise above.
unsafe impl Send for Shared {}
// SAFETY: the maker's promise above.
unsafe impl Sync for Shared {}

impl Shared {
    pub(crate) fn new(slice: &mut [f32]) -> Self {
        Self(slice.as_mut_ptr())
    }

    /// The pointer. A method and not a public field, so that closures capture the whole value, which is `Sync`.
    pub(crate) fn get(self) -> *mut f32 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_have_their_length_and_are_aligned() {
        for len in [0, 1, 15, 16, 17, 1000] {
            let (mut a, b) = (Workspace::take(len), Workspace::take(len));
            a.fill(1.0);
            assert!(a.len() == len && b.len() == len && a.as_ptr().addr() % 64 == 0);
            assert_eq!(a.detach()[..], vec![1.0; len]);
        }
    }
}
