//! `crossfade edit`.
use super::sample::{not_negative, open, two_times};
use crate::cli::{Weights, one_of, sampler_names, unit_interval};
use crate::context::Context;
use crate::jobs::{ImageJob, check_overwrites, create_parent};
use crate::output::duration;
use anyhow::{Context as _, Result};
use clap::{Args, ValueEnum};
use crossfade::apply::{Application, Options};
use crossfade::checkpoint::Checkpoint;
use crossfade::config::SampleConfig;
use crossfade::data::{Fit, Image, Image16, Planes, contact_sheet};
use crossfade::engine::to_host;
use crossfade::files::write_atomic;
use crossfade::generate::{EditRecipe, Pipeline};
use crossfade::math::{GridKind, Process};
use crossfade::sample::Sampler;
use crossfade::task::TaskConfig;
use crossfade::tensorfile::save_tensors;
use crossfade::{Error, RunConfig};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// Change a picture with a trained network, invert it to noise, or blend it with another one
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  crossfade edit photo.png changed.png --checkpoint runs/cifar --strength 0.6 --steps 50
  crossfade edit photo.png cat.png --checkpoint runs/cifar10-classes --strength 0.7 --class cat --guidance 2
  crossfade edit photo.png variations --checkpoint runs/cifar --strength 0.5 --count 16
  crossfade edit photo.jpg changed.png --checkpoint runs/cifar --strength 0.6 --fit crop
  crossfade edit photo.png same.png --checkpoint runs/cifar --invert --steps 50 --noise noise.safetensors
  crossfade edit a.png between --checkpoint runs/cifar --to b.png --count 9 --steps 50

--strength X noises the picture and runs the last share X of the sampler's steps: 0 returns the
picture, 1 starts from pure noise and forgets it. A picture larger than the network's size is
changed in overlapping tiles, unless --fit is given. --invert runs the sampler from the picture up
to noise and back, and prints what the round trip has changed.")]
pub struct EditArgs {
    /// Picture: PNG, JPEG or WebP
    #[arg(value_name = "IN")]
    input: PathBuf,

    /// PNG file to write; a folder with --to, or with a --count above 1
    #[arg(value_name = "OUT")]
    output: PathBuf,

    /// Run directory or checkpoint of a network that generates pictures
    #[arg(long, value_name = "PATH")]
    checkpoint: PathBuf,

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

    /// Number of steps of the whole time grid, for example 50 [default: from the configuration]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    steps: Option<u64>,

    /// Sampler [default: from the configuration; with --invert and --to midpoint for adm, heun for the other processes]
    #[arg(long, value_name = "NAME", value_parser = one_of(sampler_names()))]
    sampler: Option<String>,

    /// Time grid, as in `crossfade sample` [default: from the configuration; with --invert and --to uniform-sqrt for adm]
    #[arg(long, value_name = "NAME", value_parser = GridKind::from_argument)]
    grid: Option<GridKind>,

    /// Class by name or number, or none, for example cat [default: from the configuration]
    #[arg(long, value_name = "NAME")]
    class: Option<String>,

    /// Weight of guidance, for example 1.5; 1 for none [default: from the configuration]
    #[arg(long, value_name = "X", value_parser = not_negative)]
    guidance: Option<f64>,

