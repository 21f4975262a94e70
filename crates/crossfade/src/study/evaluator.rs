//! The evaluation of a study's images: the metric, its reference, and the facts that values depend on.
use super::Plan;
use super::cell::WEIGHTS;
use super::classes::class_facts;
use super::held_out::{HeldOutTargets, hash_images};
use crate::checkpoint::{self, Checkpoint};
use crate::config::RunConfig;
use crate::data::{Classes, Dataset, fitted};
use crate::digest::{sha256, sha256_file};
use crate::engine::Device;
use crate::error::{Error, Result};
use crate::latent::{Latent, image_size};
use crate::metrics::features::{self, Input, Statistics, registry};
use crate::metrics::{
    Accumulator, Compared, FeatureNetwork, Metric, MetricOptions, Reference, ReferenceStore, ReferenceWork,
    RegisteredMetric,
};
use crate::task::TaskConfig;
use crate::train;
use crossfade_math::KAPPA_MIN;
use std::path::{Path, PathBuf};

/// The source of the reference images.
enum ReferenceSource {
    /// The metric needs no reference, or compares each image with its target.
    None,
    Images(Box<dyn Dataset>),
    Statistics(Box<Statistics>),
    /// The targets of the held-out images.
    Targets,
}

/// The metric of a study. It is opened before anything is trained, and prepared before the first measurement.
pub(super) struct Evaluator {
    spec: RegisteredMetric,
    /// None if models are only trained, where the weights of the metric may be missing.
    metric: Option<Box<dyn Metric>>,
    reference: ReferenceSource,
    held_out: Option<HeldOut>,
    /// The classes of the reference, if each of them is measured.
    classes: Option<Classes>,
    prepared: bool,
    /// The facts that values depend on besides the images.
    pub facts: Vec<(String, String)>,
    /// A description of the reference.
    pub reference_text: String,
}

/// The held-out images of a task, of which a measurement takes the first `count`.
struct HeldOut {
    images: Box<dyn Dataset>,
    task: TaskConfig,
    count: usize,
}

impl HeldOut {
    fn targets(&self) -> HeldOutTargets<'_> {
        HeldOutTargets { images: &*self.images, task: self.task.task(), count: self.count }
    }
}

impl Evaluator {
    /// Opens the metric of a plan; `weights` are those of its network, by default the cached ones.
    ///
    /// Without `measuring` only models are trained, and weights may be missing.
    pub fn open(plan: &Plan, weights: Option<&Path>, measuring: bool, device: &Device) -> Result<Self> {
        let (evaluate, spec) = (&plan.study.evaluate, plan.study.evaluate.metric);
        let mut facts = vec![("metric".to_string(), spec.name.to_string())];
        let mut fact = |key: &str, value: String| facts.push((key.to_string(), value));
        let protocol = spec.protocol(evaluate.protocol.as_deref())?;
        if let Some(name) = protocol {
            fact("protocol", name.into());
        }
        let weights = weights_of(spec, weights, measuring)?;
        if let Some(path) = &weights {
            fact(WEIGHTS, sha256_file(path)?);
        }
        let held_out = match held_out_images(plan, device)? {
            None => None,
            // These are the images that the network is measured on.
            Some(_) if spec.measures_network() => None,
            Some(images) => {
                let count = first_images(images.len(), plan.study.sample.count)?;
                Some(HeldOut { images, task: plan.held_out.task.clone(), count })
            }
        };
        let (reference, reference_text) = reference(plan, held_out.as_ref(), device)?;
        let mut images_fact = |which: &str, images: &dyn Dataset, count: usize| -> Result<()> {
            fact(&format!("{which} images"), count.to_string());
            fact(&format!("{which} sha256"), hash_images(images, count)?);
            Ok(())
        };
        if let Some(HeldOut { images, count, .. }) = &held_out {
            // Without a reference set, outputs are compared with the targets of the held-out images.
            let alone = matches!(reference, ReferenceSource::None);
            images_fact(if alone { "reference" } else { "held-out" }, &**images, *count)?;
        }
        match &reference {
            ReferenceSource::None => (),
            ReferenceSource::Targets => {
                // The hash is that of the targets and not of the images: another task makes other targets from the same
                // images, and statistics that are stored under these facts must not be used for it.
                if let Some(held_out) = &held_out {
                    images_fact("reference", &held_out.targets(), held_out.count)?;
                }
            }
            ReferenceSource::Images(images) => {
                let which = if spec.measures_network() { "data" } else { "reference" };
                images_fact(which, &**images, images.len())?;
            }
            ReferenceSource::Statistics(statistics) => {
                let (mean, covariance) = (&statistics.gaussian.mean, &statistics.gaussian.covariance);
                let bytes: Vec<u8> = mean.iter().chain(covariance).flat_map(|v| v.to_le_bytes()).collect();
                fact("reference sha256", sha256(&bytes));
            }
        }
        // Opened before anything is trained, so that a wrong file of weights is reported now and not hours later.
        let options = MetricOptions {
            protocol,
            border: plan.held_out.task.task().scale(),
            weights: weights.as_deref(),
            finite: true,
            ..MetricOptions::new(device)
        };
        let metric = match spec.network {
            Some(_) if !measuring => None,
            _ => Some((spec.open)(&options)?),
        };
        facts.extend(metric.iter().flat_map(|metric| metric.facts()));
        if evaluate.estimate {
            facts.push(("estimate".into(), "mean square of x̂_0(t) − x_0 over values in [−1, 1]".into()));
        }
        if evaluate.estimate_metric > 0 {
            let times = evaluate.estimate_metric;
            facts.push(("estimate metric".into(), format!("the metric of x̂_0(t) at {times} times")));
        }
        if spec.measures_network() {
            facts.push(("columns".into(), "noise levels at which each image is denoised, one evaluation each".into()));
            facts.push(("smallest noise level".into(), format!("{KAPPA_MIN}, or the smallest one of the process")));
        }
        let classes = match &reference {
            ReferenceSource::Images(images) if evaluate.per_class => {
                let missing =
                    || format!("evaluate.per_class needs classes, and these images have none: {reference_text}");
                let classes = images.classes()?.ok_or_else(|| Error::request(missing()))?;
                facts.extend(class_facts(plan, &classes));
                Some(classes)
            }
            _ if evaluate.per_class => {
                return Err(Error::request("evaluate.per_class needs a reference of images, not of statistics"));
            }
            _ => None,
        };
        Ok(Self { spec, metric, reference, held_out, classes, prepared: false, facts, reference_text })
    }

