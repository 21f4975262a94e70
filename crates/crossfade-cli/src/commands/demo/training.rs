//! `crossfade demo --train`: a training to watch, from the model that ships or from nothing.
use super::DemoArgs;
use super::page::{document, uri};
use crate::context::Context;
use crate::interrupt::stop_on_interrupt;
use crate::output::duration;
use anyhow::{Context as _, Result};
use crossfade::Error;
use crossfade::bench;
use crossfade::config::RunConfig;
use crossfade::data::{DataConfig, Image};
use crossfade::error::Shown;
use crossfade::files::write_atomic;
use crossfade::models;
use crossfade::nn::BackboneConfig;
use crossfade::train::{RunDir, Summary, fine_tuning_of, train, with_classes_of};
use serde_json::json;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// The configuration of a training from nothing; only the number of steps is adapted to the time.
const CONFIG: &str = include_str!("../../../../../configs/demo.toml");
/// Sheets of pictures during the training.
const SHEETS: u64 = 12;

/// Measures the machine, trains for the given time and rewrites the page after every sheet.
pub fn run(args: &DemoArgs, context: &Context) -> Result<()> {
    let shipped = models::default_of("generate").map(|model| model.name);
    let mut config = match shipped {
        Some(name) => fine_tuning(name)?,
        None => RunConfig::parse(CONFIG, "configs/demo.toml")?,
    };
    context.note("measuring the speed of this machine …");
    let network = config.network.as_unet().context("the demonstration trains a U-Net")?.clone();
    let what = bench::What::Train { recompute: false };
    let timing = bench::unet(what, network, config.train.batch, 1, 3, &context.device)?;
    let steps = ((args.minutes * 60e3 / timing.median_ms) as u64).max(SHEETS);
    config.train.steps = steps;
    config.train.sample_every = steps.div_ceil(SHEETS);
    config.train.checkpoint_every = steps;
    config.optim.warmup = config.optim.warmup.min(steps / 10);
    config.optim.ema_after = config.optim.ema_after.min(steps / 4);
    let from = shipped.map_or("random weights".into(), |name| format!("the model {name}"));
    let about = format!("From {from} to images drawn on the fly: {steps} steps of {} images.", config.train.batch);
    context.note(format_args!("{about} About {}.", duration(args.minutes * 60.0)));
    // Each demonstration has a run of its own, so that one can be started again and again.
    let names = std::iter::once("run".to_string()).chain((2..).map(|k| format!("run-{k}")));
    let dir = names.map(|name| args.out.join(name)).find(|dir| !dir.exists()).unwrap_or_else(|| args.out.join("run"));
    let mut live = Live { page: args.out.join("training.html"), dir: RunDir(dir.clone()), about, sheets: vec![] };
    context.note(format_args!("watch {} in a browser: it reloads itself", live.page.shown()));
    let began = std::time::Instant::now();
    let summary = fit(&config, &mut live, context)?;
    let seconds = began.elapsed().as_secs_f64();
    live.write(config.train.steps, config.train.steps, None, true)?;
    let (run, page) = (dir.shown(), live.page.shown());
    let text = format!(
        "Trained {} steps in {}; the pictures on the way are in {page}\n\n\
         Next, try\n  \
         crossfade sample {run} --steps 5 --trajectory --out {run}/pictures\n  \
         crossfade train configs/folder.toml --set data.path=YOUR_FOLDER --out runs/mine",
        summary.step,
        duration(seconds)
    );
    context.print(
        text,
        json!({ "steps": summary.step, "seconds": seconds, "page": live.page.to_string_lossy(), "from": shipped }),
    )
}

/// The configuration that teaches the model that ships to make images drawn on the fly.
fn fine_tuning(name: &str) -> Result<RunConfig> {
    let mut config = fine_tuning_of(Path::new(name))?;
    config.data = DataConfig::Procedural { seed: 0, len: 50_000 };
    config.train.batch = config.train.batch.min(16);
    config.train.keep = 1;
    (config.train.log_every, config.train.loader_threads) = (1, 1);
    let side = config.network.resolution().unwrap_or(32);
    let images = config.data.open(side, config.network.channels())?;
    Ok(with_classes_of(config, &*images)?)
}

