//! The results of a study: a function of its directory alone.
use super::cell::{Cell, CellResult, Identity, Record, StudyDir, cells};
use super::plan::rows;
use crate::config::SampleConfig;
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
    /// The seeds of the sampling noise.
    pub seeds: Vec<u64>,
    /// The rows.
    pub rows: Vec<RowResult>,
    /// The model whose best row of each column the others are tested against; none for the best row of all.
    pub against: Option<String>,
    /// The facts that values depend on besides the images.
    pub facts: Vec<(String, String)>,
    /// The trained models.
    pub models: Vec<ModelFacts>,
    /// The version of this program.
    pub version: String,
    #[serde(skip)]
    pub(super) record: Record,
    #[serde(skip)]
    pub(super) identities: Vec<Option<Identity>>,
}

/// Facts about a trained model.
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
    /// The seeds that have a result.
    pub seeds: Vec<u64>,
    /// The metric's values for each of them.
    pub values: Vec<Vec<(String, f64)>>,
    /// The mean over seeds of the value that the table shows.
    pub mean: Option<f64>,
    /// Its standard deviation over seeds, and the 95 % interval of the mean.
    pub spread: Option<Summary>,
    /// Whether it is the best of its column.
    pub best: bool,
    /// The significance test against the reference of its column.
    pub versus: Option<Versus>,
    /// (t, mean square of the estimate of x_0 at t minus the final x_0), over all seeds.
    pub estimate: Vec<[f64; 2]>,
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
    /// The value called `name` for each seed that has it.
    pub fn values_of(&self, name: &str) -> Vec<f64> {
        let of = |values: &Vec<(String, f64)>| values.iter().find(|(n, _)| n == name).map(|(_, value)| *value);
        self.values.iter().filter_map(of).collect()
    }
}

impl Results {
    /// The value that the table shows; none if nothing was measured.
    pub fn tabled(&self) -> Option<&'static Value> {
        self.metric.value(self.value)
    }

    /// The number of cells with a result, and of all cells.
    pub fn progress(&self) -> (usize, usize) {
        let entries = self.rows.iter().flat_map(|row| row.entries.iter().flatten());
        let columns: usize = self.rows.iter().map(|row| row.columns).sum();
        (entries.map(|e| e.seeds.len()).sum(), columns * self.seeds.len())
    }
}

/// Collects the results of a study in a directory.
pub(super) fn collate(dir: &StudyDir, record: Record) -> Result<Results> {
    let study = &record.study;
    study.validate()?;
    let identities: Vec<Option<Identity>> = (0..study.model.len()).map(|number| dir.known(study, number)).collect();
    let tabled = study.evaluate.tabled();
    let mut found = vec![];
    for (number, row) in rows(study).iter().enumerate() {
        // Explicit times fit one column, which is known when the configuration of the model is.
        let is_explicit = row.grid.as_ref().is_some_and(|grid| grid.starts_with("explicit"));
        let (mut entries, mut columns) = (vec![], 0);
        for &column in study.sample.columns() {
            entries.push(match &identities[row.model] {
                None => None,
                Some(identity) => {
                    let cells = cells(&record, number, row, column, identity)?;
                    columns += usize::from(!cells.is_empty());
                    entry(dir, &cells, tabled)
                }
            });
        }
        if identities[row.model].is_none() {
            columns = if is_explicit { 1 } else { entries.len() };
        }
        let model = study.model[row.model].name.clone();
        found.push(RowResult { label: row.label.clone(), model, entries, columns });
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

/// One entry of the table, from the cells of its seeds; none if no cell has a result.
fn entry(dir: &StudyDir, cells: &[Cell], tabled: Option<&Value>) -> Option<Entry> {
    let found: Vec<(u64, CellResult)> =
        cells.iter().filter_map(|cell| Some((cell.seed, dir.result(&cell.key)?))).collect();
    let (first, cell) = (found.first()?, cells.first()?);
    let mut estimate = first.1.estimate.clone();
    for (i, point) in estimate.iter_mut().enumerate() {
        let curves = found.iter().filter_map(|(_, result)| result.estimate.get(i));
        point[1] = curves.map(|p| p[1]).sum::<f64>() / found.len() as f64;
    }
    let nfe = first.1.nfe;
    let mut entry = Entry {
        sample: cell.sample.clone(),
        nfe,
        seeds: found.iter().map(|(seed, _)| *seed).collect(),
        seconds: found.iter().map(|(_, result)| result.seconds).sum::<f64>() / found.len() as f64,
        values: found.into_iter().map(|(_, result)| result.values).collect(),
        mean: None,
        spread: None,
        best: false,
        versus: None,
        estimate,
        sheet: cell.key.clone(),
    };
    let values = tabled.map_or(vec![], |value| entry.values_of(value.name));
    entry.mean = (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64);
    // A single seed has no deviation.
    entry.spread = Summary::of(&values).ok();
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
        let theirs = reference.and_then(|i| Some((i, rows[i].label.clone(), rows[i].entries[column].clone()?)));
        for (i, row) in rows.iter_mut().enumerate() {
            let Some(entry) = &mut row.entries[column] else { continue };
            entry.best = first == Some(i);
            if let Some((reference, label, other)) = &theirs
                && *reference != i
                && let Ok(test) = Welch::test(&entry.values_of(tabled.name), &other.values_of(tabled.name))
            {
                entry.versus = Some(Versus { row: label.clone(), p: test.p, marks: test.marks() });
            }
        }
    }
}
