//! How images are judged: what they are compared with, gathered features, values.
use super::Plan;
use super::cell::WEIGHTS;
use crate::checkpoint::{self, Checkpoint};
use crate::config::{Evaluate, Metric, RunConfig};
use crate::data::{Dataset, Filter, Image, PassOrder, resize};
use crate::digest::{Hasher, sha256, sha256_file};
use crate::engine::Device;
use crate::error::{Error, Result};
use crate::latent::Latent;
use crate::metrics::features::{
    self, CLASSES, Extractor, FEATURES, Features, Frechet, Gaussian, Input, KidConfig, Moments, Statistics, registry,
};
use crate::train;
use std::path::Path;

/// Side to which pictures are reduced for the distance without weights.
const SMALL: usize = 8;
/// Parts of the Inception Score, as `crossfade eval` has them.
const SPLITS: usize = 10;
/// The neighbour of precision and recall, as `crossfade eval` has it.
const NEIGHBOUR: usize = 3;

/// Blocks of 64 images after which unfinished statistics of the reference are kept.
const KEPT: usize = 16;

/// What images are compared with.
enum Ground {
    Nothing,
    Images(Box<dyn Dataset>),
    Statistics(Box<Statistics>),
}

/// A metric and what it rests on, opened but not yet worked through.
pub struct Basis {
    evaluate: Evaluate,
    ground: Ground,
    extractor: Option<Extractor>,
    /// What values depend on beside the images.
    pub facts: Vec<(String, String)>,
    /// The reference in words.
    pub reference: String,
}

impl Basis {
    /// Opens what the metric of a plan needs; `weights` are Inception's, those of the cache without it.
    ///
    /// Without `measuring` only models are trained, and weights may be missing.
    pub fn open(plan: &Plan, weights: Option<&Path>, measuring: bool, device: &Device) -> Result<Self> {
        let evaluate = plan.study.evaluate.clone();
        let mut facts = vec![("metric".to_string(), evaluate.metric.name().to_string())];
        let mut fact = |key: &str, value: String| facts.push((key.to_string(), value));
        let mut found = None;
        if evaluate.metric.needs_inception() {
            found = match (weights, registry::Entry::named("inception")?.cached()) {
                (Some(path), _) => Some(path.to_path_buf()),
                (None, Ok(path)) => Some(path),
                (None, Err(_)) if !measuring => None,
                (None, Err(missing)) => return Err(missing),
            };
            fact("protocol", evaluate.protocol.name().into());
            if let Some(path) = &found {
                fact(WEIGHTS, sha256_file(path)?);
            }
        }
        let (ground, reference) = ground(plan, device)?;
        match &ground {
            Ground::Nothing => (),
            Ground::Images(images) => {
                let count = match evaluate.metric {
                    Metric::Psnr => some(images.len(), plan.study.sample.count)?,
                    _ => images.len(),
                };
                fact("reference images", count.to_string());
                fact("reference sha256", pixels_sha256(&**images, count)?);
            }
            Ground::Statistics(statistics) => {
                let (mean, covariance) = (&statistics.gaussian.mean, &statistics.gaussian.covariance);
                let bytes: Vec<u8> = mean.iter().chain(covariance).flat_map(|v| v.to_le_bytes()).collect();
                fact("reference sha256", sha256(&bytes));
            }
        }
        if evaluate.metric == Metric::Psnr {
            fact("psnr", "8-bit values of whole crops, mean of dB, equal images count as 100".into());
        }
        if evaluate.estimate {
            fact("estimate", "mean square of x̂_0(t) − x_0 over values in [−1, 1]".into());
        }
        // Opened before anything is trained, so that the wrong file is not found out hours later.
        let extractor = match found {
            Some(path) if measuring => Some(Extractor::new(&path, evaluate.protocol)?),
            _ => None,
        };
        if let (Some(extractor), Metric::Is) = (&extractor, evaluate.metric) {
            extractor.network().logits(&[0.0; FEATURES])?;
        }
        Ok(Self { evaluate, ground, extractor, facts, reference })
    }

    /// The held-out images of a task.
    pub fn held_out(&self) -> Option<&dyn Dataset> {
        match &self.ground {
            Ground::Images(images) if self.evaluate.metric == Metric::Psnr => Some(&**images),
            _ => None,
        }
    }

