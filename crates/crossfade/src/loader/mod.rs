//! Batches, made ahead of time by background threads.
//!
//! The sample at a counter (which image, flipped or not) depends on (seed, counter) alone. The stream of samples
//! therefore does not depend on threads or batch size, and a run resumes by its counter.
mod cache;

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use crate::data::Dataset;
use crate::error::{Error, Result};
use crate::rng::{Purpose, Stream};
use crate::task::{SampleKey, TaskConfig};
use cache::Cache;

/// Number of finished batches that each thread may be ahead of the training loop.
const AHEAD: usize = 2;

/// How batches are made.
#[derive(Clone, Debug)]
pub struct LoaderConfig {
    /// Samples per batch.
    pub batch: usize,
    /// Seed of the order of the samples and of the flips.
    pub seed: u64,
    /// Whether each sample is mirrored left to right with probability 1/2.
    pub flip: bool,
    /// Number of background threads.
    pub threads: usize,
    /// Whether decoded images are cached, up to 512 MiB, unless the dataset is in memory anyway.
    pub cache: bool,
    /// Which of the batches are made.
    pub share: Share,
}

/// The batches of a rank: of the `micro_batches` batches of each training step, every `ranks`-th one, beginning with number `rank`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Batches of a training step, on all ranks together.
    pub micro_batches: u64,
    /// The number of the rank.
    pub rank: u64,
    /// The number of ranks.
    pub ranks: u64,
}

impl Share {
    /// All batches.
    pub const ALL: Self = Self { micro_batches: 1, rank: 0, ranks: 1 };

    /// Batches of a step that belong to this rank.
    pub fn of_step(&self) -> u64 {
        self.micro_batches.saturating_sub(self.rank).div_ceil(self.ranks)
    }

    /// The number, among all batches, of the `n`-th one of this rank, both counted from 0. Must not be called for a rank without
    /// batches.
    pub(crate) fn number(&self, n: u64) -> u64 {
        let own = self.of_step();
        (n / own) * self.micro_batches + (n % own) * self.ranks + self.rank
    }
}

/// Samples at consecutive counters.
#[derive(Clone, Debug, PartialEq)]
pub struct Batch {
    /// The running number of each sample since the start of training.
    pub counters: Vec<u64>,
    /// The index of each sample's image in the dataset.
    pub indices: Vec<usize>,
    /// (batch, channels, height, width) of `x0`.
    pub shape: [usize; 4],
    /// The clean data x_0 in NCHW order: images and maps in [−1, 1] as the loader returns them, or their latents,
    /// which are not limited to a range.
    pub x0: Vec<f32>,
    /// The network's second input, for tasks that have a condition.
    pub condition: Option<Stacked>,
}

/// Arrays of one shape, one for each sample of a batch.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stacked {
    /// (batch, channels, height, width).
    pub shape: [usize; 4],
    /// NCHW in [−1, 1].
    pub values: Vec<f32>,
}

/// The order of the samples: each epoch is another permutation of the dataset.
pub(crate) struct Order {
    seed: u64,
    len: usize,
    epoch: Option<u64>,
    permutation: Vec<usize>,
}

impl Order {
    pub fn new(seed: u64, len: usize) -> Self {
        Self { seed, len, epoch: None, permutation: Vec::new() }
    }

    /// The index of the image of the sample at `counter`.
    pub fn index(&mut self, counter: u64) -> usize {
        let epoch = counter / self.len as u64;
        if self.epoch != Some(epoch) {
            self.permutation = Stream::new(self.seed, epoch, 0, Purpose::Order).permutation(self.len);
            self.epoch = Some(epoch);
        }
        self.permutation[(counter % self.len as u64) as usize]
    }
}

/// The index, among `len` images, of the image of the sample at `counter`. Every call computes the permutation of an
/// epoch.
pub fn index(seed: u64, counter: u64, len: usize) -> usize {
    Order::new(seed, len).index(counter)
}

/// Whether the sample at `counter` is mirrored, where mirroring is on.
pub fn flipped(seed: u64, counter: u64) -> bool {
    Stream::new(seed, counter, 0, Purpose::Flip).bits() & 1 == 1
}

/// Background threads that prepare batches in order; dropping the loader ends them.
pub struct Loader {
    /// One queue per thread. Thread k of n prepares the batches k, k + n, k + 2n…, and the queues are read in turn,
    /// so that the order is fixed without any coordination.
    queues: Vec<Receiver<Result<Batch>>>,
    workers: Vec<JoinHandle<()>>,
    next_queue: usize,
}

impl Loader {
    /// Starts a loader of unconditional samples with the sample at `first_counter`.
    pub fn start(dataset: Arc<dyn Dataset>, config: LoaderConfig, first_counter: u64) -> Result<Self> {
        Self::pairs(dataset, TaskConfig::default(), config, first_counter)
    }