    /// Times between which steps are guided, for example 0.2,0.8; t = 1 is noise, t = 0 the picture [default: 0,1]
    #[arg(long, value_name = "FROM,TO", value_parser = two_times, requires = "guidance")]
    guidance_interval: Option<[f64; 2]>,

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
        let (mut config, process) = (run.sample.clone(), &run.process);
        config.steps = self.steps.map_or(config.steps, |steps| steps as usize);
        if let Some(class) = &self.class {
            config.class.clone_from(class);
        }
        config.guidance = self.guidance.unwrap_or(config.guidance);
        config.guidance_interval = self.guidance_interval.unwrap_or(config.guidance_interval);
        if self.inverts() {
            config.eta = 0.0;
            config.sampler = Sampler::inverting(process).unwrap_or(config.sampler);
            // On this grid the second-order samplers for attenuation keep their order (§10.4).
            if matches!(process, Process::Adm(_)) && config.grid.kind == GridKind::Auto {
                config.grid.kind = GridKind::UniformSqrt;
            }
        }
        if let Some(name) = &self.sampler {
            config.sampler = Sampler::parse(name)?;
        }
        if let Some(kind) = &self.grid {
            config.grid.kind = kind.clone();
        }
        if self.steps.is_some() && matches!(config.grid.kind, GridKind::Explicit { .. }) {
            return Err(Error::request("--steps does not apply to a grid of explicit times").into());
        }
        Ok(config.resolved(process)?)
    }

    fn inverts(&self) -> bool {
        self.invert || self.to.is_some()
    }

    /// The files to write; an error if one of them is an input.
    fn outputs(&self) -> Result<Vec<PathBuf>> {
        let count = self.count.unwrap_or(if self.to.is_some() { 9 } else { 1 });
        let is_folder = self.to.is_some() || count > 1;
        let file = |k: u64| if is_folder { self.output.join(format!("{k:06}.png")) } else { self.output.clone() };
        let outputs: Vec<PathBuf> = (0..count).map(file).collect();
        if !is_folder && self.output.is_dir() {
            return Err(Error::file(&self.output, "is a folder; give the name of a PNG file").into());
        }
        let others = is_folder.then(|| self.output.join("sheet.png")).into_iter().chain(self.noise.clone());
        let name = String::new();
        let job = |to: PathBuf| ImageJob { name: name.clone(), from: self.input.clone(), to };
        let jobs: Vec<ImageJob> = outputs.iter().cloned().chain(others).map(job).collect();
        check_overwrites(&jobs, self.to.as_slice(), &[])?;
        Ok(outputs)
    }

    /// What a PNG tells about its making: the keyword and the text of a chunk.
    fn recipe(&self, checkpoint: &Checkpoint, config: &SampleConfig, index: usize) -> (&'static str, String) {
        let name = |path: &Path| path.file_name().map(|n| n.to_string_lossy().into_owned());
        let (picture, to) = (name(&self.input), self.to.as_deref().and_then(name));
        let recipe = EditRecipe {
            picture: picture.as_deref(),
            to: to.as_deref(),
            strength: self.strength,
            invert: self.invert,
            seed: self.seed,
            index: index as u64,
        };
        recipe.chunk(checkpoint, config)
    }
}

/// Edits the picture.
pub fn run(args: &EditArgs, context: &Context) -> Result<()> {
    let outputs = args.outputs()?;
    let checkpoint = open(&args.checkpoint)?;
    let config = args.sampling(&checkpoint.config)?;
    let pipeline = Pipeline::open(&checkpoint, args.weights.into(), &config, &context.device)?;
    pipeline.picture_size()?;
    let job = Job { args, checkpoint: &checkpoint, config: &config, pipeline: &pipeline, outputs: &outputs };
    let began = std::time::Instant::now();
    let (text, mut facts) = match args.strength {
        Some(strength) => job.change(strength, context),
        None if args.invert => job.round_trip(),
        None => job.interpolate(),
    }
    .with_context(|| format!("editing {}", args.input.display()))?;
    let seconds = began.elapsed().as_secs_f64();
    facts["seconds"] = json!(seconds);
    facts["files"] = json!(outputs);
    context.print(format!("{text}, {}", duration(seconds)), facts)
}

struct Job<'a> {
    args: &'a EditArgs,
    checkpoint: &'a Checkpoint,
    config: &'a SampleConfig,
    pipeline: &'a Pipeline,
    outputs: &'a [PathBuf],
}

