//! Continuous batching: evaluations of all running samplers are joined to forward passes.
//!
//! A sampler keeps its loop, on a thread of its own. When it asks for an evaluation, [`Handle`] hands the images over and
//! waits. One thread computes: it takes what is waiting for the same network, whatever the times, classes, samplers and
//! clients, up to a maximum batch, and gives each its part of the outputs. Runs therefore join and leave between any two
//! evaluations. The outputs of an image have the same bits in any company (`crossfade::nn::Evaluation`), so that nobody
//! can tell from a picture what else was running.
use crate::metrics::Metrics;
use crate::models::Loaded;
use crossfade::engine::Tensor;
use crossfade::nn::{Backbone, Context, Evaluate, Evaluation, Mode, RawHeads};
use crossfade::{Error, Result};
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The message of a run that was cancelled; nobody sees it.
pub const CANCELLED: &str = "the job was cancelled";

/// How long a forward pass waits for the evaluations of runs that are between two of their steps: a small share of the
/// last one, because a run that comes too late waits for a whole pass.
const PATIENCE: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(20)];

struct Item {
    loaded: Arc<Loaded>,
    evaluation: Evaluation,
    client: Arc<str>,
    reply: SyncSender<Result<RawHeads>>,
}

#[derive(Default)]
struct State {
    waiting: Vec<Item>,
    /// Runs that will ask again: a pass waits for them a moment.
    active: usize,
    /// Images that were evaluated for each client.
    served: HashMap<Arc<str>, u64>,
    stopped: bool,
}

/// Joins evaluations; there is one for all networks of a server.
pub struct Batcher {
    state: Mutex<State>,
    changed: Condvar,
    max_batch: usize,
    metrics: Arc<Metrics>,
}

impl Batcher {
    /// Starts the thread that computes.
    pub fn start(max_batch: usize, metrics: Arc<Metrics>) -> std::io::Result<Arc<Self>> {
        let state = Mutex::default();
        let batcher = Arc::new(Self { state, changed: Condvar::new(), max_batch: max_batch.max(1), metrics });
        let own = batcher.clone();
        std::thread::Builder::new().name("batcher".into()).spawn(move || own.compute())?;
        Ok(batcher)
    }

    /// Ends the thread when nothing is waiting any more.
    pub fn stop(&self) {
        self.lock().stopped = true;
        self.changed.notify_all();
    }

