//! A metric that is the Fréchet distance between the features of two image sets, over all images and for each class.
//!
//! FID, `pixel-frechet` and `random-frechet` differ in their features only.
use super::super::Report;
use super::super::metric::{
    Accumulator, Measurement, Metric, Produced, Reference, ReferenceStore, ReferenceWork, Sample,
};
use super::fid::unprepared;
use super::{FeatureSums, Frechet, Gaussian, Statistics};
use crate::data::{Classes, Dataset, Image};
use crate::error::{Error, Result};
use crate::limits::CLASS_MATRICES;
use std::ops::Range;

/// Images of a reference whose features are computed between two checks for a stop.
const CHUNK: usize = 256;

/// The features that are compared, and how they are reported.
pub(super) trait SetFeatures: Send + Sync {
    /// The name of the metric and of its value.
    const NAME: &'static str;
    /// The number of features of an image.
    const DIM: usize;

    /// Passes the features of the images in `range` to `sink`, one vector after the other in the order of the set. Calls
    /// `progress` with the images of the set that are done, and all of them.
    fn each(
        &self,
        images: &dyn Dataset,
        range: Range<usize>,
        sink: &mut dyn FnMut(&[f32]) -> Result<()>,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<()>;

    /// The distribution of a reference with its sums; none if the work was stopped.
    fn reference(&self, images: &dyn Dataset, work: &mut ReferenceWork) -> Result<Option<(Gaussian, FeatureSums)>> {
        let mut sums = FeatureSums::new(Self::DIM);
        let mut add = |row: &[f32]| {
            sums.push(row);
            Ok(())
        };
        for start in (0..images.len()).step_by(CHUNK) {
            if (work.stop)() {
                return Ok(None);
            }
            self.each(images, start..(start + CHUNK).min(images.len()), &mut add, work.progress)?;
        }
        Ok(Some((Gaussian::of(&sums)?, sums)))
    }

    /// Statistics of a reference in place of its images.
    fn statistics(&self, _statistics: &Statistics) -> Result<Gaussian> {
        Err(Error::request(format!("{} needs the images, not their statistics", Self::NAME)))
    }

    /// The unit in which each feature is compared; none for the features as they are.
    fn units(&self, _reference: &Gaussian) -> Option<Vec<f64>> {
        None
    }

    /// A report that states how the features are made.
    fn report(&self) -> Report;
}

/// The distance to a reference, in units of its own.
struct Distance {
    frechet: Frechet,
    units: Option<Vec<f64>>,
}

impl Distance {
    fn to(reference: Gaussian, features: &impl SetFeatures) -> Result<Self> {
        let units = features.units(&reference);
        Ok(Self { frechet: Frechet::to(in_units(reference, units.as_deref()))?, units })
    }

