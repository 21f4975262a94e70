//! Sampling to files: images, contact sheet, trajectories, interpolation, shards.
use super::classes::ClassChoice;
use super::{Pipeline, Recipe, StartNoise};
use crate::checkpoint::{Checkpoint, Weights};
use crate::config::SampleConfig;
use crate::data::sheet::BACKGROUND;
use crate::data::{Image, contact_sheet, sheet_name};
use crate::engine::Device;
use crate::error::{Error, Result};
use crate::files::{Folder, write_all, write_atomic};
use crate::limits::{self, BATCH, BATCH_VALUES};
use crate::ranks::{self, Group, Packed, Unpacked};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Instant;

/// Part `index` of `count`, as in `--shard 0/4`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    /// The index of the part, from 0.
    pub index: u64,
    /// The number of parts.
    pub count: u64,
}

impl Shard {
    /// The only shard: all images.
    pub const ALL: Self = Self { index: 0, count: 1 };

    /// Parses `i/n`.
    pub fn parse(text: &str) -> Result<Self> {
        let numbers = text.split_once('/').and_then(|(i, n)| Some((i.parse().ok()?, n.parse().ok()?)));
        match numbers {
            Some((index, count)) if index < count => Ok(Self { index, count }),
            _ => Err(Error::request(format!("shard '{text}': write i/n with i from 0 to n−1, for example 0/4"))),
        }
    }

    /// The part of this shard that a rank does.
    pub(crate) fn of_rank(self, group: &Group) -> Self {
        let (rank, ranks) = (group.rank() as u64, group.size() as u64);
        Self { index: self.index + self.count * rank, count: self.count * ranks }
    }
}

/// What to sample, and where to write it.
#[derive(Clone, Debug)]
pub struct Job {
    /// The seed; image k is a function of (weights, settings, seed, k).
    pub seed: u64,
    /// The first image.
    pub first: u64,
    /// The number of images over all shards.
    pub count: u64,
    /// The shard that is made here: image k belongs to shard k mod n.
    pub shard: Shard,
    /// Images per batch; this changes the speed and nothing else.
    pub batch: usize,
    /// Whether to also write the trajectory of each image: all x_t and estimates of x_0.
    pub trajectory: bool,
    /// Instead of images k, `count` images interpolated between the starting noise of these two.
    pub between: Option<(u64, u64)>,
    /// The checkpoint of the network that guides this one; none for its own prediction without a class.
    pub guide: Option<PathBuf>,
    /// The directory for the files.
    pub out: PathBuf,
}

/// The result of a job.
#[derive(Clone, Debug, serde::Serialize)]
pub struct JobReport {
    /// Images written, by all ranks together.
    pub images: usize,
    /// Network evaluations per image.
    pub evaluations: usize,
    /// The path of the contact sheet.
    #[serde(serialize_with = "crate::error::serialize_path")]
    pub sheet: PathBuf,
    /// Milliseconds before the first evaluation of the network.
    pub loading_ms: f64,
}

/// The largest number of images on a contact sheet.
const SHEET_LIMIT: usize = 256;

impl Job {
    /// The number of images of the shard. Images are dealt out in turn, so that shards differ by at most one.
    fn len(&self) -> u64 {
        let Shard { index, count } = self.shard;
        self.count.saturating_sub(index).div_ceil(count)
    }

    /// The start of the image at place `nth` of the shard. A list of all of them could be arbitrarily long.
    fn start(&self, nth: u64) -> StartNoise {
        let k = nth * self.shard.count + self.shard.index;
        match self.between {
            None => StartNoise::Index(self.first + k),
            Some((a, b)) => StartNoise::Between(a, b, k as f64 / (self.count.max(2) - 1) as f64),
        }
    }

    /// An error if a batch of pictures of this shape could not be held in memory.
    fn check_batch(&self, [c, h, w]: [usize; 3]) -> Result<()> {
        let values = [c, h, w].iter().fold(self.batch as u64, |product, &side| product.saturating_mul(side as u64));
        let fits = BATCH.check(self.batch as u64).and_then(|()| BATCH_VALUES.check(values));
        fits.map_err(|why| Error::request(format!("a batch of {} pictures of {w}x{h}x{c}: {why}", self.batch)))
    }
}

