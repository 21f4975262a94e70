//! Comparison of two checkpoints: the same noise, the same metric.
use super::checkpoints::Measuring;
use super::denoise::{Denoising, denoising};
use super::evaluator::held_out_images;
use super::page::{Page, Td};
use super::plan::{Plan, rows};
use super::results::Results;
use super::run::Event;
use super::subject::{held_out_pair, images};
use super::table::number;
use crate::checkpoint::{self, Checkpoint};
use crate::config::{Difference, StudyModel, differences};
use crate::cost::Cost;
use crate::data::{Image, contact_sheet};
use crate::engine::Device;
use crate::error::{Error, Result, Shown};
use crate::files::write_atomic;
use crate::generate::Pipeline;
use crate::metrics::EQUAL_DB;
use crate::torchfile::Weights;
use serde::Serialize;
use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

/// The number of image pairs from equal noise that are compared.
const PAIRS: u64 = 64;
/// Images per checkpoint on a sheet.
const SHEET_IMAGES: usize = 12;

/// What to compare.
#[derive(Clone, Debug)]
pub struct Request {
    /// Checkpoints or directories of runs.
    pub checkpoints: [PathBuf; 2],
    /// How they are measured.
    pub measuring: Measuring,
}

/// One of the two checkpoints.
#[derive(Clone, Debug, Serialize)]
pub struct Side {
    /// `A` or `B`.
    pub name: &'static str,
    /// The checkpoint.
    #[serde(serialize_with = "crate::error::serialize_path")]
    pub path: PathBuf,
    /// Training steps.
    pub step: u64,
    /// Checksum of its weights.
    pub checksum: String,
    /// The number of weights of the network.
    pub parameters: u64,
    /// Multiply-accumulates of one evaluation, where they can be counted.
    pub macs_per_evaluation: Option<u64>,
}

/// The similarity of images of equal noise.
#[derive(Clone, Debug, Serialize)]
pub struct Likeness {
    /// The column: steps or evaluations.
    pub column: usize,
    /// Pairs of images.
    pub images: u64,
    /// Mean PSNR between the two images of a pair, in dB.
    pub psnr: f64,
}

/// The outcome of a comparison.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// The two checkpoints.
    pub sides: [Side; 2],
    /// The values of the metric, with significance tests.
    pub results: Results,
    /// The similarity of images of equal noise; empty if their sizes differ.
    pub likeness: Vec<Likeness>,
    /// The denoising errors on the training images of A; empty if the two cannot be compared in this way.
    pub denoising: Vec<Denoising>,
    /// The reason if they cannot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_denoised: Option<String>,
    /// The options in which the configurations differ.
    pub differences: Vec<Difference>,
}

/// Compares two checkpoints; none if `stop` was set before the end. `tell` is called with the progress.
pub fn compare(
    request: &Request,
    device: &Device,
    stop: &AtomicBool,
    tell: &mut dyn FnMut(Event),
) -> Result<Option<Comparison>> {
    let [a, b] = request.checkpoints.clone().map(|path| {
        let path = checkpoint::newest(&path)?;
        // It becomes part of the plan of a study and of its results, which are UTF-8 text.
        if path.to_str().is_none() {
            let problem =
                "has a name that is not UTF-8, which results cannot hold: rename it, or compare a copy or a link";
            return Err(Error::request(format!("{} {problem}", path.shown())));
        }
        let absolute = || std::path::absolute(&path).map_err(Error::io(&path));
        // The name of a model stays as it is.
        Checkpoint::open(&if path.exists() { absolute()? } else { path.clone() })
    });
    let checkpoints = [a?, b?];
    let model = |i: usize| StudyModel {
        name: ["A", "B"][i].into(),
        checkpoint: Some(checkpoints[i].path.clone()),
        ..StudyModel::default()
    };
    let differences = differences(&checkpoints[0].config, &checkpoints[1].config)?;
    if let Some(d) = differences.iter().find(|d| ["task.kind", "task.scale", "task.size"].contains(&d.key.as_str())) {
        let [a, b] = d.values.clone().map(|value| value.unwrap_or("–".into()));
        return Err(Error::request(format!("the checkpoints are for different tasks: {} is {a} and {b}", d.key)));
    }
    let models = vec![model(0), model(1)];
    let Some((plan, results)) = request.measuring.run("A against B", models, device, stop, tell)? else {
        return Ok(None);
    };
    let request = &request.measuring;
    let (likeness, sheets) = likeness(&plan, &checkpoints, request, device)?;
    let side = |i: usize| -> Side {
        let Checkpoint { path, config, step, checksum, .. } = &checkpoints[i];
        Side {
            name: ["A", "B"][i],
            path: path.clone(),
            step: *step,
            checksum: checksum.clone(),
            parameters: config.sizes().parameters,
            macs_per_evaluation: Cost::count(config).ok().and_then(|cost| cost.macs_per_evaluation),
        }
    };
    let (denoising, not_denoised) = match denoising(&checkpoints, &plan.base, request.batch, device) {
        Ok(found) => (found, None),
        // The rest of the comparison does not depend on the denoising errors, so the reason is only reported.
        Err(error) => (vec![], Some(error.to_string())),
    };
    let found = Comparison { sides: [side(0), side(1)], results, likeness, denoising, not_denoised, differences };
    write_atomic(request.out.join("comparison.html"), found.page(&sheets).as_bytes())?;
    Ok(Some(found))
}