    /// Works through the reference, or reads what is kept of it in `cache` or in `store`, which may be there to be read
    /// only; `progress` hears (done, all). None if `stop` became true before the end; what is done by then is kept.
    pub fn judge(
        &mut self,
        cache: &Path,
        store: Option<&Path>,
        stop: &dyn Fn() -> bool,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<Option<Judge>> {
        let metric = self.evaluate.metric;
        let reference = match (metric, &self.ground, &self.extractor) {
            (Metric::Fid, Ground::Images(images), Some(extractor)) => {
                let text = format!("{:?}", self.facts.iter().filter(|(k, _)| k != "estimate").collect::<Vec<_>>());
                let name = format!("reference-{}.npz", &sha256(text.as_bytes())[..32]);
                let kept = cache.join(&name);
                let places = store.into_iter().chain([cache]).map(|place| place.join(&name));
                let statistics = match places.into_iter().find(|place| place.is_file()) {
                    Some(place) => Statistics::load(&place)?,
                    None => {
                        std::fs::create_dir_all(cache).map_err(Error::io(cache))?;
                        let part = kept.with_extension("part.npz");
                        let Some(made) = Statistics::resumed(extractor, &**images, (&part, KEPT), stop, progress)?
                        else {
                            return Ok(None);
                        };
                        made.save(&kept)?;
                        // Another shard may have removed it.
                        let _ = std::fs::remove_file(&part);
                        made
                    }
                };
                Reference::Gaussian(Box::new(Frechet::to(statistics.gaussian)?))
            }
            (Metric::Fid, Ground::Statistics(statistics), Some(extractor)) => {
                statistics.check_made_by(extractor)?;
                Reference::Gaussian(Box::new(Frechet::to(statistics.gaussian.clone())?))
            }
            (Metric::Kid | Metric::Pr, Ground::Images(images), Some(extractor)) => {
                let Some(features) = extractor.features_until(&**images, stop, progress)? else { return Ok(None) };
                Reference::Features(features)
            }
            (Metric::PixelFrechet, Ground::Images(images), _) => {
                let mut moments = Moments::new(3 * SMALL * SMALL);
                for k in 0..images.len() {
                    moments.push(&small(&images.get(k)?));
                }
                Reference::Gaussian(Box::new(Frechet::to(Gaussian::of(&moments)?)?))
            }
            _ => Reference::Nothing,
        };
        Ok(Some(Judge { metric, extractor: self.extractor.take(), reference }))
    }
}

/// As many of `len` held-out images as a measurement takes.
fn some(len: usize, count: u64) -> Result<usize> {
    match usize::try_from(count) {
        Ok(count) if count <= len => Ok(count),
        _ => Err(Error::request(format!("sample.count is {count}, but there are {len} held-out images"))),
    }
}

/// The held-out images of a plan whose models have a condition.
pub(super) fn held_out(plan: &Plan, device: &Device) -> Result<Option<Box<dyn Dataset>>> {
    if plan.study.evaluate.metric != Metric::Psnr {
        return Ok(None);
    }
    Ok(match ground(plan, device)?.0 {
        Ground::Images(images) => Some(images),
        _ => None,
    })
}

/// What a plan compares with, and that in words.
fn ground(plan: &Plan, device: &Device) -> Result<(Ground, String)> {
    let evaluate = &plan.study.evaluate;
    let own = |config: &RunConfig| -> Result<(Ground, String)> {
        // A checkpoint carries its autoencoder along; the path in its configuration may be of another machine.
        let carried =
            plan.models.iter().filter(|m| m.config.latent == config.latent).find_map(|m| m.checkpoint.as_ref());
        let latent = match (&config.latent, carried) {
            (None, _) => None,
            (Some(_), Some(path)) => Latent::of(&Checkpoint::open(&checkpoint::newest(path)?)?, device)?,
            (Some(latent), None) => Some(Latent::open(latent, device)?),
        };
        let images = train::images(config, latent.as_ref())?;
        let words = images.describe();
        Ok((Ground::Images(images), words))
    };
    match evaluate.metric {
        Metric::Is | Metric::None => Ok((Ground::Nothing, "none".into())),
        Metric::Psnr => own(&plan.held_out),
        _ if evaluate.reference == "train" => own(&plan.base),
        metric => {
            let place = plan.data_root.as_ref().map(|root| root.join(&evaluate.reference).display().to_string());
            match features::open(&place.unwrap_or_else(|| evaluate.reference.clone()))? {
                Input::Images(images) => {
                    let words = images.describe();
                    Ok((Ground::Images(images), words))
                }
                Input::Statistics(statistics) if metric == Metric::Fid => {
                    let words = format!("statistics {}", evaluate.reference);
                    Ok((Ground::Statistics(statistics), words))
                }
                Input::Statistics(_) => {
                    let text = &evaluate.reference;
                    Err(Error::request(format!("{text} holds statistics, but this metric needs the images")))
                }
            }
        }
    }
}

/// SHA-256 of the sizes, bytes and maps of the first `count` images: which set it is, wherever it lies.
fn pixels_sha256(images: &dyn Dataset, count: usize) -> Result<String> {
    let mut hasher = Hasher::default();
    for k in 0..count {
        let image = images.get(k)?;
        hasher.update(format!("{}x{}x{};", image.width, image.height, image.channels));
        hasher.update(&image.pixels);
        if let Some(map) = images.label(k)? {
            hasher.update(map.values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<_>>());
        }
    }
    Ok(hasher.finish())
}

enum Reference {
    Nothing,
    Gaussian(Box<Frechet>),
    Features(Features),
}

/// A metric ready to use.
pub struct Judge {
    metric: Metric,
    extractor: Option<Extractor>,
    reference: Reference,
}

/// What is kept of the images of a cell.
pub enum Gathered {
    Nothing,
    Moments(Moments),
    Features(Features),
}

impl Judge {
    /// Of no images yet.
    pub fn gather(&self) -> Gathered {
        let none = |dim| Gathered::Features(Features { dim, values: vec![] });
        match self.metric {
            Metric::Fid => Gathered::Moments(Moments::new(FEATURES)),
            Metric::PixelFrechet => Gathered::Moments(Moments::new(3 * SMALL * SMALL)),
            Metric::Kid | Metric::Pr => none(FEATURES),
            Metric::Is => none(CLASSES),
            Metric::Psnr | Metric::None => Gathered::Nothing,
        }
    }

