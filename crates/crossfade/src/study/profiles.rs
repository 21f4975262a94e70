//! A metric over averages of weights: the averages of several relative widths are made from the snapshots of one run and
//! measured like the models of a study.
use super::checkpoints::Measuring;
use super::results::Results;
use super::run::Event;
use crate::average::{Averaged, Snapshots};
use crate::config::StudyModel;
use crate::engine::Device;
use crate::error::{Error, Result};
use crate::files::{Folder, write_atomic};
use crate::plot::{Chart, Series};
use serde::Serialize;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

/// The file of the chart.
const CHART: &str = "profiles.svg";

/// What to measure.
#[derive(Clone, Debug)]
pub struct ProfileRequest {
    /// The directory of the run.
    pub run: PathBuf,
    /// The relative widths.
    pub sigmas: Vec<f64>,
    /// The training step that the averages end at; by default that of the last snapshot.
    pub step: Option<u64>,
    /// How they are measured, with at most one sampler, and the directory for averages, results and chart.
    pub measuring: Measuring,
}

/// The measured averages.
#[derive(Clone, Debug, Serialize)]
pub struct ProfileSweep {
    /// The averages, in the order of the request.
    pub averages: Vec<Averaged>,
    /// Their results, one row each.
    pub results: Results,
    /// The chart of the metric over the width.
    #[serde(serialize_with = "crate::error::serialize_path")]
    pub chart: PathBuf,
}

/// Makes and measures the averages; none if `stop` was set before the end. `tell` is called with the progress.
pub fn sweep_profiles(
    request: &ProfileRequest,
    device: &Device,
    stop: &AtomicBool,
    tell: &mut dyn FnMut(Event),
) -> Result<Option<ProfileSweep>> {
    if request.measuring.sample.samplers.len() > 1 {
        return Err(Error::request("averages are compared with one sampler"));
    }
    let snapshots = Snapshots::open(&request.run)?;
    let folder =
        std::path::absolute(&request.measuring.out).map_err(Error::io(&request.measuring.out))?.join("averages");
    let _folder = Folder::create(&folder)?;
    let file = |sigma: f64| folder.join(format!("sigma-{sigma}.safetensors"));
    let made = request.sigmas.iter().map(|&sigma| snapshots.average(sigma, request.step, &file(sigma)));
    let averages: Vec<Averaged> = made.collect::<Result<_>>()?;
    let model = |averaged: &Averaged| StudyModel {
        name: format!("sigma {}", averaged.sigma),
        checkpoint: Some(averaged.checkpoint.clone()),
        ..StudyModel::default()
    };
    let models = averages.iter().map(model).collect();
    let Some((_, results)) = request.measuring.run("Averages of weights", models, device, stop, tell)? else {
        return Ok(None);
    };
    let chart = request.measuring.out.join(CHART);
    write_atomic(&chart, results.over_widths(&request.sigmas)?.as_bytes())?;
    Ok(Some(ProfileSweep { averages, results, chart }))
}

impl Results {
    /// The chart of the metric over the widths of the rows, one line for each column.
    fn over_widths(&self, sigmas: &[f64]) -> Result<String> {
        let line = |(i, column): (usize, &usize)| {
            let mean = |row: &super::RowResult| row.entries[i].as_ref().and_then(|entry| entry.mean);
            let points = self.rows.iter().zip(sigmas).filter_map(|(row, &sigma)| Some((sigma, mean(row)?)));
            Series { name: format!("{column} {}", self.columns_are), points: points.collect() }
        };
        let chart = Chart {
            title: self.title.clone(),
            x_label: "relative width of the average".into(),
            y_label: self.tabled().map_or(String::new(), |value| value.title.into()),
            log: false,
            series: self.columns.iter().enumerate().map(line).collect(),
        };
        chart.svg(&[])
    }
}
