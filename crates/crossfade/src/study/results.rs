//! The results of a study: a function of its directory alone.
use super::cell::{Cell, CellResult, Identity, Record, StudyDir, cells};
use super::plan::rows;
use crate::config::{RunConfig, SampleConfig};
use crate::error::Result;
use crate::metrics::statistics::{Summary, Welch};
use crate::metrics::{Better, RegisteredMetric, Value};
use serde::Serialize;

/// The results of a study. Fields that may differ between two runs of the same study, such as durations, are not
/// serialised.
#[derive(Clone, Debug, Serialize)]
pub struct Results {
    /// The title of the study.
    pub title: String,
    /// The metric.
    pub metric: RegisteredMetric,
    /// The value of the metric that the table shows, if the study chose one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<&'static str>,
    /// The unit of the columns: `steps` or `evaluations`.
    pub columns_are: &'static str,
    /// The columns.
    pub columns: Vec<usize>,
    /// Images per measurement.
    pub count: u64,
    /// The seeds of the sampling noise. Every training is measured with each of them.
    pub seeds: Vec<u64>,
    /// The rows.
    pub rows: Vec<RowResult>,
    /// The model whose best row of each column the others are tested against; none for the best row of all.
    pub against: Option<String>,
    /// The facts that values depend on besides the images.
    pub facts: Vec<(String, String)>,
    /// The trainings of the models.
    pub models: Vec<ModelFacts>,
    /// The version of this program.
    pub version: String,
    #[serde(skip)]
    pub(super) record: Record,
    #[serde(skip)]
    pub(super) identities: Vec<Option<Identity>>,
}

/// Facts about one training of a model.
#[derive(Clone, Debug, Serialize)]
pub struct ModelFacts {
    /// Its name.
    pub name: String,
    /// SHA-256 of the options that its weights depend on.
    pub fingerprint: String,
    /// Checksum of its weights.
    pub checksum: String,
    /// Training steps.
    pub step: u64,
    /// The number of weights of the network.
    pub parameters: u64,
}

/// One row of the table.
#[derive(Clone, Debug, Serialize)]
pub struct RowResult {
    /// The text that distinguishes it from the others.
    pub label: String,
    /// The model.
    pub model: String,
    /// The number of trainings of the model.
    pub trainings: usize,
    /// One entry per column; none while the model is not trained, and where explicit times do not fit the column.
    pub entries: Vec<Option<Entry>>,
    /// The number of columns that it has entries for when all is done.
    #[serde(skip)]
    pub(super) columns: usize,
}

/// One entry of the table.
#[derive(Clone, Debug, Serialize)]
pub struct Entry {
    /// The sampling settings.
    pub sample: SampleConfig,
    /// Network evaluations per image.
    pub nfe: usize,
    /// The seed of training of each result.
    pub train_seeds: Vec<u64>,
    /// The seed of sampling of each result.
    pub seeds: Vec<u64>,
    /// The metric's values of each result.
    pub values: Vec<Vec<(String, f64)>>,
    /// The mean of the value that the table shows, over trainings and sampling seeds.
    pub mean: Option<f64>,
    /// Its standard deviation and the 95 % interval of the mean: over the means of the trainings if the model has several,
    /// over sampling seeds if it has one.
    pub spread: Option<Summary>,
    /// The standard deviation over sampling seeds within a training, if the model has several trainings: the root of the
    /// mean variance.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub within: Option<f64>,
    /// Whether it is the best of its column.
    pub best: bool,
    /// The significance test against the reference of its column.
    pub versus: Option<Versus>,
    /// (t, mean square of the estimate of x_0 at t minus the final x_0), over all results.
    pub estimate: Vec<[f64; 2]>,
    /// (t, the value that the table shows, of the pictures x̂_0(t)), mean over seeds.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub estimate_metric: Vec<[f64; 2]>,
    #[serde(skip)]
    pub(super) sheet: String,
    #[serde(skip)]
    pub(super) seconds: f64,
}

/// Welch's test against the reference of a column.
#[derive(Clone, Debug, Serialize)]
pub struct Versus {
    /// The label of the reference row.
    pub row: String,
    /// The p-value.
    pub p: f64,
    /// `**` below 0.01, `*` below 0.05.
    pub marks: &'static str,
}

impl Entry {
    /// The value called `name` of each result that has it.
    pub fn values_of(&self, name: &str) -> Vec<f64> {
        self.by_training(name).concat()
    }

