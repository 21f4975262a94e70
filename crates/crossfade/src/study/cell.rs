//! The files of a study: its record, the identities of its models, and one file per cell.
use super::plan::{Model, Plan, Row};
use crate::checkpoint::Checkpoint;
use crate::config::{RunConfig, SampleConfig, Study, Training};
use crate::digest::sha256;
use crate::error::{Error, Result};
use crate::files::{create_directories, write_atomic};
use crate::limits;
use crate::sample::Sampler;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The fact that identifies the weights of the metric's network.
pub(super) const WEIGHTS: &str = "weights sha256";

/// The record of a study and of how it measures: `study.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Record {
    /// The version of this program.
    pub version: String,
    /// The study.
    pub study: Study,
    /// The facts that values depend on besides the images: metric, protocol, weights, reference.
    pub facts: Vec<(String, String)>,
    /// The revisions of the code that values depend on, by name; see [`revisions`].
    pub revisions: BTreeMap<String, u32>,
    /// A description of the reference.
    pub reference: String,
}

/// The identity of a finished training: `identities/NAME.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Identity {
    /// The name of the training in the study.
    pub name: String,
    /// Its configuration.
    pub config: String,
    /// SHA-256 of the options that its weights depend on.
    pub fingerprint: String,
    /// SHA-256 of its checkpoint.
    pub checkpoint: String,
    /// Checksum of its weights.
    pub checksum: String,
    /// Training steps.
    pub step: u64,
    /// The number of weights of the network.
    pub parameters: u64,
    /// The duration of its training, from its log.
    pub seconds: Option<f64>,
    /// Checksum of the weights that guide it, if another network does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guide: Option<String>,
}

impl Identity {
    /// The identity of a model of this configuration with the weights of a checkpoint.
    pub fn new(model: &Model, checkpoint: &Checkpoint, seconds: Option<f64>) -> Result<Self> {
        let config = &model.config;
        Ok(Self {
            name: model.training.name.clone(),
            config: config.to_toml()?,
            fingerprint: sha256(config.fingerprint()?.as_bytes()),
            checkpoint: checkpoint.sha256()?,
            checksum: checkpoint.checksum.clone(),
            step: checkpoint.step,
            parameters: config.sizes().parameters,
            seconds,
            guide: model.guide.as_ref().map(|guide| guide.checksum.clone()),
        })
    }

    /// Whether both have the same weights, and are guided by the same.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        let of = |identity: &Self| (identity.checksum.clone(), identity.step, identity.guide.clone());
        self.fingerprint == other.fingerprint && of(self) == of(other)
    }

    /// Whether it was made from this model of a plan.
    pub(crate) fn is_of(&self, model: &Model) -> Result<bool> {
        let guide = model.guide.as_ref().map(|guide| &guide.checksum);
        Ok(self.fingerprint == sha256(model.config.fingerprint()?.as_bytes()) && self.guide.as_ref() == guide)
    }
}

/// One measurement to make: a row, a column, a training and a sampling seed.
#[derive(Clone, Debug)]
pub(super) struct Cell {
    /// The index of the row.
    pub row: usize,
    /// The column: steps or evaluations.
    pub column: usize,
    /// The sampling settings.
    pub sample: SampleConfig,
    /// The seed of their noise.
    pub seed: u64,
    /// The hash of everything that determines its result.
    pub key: String,
}

/// The result of a cell: `cells/KEY.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CellResult {
    /// The hash of everything that determines it.
    pub key: String,
    /// The number of images.
    pub count: u64,
    /// Network evaluations per image.
    pub nfe: usize,
    /// All values of the metric.
    pub values: Vec<(String, f64)>,
    /// (t, mean square of the estimate of x_0 at t minus the final x_0), if the study measures it.
    pub estimate: Vec<[f64; 2]>,
    /// (t, all values of the metric of the pictures x̂_0(t)), if the study measures them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub estimate_metric: Vec<(f64, Vec<(String, f64)>)>,
    /// The duration of the measurement.
    pub seconds: f64,
}

/// The cells of one training in a row and column, in the order of the sampling seeds; none where the row does not fit the column.
pub(super) fn cells(record: &Record, row: usize, of: &Row, column: usize, identity: &Identity) -> Result<Vec<Cell>> {
    let config = RunConfig::parse(&identity.config, &identity.name)?;
    let Some(sample) = of.settings(&config, &record.study, column)? else { return Ok(vec![]) };
    let mut facts = record.facts.clone();
    // Only of cells that are guided: the others do not depend on it.
    facts.extend(identity.guide.iter().filter(|_| sample.guidance != 1.0).map(|sum| ("guide".into(), sum.clone())));
    let unwritable = |e: serde_json::Error| Error::Run(e.to_string());
    // Only the revision of this cell's sampler: a change of another sampler leaves the cell valid.
    let own = [SHARED.to_string(), METRIC.to_string(), sampler_entry(sample.sampler)];
    let revisions = own.map(|name| record.revisions.get(&name).copied());
    let mut cells = vec![];
    for &seed in &record.study.sample.seeds {
        let all = (
            (&record.version, &revisions),
            (&identity.fingerprint, &identity.checksum, identity.step),
            &sample,
            (seed, record.study.sample.count),
            &facts,
        );
        let key = sha256(&serde_json::to_vec(&all).map_err(unwritable)?)[..32].to_string();
        cells.push(Cell { row, column, sample: sample.clone(), seed, key });
    }
    Ok(cells)
}

