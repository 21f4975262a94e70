//! Computes the features of image sets in the order of the set, a few images at a time.
use super::inception::{FEATURES, GROUP, Inception, Scratch};
use super::protocol::Protocol;
use crate::data::Dataset;
use crate::error::{Error, Result};
use crate::limits::sharing;
use crate::ranks::{self, Packed, Unpacked};
use rayon::prelude::*;
use std::ops::Range;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// Number of image groups per thread in one round. More of them keep all threads busy until the end of a round, fewer
/// save memory.
const ROUNDS: usize = 4;

/// The Inception network and the protocol by which images are prepared for it.
pub struct Extractor {
    network: Inception,
    protocol: Protocol,
    scratch: Mutex<Vec<Scratch>>,
}

/// Number of images between two checks of the stop condition.
pub(super) const PORTION: usize = 256;

/// Feature vectors of images.
#[derive(Clone, Debug, PartialEq)]
pub struct Features {
    /// The length of a vector.
    pub dim: usize,
    /// The concatenated vectors.
    pub values: Vec<f32>,
}

impl Features {
    /// An error if these are no vectors of numbers: every formula would give some value all the same.
    pub(super) fn check(&self, metric: &str) -> Result<()> {
        if self.dim == 0 || self.values.is_empty() || !self.values.len().is_multiple_of(self.dim) {
            let problem = format!("{} values are no vectors of {}", self.values.len(), self.dim);
            return Err(Error::request(format!("{metric}: {problem}")));
        }
        match self.values.iter().position(|v| !v.is_finite()) {
            Some(at) => {
                let (value, image) = (self.values[at], at / self.dim);
                Err(Error::request(format!("{metric}: a feature of image {image} is {value}, which is no number")))
            }
            None => Ok(()),
        }
    }

    /// The number of vectors.
    pub fn len(&self) -> usize {
        self.values.len() / self.dim
    }

    /// Whether there are no vectors.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// Vector `i`.
    pub fn row(&self, i: usize) -> &[f32] {
        &self.values[i * self.dim..][..self.dim]
    }
}

impl Extractor {
    /// Loads the network from the weights in `path`.
    pub fn new(path: &Path, protocol: Protocol) -> Result<Self> {
        Ok(Self { network: Inception::load(path)?, protocol, scratch: Mutex::default() })
    }

    /// The network.
    pub fn network(&self) -> &Inception {
        &self.network
    }

    /// The protocol by which images are prepared.
    pub fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// SHA-256 of the weights.
    pub fn hash(&self) -> &str {
        self.network.hash()
    }

    /// Passes the features of all images to `sink`, one vector after the other in the order of the set.
    ///
    /// An image that cannot be read is an error that names the image.
    pub fn each(
        &self,
        images: &dyn Dataset,
        sink: &mut dyn FnMut(&[f32]) -> Result<()>,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<()> {
        self.each_of(images, 0..images.len(), sink, progress)
    }

    /// As [`Self::each`] for the images of a range.
    pub(super) fn each_of(
        &self,
        images: &dyn Dataset,
        range: Range<usize>,
        sink: &mut dyn FnMut(&[f32]) -> Result<()>,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<()> {
        let (total, step) = (images.len(), ROUNDS * GROUP * rayon::current_num_threads());
        progress(range.start, total);
        for first in range.clone().step_by(step) {
            let count = step.min(range.end - first);
            let mut values = vec![0.0; count * FEATURES];
            values
                .par_chunks_mut(GROUP * FEATURES)
                .enumerate()
                .try_for_each(|(group, out)| self.group(images, first + group * GROUP, out))?;
            // Passed on in order and by one thread, so that sums have the same rounding on any number of threads.
            values.chunks_exact(FEATURES).try_for_each(&mut *sink)?;
            progress(first + count, total);
        }
        Ok(())
    }

    /// As [`Self::each_of`], where ranks share the work: each computes some of the features, and every rank gets all of them, in
    /// the order of the set. All ranks call this.
    pub(super) fn each_together(
        &self,
        images: &dyn Dataset,
        range: Range<usize>,
        sink: &mut dyn FnMut(&[f32]) -> Result<()>,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<()> {
        let group = ranks::current();
        if group.size() == 1 {
            return self.each_of(images, range, sink, progress);
        }
        let portion = range.len().div_ceil(group.size()).min(PORTION);
        for round in range.clone().step_by((portion * group.size()).max(1)) {
            let place = |rank: usize| (round + portion * rank).min(range.end);
            let mut own = vec![];
            let mut keep = |row: &[f32]| {
                own.extend_from_slice(row);
                Ok(())
            };
            self.each_of(images, place(group.rank())..place(group.rank() + 1), &mut keep, &mut |_, _| ())?;
            let mut packed = Packed::default();
            packed.f32s(&own);
            for part in group.to_all(packed.0)? {
                Unpacked(&part).f32s()?.chunks_exact(FEATURES).try_for_each(&mut *sink)?;
            }
            progress(place(group.size()), images.len());
        }
        Ok(())
    }

    /// The features of all images.
    pub fn features(&self, images: &dyn Dataset, progress: &mut dyn FnMut(usize, usize)) -> Result<Features> {
        let all = self.features_until(images, &|| false, progress)?;
        Ok(all.unwrap_or(Features { dim: FEATURES, values: vec![] }))
    }

    /// As [`Self::features`]; `None` if `stop` became true before the end.
    pub(crate) fn features_until(
        &self,
        images: &dyn Dataset,
        stop: &dyn Fn() -> bool,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<Option<Features>> {
        let mut values = Vec::with_capacity(images.len() * FEATURES);
        for first in (0..images.len()).step_by(PORTION) {
            if stop() {
                return Ok(None);
            }
            let mut keep = |row: &[f32]| {
                values.extend_from_slice(row);
                Ok(())
            };
            self.each_of(images, first..(first + PORTION).min(images.len()), &mut keep, progress)?;
        }
        Ok(Some(Features { dim: FEATURES, values }))
    }

    fn group(&self, images: &dyn Dataset, first: usize, out: &mut [f32]) -> Result<()> {
        let lock = || self.scratch.lock().unwrap_or_else(PoisonError::into_inner);
        // Scratch memory is taken from a shared stack, since rayon has no state per thread that outlives a call.
        let mut scratch = lock().pop().unwrap_or_default();
        let fill = |i: usize, to: &mut _| {
            sharing(|| {
                self.protocol.fill(&images.get(first + i)?.with_channels(3), to);
                Ok(())
            })
        };
        self.network.features(&mut scratch, fill, out)?;
        lock().push(scratch);
        if let Some(bad) = out.iter().position(|v| !v.is_finite()) {
            let name = images.name(first + bad / FEATURES);
            return Err(Error::Run(format!("the features of {name} are not finite; are the weights the right ones?")));
        }
        Ok(())
    }
}
