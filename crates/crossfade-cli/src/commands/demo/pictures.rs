//! Pictures of the model that ships for generation: by class, from noise step by step, with few evaluations.
use super::{Row, Section};
use crate::context::Context;
use anyhow::Result;
use crossfade::checkpoint::{Checkpoint, Weights};
use crossfade::config::SampleConfig;
use crossfade::data::Image;
use crossfade::generate::{BATCH, Pipeline, StartNoise};
use crossfade::models;
use crossfade::sample::Sampler;
use std::path::Path;
use std::time::Instant;

/// Pictures of each class.
const COLUMNS: u64 = 14;
/// Classes, at most.
const ROWS: usize = 24;
/// Rows of the default model, if it has no classes.
const PLAIN_ROWS: usize = 4;
/// Pictures whose way from noise is shown.
const WAYS: u64 = 3;
/// Numbers of network evaluations.
const EVALUATIONS: [usize; 3] = [2, 5, 10];
/// Pictures of the same noise, where there are not enough classes for one of each.
const SAME_NOISE: u64 = 10;
const SEED: u64 = 0;

/// A network with the settings of the demonstration.
struct Model {
    pipeline: Pipeline,
    sample: SampleConfig,
    classes: Vec<String>,
}

/// The sections of generation; none if no model ships for it.
pub fn sections(context: &Context) -> Result<Vec<Section>> {
    let Some(shipped) = models::default_of("generate") else { return Ok(vec![]) };
    let model = Model::open(shipped.name, context)?;
    context.note(format_args!("pictures of the model {} …", shipped.name));
    let title = if model.classes.is_empty() { "Pictures" } else { "A row for each class" };
    let mut sections = vec![model.pictures(shipped.name, title, PLAIN_ROWS)?];
    // Other models for generation are files, which need not be there.
    let others = models::all().iter().filter(|other| other.task == shipped.task && !other.default);
    for other in others.filter(|other| other.is_embedded() || other.found().is_some()) {
        context.note(format_args!("pictures of the model {} …", other.name));
        sections.push(Model::open(other.name, context)?.pictures(other.name, other.name, 2)?);
    }
    context.note("the way from noise to picture …");
    sections.push(model.way()?);
    context.note("few network evaluations …");
    sections.push(model.few_evaluations()?);
    Ok(sections)
}

impl Model {
    fn open(name: &str, context: &Context) -> Result<Self> {
        let checkpoint = Checkpoint::open(Path::new(name))?;
        let mut sample = checkpoint.config.sample.clone();
        let classes: Vec<String> = checkpoint.class_names.iter().take(ROWS).cloned().collect();
        if !classes.is_empty() {
            sample.class = (0..classes.len()).map(|k| k.to_string()).collect::<Vec<_>>().join(",");
        }
        let pipeline = Pipeline::open(&checkpoint, Weights::Ema, &sample, &context.device)?;
        Ok(Self { pipeline, sample, classes })
    }

    /// A row for each class, or `plain` rows of a network without classes, with the settings of the model.
    fn pictures(&self, name: &str, title: &str, plain: usize) -> Result<Section> {
        // Image k has class k mod n.
        let rows = if self.classes.is_empty() { plain } else { self.classes.len() } as u64;
        let count = rows * COLUMNS;
        let began = Instant::now();
        let mut images = vec![];
        for first in (0..count).step_by(BATCH) {
            images.extend(self.pipeline.images(SEED, first..(first + BATCH as u64).min(count))?);
        }
        let time = per_image(began, count);
        let row = |k: u64| {
            let own = (0..COLUMNS).map(|column| images[(column * rows + k) as usize].clone()).collect();
            Row::new(self.classes.get(k as usize).cloned().unwrap_or_default(), "", own)
        };
        let evaluations = self.pipeline.evaluations()?;
        let text = format!("The model {name}, {evaluations} network evaluations, {time} for each picture.");
        Ok(Section { title: title.into(), text, rows: (0..rows).map(row).collect() })
    }

    /// x_t and the estimate of x_0 at every step, for a few pictures.
    fn way(&self) -> Result<Section> {
        let starts: Vec<_> = (0..WAYS).map(StartNoise::Index).collect();
        let mut seen: Vec<[Vec<Image>; 2]> = vec![];
        let sampled = self.pipeline.sample(SEED, &starts, &mut |state| {
            seen.push([state.x_t, state.x0].map(|x| self.pipeline.decode(x.0.clone())));
        })?;
        let last = self.pipeline.pictures(sampled.x0.0)?;
        let mut rows = vec![];
        for (k, end) in last.iter().enumerate() {
            for (which, label) in ["what the network sees", "what it estimates"].into_iter().enumerate() {
                let along = seen.iter().map(|step| step[which][k].clone());
                rows.push(Row::new(if k == 0 { label } else { "" }, "", along.chain([end.clone()]).collect()));
            }
        }
        let text = "Each column is one step: above x_t, in which the image fades in along an analytic function while the noise \
                    fades out; below the estimate of x_0, which the next step is computed from.";
        Ok(Section { title: "From noise to picture".into(), text: text.into(), rows })
    }

    /// The paper's Alg. 2 and the model's own sampler at 2, 5 and 10 evaluations from the same noise, without guidance, which
    /// would take two evaluations a step.
    fn few_evaluations(&self) -> Result<Section> {
        let count = if self.classes.len() < 6 { SAME_NOISE } else { self.classes.len() as u64 };
        let own = self.sample.sampler.resolved(self.pipeline.process())?;
        let best = if own == Sampler::Alg2 { Sampler::Ab2 } else { own };
        let mut rows = vec![];
        for evaluations in EVALUATIONS {
            let samplers =
                [(Sampler::Alg2, "the paper's Alg. 2".into()), (best, format!("our solver {}", best.name()))];
            for (sampler, name) in samplers {
                let (guidance, guidance_interval) = (1.0, [0.0, 1.0]);
                let sample = self.sample.clone();
                let how = SampleConfig { sampler, steps: evaluations, guidance, guidance_interval, ..sample };
                // Alg. 2 is for attenuation only; a network of another process is shown with its own sampler.
                let Ok(pipeline) = self.pipeline.with_sample(&how) else { continue };
                let began = Instant::now();
                let images = pipeline.images(SEED, 0..count)?;
                let note = format!("{} evaluations, {}", pipeline.evaluations()?, per_image(began, count));
                rows.push(Row::new(name, note, images));
            }
        }
        let text = "The same starting noise in each column, without guidance.";
        Ok(Section { title: "Few network evaluations".into(), text: text.into(), rows })
    }
}

/// The time for each of `count` pictures.
pub fn per_image(began: Instant, count: u64) -> String {
    let seconds = began.elapsed().as_secs_f64() / count as f64;
    if seconds < 1.0 { format!("{:.0} ms", seconds * 1e3) } else { format!("{seconds:.1} s") }
}
