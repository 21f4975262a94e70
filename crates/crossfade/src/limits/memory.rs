//! The memory that pictures take at once, on all threads together. Each picture is within its own limits, but a small file can
//! hold a large picture, and as many of them as there are threads would fill the memory.
use std::cell::Cell;
use std::sync::{Condvar, Mutex, PoisonError};

use super::SHARED_MEMORY;

/// The bytes that are taken, of all threads.
static TAKEN: Mutex<u64> = Mutex::new(0);
/// Signalled when a thread gives its bytes back.
static FREED: Condvar = Condvar::new();

thread_local! {
    /// Calls of [`sharing`] around what this thread does, and the bytes that it has taken in them.
    static SHARE: Cell<(usize, u64)> = const { Cell::new((0, 0)) };
}

/// Runs `work`, at whose end all that it asked for with [`need`] is given back. Within another call, that is the end of the outer
/// one: what an image is made of still needs the memory.
pub fn sharing<T>(work: impl FnOnce() -> T) -> T {
    /// Gives back also where a decoder panics.
    struct End;
    impl Drop for End {
        fn drop(&mut self) {
            let (depth, share) = SHARE.get();
            if depth > 1 {
                return SHARE.set((depth - 1, share));
            }
            SHARE.set((0, 0));
            *TAKEN.lock().unwrap_or_else(PoisonError::into_inner) -= share;
            FREED.notify_all();
        }
    }
    let (depth, share) = SHARE.get();
    SHARE.set((depth + 1, share));
    let _end = End;
    work()
}

/// Waits until other threads leave `bytes` of [`SHARED_MEMORY`], and takes them until the end of [`sharing`].
///
/// A thread that has taken something already does not wait, or two of them could wait for each other for ever; neither does one
/// that wants more than there is when no other thread has anything.
pub fn need(bytes: u64) {
    let (depth, share) = SHARE.get();
    debug_assert!(depth > 0, "memory is needed within `sharing`, which gives it back");
    let mut taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
    while share == 0 && *taken > 0 && taken.saturating_add(bytes) > SHARED_MEMORY.max {
        taken = FREED.wait(taken).unwrap_or_else(PoisonError::into_inner);
    }
    *taken += bytes;
    SHARE.set((depth, share + bytes));
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn what_fills_the_memory_is_done_by_one_thread_at_a_time() {
        let (inside, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let large = || {
            sharing(|| {
                // Half of it twice: within the outer call the first half is not given back.
                sharing(|| need(SHARED_MEMORY.max / 2 + 1));
                need(SHARED_MEMORY.max / 2);
                most.fetch_max(inside.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                std::thread::yield_now();
                inside.fetch_sub(1, Ordering::SeqCst);
            });
        };
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..50).for_each(|_| large()));
            }
        });
        assert_eq!(most.into_inner(), 1);
        // More than there is, and a panic, leave nothing taken.
        sharing(|| need(10 * SHARED_MEMORY.max));
        let panics = || {
            need(7);
            std::panic::resume_unwind(Box::new("of a decoder"))
        };
        std::panic::catch_unwind(|| -> () { sharing(panics) }).unwrap_err();
        assert_eq!(SHARE.get(), (0, 0));
    }
}
