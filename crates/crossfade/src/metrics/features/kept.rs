//! An accumulator that keeps the features of all images, for KID, precision and recall, and Inception Score.
use super::super::Report;
use super::super::metric::{Accumulator, Measurement, Produced, Sample};
use super::{Extractor, Features};
use crate::error::Result;

/// Computes the numbers that are kept from the features of one image.
pub(super) type Row<'a> = Box<dyn Fn(&[f32]) -> Result<Vec<f32>> + 'a>;

/// The features of the images so far, and the function that turns all of them into a report.
pub(super) struct KeptFeatures<'a> {
    extractor: &'a Extractor,
    features: Features,
    row: Row<'a>,
    finish: Box<dyn FnOnce(Features) -> Result<Report> + 'a>,
}

impl<'a> KeptFeatures<'a> {
    /// An empty accumulator; `row` computes the `dim` numbers that are kept of an image.
    pub fn new(
        extractor: &'a Extractor,
        dim: usize,
        row: Row<'a>,
        finish: impl FnOnce(Features) -> Result<Report> + 'a,
    ) -> Self {
        Self { extractor, features: Features { dim, values: vec![] }, row, finish: Box::new(finish) }
    }
}

impl Accumulator for KeptFeatures<'_> {
    fn add(&mut self, samples: Vec<Sample>) -> Result<()> {
        let mut keep = |row: &[f32]| {
            self.features.values.extend((self.row)(row)?);
            Ok(())
        };
        self.extractor.each(&Produced::new(samples)?, &mut keep, &mut |_, _| ())
    }

    fn finish(self: Box<Self>) -> Result<Measurement> {
        let Self { features, finish, .. } = *self;
        finish(features).map(Measurement::from)
    }
}
