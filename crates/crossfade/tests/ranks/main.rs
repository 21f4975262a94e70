//! Work that several ranks share, here threads: the bytes are those of one process, for any number of ranks, and a rank that fails
//! stops all of them. `tools/ranks.py` does the same with processes.
#![allow(clippy::unwrap_used, clippy::print_stderr)]
mod share;
#[path = "../common/shared.rs"]
mod shared;
mod train;

use crossfade::ranks::{self, Group, threads};
use std::sync::Arc;

/// Runs `work` on `size` ranks; their results in order.
fn on_ranks<T: Send>(size: usize, work: impl Fn(&Group) -> T + Sync) -> Vec<T> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = threads::groups(size)
            .into_iter()
            .map(|group| {
                let work = &work;
                scope.spawn(move || {
                    let group = Arc::new(group);
                    ranks::enter(Arc::clone(&group));
                    work(&group)
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}
