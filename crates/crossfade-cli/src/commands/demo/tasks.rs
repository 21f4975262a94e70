//! Every task whose model ships, applied to a photograph that ships too (`assets/README.md` has their licences).
use super::pictures::per_image;
use super::{Cell, Row, Section, result};
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

/// A photograph as bytes of a JPEG, with its file name.
type Photograph = (&'static str, &'static [u8]);
const CAT: Photograph = ("cat.jpg", include_bytes!("../../../assets/cat.jpg"));
const CUP: Photograph = ("cup.jpg", include_bytes!("../../../assets/cup.jpg"));
const ASTRONAUT: Photograph = ("astronaut.jpg", include_bytes!("../../../assets/astronaut.jpg"));
/// The tasks with the title and the photograph of each.
const TASKS: [(&str, &str, Photograph); 4] = [
    ("super-resolution", "Super-resolution", CAT),
    ("inpainting", "Inpainting", ASTRONAUT),
    ("saliency", "Saliency", CUP),
    ("edges", "Edges", CUP),
];
/// What is cut out of the astronaut for inpainting: left, top, width, height.
const HOLES: [HoleBox; 3] = [HoleBox([52, 30, 18, 10]), HoleBox([56, 50, 20, 10]), HoleBox([96, 100, 20, 18])];

/// The section of the tasks; none if no model ships for one.
pub fn section(out: &Path, context: &Context) -> Result<Option<Section>> {
    let mut rows = vec![];
    for (task, title, (name, jpeg)) in TASKS {
        let Some(model) = models::default_of(task) else { continue };
        context.note(format_args!("{task} …"));
        let photograph = Image::decode(jpeg, Path::new(name))?;
        write_atomic(out.join(name), jpeg)?;
        rows.push(row(model, title, &photograph, out, context).with_context(|| format!("the model {}", model.name))?);
    }
    let text = "The models have never seen these photographs.";
    Ok((!rows.is_empty()).then(|| Section { title: "Tasks".into(), text: text.into(), rows }))
}

/// A task applied to a photograph: its input, and its result.
fn row(model: &models::Model, title: &str, photograph: &Image, out: &Path, context: &Context) -> Result<Row> {
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
    let input = if scale > 1 {
        resized(photograph, photograph.width / scale, photograph.height / scale)
    } else {
        photograph.clone()
    };
    let mask = (model.task == "inpainting").then(|| Mask::boxes(input.width, input.height, &HOLES)).transpose()?;
    let file = result(out, model.task);
    let began = Instant::now();
    application.run(&Image16::from_image(&input), mask.as_ref(), 0, &file, &mut |_, _| ())?;
    let (time, made) = (per_image(began, 1), Image::read(&file)?);
    let mut cells = vec![];
    let mut show = |image: Image, caption: String| cells.push(Cell { image, caption });
    if let Some(mask) = &mask {
        show(with_holes(&input, mask), "with holes".into());
    } else if scale > 1 {
        let plain = resized(&input, photograph.width, photograph.height);
        let caption = |name: &str, image: &Image| format!("{name}, PSNR {:.1} dB", image.psnr(photograph));
        show(input.clone(), format!("{}x{} pixels", input.width, input.height));
        show(plain.clone(), caption("bicubic", &plain));
        show(made.clone(), caption(model.name, &made));
    } else {
        show(input.clone(), "the photograph".into());
    }
    if scale == 1 {
        show(made, model.name.to_string());
    }
    let evaluations = pipeline.evaluations()?;
    let plural = if evaluations == 1 { "" } else { "s" };
    let note = format!("{evaluations} evaluation{plural}, {time}");
    Ok(Row { label: title.into(), note, cells })
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
