//! Shares the pieces of a kernel out among threads that stay awake from one kernel to the next.
//!
//! A network is hundreds of short kernels in a row. Rayon's workers go to sleep in the gaps between them, and waking one
//! takes as long as a small kernel: on two processors that cost a fifth of the time. The helper threads of this module
//! poll for the next kernel for a moment before they sleep. What is shared out is still described by rayon's iterators,
//! and the number of threads is that of the current rayon pool.
use crate::flush;
use rayon::iter::plumbing::{Producer, ProducerCallback};
use rayon::prelude::*;
use std::cell::UnsafeCell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

const HELPER_NAME: &str = "crossfade helper";

/// A waiting thread polls without pause for this long; then it yields the processor between two polls.
const SPIN: Duration = Duration::from_micros(50);
/// A helper that has found no job for this long goes to sleep.
const POLL: Duration = Duration::from_millis(2);

/// An iterator whose items are computed by all threads.
pub(crate) trait Share: IndexedParallelIterator {
    /// Calls `each` once for every item, in no particular order. A nested call from within `each` stays on its thread.
    fn share(self, each: impl Fn(Self::Item) + Sync) {
        let len = self.len();
        let threads = rayon::current_num_threads();
        self.with_producer(Pieces { len, threads, each });
    }
}

impl<I: IndexedParallelIterator> Share for I {}

struct Pieces<F> {
    len: usize,
    threads: usize,
    each: F,
}

impl<T, F: Fn(T) + Sync> ProducerCallback<T> for Pieces<F> {
    type Output = ();

    fn callback<P: Producer<Item = T>>(self, producer: P) {
        let Self { len, threads, each } = self;
        if threads == 1 || len <= producer.min_len().max(1) {
            return producer.into_iter().for_each(each);
        }
        let (least, most) = (producer.min_len().max(1), producer.max_len().max(1));
        let remaining = Mutex::new(Some((producer, len)));
        // Even workers take from the front and odd ones from the back: what a thread wrote in the last kernel and still
        // has in its cache, it probably reads in this one.
        let take = |worker: usize| {
            let mut remaining = lock(&remaining);
            let (producer, len) = remaining.take()?;
            let size = piece_size(len, threads, [least, most]);
            let (from_front, left) = (worker.is_multiple_of(2), len - size);
            if left == 0 {
                return Some(producer);
            }
            let (front, back) = producer.split_at(if from_front { size } else { left });
            let (piece, rest) = if from_front { (front, back) } else { (back, front) };
            *remaining = Some((rest, left));
            Some(piece)
        };
        TEAM.run(threads - 1, &|worker| {
            while let Some(piece) = take(worker) {
                piece.into_iter().for_each(&each);
            }
        });
    }
}

