//! Fine-tuning: a run that starts from the weights of another one, with other images or classes.
use crate::checkpoint::{self, Checkpoint, Weights};
use crate::config::{RunConfig, SampleConfig, TrainConfig};
use crate::data::Dataset;
use crate::error::{Error, Result, Shown};
use crate::nn::weights::{apply, collect};
use crate::nn::{BackboneConfig, Network};
use crate::tensorfile::TensorMap;
use std::path::Path;

/// The embedding of the classes, which is the only parameter whose shape depends on their number.
const CLASS_EMBEDDING: &str = "map_label.weight";

/// Steps of a fine-tuning whose configuration is that of the model.
const STEPS: u64 = 2000;

/// The start of a run from other weights.
pub struct FineTuning {
    /// The checkpoint that the run starts from.
    pub checkpoint: Checkpoint,
    /// Whether the class embedding is drawn anew, because the number of classes differs.
    pub new_classes: bool,
    source: TensorMap,
}

impl FineTuning {
    /// Reads the averaged weights of a checkpoint, a run or a model that ships, and checks that they fit the network of
    /// `config`: the number of classes may differ, everything else must be the same. An error names every parameter that does
    /// not fit.
    pub fn open(from: &Path, config: &RunConfig) -> Result<Self> {
        let checkpoint = Checkpoint::open(&checkpoint::newest(from)?)?;
        let mut source = checkpoint.weights(Weights::Ema)?;
        let wanted = config.network.state_shapes(config.ports());
        let new_classes = checkpoint.config.network.classes() != config.network.classes();
        if new_classes {
            source.remove(CLASS_EMBEDDING);
        }
        let mut problems = vec![];
        for (name, shape) in &wanted {
            match source.get(name) {
                Some((found, _)) if found == shape => (),
                Some((found, _)) => problems.push(format!("{name} has the shape {found:?} there and {shape:?} here")),
                None if name == CLASS_EMBEDDING && new_classes => (),
                None => problems.push(format!("{name} is not there")),
            }
        }
        if problems.is_empty() {
            return Ok(Self { checkpoint, new_classes, source });
        }
        let more = problems.len().saturating_sub(8);
        problems.truncate(8);
        problems.extend((more > 0).then(|| format!("and {more} more")));
        Err(Error::request(format!(
            "{}: its weights do not fit the network of this run, which must be the same; leave the configuration out to take \
             that of the model\n  {}",
            checkpoint.path.shown(),
            problems.join("\n  ")
        )))
    }

    /// `network` with these weights; a new class embedding keeps its initial values.
    pub(super) fn weights(&self, network: Network) -> Result<Network> {
        let kept = if self.new_classes { collect(&network) } else { vec![] };
        let kept = kept.into_iter().find(|(name, ..)| name == CLASS_EMBEDDING);
        let new = |name: &str| kept.as_ref().filter(|(kept, ..)| kept == name).map(|(_, s, v)| (s.clone(), v.clone()));
        apply(network, &|name| self.source.get(name).cloned().or_else(|| new(name)))
    }

    /// What happens to the classes, in a sentence; none if they stay as they are.
    pub fn note(&self, config: &RunConfig) -> Option<String> {
        let (old, new) = (self.checkpoint.config.network.classes(), config.network.classes());
        self.new_classes.then(|| match new {
            0 => format!("the {old} classes of {} are dropped", self.checkpoint.path.shown()),
            _ => format!("the class embedding starts anew: {new} classes in place of {old}"),
        })
    }
}

/// The configuration of a run that fine-tunes the model `from` with the model's own settings, but for a few thousand steps: a
/// short warm-up, and an average of the weights that suits any length.
pub fn fine_tuning_of(from: &Path) -> Result<RunConfig> {
    let mut config = Checkpoint::open(&checkpoint::newest(from)?)?.config;
    config.train.from = Some(from.to_path_buf());
    config.train.steps = STEPS;
    config.optim.warmup = config.optim.warmup.min(STEPS / 20);
    config.optim.ema_sigma = Some(config.optim.ema_sigma.unwrap_or(0.1));
    config.optim.ema_profiles.clear();
    (config.train.sample_every, config.train.checkpoint_every, config.train.keep) = (STEPS / 8, STEPS / 8, 2);
    // Times that were fitted to the old weights do not suit the new ones.
    config.sample.fitted.clear();
    Ok(config)
}

/// `config` with as many classes as `images` have, if its network knows classes. Without classes there is nothing to guide.
pub fn with_classes_of(mut config: RunConfig, images: &dyn Dataset) -> Result<RunConfig> {
    let found = images.classes()?.map_or(0, |classes| classes.names.len());
    let Some(network) = config.network.as_unet_mut().filter(|network| network.classes > 0) else { return Ok(config) };
    if network.classes != found {
        network.classes = found;
        let (sample, train) = (SampleConfig::default(), TrainConfig::default());
        config.sample.class = sample.class;
        if found == 0 {
            (config.sample.guidance, config.sample.guidance_interval) = (sample.guidance, sample.guidance_interval);
            config.train.label_dropout = train.label_dropout;
        }
    }
    config.validate()?;
    Ok(config)
}