/// Samples the images of `job` from `checkpoint`; `progress` is called with (images done, all images). Ranks divide the images
/// among them, and the first one draws the sheet of all of them.
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
        return Err(Error::request("image indices must be below 2^64"));
    }
    if job.between.is_some_and(|(a, b)| a == b) {
        return Err(Error::request("interpolation needs two different images"));
    }
    let all = job.len();
    if all == 0 || job.batch == 0 {
        return Err(Error::request("nothing to sample: count and batch must be at least 1, and the shard not empty"));
    }
    let group = ranks::current();
    let shard = job.shard;
    let job = &Job { shard: shard.of_rank(&group), ..job.clone() };
    let own = job.len();
    let mut pipeline = Pipeline::open(checkpoint, weights, config, device)?;
    if let Some(path) = &job.guide {
        pipeline = pipeline.guided_by(&Checkpoint::open(path)?, weights)?;
    }
    // A network of a task or without this class is rejected before the directory is created.
    pipeline.ready()?;
    job.check_batch(pipeline.size()?)?;
    limits::must_fit(checkpoint.config.sizes().sampling(job.batch), &format!("a batch of {} pictures", job.batch))?;
    let _folder = Folder::create(&job.out)?;
    let loading_ms = began.elapsed().as_secs_f64() * 1e3;
    let (mut sheet, mut evaluations, mut done) = (vec![], 0, 0);
    for from in (0..own).step_by(job.batch) {
        let starts: Vec<StartNoise> = (from..own.min(from + job.batch as u64)).map(|nth| job.start(nth)).collect();
        let mut trajectories = vec![vec![]; starts.len()];
        let mut observe = |state: crate::sample::State<'_, crate::engine::Images>| {
            if job.trajectory {
                let [noisy, clean] = [state.x_t, state.x0].map(|x| pipeline.decode(x.0.clone()));
                for (trajectory, pair) in trajectories.iter_mut().zip(noisy.into_iter().zip(clean)) {
                    trajectory.push(pair.into());
                }
            }
        };
        let sampled = pipeline.sample(job.seed, &starts, &mut observe)?;
        evaluations = sampled.nfe;
        let mut files = vec![];
        for ((start, image), trajectory) in starts.iter().zip(pipeline.pictures(sampled.x0.0)?).zip(trajectories) {
            let recipe = Recipe::new(checkpoint, weights, &pipeline, job.seed, *start)?;
            // The place of the image among those of all ranks.
            let nth = done * group.size() + group.rank();
            let name = name(*start, nth);
            files.push((job.out.join(format!("{name}.png")), recipe.png(&image)?));
            if job.trajectory {
                let strip = strip(trajectory, &image);
                files.push((job.out.join(format!("{name}-path.png")), strip.encode_png(&[])?));
            }
            if nth < SHEET_LIMIT {
                sheet.push(Placed { nth, index: start.index(), image });
            }
            done += 1;
        }
        write_all(&files)?;
        progress((done * group.size()).min(all as usize), all as usize);
        group.check()?;
    }
    let images = group.gather(&done)?;
    let sheet = gathered(&group, sheet)?;
    let file = job.out.join(sheet_name(shard.index, shard.count));
    if group.is_first() {
        let classes = pipeline.class_choice()?.filter(|_| job.between.is_none());
        write_atomic(&file, &draw(sheet, classes, job.between.is_some()).encode_png(&[])?)?;
    }
    let images = images.map_or(done, |images| images.into_iter().sum());
    Ok(JobReport { images, evaluations, sheet: file, loading_ms })
}

/// An image of the sheet: its place among all images, its index, and itself.
struct Placed {
    nth: usize,
    index: u64,
    image: Image,
}

/// The images of all ranks on the first rank, in their order; none on the others.
fn gathered(group: &Group, own: Vec<Placed>) -> Result<Vec<Placed>> {
    let mut packed = Packed::default();
    for Placed { nth, index, image: Image { width, height, channels, pixels } } in &own {
        let numbers = [*nth as u64, *index, *width as u64, *height as u64, *channels as u64];
        packed.u64s(&numbers);
        packed.bytes(pixels);
    }
    let mut all = vec![];
    for part in group.to_first(packed.0)? {
        let mut part = Unpacked(&part);
        while !part.is_empty() {
            let [nth, index, width, height, channels] = part.u64s()?;
            let image = Image::new(width as usize, height as usize, channels as usize, part.bytes()?);
            all.push(Placed { nth: nth as usize, index, image });
        }
    }
    all.sort_by_key(|placed| placed.nth);
    Ok(all)
}

/// The sheet of these images: a row for each class, a line for an interpolation, otherwise a square.
fn draw(images: Vec<Placed>, classes: Option<ClassChoice>, interpolated: bool) -> Image {
    let (images, columns) = match classes {
        Some(ClassChoice::Each(classes)) if classes.len() > 1 => rows_of_classes(images, classes.len() as u64),
        _ => {
            let side = (images.len() as f64).sqrt().ceil() as usize;
            let columns = if interpolated { images.len().min(16) } else { side };
            (images.into_iter().map(|placed| placed.image).collect(), columns)
        }
    };
    // Small images are enlarged to about 64 pixels, so that a sheet is easy to look at.
    contact_sheet(&images, columns, 2, (64 / images[0].width).max(1))
}

/// Images in rows of one class each, where image k has class k mod `classes`, and the number of columns. Shorter rows are
/// filled up with empty cells.
fn rows_of_classes(images: Vec<Placed>, classes: u64) -> (Vec<Image>, usize) {
    let mut rows = BTreeMap::<u64, Vec<Image>>::new();
    for Placed { index, image, .. } in images {
        rows.entry(index % classes).or_default().push(image);
    }
    let columns = rows.values().map(Vec::len).max().unwrap_or(1);
    let empty = Image::new(1, 1, 1, vec![BACKGROUND]);
    for row in rows.values_mut() {
        row.resize(columns, empty.clone());
    }
    (rows.into_values().flatten().collect(), columns)
}

fn name(start: StartNoise, nth: usize) -> String {
    match start {
        StartNoise::Index(k) => format!("{k:06}"),
        StartNoise::Between(a, b, _) => format!("{a:06}-{b:06}-{nth:03}"),
    }
}

/// The trajectory of one image: x_t in the upper row, the estimates of x_0 in the lower one, the result at the end of both.
fn strip(trajectory: Vec<[Image; 2]>, last: &Image) -> Image {
    let columns = trajectory.len() + 1;
    let row =
        |which: usize| trajectory.iter().map(move |pair| pair[which].clone()).chain([last.clone()]).collect::<Vec<_>>();
    contact_sheet(&[row(0), row(1)].concat(), columns, 2, (64 / last.width).max(1))
}
