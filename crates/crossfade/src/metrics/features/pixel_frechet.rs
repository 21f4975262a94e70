//! The Fréchet distance of images reduced to 8x8 pixels. It needs no weights, and measures colours and layout only.
use super::super::Report;
use super::super::metric::{
    Accumulator, Compared, Measurement, Metric, MetricSpec, Reference, ReferenceWork, Sample, Value, Verb,
};
use super::fid::unprepared;
use super::{FeatureSums, Frechet, Gaussian};
use crate::data::{Filter, Image, PassOrder, resize};
use crate::error::Result;

pub(in crate::metrics) const SPEC: MetricSpec = MetricSpec {
    name: "pixel-frechet",
    about: "Fréchet distance of two image sets at 8x8 pixels: needs no weights, sees colours and layout only",
    values: &[Value::lower("pixel-frechet", "pixel Fréchet distance")],
    compared: Compared::ImageSet { statistics: false },
    network: None,
    protocols: &[],
    min_images: 2,
    revision: 1,
    verb: Verb::Common {
        examples: "Example:
  crossfade eval pixel-frechet samples cifar10:train",
    },
    open: |_| Ok(Box::new(PixelFrechet { reference: None })),
};

/// Side to which images are reduced.
const SIDE: usize = 8;
/// Number of values of a reduced image.
const DIM: usize = 3 * SIDE * SIDE;

struct PixelFrechet {
    reference: Option<Frechet>,
}

struct PixelAccumulator<'a> {
    metric: &'a PixelFrechet,
    sums: FeatureSums,
}

impl Metric for PixelFrechet {
    fn prepare(&mut self, reference: &Reference, work: &mut ReferenceWork) -> Result<bool> {
        let images = reference.images(SPEC.name)?;
        let mut sums = FeatureSums::new(DIM);
        for k in 0..images.len() {
            if (work.stop)() {
                return Ok(false);
            }
            sums.push(&reduced(images.get(k)?));
        }
        self.reference = Some(Frechet::to(Gaussian::of(&sums)?)?);
        Ok(true)
    }

    fn accumulator(&self) -> Box<dyn Accumulator + '_> {
        Box::new(PixelAccumulator { metric: self, sums: FeatureSums::new(DIM) })
    }
}

impl Accumulator for PixelAccumulator<'_> {
    fn add(&mut self, samples: Vec<Sample>) -> Result<()> {
        samples.into_iter().for_each(|sample| self.sums.push(&reduced(sample.output.into_image())));
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<Measurement> {
        let frechet = self.metric.reference.as_ref().ok_or_else(unprepared)?;
        let distance = frechet.distance(&Gaussian::of(&self.sums)?)?;
        let report = Report::new(SPEC.name).with("features", "RGB of the image reduced to 8x8 (box filter), -1 to 1");
        Ok(report.value(SPEC.values[0].name, distance).into())
    }
}

/// The image reduced to 8x8, in [−1, 1].
fn reduced(image: Image) -> Vec<f32> {
    // The box filter averages all pixels of a cell, so that single pixels do not matter.
    let small = resize(&image.with_channels(3), SIDE, SIDE, Filter::Box, PassOrder::HorizontalFirst);
    small.pixels.iter().map(|&v| f32::from(v) / 127.5 - 1.0).collect()
}
