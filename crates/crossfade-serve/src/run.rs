//! Makes the pictures of a job, with the same calls as the command line.
use crate::batcher::{CANCELLED, Handle};
use crate::events::{Event, count_step};
use crate::job::{FitHow, Job, JobSpec, Kind, Picture};
use crate::models::Loaded;
use crate::scheduler::{Running, Scheduler};
use crate::store::Store;
use base64::Engine;
use crossfade::apply::{Application, Blending, Options, Part};
use crossfade::checkpoint::Weights;
use crossfade::data::image16::Target;
use crossfade::data::{Filter, Fit, Image, Image16, LabelMap, PassOrder, resize};
use crossfade::digest::sha256;
use crossfade::engine::Images;
use crossfade::generate::{Edit, EditRecipe, Pipeline, Recipe, Source, StartNoise, task_recipe};
use crossfade::nn::named::fnv1a;
use crossfade::sample::State;
use crossfade::task::TaskConfig;
use crossfade::task::masks::Mask;
use crossfade::{Error, Result};
use serde_json::json;
use std::cell::Cell;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// The largest side of a preview.
const PREVIEW: usize = 96;
/// How long a job waits for the store with its threads.
const STORE_TIME: Duration = Duration::from_secs(60);

/// The error of a run that panicked.
pub fn panicked() -> Error {
    Error::Run("the server made a mistake; see its log".into())
}

/// Makes and stores these pictures of a job, which are a chunk of it.
pub fn pictures(scheduler: &Arc<Scheduler>, running: &Running, wanted: &[u64]) -> Result<()> {
    let spec = &running.job.spec;
    let model = scheduler.library.find(&spec.model).filter(|model| model.digest() == spec.digest);
    let model = model.ok_or_else(|| {
        let (name, digest) = (&spec.model, &spec.digest);
        Error::Run(format!("the model {name} ({digest}) that this job was accepted for is not served any more"))
    })?;
    let loaded = scheduler.library.load(model)?;
    let handle = Arc::new(scheduler.batcher.handle(&loaded, &running.client, running.stop.clone()));
    let pipeline = loaded.pipeline.with_sample(&spec.sample)?.evaluated_by(handle.clone());
    let run = Run { scheduler, running, spec, loaded: &loaded, pipeline: &pipeline, handle: &handle };
    match spec.kind {
        Kind::Generation => run.generate(wanted),
        Kind::Variation => wanted.iter().try_for_each(|&index| run.vary(index)),
        Kind::Edit | Kind::Task => wanted.iter().try_for_each(|&index| run.apply(index)),
    }
}

struct Run<'a> {
    scheduler: &'a Arc<Scheduler>,
    running: &'a Running,
    spec: &'a JobSpec,
    loaded: &'a Loaded,
    pipeline: &'a Pipeline,
    handle: &'a Handle,
}

