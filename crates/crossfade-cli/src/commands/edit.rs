//! `crossfade edit`.
mod pictures;

use super::sample::{not_negative, open, open_or_default, two_times};
use super::sampler::SamplerArgs;
use crate::cli::{Weights, unit_interval};
use crate::context::Context;
use crate::output::duration;
use anyhow::{Context as _, Result};
use clap::{Args, ValueEnum};
use crossfade::RunConfig;
use crossfade::apply::Applied;
use crossfade::checkpoint::Checkpoint;
use crossfade::config::{SampleConfig, SampleOptions};
use crossfade::data::{Fit, Image, Planes, contact_sheet};
use crossfade::engine::to_host;
use crossfade::error::Shown;
use crossfade::files::{Folder, write_atomic};
use crossfade::generate::{Edit, EditRecipe, Noise, Pipeline, Source};
use crossfade::math::{GridKind, Process};
use crossfade::sample::Sampler;
use crossfade::tensorfile::save_tensors;
use pictures::{Picture, pictures};
use serde_json::{Value, json};
use std::path::PathBuf;

/// Change a picture with a trained network, invert it to noise, or blend it with another one
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  crossfade edit photo.png changed.png --checkpoint runs/cifar --strength 0.6 --steps 50
  crossfade edit photo.png cat.png --checkpoint runs/cifar10-classes --strength 0.7 --class cat --guidance 2
  crossfade edit photo.png variations --checkpoint runs/cifar --strength 0.5 --count 16
  crossfade edit photos changed --checkpoint runs/cifar --strength 0.4                    every picture of a folder
  crossfade edit photo.jpg changed.png --checkpoint runs/cifar --strength 0.6 --fit crop
  crossfade edit photo.png same.png --checkpoint runs/cifar --invert --steps 50 --noise noise.safetensors
  crossfade edit a.png between --checkpoint runs/cifar --to b.png --count 9 --steps 50

--strength X noises the picture and runs the last share X of the sampler's steps: 0 returns the
picture, 1 starts from pure noise and forgets it. A picture larger than the network's size is
changed in overlapping tiles, unless --fit is given. --invert runs the sampler from the picture up
to noise and back, and prints what the round trip has changed.

The PNG stores the options and a digest of IN, so that `crossfade reproduce` can make it again from the
same picture. Transparency and 16 bits are kept with --strength; turned photos are turned upright.")]
pub struct EditArgs {
    /// Picture (PNG, JPEG or WebP), or a folder of pictures
    #[arg(value_name = "IN")]
    input: PathBuf,

    /// PNG file to write; a folder with --to, with a --count above 1, or if IN is a folder
    #[arg(value_name = "OUT")]
    output: PathBuf,

    /// Run directory or checkpoint of a network that generates pictures, or the name of a model that ships [default: the model
    /// that ships for this]
    #[arg(long, value_name = "PATH")]
    checkpoint: Option<PathBuf>,

    /// Share of the sampler's steps that are run, from 0 (the picture itself) to 1 (from pure noise), for example 0.6
    #[arg(long, value_name = "X", value_parser = unit_interval, required_unless_present_any = ["invert", "to"])]
    strength: Option<f64>,

    /// Run the sampler from the picture to noise and back, write the result and print what has changed, for example
    /// --invert --steps 50
    #[arg(long, conflicts_with_all = ["strength", "to", "count"])]
    invert: bool,

    /// With --invert, also write the noise to this safetensors file, for example noise.safetensors
    #[arg(long, value_name = "FILE", requires = "invert")]
    noise: Option<PathBuf>,

    /// Second picture: --count pictures between IN and this one, by interpolation of their noises, for example --to b.png
    #[arg(long, value_name = "PICTURE", conflicts_with = "strength")]
    to: Option<PathBuf>,

    /// Number of variations, or of pictures with --to, both ends included [default: 1, with --to 9]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100_000))]
    count: Option<u64>,

    /// Make the picture square and resize it to the network's size, as images of a dataset, for example --fit crop
    #[arg(long, value_name = "HOW")]
    fit: Option<FitArg>,

    #[command(flatten)]
    sampler: SamplerArgs,

    /// Class by name or number, or none, for example cat [default: from the configuration]
    #[arg(long, value_name = "NAME")]
    class: Option<String>,

    /// Weight of guidance, for example 1.5; 1 for none [default: from the configuration]
    #[arg(long, value_name = "X", value_parser = not_negative)]
    guidance: Option<f64>,

    /// Times between which steps are guided, for example 0.2,0.8; t = 1 is noise, t = 0 the picture [default: 0,1]
    #[arg(long, value_name = "FROM,TO", value_parser = two_times, requires = "guidance")]
    guidance_interval: Option<[f64; 2]>,

    /// Weaker checkpoint or run to guide with, in place of the network's own prediction without a class
    #[arg(long, value_name = "CHECKPOINT", requires = "guidance")]
    guide: Option<PathBuf>,

