//! The results of a study as charts.
use super::results::{Entry, Results};
use crate::error::Result;
use crate::metrics::{Better, Value};
use crate::plot::{Band, Chart, Series};

/// The file of the chart of the metric over network evaluations.
pub(super) const CHART: &str = "chart.svg";
/// The file of the chart of the estimate of x_0 over t.
pub(super) const ESTIMATE: &str = "estimate.svg";
/// The file of the chart of the metric of the pictures x̂_0(t) over t.
pub(super) const ESTIMATE_METRIC: &str = "estimate-metric.svg";

impl Results {
    /// The charts for which there are values: file name and SVG.
    pub fn charts(&self) -> Result<Vec<(&'static str, String)>> {
        let mut found = vec![];
        let measured = self.rows.iter().any(|row| row.entries.iter().flatten().any(|e| e.mean.is_some()));
        if let Some(value) = self.tabled().filter(|_| measured && self.columns.len() > 1) {
            found.push((CHART, self.over_evaluations(value)?));
        }
        let any = |of: fn(&Entry) -> &[[f64; 2]]| {
            self.rows.iter().any(|row| row.entries.iter().flatten().any(|e| !of(e).is_empty()))
        };
        if any(|e| &e.estimate) {
            found.push((ESTIMATE, self.over_time("mean square of x̂_0(t) − x_0", false, |e| &e.estimate)?));
        }
        if let Some(value) = self.tabled().filter(|_| any(|e| &e.estimate_metric)) {
            let label = format!("{} of the pictures x̂_0(t)", value.title);
            let log = value.better == Better::Lower;
            found.push((ESTIMATE_METRIC, self.over_time(&label, log, |e| &e.estimate_metric)?));
        }
        Ok(found)
    }

    /// The metric over network evaluations, with the 95 % interval over seeds.
    fn over_evaluations(&self, value: &Value) -> Result<String> {
        let points = |of: &dyn Fn(&Entry) -> Option<f64>| -> Vec<Vec<(f64, f64)>> {
            let line = |row: &super::RowResult| {
                row.entries.iter().flatten().filter_map(|e| Some((e.nfe as f64, of(e)?))).collect()
            };
            self.rows.iter().map(line).collect()
        };
        let means = points(&|e| e.mean);
        let positive = means.iter().flatten().all(|p| p.1 > 0.0);
        // Metrics such as FID fall over orders of magnitude; values where higher is better, such as PSNR, do not.
        let log = positive && value.better == Better::Lower;
        let chart = Chart {
            title: self.title.clone(),
            x_label: "network evaluations".into(),
            y_label: value.title.into(),
            log,
            series: self.rows.iter().zip(means).map(|(r, points)| Series { name: r.label.clone(), points }).collect(),
        };
        // With few seeds intervals are wide; on a logarithmic axis their lower ends are limited, because they may be
        // negative.
        let least = |e: &Entry| if log { 0.1 * e.mean.unwrap_or(0.0) } else { f64::NEG_INFINITY };
        let low = points(&|e| Some(e.spread?.interval[0].max(least(e))));
        let high = points(&|e| Some(e.spread?.interval[1]));
        chart.svg(&low.into_iter().zip(high).map(|(low, high)| Band { low, high }).collect::<Vec<_>>())
    }

    /// How the estimate of x_0 approaches the final one, or the data, over t, for the largest column (Fig. 2).
    fn over_time(&self, label: &str, log: bool, of: fn(&Entry) -> &[[f64; 2]]) -> Result<String> {
        let Some((_, last)) = self.columns.iter().enumerate().map(|(i, n)| (n, i)).max() else {
            return Ok(String::new());
        };
        let line = |row: &super::RowResult| -> Option<Series> {
            let entry = row.entries[last].as_ref()?;
            let points = of(entry).iter().map(|p| (p[0], p[1])).collect();
            Some(Series { name: row.label.clone(), points })
        };
        let chart = Chart {
            title: format!(
                "{}: estimate against the final image, {} {}",
                self.title, self.columns[last], self.columns_are
            ),
            x_label: "t".into(),
            y_label: label.into(),
            log: false,
            series: self.rows.iter().filter_map(line).collect(),
        };
        let positive = chart.series.iter().all(|series| series.points.iter().all(|p| p.1 > 0.0));
        let chart = Chart { log: log && positive, ..chart };
        chart.svg(&[])
    }
}