    fn of(&self, sums: &FeatureSums) -> Result<f64> {
        self.frechet.distance(&in_units(Gaussian::of(sums)?, self.units.as_deref()))
    }
}

/// The distribution in these units.
fn in_units(mut gaussian: Gaussian, units: Option<&[f64]>) -> Gaussian {
    let Some(units) = units else { return gaussian };
    gaussian.mean.iter_mut().zip(units).for_each(|(mean, unit)| *mean /= unit);
    for (row, a) in gaussian.covariance.chunks_exact_mut(units.len()).zip(units) {
        row.iter_mut().zip(units).for_each(|(value, b)| *value /= a * b);
    }
    gaussian
}

/// The metric of these features.
pub(super) struct SetDistance<F> {
    features: F,
    reference: Option<Distance>,
    /// The name of each class and the distance to its images.
    classes: Vec<(String, Distance)>,
}

impl<F> SetDistance<F> {
    pub fn new(features: F) -> Self {
        Self { features, reference: None, classes: vec![] }
    }
}

impl<F: SetFeatures> SetDistance<F> {
    /// Each class is processed as a set of its own, which can be stored and resumed alone. The distribution of all images
    /// follows from the sums of the classes, so that every image is seen once. False if the work was stopped.
    fn prepare_classes(&mut self, images: &dyn Dataset, classes: &Classes, work: &mut ReferenceWork) -> Result<bool> {
        let needed = classes.names.len() * 3 * F::DIM * F::DIM * size_of::<f64>();
        CLASS_MATRICES.check(needed as u64).map_err(|why| Error::request(format!("{why}; leave per_class out")))?;
        let (mut total, mut done) = (FeatureSums::new(F::DIM), 0);
        self.classes.clear();
        for (class, name) in classes.names.iter().enumerate() {
            let of_class = |index: &usize| classes.of[*index] as usize == class;
            let part = Part { images, indices: (0..images.len()).filter(of_class).collect() };
            if part.len() < 2 {
                let problem = format!("has {} image of the class `{name}`: its values need two or more", part.len());
                return Err(Error::request(format!("{} {problem}", images.describe())));
            }
            let store = work.store.as_ref().map(|store| ReferenceStore {
                key: format!("{}-{class}", store.key),
                cache: store.cache,
                shared: store.shared,
            });
            let mut progress = |of_part: usize, _| (work.progress)(done + of_part, images.len());
            let mut own = ReferenceWork { store, stop: work.stop, progress: &mut progress };
            let Some((gaussian, sums)) = self.features.reference(&part, &mut own)? else { return Ok(false) };
            total.merge(sums)?;
            self.classes.push((name.clone(), Distance::to(gaussian, &self.features)?));
            done += part.len();
        }
        self.reference = Some(Distance::to(Gaussian::of(&total)?, &self.features)?);
        Ok(true)
    }
}

impl<F: SetFeatures> Metric for SetDistance<F> {
    fn prepare(&mut self, reference: &Reference, work: &mut ReferenceWork) -> Result<bool> {
        let gaussian = match reference {
            Reference::Classes(images, classes) => return self.prepare_classes(*images, classes, work),
            Reference::Statistics(statistics) => self.features.statistics(statistics)?,
            _ => match self.features.reference(reference.images(F::NAME)?, work)? {
                Some((gaussian, _)) => gaussian,
                None => return Ok(false),
            },
        };
        self.reference = Some(Distance::to(gaussian, &self.features)?);
        Ok(true)
    }

    fn accumulator(&self) -> Box<dyn Accumulator + '_> {
        let classes = self.classes.iter().map(|_| None).collect();
        Box::new(SetAccumulator { metric: self, sums: FeatureSums::new(F::DIM), classes })
    }
}

struct SetAccumulator<'a, F> {
    metric: &'a SetDistance<F>,
    sums: FeatureSums,
    /// The sums of each class that has images.
    classes: Vec<Option<FeatureSums>>,
}

impl<F: SetFeatures> Accumulator for SetAccumulator<'_, F> {
    fn add(&mut self, samples: Vec<Sample>) -> Result<()> {
        let mut classes = samples.iter().map(|sample| sample.class).collect::<Vec<_>>().into_iter();
        let produced = Produced::new(samples)?;
        let mut add = |row: &[f32]| {
            self.sums.push(row);
            let class = classes.next().flatten().and_then(|class| self.classes.get_mut(class as usize));
            if let Some(sums) = class {
                sums.get_or_insert_with(|| FeatureSums::new(F::DIM)).push(row);
            }
            Ok(())
        };
        self.metric.features.each(&produced, 0..produced.len(), &mut add, &mut |_, _| ())
    }

    fn finish(self: Box<Self>) -> Result<Measurement> {
        let reference = self.metric.reference.as_ref().ok_or_else(unprepared)?;
        let mut report = self.metric.features.report().value(F::NAME, reference.of(&self.sums)?);
        for ((name, reference), sums) in self.metric.classes.iter().zip(&self.classes) {
            // One image has no covariance.
            if let Some(sums) = sums.as_ref().filter(|sums| sums.count() > 1) {
                report = report.value(&class_value(F::NAME, name), reference.of(sums)?);
            }
        }
        Ok(report.into())
    }
}

/// The name of the value of a class.
pub(crate) fn class_value(metric: &str, class: &str) -> String {
    format!("{metric} of {class}")
}

/// Some images of a set.
struct Part<'a> {
    images: &'a dyn Dataset,
    indices: Vec<usize>,
}

impl Dataset for Part<'_> {
    fn len(&self) -> usize {
        self.indices.len()
    }
    fn get(&self, index: usize) -> Result<Image> {
        self.images.get(self.indices[index])
    }
    fn name(&self, index: usize) -> String {
        self.images.name(self.indices[index])
    }
    fn describe(&self) -> String {
        format!("{} of {}", self.indices.len(), self.images.describe())
    }
    fn in_memory(&self) -> bool {
        self.images.in_memory()
    }
}