    /// The images that the network is measured on.
    pub(crate) fn data(&self) -> Result<&dyn Dataset> {
        match &self.reference {
            ReferenceSource::Images(images) => Ok(&**images),
            _ => Err(Error::Run(format!("the metric {} has no images", self.spec.name))),
        }
    }

    /// The number in the reference of each class of a network; empty if values of classes are not wanted or the network has no
    /// classes.
    pub(crate) fn classes_of(&self, names: &[String]) -> Result<Vec<u32>> {
        let Some(classes) = &self.classes else { return Ok(vec![]) };
        let known = |name: &String| {
            let found = classes.names.iter().position(|own| own == name).map(|class| class as u32);
            found.ok_or_else(|| {
                let reference = &self.reference_text;
                Error::request(format!("the class `{name}` of the network is not in the reference: {reference}"))
            })
        };
        names.iter().map(known).collect()
    }

    /// The held-out images of a task.
    pub fn held_out(&self) -> Option<&dyn Dataset> {
        self.held_out.as_ref().map(|held_out| &*held_out.images)
    }

    /// Whether [`Self::accumulator`] can be used.
    pub(crate) fn is_prepared(&self) -> bool {
        self.prepared
    }

    /// Processes the reference, or reads its statistics from `cache` or from `shared`, which may be read-only.
    /// `progress` is called with (images done, all images). False if `stop` became true before the end; what is done by
    /// then is stored.
    pub fn prepare(
        &mut self,
        cache: &Path,
        shared: Option<&Path>,
        stop: &dyn Fn() -> bool,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<bool> {
        let Some(metric) = &mut self.metric else {
            return Err(Error::Run(format!("the metric {} was not opened", self.spec.name)));
        };
        // The statistics of the reference do not depend on whether the estimate of x_0 is measured, nor on what is said of
        // the classes: those of each class are stored under a key of their own.
        let own = |key: &str| !key.starts_with("estimate") && !key.starts_with("class");
        let facts: Vec<_> = self.facts.iter().filter(|(key, _)| own(key)).collect();
        let key = sha256(format!("{:?} revision {}", facts, self.spec.revision).as_bytes())[..32].to_string();
        let store = Some(ReferenceStore { key, cache, shared });
        let mut work = ReferenceWork { store, stop, progress };
        self.prepared = match (&self.reference, &self.held_out) {
            (ReferenceSource::Images(images), _) => {
                let all = Reference::Images(&**images);
                let reference = self.classes.as_ref().map_or(all, |classes| Reference::Classes(&**images, classes));
                metric.prepare(&reference, &mut work)?
            }
            (ReferenceSource::Statistics(statistics), _) => {
                metric.prepare(&Reference::Statistics(statistics), &mut work)?
            }
            (ReferenceSource::Targets, Some(held_out)) => {
                metric.prepare(&Reference::Images(&held_out.targets()), &mut work)?
            }
            _ => metric.prepare(&Reference::None, &mut work)?,
        };
        Ok(self.prepared)
    }

    /// A measurement of no images yet.
    pub fn accumulator(&self) -> Result<Box<dyn Accumulator + '_>> {
        match &self.metric {
            Some(metric) if self.prepared => Ok(metric.accumulator()),
            _ => Err(Error::Run(format!("the metric {} was not prepared", self.spec.name))),
        }
    }
}

