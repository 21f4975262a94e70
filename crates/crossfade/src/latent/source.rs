//! The training batches of a run: pixels, or latents of a latent diffusion run.
use super::{Latent, LatentCache};
use crate::data::Dataset;
use crate::engine::{Tensor, from_vec, to_host};
use crate::error::Result;
use crate::loader::Batch;
use crate::loader::{Loader, LoaderConfig, Order, flipped};
use crate::task::TaskConfig;
use std::path::Path;
use std::sync::Arc;

/// A stream of batches in the space of the network.
pub enum Batches {
    /// Batches of pixels.
    Pixels(Loader),
    /// Images that are encoded when they are needed, with the autoencoder and the seed of the posterior's noise.
    Encoded(Loader, Box<Latent>, u64),
    /// Images whose posteriors are in a cache file.
    Cached(Box<Cached>),
}

/// Latents that are drawn from the posteriors in a cache file.
pub struct Cached {
    cache: LatentCache,
    latent: Latent,
    order: Order,
    loading: LoaderConfig,
    /// The sample that the run begins with, and the batches that were made since.
    first: u64,
    done: u64,
}

impl Batches {
    /// Starts at sample `first`. With `latent`, batches are latents, which come from the file `cache` if one is given;
    /// `progress` is called while it is written.
    pub fn start(
        set: Arc<dyn Dataset>,
        task: TaskConfig,
        loading: LoaderConfig,
        first: u64,
        latent: Option<&Latent>,
        cache: Option<&Path>,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<Self> {
        Ok(match (latent.cloned(), cache) {
            (None, _) => Self::Pixels(Loader::pairs(set, task, loading, first)?),
            (Some(latent), None) => {
                let seed = loading.seed;
                Self::Encoded(Loader::pairs(set, task, loading, first)?, Box::new(latent), seed)
            }
            (Some(latent), Some(path)) => {
                let cache = LatentCache::open(path, &*set, &latent, loading.flip, progress)?;
                let order = Order::new(loading.seed, set.len());
                Self::Cached(Box::new(Cached { cache, latent, order, loading, first, done: 0 }))
            }
        })
    }

    /// The next batch; `x0` holds pixels, or latents in latent diffusion.
    pub fn next_batch(&mut self) -> Result<Batch> {
        match self {
            Self::Pixels(loader) => loader.next_batch(),
            Self::Encoded(loader, latent, seed) => {
                let batch = loader.next_batch()?;
                let images = from_vec(batch.x0, batch.shape, &latent.device);
                let z = latent.encode(images, *seed, &batch.counters);
                let condition = batch.condition;
                Ok(Batch { condition, ..with_latents(z, batch.counters, batch.indices) })
            }
            Self::Cached(cached) => cached.next_batch(),
        }
    }
}

fn with_latents(z: Tensor<4>, counters: Vec<u64>, indices: Vec<usize>) -> Batch {
    Batch { counters, indices, shape: z.dims(), x0: to_host(z), condition: None }
}

impl Cached {
    fn next_batch(&mut self) -> Result<Batch> {
        let size = self.loading.batch as u64;
        let from = self.first + self.loading.share.number(self.done) * size;
        self.done += 1;
        let counters: Vec<u64> = (from..from + size).collect();
        let indices: Vec<usize> = counters.iter().map(|&c| self.order.index(c)).collect();
        let flips = counters.iter().map(|&c| self.loading.flip && flipped(self.loading.seed, c));
        let images: Vec<_> = indices.iter().copied().zip(flips).collect();
        // The noise depends on the counter as in `Encoded`, so that a cached run has exactly the same batches.
        let posterior = self.cache.posterior(&images, &self.latent.device)?;
        let z = self.latent.draw(posterior, self.loading.seed, &counters);
        Ok(with_latents(z, counters, indices))
    }
}