    /// The value called `name` of the results of each training.
    fn by_training(&self, name: &str) -> Vec<Vec<f64>> {
        let mut found: Vec<(u64, Vec<f64>)> = vec![];
        for (&seed, values) in self.train_seeds.iter().zip(&self.values) {
            let Some((_, value)) = values.iter().find(|(n, _)| n == name) else { continue };
            match found.last_mut() {
                // The results of a training follow each other.
                Some((last, list)) if *last == seed => list.push(*value),
                _ => found.push((seed, vec![*value])),
            }
        }
        found.into_iter().map(|(_, list)| list).collect()
    }

    /// The independent numbers for deviations and tests: the mean of each training of a model with several, the value of
    /// each sampling seed of a model with one.
    fn independent(&self, name: &str, trainings: usize) -> Vec<f64> {
        if trainings == 1 {
            return self.values_of(name);
        }
        self.by_training(name).iter().map(|values| mean(values)).collect()
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

impl Results {
    /// The value that the table shows; none if nothing was measured.
    pub fn tabled(&self) -> Option<&'static Value> {
        self.metric.value(self.value)
    }

    /// The number of cells with a result, and of all cells.
    pub fn progress(&self) -> (usize, usize) {
        let entries = self.rows.iter().flat_map(|row| row.entries.iter().flatten());
        let columns: usize = self.rows.iter().map(|row| row.trainings * row.columns).sum();
        (entries.map(|e| e.seeds.len()).sum(), columns * self.seeds.len())
    }

    /// The largest number of trainings of a model.
    pub(super) fn trainings(&self) -> usize {
        self.rows.iter().map(|row| row.trainings).max().unwrap_or(1)
    }
}

/// Collects the results of a study in a directory.
pub(super) fn collate(dir: &StudyDir, record: Record) -> Result<Results> {
    let study = &record.study;
    study.validate()?;
    let trainings = study.trainings();
    let identities: Vec<Option<Identity>> = trainings.iter().map(|training| dir.known(training)).collect();
    let tabled = study.evaluate.tabled();
    let mut found = vec![];
    for (number, row) in rows(study).iter().enumerate() {
        let own = || trainings.iter().zip(&identities).filter(|(training, _)| training.model == row.model);
        // Explicit times fit one column, which is known when the configuration of the model is.
        let is_explicit = row.grid.as_ref().is_some_and(|grid| grid.starts_with("explicit"));
        let (mut entries, mut columns) = (vec![], 0);
        for &column in study.sample.columns() {
            let mut measured = vec![];
            for identity in own().filter_map(|(_, identity)| identity.as_ref()) {
                let seed = RunConfig::parse(&identity.config, &identity.name)?.seed;
                measured.extend(cells(&record, number, row, column, identity)?.into_iter().map(|cell| (seed, cell)));
            }
            columns += usize::from(!measured.is_empty());
            entries.push(entry(dir, &measured, tabled, own().count()));
        }
        if own().all(|(_, identity)| identity.is_none()) {
            columns = if is_explicit { 1 } else { entries.len() };
        }
        let (label, model) = (row.label.clone(), study.model[row.model].name.clone());
        found.push(RowResult { label, model, trainings: own().count(), entries, columns });
    }
    if let Some(tabled) = tabled {
        rank(&mut found, tabled, study.evaluate.against.as_deref());
    }
    let facts = |identity: &Identity| {
        let Identity { name, fingerprint, checksum, step, parameters, .. } = identity.clone();
        ModelFacts { name, fingerprint, checksum, step, parameters }
    };
    Ok(Results {
        title: study.title.clone(),
        metric: study.evaluate.metric,
        value: study.evaluate.value.as_ref().and(tabled).map(|value| value.name),
        columns_are: study.sample.columns_are(),
        columns: study.sample.columns().to_vec(),
        count: study.sample.count,
        seeds: study.sample.seeds.clone(),
        rows: found,
        against: study.evaluate.against.clone(),
        facts: record.facts.clone(),
        models: identities.iter().flatten().map(facts).collect(),
        version: record.version.clone(),
        record,
        identities,
    })
}

/// One entry of the table, from its cells, each with the seed of its training; none if no cell has a result.
fn entry(dir: &StudyDir, cells: &[(u64, Cell)], tabled: Option<&Value>, trainings: usize) -> Option<Entry> {
    let found: Vec<([u64; 2], CellResult)> = (cells.iter())
        .filter_map(|(train_seed, cell)| Some(([*train_seed, cell.seed], dir.result(&cell.key)?)))
        .collect();
    let (first, (_, cell)) = (found.first()?, cells.first()?);
    let mut estimate = first.1.estimate.clone();
    for (i, point) in estimate.iter_mut().enumerate() {
        let curves = found.iter().filter_map(|(_, result)| result.estimate.get(i));
        point[1] = curves.map(|p| p[1]).sum::<f64>() / found.len() as f64;
    }
    let named = |(t, values): &(f64, Vec<(String, f64)>)| -> Option<[f64; 2]> {
        Some([*t, values.iter().find(|(name, _)| tabled.is_some_and(|value| value.name == name))?.1])
    };
    let curves: Vec<Vec<[f64; 2]>> =
        found.iter().map(|(_, result)| result.estimate_metric.iter().filter_map(named).collect()).collect();
    let mean_point = |(i, &[t, _]): (usize, &[f64; 2])| {
        [t, curves.iter().filter_map(|curve| curve.get(i)).map(|point| point[1]).sum::<f64>() / curves.len() as f64]
    };
    let estimate_metric = curves.first().into_iter().flatten().enumerate().map(mean_point).collect();
    let nfe = first.1.nfe;
    let mut entry = Entry {
        sample: cell.sample.clone(),
        nfe,
        train_seeds: found.iter().map(|([train_seed, _], _)| *train_seed).collect(),
        seeds: found.iter().map(|([_, seed], _)| *seed).collect(),
        seconds: found.iter().map(|(_, result)| result.seconds).sum::<f64>() / found.len() as f64,
        values: found.into_iter().map(|(_, result)| result.values).collect(),
        mean: None,
        spread: None,
        within: None,
        best: false,
        versus: None,
        estimate,
        estimate_metric,
        sheet: cell.key.clone(),
    };
    let values = tabled.map_or(vec![], |value| entry.independent(value.name, trainings));
    entry.mean = (!values.is_empty()).then(|| mean(&values));
    // A single number has no deviation.
    entry.spread = Summary::of(&values).ok();
    if let (Some(value), true) = (tabled, trainings > 1) {
        let summaries = entry.by_training(value.name).into_iter().filter_map(|values| Summary::of(&values).ok());
        let variances: Vec<f64> = summaries.map(|summary| summary.std * summary.std).collect();
        entry.within = (!variances.is_empty()).then(|| mean(&variances).sqrt());
    }
    Some(entry)
}

/// Marks the best entry of each column and tests the others against the reference.
fn rank(rows: &mut [RowResult], tabled: &Value, against: Option<&str>) {
    for column in 0..rows.first().map_or(0, |row| row.entries.len()) {
        let mean = |row: &RowResult| row.entries[column].as_ref().and_then(|e| e.mean);
        let better = |a: f64, b: f64| match tabled.better {
            Better::Higher => b.total_cmp(&a),
            Better::Lower => a.total_cmp(&b),
        };
        let best = |rows: &[RowResult], among: &dyn Fn(&RowResult) -> bool| {
            let all = rows.iter().enumerate().filter(|(_, row)| among(row));
            let all = all.filter_map(|(i, row)| Some((i, mean(row)?)));
            all.min_by(|a, b| better(a.1, b.1)).map(|(i, _)| i)
        };
        let first = best(rows, &|_| true);
        let reference = best(rows, &|row| against.is_none_or(|name| row.model == name));
        let theirs = reference.and_then(|i| {
            let RowResult { label, trainings, entries, .. } = &rows[i];
            Some((i, label.clone(), *trainings, entries[column].as_ref()?.independent(tabled.name, *trainings)))
        });
        for (i, row) in rows.iter_mut().enumerate() {
            let Some(entry) = &mut row.entries[column] else { continue };
            entry.best = first == Some(i);
            // Sampling seeds of one training and several trainings vary by different things: they are not compared.
            if let Some((reference, label, trainings, theirs)) = &theirs
                && *reference != i
                && (*trainings == 1) == (row.trainings == 1)
                && let Ok(test) = Welch::test(&entry.independent(tabled.name, row.trainings), theirs)
            {
                entry.versus = Some(Versus { row: label.clone(), p: test.p, marks: test.marks() });
            }
        }
    }
}