/// A contact sheet for the page.
struct Sheet {
    png: Vec<u8>,
    width: usize,
    caption: String,
}

/// The similarity of images of equal noise, for each column with the first sampler. For a task these are the outputs for
/// the same held-out images, shown with their targets.
fn likeness(
    plan: &Plan,
    checkpoints: &[Checkpoint; 2],
    request: &Measuring,
    device: &Device,
) -> Result<(Vec<Likeness>, Vec<Sheet>)> {
    let held_out = held_out_images(plan, device)?;
    let (rows, seed) = (rows(&plan.study), request.sample.seeds[0]);
    let count = PAIRS.min(request.sample.count);
    let (mut found, mut sheets) = (vec![], vec![]);
    if plan.study.evaluate.metric.measures_network() {
        return Ok((found, sheets));
    }
    for &column in plan.study.sample.columns() {
        let (mut outputs, mut targets) = (vec![], vec![]);
        for (i, checkpoint) in checkpoints.iter().enumerate() {
            let Some(row) = rows.iter().find(|row| row.model == i) else { continue };
            let Some(sample) = row.sampling(plan.config_of(row), &plan.study, column)? else { continue };
            let pipeline = Pipeline::open(checkpoint, Weights::Ema, &sample, device)?;
            let Some(set) = &held_out else {
                let mut own = vec![];
                let batch = request.batch.max(1);
                for from in (0..count).step_by(batch) {
                    let to = (from + batch as u64).min(count);
                    own.extend(images(&pipeline, seed, [from, to], None, 0)?.images);
                }
                outputs.push(own);
                continue;
            };
            let pair = |k| held_out_pair(&pipeline, seed, &**set, k);
            let pairs: Vec<[Image; 2]> = (0..count).map(pair).collect::<Result<_>>()?;
            let (own, wanted) = pairs.into_iter().map(Into::into).unzip();
            outputs.push(own);
            targets = wanted;
        }
        let [a, b] = &outputs[..] else { continue };
        if a[0].pixels.len() != b[0].pixels.len() {
            continue;
        }
        // Equal images have an infinite PSNR, which would hide all others in the mean.
        let sum: f64 = a.iter().zip(b).map(|(a, b)| a.psnr(b).min(EQUAL_DB)).sum();
        found.push(Likeness { column, images: count, psnr: sum / count as f64 });
        let shown: Vec<_> =
            [a, b, &targets].into_iter().flat_map(|list| list.iter().take(SHEET_IMAGES).cloned()).collect();
        let sheet = contact_sheet(&shown, SHEET_IMAGES.min(a.len()), 1, 1);
        let places = if targets.is_empty() { "A above, B below" } else { "A, B, and the targets" };
        let caption = format!("{column} {}: {places}", plan.study.sample.columns_are());
        sheets.push(Sheet { png: sheet.encode_png(&[])?, width: sheet.width, caption });
    }
    Ok((found, sheets))
}

