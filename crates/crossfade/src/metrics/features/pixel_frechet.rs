//! The Fréchet distance of images reduced to 8x8 pixels. It needs no weights, and measures colours and layout only.
use super::super::Report;
use super::super::metric::{Compared, MetricSpec, Value, Verb};
use super::set_distance::{SetDistance, SetFeatures};
use crate::data::{Dataset, Filter, Image, PassOrder, resize};
use crate::error::Result;
use std::ops::Range;

pub(in crate::metrics) const SPEC: MetricSpec = MetricSpec {
    name: "pixel-frechet",
    about: "Fréchet distance of two image sets at 8x8 pixels: needs no weights, sees colours and layout only",
    values: &[Value::lower("pixel-frechet", "pixel Fréchet distance")],
    compared: Compared::ImageSet { statistics: false, classes: true },
    network: None,
    protocols: &[],
    min_images: 2,
    revision: 1,
    verb: Verb::Common {
        examples: "Example:
  crossfade eval pixel-frechet samples cifar10:train",
    },
    open: |_| Ok(Box::new(SetDistance::new(PixelFeatures))),
};

/// Side to which images are reduced.
const SIDE: usize = 8;

struct PixelFeatures;

impl SetFeatures for PixelFeatures {
    const NAME: &'static str = SPEC.name;
    const DIM: usize = 3 * SIDE * SIDE;

    fn each(
        &self,
        images: &dyn Dataset,
        range: Range<usize>,
        sink: &mut dyn FnMut(&[f32]) -> Result<()>,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<()> {
        for k in range.clone() {
            sink(&reduced(images.get(k)?))?;
        }
        progress(range.end, images.len());
        Ok(())
    }

    fn report(&self) -> Report {
        Report::new(SPEC.name).with("features", "RGB of the image reduced to 8x8 (box filter), -1 to 1")
    }
}

/// The image reduced to 8x8, in [−1, 1].
fn reduced(image: Image) -> Vec<f32> {
    // The box filter averages all pixels of a cell, so that single pixels do not matter.
    let small = resize(&image.with_channels(3), SIDE, SIDE, Filter::Box, PassOrder::HorizontalFirst);
    small.pixels.iter().map(|&v| f32::from(v) / 127.5 - 1.0).collect()
}
