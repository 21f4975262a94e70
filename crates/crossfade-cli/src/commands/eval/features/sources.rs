//! From the arguments of the command line to features and statistics.
use super::NetworkArgs;
use crate::context::Context;
use anyhow::Result;
use crossfade::Error;
use crossfade::data::Dataset;
use crossfade::metrics::features::registry::Entry;
use crossfade::metrics::features::{Extractor, FEATURES, Features, GroupedSums, Input, Protocol, Statistics, open};

impl NetworkArgs {
    /// The protocol by name.
    pub fn protocol(&self) -> Result<Protocol> {
        Ok(Protocol::parse(&self.protocol)?)
    }

    /// Loads the network.
    pub fn extractor(&self) -> Result<Extractor> {
        let path = match &self.weights {
            Some(path) => path.clone(),
            None => Entry::named("inception")?.cached()?,
        };
        Ok(Extractor::new(&path, self.protocol()?)?)
    }
}

/// One of the two image sets of a distance.
pub struct Side {
    pub statistics: Statistics,
    pub about: String,
    /// The sums in groups, if an interval was asked for.
    pub grouped: Option<GroupedSums>,
}

/// Opens an image set; stored statistics are refused.
pub fn images(text: &str) -> Result<Box<dyn Dataset>> {
    match open(text)? {
        Input::Images(images) => Ok(images),
        Input::Statistics(_) => {
            Err(Error::request(format!("{text} holds statistics, but this metric needs the images")).into())
        }
    }
}

/// An error if a set has too few images for `what` to mean anything: before the network runs over them.
pub fn enough(text: &str, count: usize, least: usize, what: &str) -> Result<()> {
    if count >= least {
        return Ok(());
    }
    let images = if count == 1 { "image" } else { "images" };
    Err(Error::request(format!("{text} has {count} {images}: {what} needs {least} or more")).into())
}

/// The features of all images.
pub fn features(extractor: &Extractor, images: &dyn Dataset, context: &Context) -> Result<Features> {
    let mut progress = context.progress("images", images.len() as u64);
    Ok(extractor.features(images, &mut |done, all| progress.set(done as u64, all as u64))?)
}

/// The statistics of one side: stored ones, or those of its images.
pub fn side(text: &str, input: Input, extractor: Option<&Extractor>, grouped: bool, context: &Context) -> Result<Side> {
    let images = match (input, extractor) {
        (Input::Statistics(statistics), _) => {
            let count = statistics.count().map_or("an unknown number of".into(), |n| n.to_string());
            let about = format!("{text}: statistics of {count} images");
            return Ok(Side { statistics: *statistics, about, grouped: None });
        }
        (Input::Images(images), Some(extractor)) => (images, extractor),
        (Input::Images(_), None) => unreachable!("images are read with a network"),
    };
    let (images, extractor) = images;
    let mut progress = context.progress("images", images.len() as u64);
    let mut tell = |done: usize, all: usize| progress.set(done as u64, all as u64);
    if !grouped {
        let statistics = Statistics::of(extractor, &*images, &mut tell)?;
        return Ok(Side { statistics, about: images.describe(), grouped: None });
    }
    let mut sums = GroupedSums::new(FEATURES);
    let mut add = |row: &[f32]| {
        sums.push(row);
        Ok(())
    };
    extractor.each(&*images, &mut add, &mut tell)?;
    let statistics = Statistics::new(sums.total()?, Some(extractor.protocol()), Some(extractor.hash().to_owned()))?;
    Ok(Side { statistics, about: images.describe(), grouped: Some(sums) })
}