    /// As [`Loader::start`], for the samples of `task`.
    pub fn pairs(
        dataset: Arc<dyn Dataset>,
        task: TaskConfig,
        config: LoaderConfig,
        first_counter: u64,
    ) -> Result<Self> {
        if config.batch == 0 || config.threads == 0 || dataset.is_empty() || config.share.of_step() == 0 {
            return Err(Error::request("a loader needs at least one image, one sample a batch and one thread"));
        }
        let images = Arc::new(Cache::new(dataset, config.cache));
        let mut loader = Self { queues: Vec::new(), workers: Vec::new(), next_queue: 0 };
        for k in 0..config.threads {
            // A bounded queue blocks the thread when it is far enough ahead, which bounds the memory.
            let (sender, queue) = sync_channel(AHEAD);
            let worker = Worker {
                images: Arc::clone(&images),
                order: Order::new(config.seed, images.dataset.len()),
                task: task.clone(),
                config: config.clone(),
            };
            let handle = std::thread::Builder::new()
                .name(format!("loader-{k}"))
                .spawn(move || worker.run(first_counter, k as u64, &sender))
                .map_err(|e| Error::Run(format!("cannot start a loader thread: {e}")))?;
            loader.queues.push(queue);
            loader.workers.push(handle);
        }
        Ok(loader)
    }

    /// The next batch. After an error there are no more.
    pub fn next_batch(&mut self) -> Result<Batch> {
        let batch = match self.queues.get(self.next_queue).map(Receiver::recv) {
            Some(Ok(batch)) => batch,
            _ => Err(Error::Run("the loader has stopped after an earlier error".into())),
        };
        self.next_queue = (self.next_queue + 1) % self.workers.len();
        if batch.is_err() {
            self.queues.clear();
        }
        batch
    }
}

impl Drop for Loader {
    fn drop(&mut self) {
        // A thread ends when it finds its queue closed.
        self.queues.clear();
        for worker in self.workers.drain(..) {
            // A panic of the thread has been printed already, and `drop` must not panic.
            let _ = worker.join();
        }
    }
}

struct Worker {
    images: Arc<Cache>,
    order: Order,
    task: TaskConfig,
    config: LoaderConfig,
}

impl Worker {
    /// Makes every `threads`-th batch from batch `n` on; the samples begin at `first`.
    fn run(mut self, first: u64, mut n: u64, queue: &SyncSender<Result<Batch>>) {
        loop {
            let batch = self.batch(first + self.config.share.number(n) * self.config.batch as u64);
            // The thread ends with its first error, which is passed on in the order of the batches.
            let failed = batch.is_err();
            if queue.send(batch).is_err() || failed {
                return;
            }
            n += self.config.threads as u64;
        }
    }

    fn batch(&mut self, first: u64) -> Result<Batch> {
        let counters: Vec<u64> = (first..first + self.config.batch as u64).collect();
        let indices: Vec<usize> = counters.iter().map(|&c| self.order.index(c)).collect();
        let (mut target, mut condition) = (Gathered::default(), Gathered::default());
        for (&counter, &index) in counters.iter().zip(&indices) {
            let flip = self.config.flip && flipped(self.config.seed, counter);
            let key = SampleKey { seed: self.config.seed, counter, flip };
            let shapes = self.images.with(index, |found| {
                let example = self.task.task().example(&found.image, found.label.as_ref(), &key)?;
                target.values.extend(&example.target.values);
                let condition_shape = example.condition.map(|planes| {
                    condition.values.extend(&planes.values);
                    planes.shape
                });
                Ok((Some(example.target.shape), condition_shape))
            })?;
            let name = || self.images.dataset.name(index);
            let (target_shape, condition_shape) = shapes.map_err(|e: Error| Error::file(name(), e.to_string()))?;
            target.check(target_shape, name)?;
            condition.check(condition_shape, name)?;
        }
        let Stacked { shape, values: x0 } = target.stacked(counters.len()).unwrap_or_default();
        Ok(Batch { shape, indices, x0, condition: condition.stacked(counters.len()), counters })
    }
}

/// The concatenated values of samples that must have the same shape.
#[derive(Default)]
struct Gathered {
    shape: Option<[usize; 3]>,
    values: Vec<f32>,
}

impl Gathered {
    fn check(&mut self, found: Option<[usize; 3]>, name: impl Fn() -> String) -> Result<()> {
        let Some(found) = found else { return Ok(()) };
        if *self.shape.get_or_insert(found) != found {
            return Err(Error::request(format!("{}: of {found:?} (CHW), unlike the images before it", name())));
        }
        Ok(())
    }

    fn stacked(self, samples: usize) -> Option<Stacked> {
        let [channels, height, width] = self.shape?;
        Some(Stacked { shape: [samples, channels, height, width], values: self.values })
    }
}