impl Comparison {
    fn page(&self, sheets: &[Sheet]) -> String {
        let mut page = Page::new("A against B");
        let head = ["", "checkpoint", "steps", "parameters", "multiply-accumulates an evaluation", "weights"];
        let side = |side: &Side| {
            vec![
                Td::new(side.name),
                Td::fact(side.path.shown()),
                Td::new(side.step.to_string()),
                Td::new(side.parameters.to_string()),
                Td::new(side.macs_per_evaluation.map_or_else(|| "–".into(), |macs| macs.to_string())),
                Td::new(&side.checksum),
            ]
        };
        page.table(&head.map(String::from), self.sides.iter().map(side).collect());
        page.heading("Measured");
        self.results.table_of(&mut page);
        page.note("Samplers, seeds, hashes and every value are in report.html beside this page.");
        if !self.likeness.is_empty() {
            page.heading("The same noise");
        }
        for like in &self.likeness {
            let (n, column, of) = (like.images, like.column, self.results.columns_are);
            page.paragraph(&format!("{column} {of}: {} dB between {n} pairs of images", number(like.psnr)));
        }
        for Sheet { png, width, caption } in sheets {
            page.picture(png, *width, (1000 / width).max(1), caption);
        }
        if let Some(first) = self.denoising.first() {
            page.heading("Denoising");
            let rows = self.denoising.iter().map(|at| {
                let [a, b] = at.rms.map(|rms| Td::new(format!("{rms:.4}")));
                vec![Td::new(at.ratio.to_string()), a, b]
            });
            page.table(&["noise σ/α".into(), "A".into(), "B".into()], rows.collect());
            let note = "Root mean square of the estimate of x_0 minus x_0, values in [−1, 1], over the first";
            page.note(&format!("{note} {} training images of A with equal noise.", first.images));
        }
        if let Some(why) = &self.not_denoised {
            page.note(&format!("Errors at equal noise are left out: {why}."));
        }
        page.heading("Configurations");
        let cell = |value: &Option<String>| Td::fact(value.clone().unwrap_or("–".into()));
        let rows = self.differences.iter().map(|d| vec![Td::new(&d.key), cell(&d.values[0]), cell(&d.values[1])]);
        page.table(&["".into(), "A".into(), "B".into()], rows.collect());
        page.finish()
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for side in &self.sides {
            let Side { name, path, step, parameters, macs_per_evaluation, .. } = side;
            let path = path.shown();
            write!(f, "{name}: {path}, {step} steps, {parameters} parameters")?;
            match macs_per_evaluation {
                Some(macs) => writeln!(f, ", {macs} MACs an evaluation")?,
                None => writeln!(f)?,
            }
        }
        writeln!(f, "\n{}", self.results.markdown())?;
        for like in &self.likeness {
            let (n, column, of) = (like.images, like.column, self.results.columns_are);
            writeln!(f, "same noise, {column} {of}: {} dB PSNR between A and B over {n} images", number(like.psnr))?;
        }
        if self.likeness.is_empty() && !self.results.metric.measures_network() {
            writeln!(f, "images of different sizes: not compared one by one")?;
        }
        if !self.denoising.is_empty() {
            writeln!(f, "\nerror of x_0 at noise sigma/alpha, A | B:")?;
        }
        for Denoising { ratio, rms: [a, b], .. } in &self.denoising {
            writeln!(f, "  {ratio:<5} {a:.4} | {b:.4}")?;
        }
        if let Some(why) = &self.not_denoised {
            writeln!(f, "errors at equal noise are left out: {why}")?;
        }
        let shown = |value: &Option<String>| value.clone().unwrap_or("–".into());
        writeln!(
            f,
            "\n{} options differ{}",
            self.differences.len(),
            if self.differences.is_empty() { "" } else { ":" }
        )?;
        for difference in &self.differences {
            writeln!(f, "  {}: {} | {}", difference.key, shown(&difference.values[0]), shown(&difference.values[1]))?;
        }
        Ok(())
    }
}
