//! FID as a metric. Features are summed as they arrive, and the statistics of the reference are stored on disk.
use super::super::Report;
use super::super::metric::{
    Accumulator, Compared, FeatureNetwork, Measurement, Metric, MetricOptions, MetricSpec, Produced, Reference,
    ReferenceWork, Sample, Value, Verb,
};
use super::{Extractor, FEATURES, FeatureSums, Frechet, Gaussian, Protocol, Statistics};
use crate::data::Dataset;
use crate::error::{Error, Result};

pub(in crate::metrics) const SPEC: MetricSpec = MetricSpec {
    name: "fid",
    about: "Fréchet Inception distance of two image sets: lower is better, 10,000 images or more",
    values: &[Value::lower("fid", "FID")],
    compared: Compared::ImageSet { statistics: true },
    network: Some(FeatureNetwork::Inception),
    protocols: Protocol::NAMES,
    min_images: 2,
    revision: 1,
    verb: Verb::Own,
    open: |options| Ok(Box::new(Fid { extractor: Extractor::open(options, SPEC.name)?, reference: None })),
};

/// Number of 64-image blocks between two checkpoints of a reference's statistics. 1024 images are some minutes of
/// work, the most that an interrupted study loses.
const CHECKPOINT_BLOCKS: usize = 16;

struct Fid {
    extractor: Extractor,
    reference: Option<Frechet>,
}

struct FidAccumulator<'a> {
    metric: &'a Fid,
    sums: FeatureSums,
}

impl Fid {
    /// The statistics of the reference, loaded from a file or computed from the images; `None` if it was stopped.
    fn statistics(&self, images: &dyn Dataset, work: &mut ReferenceWork) -> Result<Option<Statistics>> {
        let Some(store) = &work.store else {
            return Statistics::of(&self.extractor, images, work.progress).map(Some);
        };
        let name = format!("reference-{}.npz", store.key);
        let places = store.shared.into_iter().chain([store.cache]).map(|place| place.join(&name));
        // The name contains a hash of everything the statistics depend on, so an existing file is always right.
        if let Some(stored) = places.into_iter().find(|place| place.is_file()) {
            return Statistics::load(&stored).map(Some);
        }
        std::fs::create_dir_all(store.cache).map_err(Error::io(store.cache))?;
        let complete = store.cache.join(&name);
        let part = complete.with_extension("part.npz");
        let made = Statistics::resumed(&self.extractor, images, (&part, CHECKPOINT_BLOCKS), work.stop, work.progress)?;
        if let Some(made) = &made {
            made.save(&complete)?;
            // Another shard that works in the same directory may have removed it already.
            let _ = std::fs::remove_file(&part);
        }
        Ok(made)
    }
}

impl Metric for Fid {
    fn prepare(&mut self, reference: &Reference, work: &mut ReferenceWork) -> Result<bool> {
        let gaussian = match reference {
            Reference::Statistics(statistics) => {
                statistics.check_made_by(&self.extractor)?;
                statistics.gaussian.clone()
            }
            _ => match self.statistics(reference.images(SPEC.name)?, work)? {
                Some(statistics) => statistics.gaussian,
                None => return Ok(false),
            },
        };
        self.reference = Some(Frechet::to(gaussian)?);
        Ok(true)
    }

    fn accumulator(&self) -> Box<dyn Accumulator + '_> {
        Box::new(FidAccumulator { metric: self, sums: FeatureSums::new(FEATURES) })
    }
}

impl Accumulator for FidAccumulator<'_> {
    fn add(&mut self, samples: Vec<Sample>) -> Result<()> {
        let mut add = |row: &[f32]| {
            self.sums.push(row);
            Ok(())
        };
        self.metric.extractor.each(&Produced::new(samples), &mut add, &mut |_, _| ())
    }

    fn finish(self: Box<Self>) -> Result<Measurement> {
        let frechet = self.metric.reference.as_ref().ok_or_else(unprepared)?;
        let distance = frechet.distance(&Gaussian::of(&self.sums)?)?;
        Ok(self.metric.extractor.report(SPEC.name).value(SPEC.values[0].name, distance).into())
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
