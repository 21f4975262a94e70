//! A whole order of pictures: files, contact sheet, trajectories, interpolation, shards.
use super::{Pipeline, Recipe, StartNoise};
use crate::checkpoint::{Checkpoint, Weights};
use crate::config::SampleConfig;
use crate::data::{Image, contact_sheet};
use crate::engine::Device;
use crate::error::{Error, Result};
use crate::files::write_atomic;
use std::path::PathBuf;
use std::time::Instant;

/// Part `index` of `count`, as in `--shard 0/4`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    /// Which part, from 0.
    pub index: u64,
    /// Of how many.
    pub count: u64,
}

impl Shard {
    /// Everything.
    pub const ALL: Self = Self { index: 0, count: 1 };

    /// From `i/n`.
    pub fn parse(text: &str) -> Result<Self> {
        let numbers = text.split_once('/').and_then(|(i, n)| Some((i.parse().ok()?, n.parse().ok()?)));
        match numbers {
            Some((index, count)) if index < count => Ok(Self { index, count }),
            _ => Err(Error::request(format!("shard '{text}': write i/n with i from 0 to n−1, for example 0/4"))),
        }
    }
}

/// What to make.
#[derive(Clone, Debug)]
pub struct Job {
    /// The seed; image k is a function of (weights, settings, seed, k).
    pub seed: u64,
    /// The first image.
    pub first: u64,
    /// How many images, over all shards.
    pub count: u64,
    /// Which of them are made here: image k belongs to shard k mod n.
    pub shard: Shard,
    /// Images a network evaluation; changes the speed and nothing else.
    pub batch: usize,
    /// Whether each image's way is drawn too.
    pub trajectory: bool,
    /// Instead of images k, the way between the noises of two images.
    pub between: Option<(u64, u64)>,
    /// Where files go.
    pub out: PathBuf,
}

/// What was made.
#[derive(Clone, Debug, serde::Serialize)]
pub struct JobReport {
    /// Images written.
    pub images: usize,
    /// Network evaluations an image.
    pub evaluations: usize,
    /// The contact sheet.
    pub sheet: PathBuf,
    /// Milliseconds before the first evaluation of the network.
    pub loading_ms: f64,
}

/// A contact sheet shows no more than this.
const SHEET_LIMIT: usize = 256;

impl Job {
    fn starts(&self) -> Vec<StartNoise> {
        let wanted = (0..self.count).filter(|k| k % self.shard.count == self.shard.index);
        match self.between {
            None => wanted.map(|k| StartNoise::Index(self.first + k)).collect(),
            Some((a, b)) => {
                let last = (self.count.max(2) - 1) as f64;
                wanted.map(|k| StartNoise::Between(a, b, k as f64 / last)).collect()
            }
        }
    }
}

/// Makes the pictures of `job` from `checkpoint`; `progress` hears (done, all).
pub fn run(
    checkpoint: &Checkpoint,
    weights: Weights,
    config: &SampleConfig,
    job: &Job,
    device: &Device,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<JobReport> {
    let began = Instant::now();
    if job.first.checked_add(job.count).is_none() {
        return Err(Error::request("there are no such images: their numbers end at 2^64"));
    }
    if job.between.is_some_and(|(a, b)| a == b) {
        return Err(Error::request("a way needs two different ends"));
    }
    let starts = job.starts();
    if starts.is_empty() || job.batch == 0 {
        return Err(Error::request("nothing to sample: count and batch must be at least 1, and the shard not empty"));
    }
    let pipeline = Pipeline::open(checkpoint, weights, config, device)?;
    pipeline.size()?;
    std::fs::create_dir_all(&job.out).map_err(Error::io(&job.out))?;
    let loading_ms = began.elapsed().as_secs_f64() * 1e3;
    let (mut sheet, mut evaluations, mut done) = (vec![], 0, 0);
    for group in starts.chunks(job.batch) {
        let mut paths = vec![vec![]; group.len()];
        let mut observe = |state: crate::sample::State<'_, crate::engine::Images>| {
            if job.trajectory {
                let [noisy, clean] = [state.x_t, state.x0].map(|x| pipeline.decode(x.0.clone()));
                for (path, pair) in paths.iter_mut().zip(noisy.into_iter().zip(clean)) {
                    path.push(pair.into());
                }
            }
        };
        let sampled = pipeline.sample(job.seed, group, &mut observe)?;
        evaluations = sampled.nfe;
        for ((start, image), path) in group.iter().zip(pipeline.decode(sampled.x0.0)).zip(paths) {
            let recipe = Recipe::new(checkpoint, weights, pipeline.sample_config(), job.seed, *start);
            let name = name(*start, done);
            write_atomic(job.out.join(format!("{name}.png")), &recipe.png(&image)?)?;
            if job.trajectory {
                let strip = strip(path, &image);
                write_atomic(job.out.join(format!("{name}-path.png")), &strip.encode_png(&[])?)?;
            }
            if sheet.len() < SHEET_LIMIT {
                sheet.push(image);
            }
            done += 1;
        }
        progress(done, starts.len());
    }
    let columns = if job.between.is_some() { sheet.len().min(16) } else { (sheet.len() as f64).sqrt().ceil() as usize };
    let drawn = contact_sheet(&sheet, columns, 2, (64 / sheet[0].width).max(1));
    let file = match job.shard {
        Shard::ALL => "sheet.png".to_string(),
        Shard { index, count } => format!("sheet-{index}-of-{count}.png"),
    };
    let file = job.out.join(file);
    write_atomic(&file, &drawn.encode_png(&[])?)?;
    Ok(JobReport { images: done, evaluations, sheet: file, loading_ms })
}

fn name(start: StartNoise, nth: usize) -> String {
    match start {
        StartNoise::Index(k) => format!("{k:06}"),
        StartNoise::Between(a, b, _) => format!("{a:06}-{b:06}-{nth:03}"),
    }
}

/// The way of one image: the states above, the estimates of x_0 below, the result at the end of both rows.
fn strip(path: Vec<[Image; 2]>, last: &Image) -> Image {
    let columns = path.len() + 1;
    let row = |which: usize| path.iter().map(move |pair| pair[which].clone()).chain([last.clone()]).collect::<Vec<_>>();
    contact_sheet(&[row(0), row(1)].concat(), columns, 2, (64 / last.width).max(1))
}