impl Run<'_> {
    fn generate(&self, wanted: &[u64]) -> Result<()> {
        let spec = self.spec;
        let starts: Vec<_> = wanted.iter().map(|index| StartNoise::Index(spec.first + index)).collect();
        let mut observe = |state: State<'_, Images>| {
            let estimates = spec.previews.then(|| self.pipeline.decode(state.x0.0.clone()));
            for (k, &index) in wanted.iter().enumerate() {
                let estimate = estimates.as_ref().and_then(|images| images.get(k));
                self.step(index, &state, wanted.len(), estimate, None);
            }
        };
        let sampled = self.pipeline.sample(spec.seed, &starts, &mut observe)?;
        for ((&index, start), image) in wanted.iter().zip(&starts).zip(self.pipeline.pictures(sampled.x0.0)?) {
            let recipe = Recipe::new(&self.loaded.checkpoint, Weights::Ema, self.pipeline, spec.seed, *start)?;
            let class = (!self.pipeline.class_names().is_empty()).then(|| recipe.sample.class.clone());
            let size = (image.width, image.height);
            self.keep(index, spec.first + index, spec.seed, class, size, &recipe.png(&image)?)?;
        }
        Ok(())
    }

    fn vary(&self, index: u64) -> Result<()> {
        let (spec, pipeline) = (self.spec, self.pipeline);
        let (_, side) = pipeline.picture_size()?;
        let source = Source::decode(self.input("image")?, Path::new(&spec.name))?;
        let fit = spec.fit.map(|fit| if fit == FitHow::Crop { Fit::Crop } else { Fit::Stretch });
        let fitted = match fit {
            Some(_) => Some(Image16::from_image(&source.fitted(pipeline, fit)?)),
            None => None,
        };
        let picture = fitted.as_ref().unwrap_or(&source.picture);
        let tiled = (picture.width, picture.height) != (side, side);
        let strength = spec.strength.unwrap_or(1.0);
        let (edit, of) = (Edit::Strength(strength), (spec.seed, index));
        let checkpoint = &self.loaded.checkpoint;
        let recipe = EditRecipe::new(checkpoint, Weights::Ema, pipeline, (&source, fit), edit, of)?;
        let (keyword, text) = recipe.chunk()?;
        let tile = Cell::new((0, 1));
        let watch = |_: &[Part], state: &State<'_, Images>| self.watched(index, state, &tile, tiled);
        let model = pipeline.edit_model(strength, spec.seed, tiled)?.watched(&watch);
        let options = Options { window: Some(side), ..Options::default() };
        let texts = [(keyword, text.as_str())];
        let application = Application { task: &TaskConfig::default(), model: &model, options: &options, texts: &texts };
        let mut png = vec![];
        let mut progress = |done: usize, all: usize| self.tile_done(&tile, done, all);
        let applied = application.run_to(picture, None, index, Target::Memory(&mut png), &mut progress)?;
        let class = pipeline.class_of(spec.seed, StartNoise::Index(index))?;
        let class = class.and_then(|class| pipeline.class_names().get(class as usize).cloned());
        self.keep(index, index, spec.seed, class, (applied.width, applied.height), &png)
    }

    fn apply(&self, index: u64) -> Result<()> {
        let (spec, pipeline) = (self.spec, self.pipeline);
        let seed = spec.seed.wrapping_add(index);
        let task = &self.loaded.checkpoint.config.task;
        let picture = Image16::decode(&self.input("image")?, "the picture")?;
        let sent = self.mask()?;
        let mask = match task {
            TaskConfig::Inpainting(_) => Some(mask_of(&picture, sent.as_deref())?),
            _ => None,
        };
        // A picture whose transparency says where its hole is becomes opaque: the hole is filled.
        let alpha = if mask.is_some() && sent.is_none() { None } else { picture.alpha.clone() };
        let picture = Image16 { alpha, ..picture };
        let options = Options {
            window: spec.tile,
            blending: spec.overlap.map(|overlap| Blending::Smooth { overlap }),
            flip_test: spec.flip_test,
            threshold: spec.threshold,
            ..Options::default()
        };
        let evaluations = pipeline.evaluations()?;
        let checkpoint = &self.loaded.checkpoint;
        let (keyword, text) = task_recipe(checkpoint, task.name(), seed, &spec.sample, evaluations);
        let tile = Cell::new((0, 1));
        let watch = |_: &[Part], state: &State<'_, Images>| self.watched(index, state, &tile, true);
        let model = pipeline.task_model(task.name(), seed)?.watched(&watch);
        let application = Application { task, model: &model, options: &options, texts: &[(keyword, &text)] };
        let mut png = vec![];
        let mut progress = |done: usize, all: usize| self.tile_done(&tile, done, all);
        let noise = fnv1a(&spec.name);
        let applied = application.run_to(&picture, mask.as_ref(), noise, Target::Memory(&mut png), &mut progress)?;
        self.keep(index, index, seed, None, (applied.width, applied.height), &png)
    }

    fn input(&self, name: &str) -> Result<Vec<u8>> {
        let found = self.stored(|store, id| store.input(id, name))?;
        found.ok_or_else(|| Error::Run(format!("the store has lost the {name} of this job")))
    }

    fn mask(&self) -> Result<Option<Vec<u8>>> {
        self.stored(|store, id| store.input(id, "mask"))
    }

    /// Uses the store, and tries again while it does not answer: it may be started anew. After a while the job goes back to
    /// the queue, so that others get the thread.
    fn stored<T>(&self, work: impl Fn(&dyn Store, &str) -> Result<T>) -> Result<T> {
        let id = &self.running.job.id;
        let until = Instant::now() + STORE_TIME;
        let mut pause = Duration::from_millis(50);
        loop {
            match work(&*self.scheduler.store, id) {
                Ok(done) => return Ok(done),
                Err(e) => crate::note(&format!("the job {id} waits for the store: {e}")),
            }
            self.handle.rest();
            if Instant::now() >= until {
                self.running.give_up();
            }
            if self.running.stop.load(Ordering::Relaxed) {
                return Err(Error::Run(CANCELLED.into()));
            }
            std::thread::sleep(pause);
            pause = (2 * pause).min(Duration::from_secs(2));
        }
    }

    /// Once the number of tiles is known, the progress is that of all of them.
    fn tile_done(&self, tile: &Cell<(usize, usize)>, done: usize, all: usize) {
        tile.set((done, all));
        let steps = self.spec.n * self.spec.steps.max(1) as u64 * all.max(1) as u64;
        self.running.log.steps.store(steps, Ordering::Relaxed);
    }

    fn watched(&self, index: u64, state: &State<'_, Images>, tile: &Cell<(usize, usize)>, tiled: bool) {
        let estimate = self.spec.previews.then(|| self.pipeline.decode(state.x0.0.clone()));
        let image = estimate.as_ref().and_then(|images| images.first());
        self.step(index, state, state.x0.0.dims()[0], image, tiled.then(|| tile.get()));
    }

    /// Tells of a step of a picture; `batch` pictures share the evaluations of the handle.
    fn step(
        &self,
        index: u64,
        state: &State<'_, Images>,
        batch: usize,
        estimate: Option<&Image>,
        tile: Option<(usize, usize)>,
    ) {
        if state.step + 1 >= self.spec.steps {
            self.handle.rest();
        }
        count_step(&self.running.log);
        let preview = estimate.and_then(preview);
        let mut data = json!({
            "index": index, "step": state.step, "steps": self.spec.steps, "t": state.t,
            "evaluations": self.handle.images() / batch.max(1), "preview": preview,
        });
        if let Some((tile, tiles)) = tile {
            data["tile"] = json!(tile);
            data["tiles"] = json!(tiles);
        }
        self.scheduler.hub.add(&self.running.log, Event::Step(data.to_string().into()));
    }

    fn keep(
        &self,
        index: u64,
        image: u64,
        seed: u64,
        class: Option<String>,
        (width, height): (usize, usize),
        png: &[u8],
    ) -> Result<()> {
        let picture = Picture { index, image, seed, class, width, height, bytes: png.len(), sha256: sha256(png) };
        self.stored(|store, id| store.put_picture(id, &picture, png))?;
        self.scheduler.metrics.picture();
        self.scheduler.hub.add(&self.running.log, Event::Picture(index));
        Ok(())
    }
}