/// The directory of a study.
#[derive(Clone, Debug)]
pub(super) struct StudyDir(pub PathBuf);

impl StudyDir {
    /// The file of its record.
    pub fn record(&self) -> PathBuf {
        self.0.join("study.json")
    }
    /// The file of a model's identity.
    pub(crate) fn identity(&self, slug: &str) -> PathBuf {
        self.0.join("identities").join(format!("{slug}.json"))
    }
    /// The file of a cell's result.
    pub fn cell(&self, key: &str) -> PathBuf {
        self.0.join("cells").join(format!("{key}.json"))
    }
    /// The contact sheet of a cell.
    pub fn sheet(&self, key: &str) -> PathBuf {
        self.0.join("sheets").join(format!("{key}.png"))
    }

    /// Creates the directories.
    pub fn create(&self) -> Result<()> {
        for below in ["identities", "cells", "sheets"] {
            create_directories(&self.0.join(below))?;
        }
        Ok(())
    }

    /// The identity of a training, if it is finished already.
    pub fn known(&self, training: &Training) -> Option<Identity> {
        readable(&self.identity(&training.slug))
    }

    /// The result of a cell, if it exists.
    pub fn result(&self, key: &str) -> Option<CellResult> {
        readable::<CellResult>(&self.cell(key)).filter(|result| result.key == key)
    }
}

/// Reads a file that may not exist.
pub(super) fn read<T: DeserializeOwned>(path: &Path) -> Result<Option<T>> {
    match limits::read(path, &limits::CELL) {
        Ok(bytes) => {
            let bad = |e: serde_json::Error| Error::file(path, format!("damaged or of another version: {e}"));
            serde_json::from_slice(&bytes).map(Some).map_err(bad)
        }
        Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(other) => Err(other),
    }
}

/// Reads a file if it exists and is complete. Incomplete files, of a full disk or an interrupted copy, count as
/// missing, so that they are made again.
pub(super) fn readable<T: DeserializeOwned>(path: &Path) -> Option<T> {
    read(path).ok().flatten()
}

/// Writes a file that is read by [`read`].
pub(super) fn write(path: &Path, value: &impl Serialize) -> Result<()> {
    let mut text = serde_json::to_vec_pretty(value).map_err(|e| Error::Run(e.to_string()))?;
    text.push(b'\n');
    write_atomic(path, &text)
}

/// Must be raised with every change of networks, processes, grids of times or autoencoders that changes the images of a
/// checkpoint. Samplers and metrics have revisions of their own.
const SHARED_REVISION: u32 = 1;

/// The entry of [`SHARED_REVISION`] in a record.
const SHARED: &str = "images";
/// The entry of the metric's revision.
const METRIC: &str = "metric";

/// The entry of a sampler's revision.
fn sampler_entry(sampler: Sampler) -> String {
    format!("sampler {}", sampler.name())
}

/// The revisions of the code that the values of a plan depend on.
///
/// Results are stored under a hash of these numbers and of the program's version. The version alone is not enough:
/// after a correction between two versions, old values would be taken for those of the corrected code. A hash of the
/// source code would be too much: every changed comment would make a study start again.
fn revisions(plan: &Plan) -> Result<BTreeMap<String, u32>> {
    let metric = plan.study.evaluate.metric.revision;
    let mut all = BTreeMap::from([(SHARED.to_string(), SHARED_REVISION), (METRIC.to_string(), metric)]);
    for row in plan.rows() {
        for &column in plan.study.sample.columns() {
            if let Some(sample) = row.settings(plan.config_of(&row), &plan.study, column)? {
                all.insert(sampler_entry(sample.sampler), sample.sampler.revision());
            }
        }
    }
    Ok(all)
}

impl Record {
    /// The record of a plan whose values depend on `facts`.
    pub fn new(plan: &Plan, facts: Vec<(String, String)>, reference: String) -> Result<Self> {
        let (version, study) = (env!("CARGO_PKG_VERSION").into(), plan.study.clone());
        Ok(Self { version, study, facts, revisions: revisions(plan)?, reference })
    }

