//! Work space that outlives the call: a thread keeps the buffers it has used.
use std::cell::RefCell;

thread_local! {
    static FREE: RefCell<Vec<Vec<f32>>> = const { RefCell::new(Vec::new()) };
}

/// Calls `f` with `len` numbers of unspecified value. Calls may nest.
pub fn with<R>(len: usize, f: impl FnOnce(&mut [f32]) -> R) -> R {
    // A thread that waits inside `f` may run other work, which then takes another buffer.
    let mut buffer = FREE.with_borrow_mut(Vec::pop).unwrap_or_default();
    if buffer.len() < len {
        buffer.resize(len, 0.0);
    }
    let result = f(&mut buffer[..len]);
    FREE.with_borrow_mut(|free| free.push(buffer));
    result
}