/// The weights of the metric's network: the given ones, or the cached ones.
fn weights_of(spec: RegisteredMetric, given: Option<&Path>, measuring: bool) -> Result<Option<PathBuf>> {
    let (Some(network), None) = (spec.network, given) else {
        return Ok(given.filter(|_| spec.network.is_some()).map(Path::to_path_buf));
    };
    let found = match network {
        FeatureNetwork::Inception => registry::Entry::named("inception")?.cached(),
        FeatureNetwork::Lpips => Err(Error::request("the metric lpips needs its weights: give --weights FILE")),
    };
    match found {
        Ok(path) => Ok(Some(path)),
        Err(_) if !measuring => Ok(None),
        Err(missing) => Err(missing),
    }
}

/// The number of held-out images per measurement; an error if there are fewer.
fn first_images(len: usize, count: u64) -> Result<usize> {
    match usize::try_from(count) {
        Ok(count) if count <= len => Ok(count),
        _ => Err(Error::request(format!("sample.count is {count}, but there are {len} held-out images"))),
    }
}

/// The held-out images of a plan whose models have a condition.
pub(super) fn held_out_images(plan: &Plan, device: &Device) -> Result<Option<Box<dyn Dataset>>> {
    if plan.study.evaluate.held_out.is_empty() {
        return Ok(None);
    }
    images_of(plan, &plan.held_out, device).map(Some)
}

/// The images that a configuration of the plan names.
fn images_of(plan: &Plan, config: &RunConfig, device: &Device) -> Result<Box<dyn Dataset>> {
    // A checkpoint contains its autoencoder; the path in its configuration may be that of another machine.
    let checkpoint =
        plan.models.iter().filter(|m| m.config.latent == config.latent).find_map(|m| m.checkpoint.as_ref());
    let latent = match (&config.latent, checkpoint) {
        (None, _) => None,
        (Some(_), Some(path)) => Latent::of(&Checkpoint::open(&checkpoint::newest(path)?)?, device)?,
        (Some(latent), None) => Some(Latent::open(latent, device)?),
    };
    train::images(config, latent.as_ref())
}

/// The reference of a plan's metric, and its description.
fn reference(plan: &Plan, held_out: Option<&HeldOut>, device: &Device) -> Result<(ReferenceSource, String)> {
    let (evaluate, spec) = (&plan.study.evaluate, plan.study.evaluate.metric);
    let accepts_statistics = match spec.compared {
        Compared::ImageSet { statistics, .. } => statistics,
        Compared::Data => false,
        Compared::Nothing => return Ok((ReferenceSource::None, "none".into())),
        Compared::Target | Compared::Map | Compared::Segmentations => {
            let text = held_out.map_or("none".into(), |held_out| held_out.images.describe());
            return Ok((ReferenceSource::None, text));
        }
    };
    let described = |images: Box<dyn Dataset>| {
        let text = images.describe();
        (ReferenceSource::Images(images), text)
    };
    match (evaluate.reference.as_str(), held_out) {
        ("auto", None) if spec.measures_network() && !evaluate.held_out.is_empty() => {
            Ok(described(images_of(plan, &plan.held_out, device)?))
        }
        ("auto", Some(held_out)) => {
            Ok((ReferenceSource::Targets, format!("targets of {}", held_out.images.describe())))
        }
        ("auto" | "train", _) => Ok(described(images_of(plan, &plan.base, device)?)),
        (place, _) => {
            let rooted = plan.data_root.as_ref().map(|root| root.join(place).to_string_lossy().into_owned());
            match features::open(&rooted.unwrap_or_else(|| place.to_string()))? {
                // The network is measured on images of its size.
                Input::Images(images) if spec.measures_network() => {
                    let (side, channels) = image_size(&plan.base, None);
                    Ok(described(fitted(images, side, channels)))
                }
                Input::Images(images) => Ok(described(images)),
                Input::Statistics(statistics) if accepts_statistics => {
                    Ok((ReferenceSource::Statistics(statistics), format!("statistics {place}")))
                }
                Input::Statistics(_) => {
                    Err(Error::request(format!("{place} holds statistics, but this metric needs the images")))
                }
            }
        }
    }
}
