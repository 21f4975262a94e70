//! Reads a complete dataset and reports its contents and the images that cannot be read.
use std::collections::BTreeMap;
use std::fmt;

use rayon::prelude::*;
use serde::Serialize;

use super::DataConfig;
use crate::error::{Error, Result, visible};

/// Number of images between two calls of the progress function.
const CHUNK: usize = 64;
/// Limit of the lines of each list in the text report.
const MAX_LISTED: usize = 12;
/// Limit of the listed classes.
const MAX_CLASSES_LISTED: usize = 100;

/// The findings of [`check`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CheckReport {
    /// The set in one line.
    pub source: String,
    /// Images in the set.
    pub images: usize,
    /// Images that could be read.
    pub readable: usize,
    /// How many images there are of each size ("width x height" as "256x256").
    pub sizes: BTreeMap<String, usize>,
    /// How many images have 1 channel, how many 3.
    pub channels: BTreeMap<usize, usize>,
    /// The classes with their numbers of images, if the set has classes.
    pub classes: Vec<(String, usize)>,
    /// The images that could not be read.
    pub unreadable: Vec<Unreadable>,
}

/// An image that could not be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Unreadable {
    /// Its file, or its position in a file.
    pub name: String,
    /// Why it could not be read.
    pub reason: String,
}

impl CheckReport {
    /// Whether every image could be read.
    pub fn is_clean(&self) -> bool {
        self.unreadable.is_empty()
    }
}

/// Reads every image of a dataset as it is stored; calls `progress(done, total)` from time to time.
///
/// An unreadable image is reported; only a set that does not open at all is an error.
pub fn check(config: &DataConfig, progress: &mut dyn FnMut(usize, usize)) -> Result<CheckReport> {
    let set = config.source(32)?;
    let images = set.len();
    let classes = set.classes()?.map(|classes| {
        let counts = classes.counts();
        classes.names.into_iter().zip(counts).collect()
    });
    let mut report = CheckReport {
        source: set.describe(),
        images,
        readable: 0,
        sizes: BTreeMap::new(),
        channels: BTreeMap::new(),
        classes: classes.unwrap_or_default(),
        unreadable: Vec::new(),
    };
    // A chunk is read in parallel; its results are collected in order, so that reports do not depend on threads.
    for start in (0..images).step_by(CHUNK) {
        let end = images.min(start + CHUNK);
        let found: Vec<_> = (start..end)
            .into_par_iter()
            .map(|k| {
                let size = set.get(k).map(|image| (image.width, image.height, image.channels))?;
                match set.label(k)? {
                    Some(map) if (map.width, map.height) != (size.0, size.1) => {
                        let problem = format!("has {}x{} pixels, its map {}x{}", size.0, size.1, map.width, map.height);
                        Err(Error::file(set.name(k), problem))
                    }
                    _ => Ok(size),
                }
            })
            .collect();
        for (k, found) in (start..end).zip(found) {
            match found {
                Ok((width, height, channels)) => {
                    report.readable += 1;
                    *report.sizes.entry(format!("{width}x{height}")).or_default() += 1;
                    *report.channels.entry(channels).or_default() += 1;
                }
                Err(error) => report.unreadable.push(Unreadable { name: set.name(k), reason: error.to_string() }),
            }
        }
        progress(end, images);
    }
    Ok(report)
}

impl fmt::Display for CheckReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", visible(&self.source))?;
        writeln!(f, "readable: {} of {}", self.readable, self.images)?;
        for (channels, count) in &self.channels {
            writeln!(f, "{}: {count}", if *channels == 1 { "grey" } else { "colour" })?;
        }
        let mut sizes: Vec<_> = self.sizes.iter().collect();
        sizes.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        for (size, count) in sizes.iter().take(MAX_LISTED) {
            writeln!(f, "{size}: {count}")?;
        }
        if sizes.len() > MAX_LISTED {
            writeln!(f, "and {} more sizes", sizes.len() - MAX_LISTED)?;
        }
        if !self.classes.is_empty() {
            writeln!(f, "classes: {} (network.classes = {0})", self.classes.len())?;
        }
        for (name, count) in self.classes.iter().take(MAX_CLASSES_LISTED) {
            writeln!(f, "  {}: {count}", visible(name))?;
        }
        if self.classes.len() > MAX_CLASSES_LISTED {
            writeln!(f, "  and {} more classes", self.classes.len() - MAX_CLASSES_LISTED)?;
        }
        for image in self.unreadable.iter().take(MAX_LISTED) {
            writeln!(f, "unreadable: {}", visible(&image.reason))?;
        }
        if self.unreadable.len() > MAX_LISTED {
            writeln!(f, "and {} more unreadable images", self.unreadable.len() - MAX_LISTED)?;
        }
        Ok(())
    }
}