    /// The record without the parts that may differ between machines or change without measuring again.
    pub(crate) fn essence(&self) -> Self {
        let mut record = self.clone();
        record.study.base = PathBuf::new();
        for model in &mut record.study.model {
            model.checkpoint = model.checkpoint.as_ref().map(|_| PathBuf::new());
            model.guide = model.guide.as_ref().map(|_| PathBuf::new());
        }
        record.reference = String::new();
        // All values are stored, so a study stays the same if its table shows another one.
        record.study.evaluate.value = None;
        record
    }

    /// Whether both are records of one study. A run that only trains may not know the weights of the metric, so that
    /// these may be missing in one of them.
    pub fn continues(&self, other: &Self) -> bool {
        let weights = |record: &Self| record.facts.iter().find(|(key, _)| key == WEIGHTS).cloned();
        let without_weights = |record: &Self| {
            let mut rest = record.essence();
            rest.facts.retain(|(key, _)| key != WEIGHTS);
            rest
        };
        let same = match (weights(self), weights(other)) {
            (Some(a), Some(b)) => a == b,
            _ => true,
        };
        same && without_weights(self) == without_weights(other)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::config::StudyModel;

    fn record() -> Record {
        let model = StudyModel { name: "a".into(), ..StudyModel::default() };
        let mut study = Study { title: "t".into(), model: vec![model], ..Study::default() };
        study.sample.steps = vec![5];
        study.sample.seeds = vec![3];
        let facts = vec![("metric".to_string(), "fid".to_string()), ("reference sha256".into(), "00".into())];
        let samplers = Sampler::ALL.iter().map(|sampler| sampler_entry(*sampler));
        let revisions = samplers.chain([SHARED.into(), METRIC.into()]).map(|name| (name, 1)).collect();
        Record { version: "1".into(), study, facts, revisions, reference: "here".into() }
    }

    fn identity() -> Identity {
        let [fingerprint, checkpoint, checksum] = ["f", "c", "s"].map(String::from);
        let config = RunConfig::default().to_toml().unwrap();
        let (step, parameters) = (7, 1);
        let name = "a".into();
        Identity { name, config, fingerprint, checkpoint, checksum, step, parameters, seconds: None, guide: None }
    }

    /// The entry of the sampler that the cell uses.
    fn own_sampler() -> String {
        let study = record().study;
        let row = &crate::study::plan::rows(&study)[0];
        sampler_entry(row.sampling(&RunConfig::default(), &study, 5).unwrap().unwrap().sampler)
    }

    fn key(record: &Record, identity: &Identity) -> String {
        let row = &crate::study::plan::rows(&record.study)[0];
        cells(record, 0, row, record.study.sample.columns()[0], identity).unwrap().remove(0).key
    }

    #[test]
    fn a_key_changes_with_everything_that_changes_values_and_nothing_else() {
        let plain = key(&record(), &identity());
        let records: [fn(&mut Record); 11] = [
            |r| r.version = "2".into(),
            |r| *r.revisions.get_mut("images").unwrap() = 2,
            |r| *r.revisions.get_mut("metric").unwrap() = 2,
            |r| *r.revisions.get_mut(&own_sampler()).unwrap() = 2,
            |r| r.facts[0].1 = "kid".into(),
            |r| r.facts[1].1 = "01".into(),
            |r| r.study.sample.count = 9,
            |r| r.study.sample.seeds[0] = 4,
            |r| r.study.sample.steps[0] = 6,
            |r| r.study.sample.samplers = vec!["alg2".into()],
            |r| r.study.sample.blends = vec!["average".into()],
        ];
        for (i, change) in records.into_iter().enumerate() {
            let mut changed = record();
            change(&mut changed);
            assert_ne!(key(&changed, &identity()), plain, "record {i}");
        }
        let identities: [fn(&mut Identity); 4] = [
            |i| i.fingerprint = "g".into(),
            |i| i.checksum = "t".into(),
            |i| i.step = 8,
            |i| i.config = i.config.replace("clip = 1.0\neta", "clip = 2.0\neta"),
        ];
        for (i, change) in identities.into_iter().enumerate() {
            let mut changed = identity();
            change(&mut changed);
            assert_ne!(changed, identity());
            assert_ne!(key(&record(), &changed), plain, "identity {i}");
        }
        let (mut other, mut same) = (record(), identity());
        other.reference = "there".into();
        other.study.title = "another".into();
        other.study.evaluate.value = Some("fid".into());
        // A correction of a sampler leaves the results of the others as they are.
        let is_other = |name: &String| name.starts_with("sampler") && *name != own_sampler();
        other.revisions.iter_mut().filter(|(name, _)| is_other(name)).for_each(|(_, revision)| *revision = 2);
        (same.name, same.seconds) = ("b".into(), Some(1.0));
        assert_eq!(key(&other, &same), plain);
    }
}