    /// Seed of the noise; variation k of a seed is always the same
    #[arg(long, value_name = "S", default_value_t = 0)]
    seed: u64,

    /// Which copy of the checkpoint's weights to use
    #[arg(long, default_value = "ema")]
    weights: Weights,
}

/// How a picture becomes square.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum FitArg {
    /// The largest centred square
    Crop,
    /// The complete picture, which changes its aspect ratio
    Stretch,
}

impl From<FitArg> for Fit {
    fn from(fit: FitArg) -> Self {
        match fit {
            FitArg::Crop => Self::Crop,
            FitArg::Stretch => Self::Stretch,
        }
    }
}

impl EditArgs {
    /// The checkpoint's sampling settings with the options applied.
    fn sampling(&self, run: &RunConfig) -> Result<SampleConfig> {
        let mut own = run.sample.clone();
        if self.inverts() {
            own.eta = 0.0;
            own.sampler = Sampler::inverting(&run.process).unwrap_or(own.sampler);
            // On this grid the second-order samplers for attenuation keep their order (§10.4).
            if matches!(run.process, Process::Adm(_)) && own.grid.kind == GridKind::Auto {
                own.grid.kind = GridKind::UniformSqrt;
            }
        }
        let options = SampleOptions {
            class: self.class.clone(),
            guidance: self.guidance,
            guidance_interval: self.guidance_interval,
            ..self.sampler.options()?
        };
        Ok(options.applied(&RunConfig { sample: own, ..run.clone() }, |name| format!("--{name}"))?)
    }

    fn inverts(&self) -> bool {
        self.invert || self.to.is_some()
    }
}

/// Edits the pictures.
pub fn run(args: &EditArgs, context: &Context) -> Result<()> {
    let pictures = pictures(args)?;
    let checkpoint = open_or_default(args.checkpoint.as_deref(), "generate")?;
    let config = args.sampling(&checkpoint.config)?;
    let mut pipeline = Pipeline::open(&checkpoint, args.weights.into(), &config, &context.device)?;
    if let Some(guide) = &args.guide {
        pipeline = pipeline.guided_by(&open(guide)?, args.weights.into())?;
    }
    pipeline.picture_size()?;
    let job = Job { args, checkpoint: &checkpoint, config: &config, pipeline: &pipeline };
    let began = std::time::Instant::now();
    let mut progress = context.progress("pictures", pictures.len() as u64);
    let mut made: Vec<(String, Value)> = vec![];
    for picture in &pictures {
        let source = Source::read(&picture.from)?;
        let _folders = Folder::of(picture.to.iter().chain(&args.noise).map(PathBuf::as_path))?;
        let (text, mut facts) = match args.strength {
            Some(strength) => job.change(picture, &source, strength),
            None if args.invert => job.round_trip(picture, &source),
            None => job.interpolate(picture, &source),
        }
        .with_context(|| format!("editing {}", picture.from.shown()))?;
        facts["files"] = picture.to.iter().map(|file| Value::from(file.to_string_lossy())).collect();
        made.push((text, facts));
        progress.set(made.len() as u64, pictures.len() as u64);
    }
    drop(progress);
    let seconds = began.elapsed().as_secs_f64();
    let lines: Vec<&str> = made.iter().map(|(text, _)| text.as_str()).collect();
    let text = format!("{}, {}", lines.join("\n"), duration(seconds));
    let facts = match &mut made[..] {
        [(_, facts)] if !args.input.is_dir() => {
            facts["seconds"] = json!(seconds);
            facts.take()
        }
        _ => {
            let each: Vec<Value> = made.iter_mut().map(|(_, facts)| facts.take()).collect();
            json!({ "pictures": each, "seconds": seconds })
        }
    };
    context.print(text, facts)
}

struct Job<'a> {
    args: &'a EditArgs,
    checkpoint: &'a Checkpoint,
    config: &'a SampleConfig,
    pipeline: &'a Pipeline,
}

