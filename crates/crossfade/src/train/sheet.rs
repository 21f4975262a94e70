//! Sample sheets: images that a run makes with the moving average of its weights while it trains.
use crate::apply::{Model, Part};
use crate::config::{RunConfig, SampleConfig};
use crate::data::{Dataset, Filter, Image, PassOrder, Planes, contact_sheet, resize};
use crate::error::Result;
use crate::generate::Pipeline;
use crate::loader::index;
use crate::nn::BackboneConfig;
use crate::task::SampleKey;

/// Images on a sheet.
const COUNT: u64 = 16;
/// Rows of a sheet with classes, at most.
const CLASSES: usize = 16;
/// Images of each class.
const PER_CLASS: usize = 4;
/// Examples on a sheet of a task.
const EXAMPLES: u64 = 4;

/// The sampling settings of a run's sheets: those of its configuration, and for a network with classes a row of each class.
pub(super) fn settings(config: &RunConfig) -> SampleConfig {
    let mut sample = config.sample.clone();
    let rows = config.network.classes().min(CLASSES);
    if rows > 0 {
        sample.class = (0..rows).map(|class| class.to_string()).collect::<Vec<_>>().join(",");
    }
    sample
}

/// Draws a contact sheet, always from the same noise and examples.
pub(super) fn draw(pipeline: &Pipeline, config: &RunConfig, set: &dyn Dataset) -> Result<Image> {
    let rows = config.network.classes().min(CLASSES);
    if rows > 0 {
        // Image k has class k mod rows, so the sheet is drawn column by column.
        let images = pipeline.images(config.seed, 0..(rows * PER_CLASS) as u64)?;
        let by_class = (0..images.len()).map(|cell| images[cell % PER_CLASS * rows + cell / PER_CLASS].clone());
        return Ok(contact_sheet(&by_class.collect::<Vec<_>>(), PER_CLASS, 2, (128 / images[0].width).max(1)));
    }
    if config.task.is_unconditional() {
        let images = pipeline.images(config.seed, 0..COUNT)?;
        return Ok(contact_sheet(&images, 4, 2, (128 / images[0].width).max(1)));
    }
    task_sheet(pipeline, config, set)
}

/// A row for each example: the condition, the network's output, the target.
fn task_sheet(pipeline: &Pipeline, config: &RunConfig, set: &dyn Dataset) -> Result<Image> {
    let model = pipeline.task_model(config.task.name(), config.seed)?;
    let mut rows = vec![];
    for counter in 0..EXAMPLES {
        let k = index(config.seed, counter, set.len());
        // The samples of the first training batch, without mirroring: crops and holes are the same in every sheet.
        let draw = SampleKey { seed: config.seed, counter, flip: false };
        let pair = config.task.task().example(&set.get(k)?, set.label(k)?.as_ref(), &draw)?;
        let [_, height, width] = pair.target.shape;
        let Some(condition) = pair.condition else { continue };
        rows.push(colour_image(&condition, width, height));
        let part = Part { condition, size: [height, width], y: 0, x: 0 };
        let output = |planes| colour_image(&config.task.task().output(planes, &part.condition), width, height);
        rows.extend(model.make(counter, std::slice::from_ref(&part))?.into_iter().map(output));
        rows.push(output(pair.target));
    }
    Ok(contact_sheet(&rows, 3, 2, (128 / rows[0].width).max(1)))
}

/// Converts planes to a colour image of this size. A fourth channel, which is the mask of inpainting, is left out.
fn colour_image(planes: &Planes, width: usize, height: usize) -> Image {
    let [c, h, w] = planes.shape;
    let kept = if c == 4 { 3 } else { c };
    let image = Planes::new([kept, h, w], planes.values[..kept * h * w].to_vec()).to_image();
    resize(&image.with_channels(3), width, height, Filter::Box, PassOrder::HorizontalFirst)
}