/// Trains; the page is rewritten whenever a sheet is new.
fn fit(config: &RunConfig, live: &mut Live, context: &Context) -> Result<Summary> {
    let stop = stop_on_interrupt()?;
    let mut progress = context.progress("training", config.train.steps);
    let (mut smooth, mut failed) = (None::<f64>, None);
    let dir = RunDir(live.dir.0.clone());
    let summary = train(config, &dir, &context.device, false, &stop, &mut |step| {
        let mean = smooth.map_or(step.loss, |s| 0.95 * s + 0.05 * step.loss);
        smooth = Some(mean);
        progress.detail(format!("loss {mean:.4}, {:.0} images/s", step.images_per_second));
        progress.set(step.step, config.train.steps);
        // The sheet of a step is written after its report, so that it is found at the next one.
        if (step.step - 1).is_multiple_of(config.train.sample_every) {
            let written = live.write(step.step, config.train.steps, Some(mean), false);
            failed = failed.take().or(written.err());
        }
    })
    .with_context(|| format!("training in {}", live.dir.0.shown()))?;
    failed.map_or(Ok(summary), Err)
}

/// The page of a training.
struct Live {
    page: PathBuf,
    dir: RunDir,
    about: String,
    /// The step and the picture of each sheet so far.
    sheets: Vec<(u64, String)>,
}

impl Live {
    /// Rewrites the page with all sheets that the run has written. An unfinished page reloads itself.
    fn write(&mut self, step: u64, steps: u64, loss: Option<f64>, finished: bool) -> Result<()> {
        self.read_sheets()?;
        let mut body = String::from("<section>\n");
        if let Some((step, sheet)) = self.sheets.last() {
            writeln!(
                body,
                "<h2>After {step} steps</h2>\n<div class=\"now\"><img src=\"{sheet}\" alt=\"pictures\"></div>"
            )?;
        } else {
            body.push_str("<h2>The first pictures come in a moment</h2>\n");
        }
        body.push_str(
            "</section>\n<section>\n<h2>Before</h2>\n<p>Always from the same noise.</p>\n<div class=\"sheets\">\n",
        );
        for (step, sheet) in self.sheets.iter().rev().skip(1) {
            let caption = format!("<figcaption>{step} steps</figcaption>");
            writeln!(body, "<figure><img src=\"{sheet}\" alt=\"pictures after {step} steps\">{caption}</figure>")?;
        }
        body.push_str("</div>\n</section>\n");
        let reload = if finished { "" } else { "<meta http-equiv=\"refresh\" content=\"4\">\n" };
        let loss = loss.map_or(String::new(), |loss| format!(", loss {loss:.4}"));
        let state = if finished { "Finished.".into() } else { format!("Step {step} of {steps}{loss}.") };
        let lead = format!("{} {state}", self.about);
        Ok(write_atomic(&self.page, document("A training", &lead, reload, &body).as_bytes())?)
    }

    /// Adds sheets that are new.
    fn read_sheets(&mut self) -> Result<()> {
        let folder = self.dir.samples();
        let known = self.sheets.last().map_or(0, |(step, _)| *step);
        let mut found = vec![];
        let entries = match std::fs::read_dir(&folder) {
            Ok(entries) => entries,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            Err(e) => return Err(Error::io(&folder)(e).into()),
        };
        for entry in entries {
            let path = entry.map_err(Error::io(&folder))?.path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let step = name.strip_prefix("step-").and_then(|rest| rest.strip_suffix(".png")?.parse::<u64>().ok());
            found.extend(step.filter(|step| *step > known).map(|step| (step, path.clone())));
        }
        found.sort();
        for (step, path) in found {
            self.sheets.push((step, uri(&Image::read(&path)?)?));
        }
        Ok(())
    }
}