impl Job<'_> {
    fn recipe(&self, source: &Source, edit: Edit, index: u64) -> Result<EditRecipe> {
        let (weights, of) = (self.args.weights.into(), (source, self.args.fit.map(Fit::from)));
        Ok(EditRecipe::new(self.checkpoint, weights, self.pipeline, of, edit, (self.args.seed, index))?)
    }

    /// Variations: the picture is noised and sampled again.
    fn change(&self, picture: &Picture, source: &Source, strength: f64) -> Result<(String, Value)> {
        let (mut last, mut shown) = (None, vec![]);
        for (k, to) in picture.to.iter().enumerate() {
            let recipe = self.recipe(source, Edit::Strength(strength), picture.first.wrapping_add(k as u64))?;
            let applied = self.pipeline.change(source, &recipe, to)?;
            // Pictures of any size would make a sheet of any size.
            if picture.folder.is_some() && shown.len() < SHEET_LIMIT && applied.windows == 1 {
                shown.push(Image::read(to)?);
            }
            last = Some(applied);
        }
        self.sheet(picture, &shown, (shown.len() as f64).sqrt().ceil() as usize)?;
        let Applied { width, height, windows } = last.context("nothing was made")?;
        let steps = self.pipeline.steps_of_strength(strength)?;
        let text = format!(
            "{}: {width}x{height}, {windows} {}, the last {steps} of {} steps, sampler {}",
            picture.folder.as_ref().unwrap_or(&picture.to[0]).shown(),
            if windows == 1 { "tile" } else { "tiles" },
            self.config.times(self.pipeline.process())?.len() - 1,
            self.config.sampler.name()
        );
        Ok((text, json!({ "width": width, "height": height, "tiles": windows, "steps": steps, "sample": self.config })))
    }

    /// Picture to noise to picture.
    fn round_trip(&self, picture: &Picture, source: &Source) -> Result<(String, Value)> {
        let image = source.fitted(self.pipeline, self.args.fit.map(Fit::from))?;
        let found = self.pipeline.round_trip(&image, self.args.seed)?;
        let (recipe, to) = (self.recipe(source, Edit::Invert, 0)?, &picture.to[0]);
        write_atomic(to, &recipe.png(&found.image)?)?;
        if let Some(file) = &self.args.noise {
            let noise = found.noise.values.0;
            let tensor = ("noise".into(), noise.dims().to_vec(), to_host(noise));
            save_tensors(file, &[tensor], &[("crossfade-edit".to_string(), recipe.text()?)].into())?;
        }
        let largest = image.pixels.iter().zip(&found.image.pixels).map(|(a, b)| a.abs_diff(*b)).max().unwrap_or(0);
        let (psnr, evaluations) = (image.psnr(&found.image), found.evaluations);
        let mut text = format!(
            "{}: the round trip changed the picture to a PSNR of {psnr:.2} dB, at most {largest} of 255 levels",
            to.shown()
        );
        // What no sampler can restore is told apart.
        let autoencoder = self.pipeline.reconstructed(&Planes::from_image(&image))?.map(|alone| image.psnr(&alone));
        if let Some(alone) = autoencoder {
            text += &format!(" (the autoencoder alone: {alone:.2} dB)");
        }
        text += &format!("; {evaluations} network evaluations, sampler {}", self.config.sampler.name());
        // An unchanged picture has an infinite PSNR, which JSON writes as null.
        let facts = json!({
            "psnr": psnr, "max_abs": largest, "autoencoder_psnr": autoencoder, "evaluations": evaluations,
            "sample": self.config,
        });
        Ok((text, facts))
    }

    /// Pictures between two pictures.
    fn interpolate(&self, picture: &Picture, source: &Source) -> Result<(String, Value)> {
        let to = Source::read(self.args.to.as_ref().context("--to is missing")?)?;
        let seed = self.args.seed;
        let noise = |source: &Source| -> Result<Noise> {
            let image = source.fitted(self.pipeline, self.args.fit.map(Fit::from))?;
            Ok(self.pipeline.invert(&Planes::from_image(&image), seed)?)
        };
        let (a, b) = (noise(source)?, noise(&to)?);
        let last = (picture.to.len().max(2) - 1) as f64;
        let shares: Vec<f64> = (0..picture.to.len()).map(|k| k as f64 / last).collect();
        let (mut shown, mut evaluations) = (vec![], 0);
        for (shares, files) in shares.chunks(BATCH).zip(picture.to.chunks(BATCH)) {
            let (images, nfe) = self.pipeline.between(&a, &b, shares, seed)?;
            evaluations = nfe;
            for ((image, file), &share) in images.iter().zip(files).zip(shares) {
                let edit = Edit::Between { to: to.recipe.clone(), share };
                write_atomic(file, &self.recipe(source, edit, 0)?.png(image)?)?;
            }
            shown.extend(images);
        }
        shown.truncate(SHEET_LIMIT);
        self.sheet(picture, &shown, shown.len().min(16))?;
        let inversion = a.evaluations + b.evaluations;
        let text = format!(
            "{}: {} pictures, {inversion} network evaluations for the noise of both ends, {evaluations} for each picture, \
             sampler {}",
            self.args.output.shown(),
            picture.to.len(),
            self.config.sampler.name()
        );
        Ok((text, json!({ "evaluations": evaluations, "inversion": inversion, "sample": self.config })))
    }

    /// Writes the contact sheet of several pictures.
    fn sheet(&self, picture: &Picture, images: &[Image], columns: usize) -> Result<()> {
        let (Some(first), Some(folder)) = (images.first(), &picture.folder) else { return Ok(()) };
        let drawn = contact_sheet(images, columns, 2, (64 / first.width).max(1));
        Ok(write_atomic(folder.join("sheet.png"), &drawn.encode_png(&[])?)?)
    }
}

/// The largest number of pictures on a contact sheet.
const SHEET_LIMIT: usize = 256;

/// Pictures that are sampled together; this changes the speed and nothing else.
const BATCH: usize = 16;
