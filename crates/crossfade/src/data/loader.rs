//! Batches, made ahead of time by background threads.
//!
//! What the sample at a counter is (which image, flipped or not) is a function of (seed, counter) alone, so the stream
//! does not depend on threads or batch size, and a run resumes by its counter.
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;

use super::{Dataset, Image};
use crate::error::{Error, Result};
use crate::rng::{Purpose, Stream};

/// Most bytes of decoded images kept in memory.
const CACHE_BYTES: usize = 512 << 20;
/// Finished batches each thread may be ahead.
const AHEAD: usize = 2;

/// How batches are made.
#[derive(Clone, Debug)]
pub struct LoaderConfig {
    /// Samples a batch.
    pub batch: usize,
    /// Of the order and the flips.
    pub seed: u64,
    /// Whether each sample is mirrored left to right with probability 1/2.
    pub flip: bool,
    /// Background threads.
    pub threads: usize,
    /// Whether decoded images are kept, up to 512 MiB, unless the set lies in memory anyway.
    pub cache: bool,
}

/// Samples at consecutive counters.
#[derive(Clone, Debug, PartialEq)]
pub struct Batch {
    /// The running number of each sample since the start of training.
    pub counters: Vec<u64>,
    /// Which image of the set each sample is.
    pub indices: Vec<usize>,
    /// (batch, channels, height, width).
    pub shape: [usize; 4],
    /// NCHW in [-1, 1]: x / 127.5 - 1.
    pub pixels: Vec<f32>,
}

/// The order of samples: each epoch a permutation of the set.
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

    /// Which image the sample at `counter` is.
    pub fn index(&mut self, counter: u64) -> usize {
        let epoch = counter / self.len as u64;
        if self.epoch != Some(epoch) {
            self.permutation = Stream::new(self.seed, epoch, 0, Purpose::Order).permutation(self.len);
            self.epoch = Some(epoch);
        }
        self.permutation[(counter % self.len as u64) as usize]
    }
}

/// Which of `len` images the sample at `counter` is. Makes an epoch's permutation at each call.
pub fn index(seed: u64, counter: u64, len: usize) -> usize {
    Order::new(seed, len).index(counter)
}

/// Whether the sample at `counter` is mirrored, where mirroring is on.
pub fn flipped(seed: u64, counter: u64) -> bool {
    Stream::new(seed, counter, 0, Purpose::Flip).bits() & 1 == 1
}

/// Background threads that make batches in order; dropping it ends them.
pub struct Loader {
    /// One queue a thread; thread k of n makes the batches k, k + n, k + 2n...
    queues: Vec<Receiver<Result<Batch>>>,
    workers: Vec<JoinHandle<()>>,
    turn: usize,
}

impl Loader {
    /// Starts with the sample at `first_counter`.
    pub fn start(dataset: Arc<dyn Dataset>, config: LoaderConfig, first_counter: u64) -> Result<Self> {
        if config.batch == 0 || config.threads == 0 || dataset.is_empty() {
            return Err(Error::request("a loader needs at least one image, one sample a batch and one thread"));
        }
        let cached = config.cache && !dataset.in_memory();
        let images = Arc::new(Images {
            cache: if cached { (0..dataset.len()).map(|_| OnceLock::new()).collect() } else { Vec::new() },
            cached_bytes: AtomicUsize::new(0),
            dataset,
        });
        let mut loader = Self { queues: Vec::new(), workers: Vec::new(), turn: 0 };
        for k in 0..config.threads {
            let (sender, queue) = sync_channel(AHEAD);
            let worker = Worker {
                images: Arc::clone(&images),
                order: Order::new(config.seed, images.dataset.len()),
                config: config.clone(),
            };
            let start = first_counter + (k * config.batch) as u64;
            let handle = std::thread::Builder::new()
                .name(format!("loader-{k}"))
                .spawn(move || worker.run(start, &sender))
                .map_err(|e| Error::Run(format!("cannot start a loader thread: {e}")))?;
            loader.queues.push(queue);
            loader.workers.push(handle);
        }
        Ok(loader)
    }

    /// The next batch. After an error there are no more.
    pub fn next_batch(&mut self) -> Result<Batch> {
        let batch = match self.queues.get(self.turn).map(Receiver::recv) {
            Some(Ok(batch)) => batch,
            _ => Err(Error::Run("the loader has stopped after an earlier error".into())),
        };
        self.turn = (self.turn + 1) % self.workers.len();
        if batch.is_err() {
            self.queues.clear();
        }
        batch
    }
}

impl Drop for Loader {
    fn drop(&mut self) {
        // A thread that finds its queue gone ends.
        self.queues.clear();
        for worker in self.workers.drain(..) {
            // Its panic message has been printed already, and drop must not panic.
            let _ = worker.join();
        }
    }
}

/// The set, with what has been decoded of it.
struct Images {
    dataset: Arc<dyn Dataset>,
    /// One place an image, or none at all.
    cache: Vec<OnceLock<Image>>,
    cached_bytes: AtomicUsize,
}

impl Images {
    /// Calls `f` with image `index`.
    fn with<T>(&self, index: usize, f: impl FnOnce(&Image) -> T) -> Result<T> {
        let place = self.cache.get(index);
        if let Some(image) = place.and_then(OnceLock::get) {
            return Ok(f(image));
        }
        let image = self.dataset.get(index)?;
        let result = f(&image);
        if let Some(place) = place
            && self.cached_bytes.fetch_add(image.pixels.len(), Ordering::Relaxed) < CACHE_BYTES
        {
            // Another thread may have been faster with the same image.
            let _ = place.set(image);
        }
        Ok(result)
    }
}

struct Worker {
    images: Arc<Images>,
    order: Order,
    config: LoaderConfig,
}

impl Worker {
    fn run(mut self, mut counter: u64, queue: &SyncSender<Result<Batch>>) {
        loop {
            let batch = self.batch(counter);
            let failed = batch.is_err();
            if queue.send(batch).is_err() || failed {
                return;
            }
            counter += (self.config.batch * self.config.threads) as u64;
        }
    }

    fn batch(&mut self, first: u64) -> Result<Batch> {
        let counters: Vec<u64> = (first..first + self.config.batch as u64).collect();
        let indices: Vec<usize> = counters.iter().map(|&c| self.order.index(c)).collect();
        let mut shape = None;
        let mut pixels = Vec::new();
        for (&counter, &index) in counters.iter().zip(&indices) {
            let flip = self.config.flip && flipped(self.config.seed, counter);
            let found = self.images.with(index, |image| {
                append_planes(image, flip, &mut pixels);
                [image.channels, image.height, image.width]
            })?;
            if *shape.get_or_insert(found) != found {
                let name = self.images.dataset.name(index);
                return Err(Error::request(format!("{name}: of {found:?} (CHW), unlike the images before it")));
            }
        }
        let [channels, height, width] = shape.unwrap_or_default();
        Ok(Batch { shape: [counters.len(), channels, height, width], counters, indices, pixels })
    }
}

/// Appends an image as CHW in [-1, 1], mirrored if asked.
pub(crate) fn append_planes(image: &Image, flip: bool, out: &mut Vec<f32>) {
    let value = |v: u8| f32::from(v) / 127.5 - 1.0;
    for channel in 0..image.channels {
        for row in image.pixels.chunks_exact(image.width * image.channels) {
            let line = row[channel..].iter().step_by(image.channels).map(|&v| value(v));
            let start = out.len();
            out.extend(line);
            if flip {
                out[start..].reverse();
            }
        }
    }
}
