//! `crossfade demo`.
mod page;
mod pictures;
mod tasks;
mod training;

use crate::context::Context;
use crate::output::duration;
use anyhow::{Context as _, Result};
use clap::Args;
use crossfade::data::{Image, contact_sheet};
use crossfade::error::Shown;
use crossfade::files::{Folder, write_atomic};
use crossfade::models;
use crossfade::plot::{board, labelled};
use serde_json::json;
use std::path::{Path, PathBuf};

/// Show what the models that ship make, in seconds and without files, or train one while you watch
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  crossfade demo
  crossfade demo --train --minutes 5

Needs no files and no internet connection. The result is DIR/index.html, a page of its own, and the same
pictures as DIR/demo.png. With --train, DIR/training.html shows how the pictures change: it starts from
the model that ships and learns to make images that are drawn on the fly. Where no models ship, a small
one is trained in any case.")]
pub struct DemoArgs {
    /// Directory for the results
    #[arg(long, value_name = "DIR", default_value = "crossfade-demo")]
    pub out: PathBuf,

    /// Train for a few minutes and show the progress
    #[arg(long)]
    pub train: bool,

    /// Approximate training time in minutes
    #[arg(long, value_name = "M", default_value_t = 3.0, value_parser = minutes)]
    pub minutes: f64,
}

fn minutes(text: &str) -> Result<f64, String> {
    let value: f64 = text.parse().map_err(|_| "expected a number of minutes".to_string())?;
    if (0.01..=10_000.0).contains(&value) { Ok(value) } else { Err("expected 0.01 to 10000 minutes".into()) }
}

/// A picture with its caption, which may be empty.
struct Cell {
    image: Image,
    caption: String,
}

/// Pictures side by side with their label.
struct Row {
    label: String,
    /// What was measured, such as the time.
    note: String,
    cells: Vec<Cell>,
}

impl Row {
    /// Pictures without captions.
    fn new(label: impl Into<String>, note: impl Into<String>, images: Vec<Image>) -> Self {
        let cells = images.into_iter().map(|image| Cell { image, caption: String::new() }).collect();
        Self { label: label.into(), note: note.into(), cells }
    }
}

/// A part of the demonstration.
struct Section {
    title: String,
    text: String,
    rows: Vec<Row>,
}

/// Makes everything and writes the page.
pub fn run(args: &DemoArgs, context: &Context) -> Result<()> {
    if models::all().is_empty() && !args.train {
        context.note(format_args!("no models ship with this program: training a small one instead, as with --train"));
    }
    if args.train || models::all().is_empty() {
        return training::run(args, context);
    }
    let began = std::time::Instant::now();
    let _folder = Folder::create(&args.out)?;
    let mut sections = pictures::sections(context).context("generating pictures")?;
    sections.extend(tasks::section(&args.out, context).context("applying the tasks")?);
    let commands = commands();
    let (page, picture) = (args.out.join("index.html"), args.out.join("demo.png"));
    let seconds = began.elapsed().as_secs_f64();
    let made = format!("Made in {seconds:.0} seconds on this machine by version {}.", env!("CARGO_PKG_VERSION"));
    write_atomic(&page, page::render("Crossfade", &made, &sections, &commands)?.as_bytes())?;
    write_atomic(&picture, &poster(&sections)?.encode_png(&[])?)?;
    let seconds = began.elapsed().as_secs_f64();
    let mut text = format!(
        "Done in {}: open {} ({} is one picture of it)\n\nNext, try\n",
        duration(seconds),
        page.shown(),
        picture.shown()
    );
    commands.iter().for_each(|(command, _)| text.push_str(&format!("  {command}\n")));
    let titles: Vec<&str> = sections.iter().map(|section| section.title.as_str()).collect();
    context.print(text, json!({ "seconds": seconds, "page": page.to_string_lossy(), "picture": picture.to_string_lossy(), "sections": titles }))
}

/// The commands to go on with, and what they do; only those whose models ship.
fn commands() -> Vec<(String, &'static str)> {
    let mut found: Vec<(String, &'static str)> = vec![];
    let generate = models::default_of("generate");
    if generate.is_some() {
        found.push(("crossfade sample --seed 1".into(), "other pictures, and a sheet of them"));
    }
    let verbs = [
        ("super-resolution", "crossfade sr photo.jpg large.png", "a larger photograph"),
        ("inpainting", "crossfade inpaint photo.jpg whole.png --box 80,60,64,40", "a hole filled in"),
        ("saliency", "crossfade saliency photo.jpg map.png", "what draws attention"),
        ("edges", "crossfade edge photo.jpg edges.png", "outlines as people draw them"),
    ];
    let shipped = verbs.into_iter().filter(|(task, ..)| models::default_of(task).is_some());
    found.extend(shipped.map(|(_, command, what)| (command.to_string(), what)));
    if let Some(model) = generate {
        let command = format!("crossfade train --from {} --set data.path=YOUR_FOLDER --out runs/mine", model.name);
        found.push((command, "the same network on your own pictures"));
    }
    found.push(("crossfade demo --train".into(), "a training to watch"));
    found.push(("crossfade models".into(), "what ships, with quality and licences"));
    found
}

/// The sections as one picture: their rows below each other, with labels.
fn poster(sections: &[Section]) -> Result<Image> {
    let panel = |section: &Section| -> Result<(String, Image)> {
        let widest = section.rows.iter().flat_map(|row| &row.cells).map(|cell| cell.image.width).max().unwrap_or(1);
        let drawn = |row: &Row| {
            let images: Vec<Image> = row.cells.iter().map(|cell| enlarged(&cell.image, widest)).collect();
            let lines = [row.label.as_str()].into_iter().chain(row.note.split(", ")).filter(|line| !line.is_empty());
            (lines.map(str::to_string).collect(), contact_sheet(&images, images.len(), 3, (64 / widest).max(1)))
        };
        Ok((section.title.clone(), labelled(&section.rows.iter().map(drawn).collect::<Vec<_>>())?))
    };
    Ok(board(&sections.iter().map(panel).collect::<Result<Vec<_>>>()?)?)
}

/// A picture enlarged by whole pixels to at most `width`, so that small inputs are seen beside large results.
fn enlarged(image: &Image, width: usize) -> Image {
    contact_sheet(std::slice::from_ref(image), 1, 0, (width / image.width).max(1))
}

/// The path of a result in the directory of the demonstration.
fn result(out: &Path, name: &str) -> PathBuf {
    out.join(format!("{name}.png"))
}
