//! FID as a metric. Features are summed as they arrive, and the statistics of the reference are stored on disk.
use super::super::Report;
use super::super::metric::{Compared, FeatureNetwork, MetricOptions, MetricSpec, ReferenceWork, Value, Verb};
use super::set_distance::{SetDistance, SetFeatures};
use super::{Extractor, FEATURES, FeatureSums, Gaussian, Protocol, Statistics};
use crate::data::Dataset;
use crate::error::{Error, Result};
use crate::files::create_directories;
use crate::ranks;
use std::ops::Range;

pub(in crate::metrics) const SPEC: MetricSpec = MetricSpec {
    name: "fid",
    about: "Fréchet Inception distance of two image sets: lower is better, 10,000 images or more",
    values: &[Value::lower("fid", "FID")],
    compared: Compared::ImageSet { statistics: true, classes: true },
    network: Some(FeatureNetwork::Inception),
    protocols: Protocol::NAMES,
    min_images: 2,
    revision: 1,
    verb: Verb::Own,
    open: |options| Ok(Box::new(SetDistance::new(Extractor::open(options, SPEC.name)?))),
};

/// Number of 64-image blocks between two checkpoints of a reference's statistics. 1024 images are some minutes of
/// work, the most that an interrupted study loses.
const CHECKPOINT_BLOCKS: usize = 16;

impl SetFeatures for Extractor {
    const NAME: &'static str = SPEC.name;
    const DIM: usize = FEATURES;

    fn each(
        &self,
        images: &dyn Dataset,
        range: Range<usize>,
        sink: &mut dyn FnMut(&[f32]) -> Result<()>,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<()> {
        self.each_of(images, range, sink, progress)
    }

    /// Loaded from a file or computed from the images.
    fn reference(&self, images: &dyn Dataset, work: &mut ReferenceWork) -> Result<Option<(Gaussian, FeatureSums)>> {
        let Some(store) = &work.store else {
            return Statistics::of(self, images, work.progress)?.with_sums().map(Some);
        };
        let name = format!("reference-{}.npz", store.key);
        let complete = store.cache.join(&name);
        let part = complete.with_extension("part.npz");
        let places = store.shared.into_iter().chain([store.cache]).map(|place| place.join(&name));
        // The name contains a hash of everything the statistics depend on, so an existing file is always right. Ranks must
        // agree on whether there is one, although another process may be writing it.
        let (stored, group) = (places.into_iter().find(|place| place.is_file()), ranks::current());
        if group.decided(stored.is_some())? {
            let missing = || {
                Error::Run(format!("{name} is not in the directory of this rank; all ranks must see the same files"))
            };
            // A run that was killed between the last two calls below has left its parts.
            let _ = std::fs::remove_file(&part);
            return Statistics::load(&stored.ok_or_else(missing)?)?.with_sums().map(Some);
        }
        create_directories(store.cache)?;
        let made = Statistics::resumed(self, images, (&part, CHECKPOINT_BLOCKS), work.stop, work.progress)?;
        let Some(made) = made else { return Ok(None) };
        if group.is_first() {
            made.save(&complete)?;
            // Another shard that works in the same directory may have removed it already.
            let _ = std::fs::remove_file(&part);
        }
        made.with_sums().map(Some)
    }

    fn statistics(&self, statistics: &Statistics) -> Result<Gaussian> {
        statistics.check_made_by(self)?;
        Ok(statistics.gaussian.clone())
    }

    fn report(&self) -> Report {
        Self::report(self, SPEC.name)
    }
}

impl Statistics {
    /// The distribution and the sums that it was computed from.
    fn with_sums(self) -> Result<(Gaussian, FeatureSums)> {
        match self.sums {
            Some(sums) => Ok((self.gaussian, sums)),
            None => Err(Error::Run("stored statistics of a reference lack their sums; delete the file".into())),
        }
    }
}

/// The error of a metric whose `prepare` was not called.
pub(super) fn unprepared() -> Error {
    Error::Run("the reference of the metric was not prepared".into())
}

impl Extractor {
    /// The network for the metric of that name, with the protocol and weights of the options.
    pub(super) fn open(options: &MetricOptions, metric: &str) -> Result<Self> {
        let name = options.protocol.unwrap_or(Protocol::NAMES[0]);
        let unknown =
            || Error::request(format!("{metric} has no protocol `{name}`; known: {}", Protocol::NAMES.join(", ")));
        Self::new(options.weights_of(metric)?, Protocol::parse(name).map_err(|_| unknown())?)
    }

    /// A report that states protocol and weights of the features.
    pub fn report(&self, metric: &str) -> Report {
        super::stated(Report::new(metric), Some(self.protocol()), Some(self.hash()))
    }
}