impl Job<'_> {
    /// Variations: the picture is noised and sampled again.
    fn change(&self, strength: f64, context: &Context) -> Result<(String, Value)> {
        let (_, side) = self.pipeline.picture_size()?;
        let mut picture = Image16::read(&self.args.input)?;
        if let Some(fit) = self.args.fit {
            picture = Image16::from_image(&self.pipeline.fitted(&picture.to_image(), Some(fit.into()))?);
        }
        let tiled = (picture.width, picture.height) != (side, side);
        let model = self.pipeline.edit_model(strength, self.args.seed, tiled)?;
        let options = Options { window: Some(side), ..Options::default() };
        let mut progress = context.progress("pictures", self.outputs.len() as u64);
        let (mut tiles, mut made) = (0, vec![]);
        for (k, to) in self.outputs.iter().enumerate() {
            create_parent(to)?;
            let (keyword, text) = self.args.recipe(self.checkpoint, self.config, k);
            let texts = [(keyword, text.as_str())];
            let application =
                Application { task: &TaskConfig::default(), model: &model, options: &options, texts: &texts };
            tiles = application.run(&picture, None, k as u64, to, &mut |_, _| ())?.windows;
            if self.outputs.len() > 1 && made.len() < SHEET_LIMIT && !tiled {
                made.push(Image::read(to)?);
            }
            progress.set(k as u64 + 1, self.outputs.len() as u64);
        }
        drop(progress);
        self.sheet(&made, (made.len() as f64).sqrt().ceil() as usize)?;
        let (width, height, steps) = (picture.width, picture.height, model.steps());
        let text = format!(
            "{}: {width}x{height}, {tiles} {}, the last {steps} of {} steps, sampler {}",
            self.args.output.display(),
            if tiles == 1 { "tile" } else { "tiles" },
            self.config.times(self.pipeline.process())?.len() - 1,
            self.config.sampler.name()
        );
        Ok((text, json!({ "width": width, "height": height, "tiles": tiles, "steps": steps, "sample": self.config })))
    }

    /// Picture to noise to picture.
    fn round_trip(&self) -> Result<(String, Value)> {
        let (image, picture) = self.read(&self.args.input)?;
        let noise = self.pipeline.invert(&picture, self.args.seed)?;
        let back = self.pipeline.sample_noise(&noise.values, self.args.seed)?;
        let result = self.pipeline.decode(back.x0.0).pop().context("the sampler returned no picture")?;
        self.write(std::slice::from_ref(&result), 0)?;
        if let Some(file) = &self.args.noise {
            create_parent(file)?;
            let tensor = ("noise".into(), noise.values.0.dims().to_vec(), to_host(noise.values.0.clone()));
            let (keyword, recipe) = self.args.recipe(self.checkpoint, self.config, 0);
            save_tensors(file, &[tensor], &[(keyword.to_string(), recipe)].into())?;
        }
        let largest = image.pixels.iter().zip(&result.pixels).map(|(a, b)| a.abs_diff(*b)).max().unwrap_or(0);
        let (psnr, evaluations) = (image.psnr(&result), noise.evaluations + back.nfe);
        let mut text = format!(
            "{}: the round trip changed the picture to a PSNR of {psnr:.2} dB, at most {largest} of 255 levels",
            self.args.output.display()
        );
        // What no sampler can restore is told apart.
        let autoencoder = self.pipeline.reconstructed(&picture).map(|alone| image.psnr(&alone));
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
    fn interpolate(&self) -> Result<(String, Value)> {
        let to = self.args.to.as_ref().context("--to is missing")?;
        let seed = self.args.seed;
        let [a, b] = [self.read(&self.args.input)?.1, self.read(to)?.1];
        let [a, b] = [self.pipeline.invert(&a, seed)?, self.pipeline.invert(&b, seed)?];
        let last = (self.outputs.len().max(2) - 1) as f64;
        let shares: Vec<f64> = (0..self.outputs.len()).map(|k| k as f64 / last).collect();
        let (mut shown, mut evaluations) = (vec![], 0);
        for (n, shares) in shares.chunks(BATCH).enumerate() {
            let (images, nfe) = self.pipeline.between(&a, &b, shares, seed)?;
            evaluations = nfe;
            self.write(&images, n * BATCH)?;
            shown.extend(images);
        }
        shown.truncate(SHEET_LIMIT);
        self.sheet(&shown, shown.len().min(16))?;
        let text = format!(
            "{}: {} pictures, {} network evaluations for the noise of both ends, {evaluations} for each picture, sampler {}",
            self.args.output.display(),
            self.outputs.len(),
            a.evaluations + b.evaluations,
            self.config.sampler.name()
        );
        let facts =
            json!({ "evaluations": evaluations, "inversion": a.evaluations + b.evaluations, "sample": self.config });
        Ok((text, facts))
    }

    /// Reads a picture at the network's size; transparent pixels are blended with white, as in a dataset.
    fn read(&self, path: &Path) -> Result<(Image, Planes)> {
        let fit = self.args.fit.map(Fit::from);
        let image = self.pipeline.fitted(&Image::read(path)?, fit).with_context(|| path.display().to_string())?;
        let planes = Planes::from_image(&image);
        Ok((image, planes))
    }

    /// Writes pictures to the outputs from number `first` on.
    fn write(&self, images: &[Image], first: usize) -> Result<()> {
        for (k, (image, to)) in images.iter().zip(&self.outputs[first..]).enumerate() {
            create_parent(to)?;
            let (keyword, text) = self.args.recipe(self.checkpoint, self.config, first + k);
            write_atomic(to, &image.encode_png(&[(keyword, &text)])?)?;
        }
        Ok(())
    }

    /// Writes the contact sheet of several pictures.
    fn sheet(&self, images: &[Image], columns: usize) -> Result<()> {
        let Some(first) = images.first() else { return Ok(()) };
        let drawn = contact_sheet(images, columns, 2, (64 / first.width).max(1));
        Ok(write_atomic(self.args.output.join("sheet.png"), &drawn.encode_png(&[])?)?)
    }
}

/// The largest number of pictures on a contact sheet.
const SHEET_LIMIT: usize = 256;

/// Pictures that are sampled together; this changes the speed and nothing else.
const BATCH: usize = 16;