/// A picture as a data address of at most [`PREVIEW`] pixels a side; none if it cannot be encoded.
fn preview(image: &Image) -> Option<String> {
    let largest = image.width.max(image.height);
    let side = |n: usize| (n * PREVIEW / largest).max(1);
    let small = match largest > PREVIEW {
        true => &resize(image, side(image.width), side(image.height), Filter::Bilinear, PassOrder::HorizontalFirst),
        false => image,
    };
    let png = small.encode_png(&[]).ok()?;
    Some(format!("data:image/png;base64,{}", base64::engine::general_purpose::STANDARD.encode(png)))
}

/// Which pixels are known: where the mask is opaque, or white if it has no transparency; without a mask where the picture
/// is opaque.
pub fn mask_of(picture: &Image16, mask: Option<&[u8]>) -> Result<Mask> {
    let of_alpha = |image: &Image16, alpha: &[u16]| Mask {
        width: image.width,
        height: image.height,
        known: alpha.iter().map(|&a| a >= 1 << 15).collect(),
    };
    let found = match mask {
        Some(bytes) => {
            let image = Image16::decode(bytes, "the mask")?;
            match &image.alpha {
                Some(alpha) if alpha.iter().any(|&a| a < 1 << 15) => of_alpha(&image, alpha),
                _ => Mask::from_label(&LabelMap::decode(bytes, "the mask")?),
            }
        }
        None => match &picture.alpha {
            Some(alpha) => of_alpha(picture, alpha),
            None => return Err(Error::request("a mask is missing, and the picture has no transparent part to fill")),
        },
    };
    if (found.width, found.height) != (picture.width, picture.height) {
        let (w, h) = (picture.width, picture.height);
        let problem = format!("the picture has {w}x{h} pixels, its mask {}x{}", found.width, found.height);
        return Err(Error::request(problem));
    }
    Ok(found)
}

/// What the pictures of a job are called when they are kept.
pub fn picture_name(job: &Job, index: u64) -> String {
    let image = if job.spec.kind == Kind::Generation { job.spec.first + index } else { index };
    format!("{}-{}-{image:06}.png", job.spec.model, job.spec.seed)
}