/// How many of the `len` remaining items to take: many at first and few at last, so that all threads finish together.
fn piece_size(len: usize, threads: usize, [least, most]: [usize; 2]) -> usize {
    (len / (2 * threads)).min(most).max(least).min(len)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

static TEAM: Team = Team {
    leader: Mutex::new(0),
    state: AtomicU64::new(State::CLOSED),
    job: UnsafeCell::new(None),
    failed: AtomicBool::new(false),
    sleepers: AtomicUsize::new(0),
    sleep_lock: Mutex::new(()),
    wake_up: Condvar::new(),
};

/// The helpers and the one job that they may join.
struct Team {
    /// Locked by the thread that leads a job; its value is the number of helpers.
    leader: Mutex<usize>,
    state: AtomicU64,
    /// Written by the leader while the job is closed and nobody works at it, read by those who have joined.
    job: UnsafeCell<Option<Job>>,
    /// Whether a helper panicked in the current job.
    failed: AtomicBool,
    /// How many helpers sleep, or are about to.
    sleepers: AtomicUsize,
    sleep_lock: Mutex<()>,
    wake_up: Condvar,
}

// SAFETY: `job` is the only part that is not `Sync` by itself; the comments at its two uses say why they exclude each
// other. What it points to is `Sync`.
unsafe impl Sync for Team {}

#[derive(Clone, Copy)]
struct Job {
    work: &'static (dyn Fn(usize) + Sync),
    mode: flush::Mode,
}

/// The layout of [`Team::state`]: the job's number in bits 32..64, how many helpers may join in bits 16..32, whether the
/// job is closed in bit 15, and how many helpers have joined and not left in bits 0..15.
struct State;

impl State {
    const JOINED: u64 = (1 << 15) - 1;
    const CLOSED: u64 = 1 << 15;

    fn open(number: u64, helpers: usize) -> u64 {
        number << 32 | (helpers.min(Self::JOINED as usize) as u64) << 16
    }

    fn number(state: u64) -> u64 {
        state >> 32
    }

    fn can_join(state: u64) -> bool {
        state & Self::CLOSED == 0 && state & Self::JOINED < state >> 16 & 0xffff
    }
}

impl Team {
    /// Runs `work` on this thread as worker 0, and on up to `helpers` other threads that are free in time. If another
    /// thread (or this one, further up its stack) leads a job already, this thread does all the work alone.
    fn run(&'static self, helpers: usize, work: &(dyn Fn(usize) + Sync)) {
        let Ok(mut count) = self.leader.try_lock() else {
            return work(0);
        };
        while *count < helpers && self.spawn_helper() {
            *count += 1;
        }
        // SAFETY: only the lifetime changes. Nobody uses `work` after this function: it ends, panicking or not, with
        // the job closed and all helpers gone from it.
        let work: &'static (dyn Fn(usize) + Sync) = unsafe { std::mem::transmute(work) };
        // SAFETY: this thread leads, the last job was closed and left by all before its leader returned, and a helper
        // reads the cell only between joining an open job and leaving it.
        unsafe { *self.job.get() = Some(Job { work, mode: flush::Mode::current() }) };
        let number = State::number(self.state.load(Ordering::Relaxed)).wrapping_add(1) & u64::from(u32::MAX);
        self.state.store(State::open(number, helpers), Ordering::SeqCst);
        if self.sleepers.load(Ordering::SeqCst) > 0 {
            drop(lock(&self.sleep_lock));
            self.wake_up.notify_all();
        }
        let outcome = catch_unwind(AssertUnwindSafe(|| work(0)));
        self.state.fetch_or(State::CLOSED, Ordering::SeqCst);
        wait(Duration::MAX, || self.state.load(Ordering::SeqCst) & State::JOINED == 0);
        let failed = self.failed.swap(false, Ordering::SeqCst);
        drop(count);
        if let Err(panic) = outcome {
            resume_unwind(panic);
        }
        assert!(!failed, "a helper of this kernel panicked");
    }

    /// Starts a helper; false if the system does not allow one more thread.
    fn spawn_helper(&'static self) -> bool {
        std::thread::Builder::new().name(HELPER_NAME.into()).spawn(|| self.helper_loop()).is_ok()
    }

    fn helper_loop(&self) {
        let mut last = u64::MAX;
        loop {
            let state = self.next_job(last);
            // Fails if anybody joined, left or closed the job since `state` was read.
            if self.state.compare_exchange(state, state + 1, Ordering::SeqCst, Ordering::SeqCst).is_err() {
                continue;
            }
            last = State::number(state);
            // SAFETY: joined, so the leader waits for this helper before it writes the cell or lets `work` end.
            if let Some(Job { work, mode }) = unsafe { *self.job.get() } {
                // SAFETY: the leader computes in the same mode, and with the same code.
                unsafe { mode.set() };
                let worker = (state & State::JOINED) as usize + 1;
                if catch_unwind(AssertUnwindSafe(|| work(worker))).is_err() {
                    self.failed.store(true, Ordering::SeqCst);
                }
            }
            self.state.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// Polls, then sleeps, until a job other than number `last` can be joined; returns the state that says so.
    fn next_job(&self, last: u64) -> u64 {
        let find =
            || Some(self.state.load(Ordering::SeqCst)).filter(|&s| State::can_join(s) && State::number(s) != last);
        let mut found = None;
        wait(POLL, || {
            found = find();
            found.is_some()
        });
        if let Some(state) = found {
            return state;
        }
        let mut guard = lock(&self.sleep_lock);
        // No wake-up is lost: a leader that does not see this sleeper has opened its job before, and `find` sees it.
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        let state = loop {
            match find() {
                Some(state) => break state,
                None => guard = self.wake_up.wait(guard).unwrap_or_else(PoisonError::into_inner),
            }
        };
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
        state
    }
}

/// Waits until `done` or for `limit`, at first without yielding the processor.
fn wait(limit: Duration, mut done: impl FnMut() -> bool) {
    /// Polls between two readings of the clock, which costs more than a poll.
    const POLLS: usize = 64;
    let start = Instant::now();
    loop {
        for _ in 0..POLLS {
            if done() {
                return;
            }
            std::hint::spin_loop();
        }
        match start.elapsed() {
            waited if waited >= limit => return,
            waited if waited >= SPIN => std::thread::yield_now(),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::pools;

    #[test]
    fn every_item_is_visited_once() {
        for len in (0..20).chain([100, 1001]) {
            let counts: [Vec<usize>; 3] = pools(|| {
                let mut counts = vec![0; len];
                counts.par_iter_mut().enumerate().share(|(i, count)| *count += i + 1);
                counts
            });
            assert!(counts.iter().all(|counts| counts.iter().enumerate().all(|(i, &count)| count == i + 1)), "{len}");
        }
    }

    #[test]
    fn pieces_respect_their_limits() {
        for (threads, [least, most]) in [(2, [1, usize::MAX]), (3, [4, usize::MAX]), (2, [1, 1]), (64, [2, 5])] {
            let mut left = 103;
            while left > 0 {
                let size = piece_size(left, threads, [least, most]);
                assert!((1..=most).contains(&size) && (size >= least || size == left), "{size} of {left}");
                assert!(size <= least.max(left / 2), "{size} of {left} leaves nothing for the others");
                left -= size;
            }
        }
        pools(|| {
            let mut items = [0; 103];
            items.par_chunks_mut(10).with_min_len(4).share(|chunk| chunk.fill(1));
            assert_eq!(items, [1; 103]);
        });
    }

    #[test]
    fn nested_and_concurrent_jobs_finish() {
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    pools(|| {
                        let total = AtomicUsize::new(0);
                        (0..10).into_par_iter().share(|i| {
                            (0..i).into_par_iter().share(|j| {
                                total.fetch_add(j, Ordering::Relaxed);
                            });
                        });
                        assert_eq!(total.into_inner(), 120);
                    })
                });
            }
        });
    }

    #[test]
    fn helpers_take_part() {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build().expect("a pool");
        let helped = AtomicBool::new(false);
        // Other tests may lead the team at first.
        for _ in 0..10_000 {
            pool.install(|| {
                (0..64).into_par_iter().share(|_| {
                    helped.fetch_or(std::thread::current().name() == Some(HELPER_NAME), Ordering::Relaxed);
                    std::thread::sleep(Duration::from_micros(10));
                });
            });
            if helped.load(Ordering::Relaxed) {
                return;
            }
        }
        panic!("one thread did all the work");
    }

    #[test]
    fn a_panic_reaches_the_leader_and_the_team_stays_usable() {
        for bad in 0..40 {
            let outcome = catch_unwind(|| {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build().expect("a pool");
                pool.install(|| (0..40).into_par_iter().share(|i| assert_ne!(i, bad)));
            });
            assert!(outcome.is_err(), "{bad}");
        }
        every_item_is_visited_once();
    }
}
