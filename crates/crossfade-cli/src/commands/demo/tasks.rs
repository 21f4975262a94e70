//! Every task whose model ships, applied to the drawn scene.
use super::pictures::per_image;
use super::{Cell, Row, Section, result, scene};
use crate::context::Context;
use anyhow::{Context as _, Result};
use crossfade::apply::{Application, Options};
use crossfade::checkpoint::{Checkpoint, Weights};
use crossfade::data::{Filter, Image, Image16, PassOrder, resize};
use crossfade::files::write_atomic;
use crossfade::generate::Pipeline;
use crossfade::models;
use crossfade::task::masks::{HoleBox, Mask};
use std::path::Path;
use std::time::Instant;

/// The size of the scene.
const SIZE: (usize, usize) = (256, 192);
/// What is cut out for inpainting: left, top, width, height.
const HOLES: [HoleBox; 3] = [HoleBox([24, 40, 40, 28]), HoleBox([100, 108, 44, 36]), HoleBox([182, 20, 26, 44])];

/// The section of the tasks; none if no model ships for one.
pub fn section(out: &Path, context: &Context) -> Result<Option<Section>> {
    let kinds = ["super-resolution", "inpainting", "saliency", "edges"];
    let shipped: Vec<_> = kinds.into_iter().filter_map(models::default_of).collect();
    if shipped.is_empty() {
        return Ok(None);
    }
    let scene = scene::scene(SIZE.0, SIZE.1);
    write_atomic(result(out, "scene"), &scene.encode_png(&[])?)?;
    let mut rows = vec![];
    for model in shipped {
        context.note(format_args!("{} …", model.task));
        rows.push(row(model, &scene, out, context).with_context(|| format!("the model {}", model.name))?);
    }
    let text = "The scene is drawn by formulas; the models have never seen it.";
    Ok(Some(Section { title: "Tasks".into(), text: text.into(), rows }))
}

/// A task applied to the scene: its input, and its result.
fn row(model: &models::Model, scene: &Image, out: &Path, context: &Context) -> Result<Row> {
    let checkpoint = Checkpoint::open(Path::new(model.name))?;
    let config = &checkpoint.config;
    let pipeline = Pipeline::open(&checkpoint, Weights::Ema, &config.sample, &context.device)?;
    let network = pipeline.task_model(model.task, 0)?;
    // Tiles of a small picture fit into one batch.
    let (task, options) = (&config.task, Options { batch: 8, ..Options::default() });
    let application = Application { task, model: &network, options: &options, texts: &[] };
    let scale = config.task.task().scale();
    let resized =
        |image: &Image, width, height| resize(image, width, height, Filter::Bicubic, PassOrder::HorizontalFirst);
    let input = if scale > 1 { resized(scene, scene.width / scale, scene.height / scale) } else { scene.clone() };
    let mask = (model.task == "inpainting").then(|| Mask::boxes(input.width, input.height, &HOLES)).transpose()?;
    let file = result(out, model.task);
    let began = Instant::now();
    application.run(&Image16::from_image(&input), mask.as_ref(), 0, &file, &mut |_, _| ())?;
    let (time, made) = (per_image(began, 1), Image::read(&file)?);
    let mut cells = vec![];
    let mut show = |image: Image, caption: String| cells.push(Cell { image, caption });
    if let Some(mask) = &mask {
        show(with_holes(&input, mask), "the scene with holes".into());
    } else if scale > 1 {
        let plain = resized(&input, scene.width, scene.height);
        let caption = |name: &str, image: &Image| format!("{name}, PSNR {:.1} dB", image.psnr(scene));
        show(input.clone(), format!("{}x{} pixels", input.width, input.height));
        show(plain.clone(), caption("bicubic", &plain));
        show(made.clone(), caption(model.name, &made));
    } else {
        show(input.clone(), "the scene".into());
    }
    if scale == 1 {
        show(made, model.name.to_string());
    }
    let evaluations = pipeline.evaluations()?;
    let plural = if evaluations == 1 { "" } else { "s" };
    let note = format!("{evaluations} evaluation{plural}, {time}");
    Ok(Row { label: title(model.task).into(), note, cells })
}

fn title(task: &str) -> &'static str {
    match task {
        "super-resolution" => "Super-resolution",
        "inpainting" => "Inpainting",
        "saliency" => "Saliency",
        _ => "Edges",
    }
}

/// The picture with grey holes.
fn with_holes(image: &Image, mask: &Mask) -> Image {
    let mut seen = image.clone();
    for (pixel, known) in seen.pixels.chunks_exact_mut(seen.channels).zip(&mask.known) {
        if !known {
            pixel.fill(128);
        }
    }
    seen
}