    /// Adds images, in order.
    pub fn add(&self, gathered: &mut Gathered, images: Vec<Image>) -> Result<()> {
        let mut keep = |row: &[f32]| match gathered {
            Gathered::Nothing => (),
            Gathered::Moments(moments) => moments.push(row),
            Gathered::Features(features) => features.values.extend_from_slice(row),
        };
        match (&self.extractor, self.metric) {
            (Some(extractor), metric) => {
                let mut sink = |row: &[f32]| {
                    match metric {
                        Metric::Is => keep(&extractor.network().logits(row)?),
                        _ => keep(row),
                    }
                    Ok(())
                };
                extractor.each(&Made(images), &mut sink, &mut |_, _| ())
            }
            (None, Metric::PixelFrechet) => {
                images.iter().for_each(|image| keep(&small(image)));
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// The values of all that was gathered, the one for the table first.
    pub fn values(&self, gathered: Gathered) -> Result<Vec<(String, f64)>> {
        let named = |name: &str, value: f64| (name.to_string(), value);
        Ok(match (gathered, &self.reference, self.metric) {
            (Gathered::Moments(moments), Reference::Gaussian(frechet), metric) => {
                vec![named(metric.name(), frechet.distance(&Gaussian::of(&moments)?)?)]
            }
            (Gathered::Features(made), Reference::Features(real), Metric::Kid) => {
                let most = made.len().min(real.len());
                let config = KidConfig::default();
                let kid = features::kid(&made, real, KidConfig { size: config.size.min(most), ..config })?;
                vec![named("kid", kid.mean), named("kid std of subsets", kid.std)]
            }
            (Gathered::Features(made), Reference::Features(real), _) => {
                let found = features::precision_recall(&made, real, NEIGHBOUR)?;
                vec![named("precision", found.precision), named("recall", found.recall)]
            }
            (Gathered::Features(logits), _, Metric::Is) => {
                let score = features::inception_score(&logits, SPLITS, features::SEED)?;
                vec![named("is", score.mean), named("is std of splits", score.std)]
            }
            _ => vec![],
        })
    }
}

/// The picture reduced to 8x8, in [−1, 1].
fn small(image: &Image) -> Vec<f32> {
    let reduced = resize(&image.with_channels(3), SMALL, SMALL, Filter::Box, PassOrder::HorizontalFirst);
    reduced.pixels.iter().map(|&v| f32::from(v) / 127.5 - 1.0).collect()
}

/// Pictures that were just made.
struct Made(Vec<Image>);

impl Dataset for Made {
    fn len(&self) -> usize {
        self.0.len()
    }
    fn get(&self, index: usize) -> Result<Image> {
        Ok(self.0[index].clone())
    }
    fn name(&self, index: usize) -> String {
        format!("image {index} of a batch")
    }
    fn describe(&self) -> String {
        format!("{} images just made", self.0.len())
    }
    fn in_memory(&self) -> bool {
        true
    }
}