    /// An evaluator for one run of a sampler; `stop` ends the run at its next evaluation.
    pub fn handle(self: &Arc<Self>, loaded: &Arc<Loaded>, client: &Arc<str>, stop: Arc<AtomicBool>) -> Handle {
        self.lock().active += 1;
        let (images, resting) = (AtomicUsize::new(0), AtomicBool::new(false));
        Handle { batcher: self.clone(), loaded: loaded.clone(), client: client.clone(), stop, images, resting }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn compute(&self) {
        crate::prepare_thread();
        let mut last = Duration::ZERO;
        while let Some(batch) = self.next_batch((last / 10).clamp(PATIENCE[0], PATIENCE[1])) {
            let began = Instant::now();
            self.evaluate(batch);
            last = began.elapsed();
        }
    }

    /// The evaluations of the next pass; none at the end.
    fn next_batch(&self, patience: Duration) -> Option<Vec<Item>> {
        let mut state = self.lock();
        while state.waiting.is_empty() {
            if state.stopped {
                return None;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let until = Instant::now() + patience;
        while state.waiting.len() < state.active {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        Some(state.take_batch(self.max_batch))
    }

    fn evaluate(&self, batch: Vec<Item>) {
        let Some(loaded) = batch.first().map(|item| item.loaded.clone()) else { return };
        let images = batch.iter().map(|item| item.evaluation.samples()).sum();
        let (evaluations, replies): (Vec<_>, Vec<_>) =
            batch.into_iter().map(|item| (item.evaluation, item.reply)).unzip();
        let began = Instant::now();
        // One worker of the pool runs the pass, so that kernels do not hand every small piece of work over to the pool.
        let run = || rayon::scope(|_| Evaluation::together(&loaded.network, evaluations));
        let outputs = catch_unwind(AssertUnwindSafe(run));
        self.metrics.pass(images, replies.len(), began.elapsed());
        match outputs {
            Ok(outputs) => replies.iter().zip(outputs).for_each(|(reply, output)| {
                // A run that ended in the meantime does not listen any more.
                let _ = reply.send(Ok(output));
            }),
            Err(_) => replies.iter().for_each(|reply| {
                let _ =
                    reply.send(Err(Error::Run("the evaluation of the network failed; see the server's log".into())));
            }),
        }
    }
}

impl State {
    /// Takes evaluations of one network that join each other. The client that has had the fewest images comes first, and
    /// of its evaluations the oldest.
    fn take_batch(&mut self, max_batch: usize) -> Vec<Item> {
        let served = |item: &Item| self.served.get(&item.client).copied().unwrap_or(0);
        let mut order: Vec<usize> = (0..self.waiting.len()).collect();
        order.sort_by_key(|&k| served(&self.waiting[k]));
        let first = &self.waiting[order[0]];
        let (mut chosen, mut images) = (vec![], 0);
        for &k in &order {
            let item = &self.waiting[k];
            let samples = item.evaluation.samples();
            let joins = item.loaded.id == first.loaded.id && item.evaluation.joins(&first.evaluation);
            if joins && (chosen.is_empty() || images + samples <= max_batch) {
                images += samples;
                chosen.push(k);
            }
        }
        // A client that comes new or back starts with the others and does not catch up on what it did not ask for.
        let least = self.waiting.iter().filter_map(|item| self.served.get(&item.client)).min().copied().unwrap_or(0);
        chosen.sort_unstable();
        let batch: Vec<Item> = chosen.iter().rev().map(|&k| self.waiting.remove(k)).collect();
        for item in &batch {
            let count = self.served.entry(item.client.clone()).or_insert(least);
            *count = (*count).max(least) + item.evaluation.samples() as u64;
        }
        if self.served.len() > MAX_CLIENTS {
            self.served.clear();
        }
        batch
    }
}

/// Clients that are remembered.
const MAX_CLIENTS: usize = 10_000;

/// What one run of a sampler evaluates its network with.
pub struct Handle {
    batcher: Arc<Batcher>,
    loaded: Arc<Loaded>,
    client: Arc<str>,
    stop: Arc<AtomicBool>,
    images: AtomicUsize,
    /// Whether passes do not wait for it.
    resting: AtomicBool,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.rest();
    }
}

impl Handle {
    /// Images that were evaluated so far; two for each that is guided.
    pub fn images(&self) -> usize {
        self.images.load(Ordering::Relaxed)
    }

    /// Nothing will be asked for a while, for example because pictures are being stored: passes do not wait for this run
    /// until it asks again.
    pub fn rest(&self) {
        if !self.resting.swap(true, Ordering::Relaxed) {
            self.batcher.lock().active -= 1;
            self.batcher.changed.notify_all();
        }
    }

    fn going_on(&self) -> Result<()> {
        if self.stop.load(Ordering::Relaxed) { Err(Error::Run(CANCELLED.into())) } else { Ok(()) }
    }
}

impl Evaluate for Handle {
    fn evaluate(&self, x: Tensor<4>, c_noise: Tensor<1>, context: &Context) -> Result<RawHeads> {
        self.going_on()?;
        self.images.fetch_add(x.dims()[0], Ordering::Relaxed);
        let (reply, answer) = sync_channel(1);
        let evaluation = Evaluation { x, c_noise, context: context.clone() };
        let item = Item { loaded: self.loaded.clone(), evaluation, client: self.client.clone(), reply };
        {
            let mut state = self.batcher.lock();
            state.active += usize::from(self.resting.swap(false, Ordering::Relaxed));
            state.waiting.push(item);
        }
        self.batcher.changed.notify_all();
        answer.recv().map_err(|_| Error::Run("the server is stopping".into()))?
    }

    fn look_at(&self, condition: Option<Tensor<4>>) -> Result<Context> {
        self.going_on()?;
        Ok(self.loaded.network.encode(condition, Mode::Eval))
    }

    fn mixing_weight(&self) -> Option<Tensor<1>> {
        self.loaded.network.mixing()
    }
}
