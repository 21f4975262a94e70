//! The laboratory's results: a table for people, JSON for programs, a chart.
use super::LabConfig;
use super::measure::slopes;
use crate::error::Result;
use crate::plot::{Chart, Series};
use crate::sample::Sampler;
use crossfade_math::{Attenuation, NoiseScale};
use serde::Serialize;
use std::fmt;
use std::path::Path;

/// One run.
#[derive(Clone, Debug, Serialize)]
pub struct Cell {
    /// Steps of the sampler.
    pub steps: usize,
    /// Network evaluations that it used.
    pub evaluations: usize,
    /// RMS distance to the exact solution, for deterministic samplers.
    pub rms: Option<f64>,
    /// Median distance to the exact solution, for deterministic samplers.
    pub median: Option<f64>,
    /// Sliced W2 distance to the data.
    pub w2: f64,
}

/// One sampler on one grid over all step counts.
#[derive(Clone, Debug, Serialize)]
pub struct Curve {
    /// The attenuation.
    pub attenuation: Attenuation,
    /// The sampler.
    pub sampler: Sampler,
    /// The grid's name.
    pub grid: &'static str,
    /// A run for each number of evaluations.
    pub cells: Vec<Cell>,
    /// Observed order between neighbouring cells, from the median error.
    pub orders: Vec<f64>,
}

impl Curve {
    pub(super) fn new(attenuation: Attenuation, sampler: Sampler, grid: &'static str, cells: Vec<Cell>) -> Self {
        let errors: Option<Vec<_>> = cells.iter().map(|c| Some((c.steps, c.median?))).collect();
        Self { attenuation, sampler, grid, orders: errors.map_or_else(Vec::new, |e| slopes(&e)), cells }
    }
}

/// All results.
#[derive(Clone, Debug, Serialize)]
pub struct LabReport {
    /// What was run.
    pub config: LabConfig,
    /// Sliced W2 between two samples of the data: no sampler can be told to be better.
    pub floor: f64,
    /// The results.
    pub curves: Vec<Curve>,
}

impl LabReport {
    /// The curve of a sampler on a grid.
    pub fn curve(&self, attenuation: Attenuation, sampler: Sampler, grid: &str) -> Option<&Curve> {
        self.curves.iter().find(|c| c.attenuation == attenuation && c.sampler == sampler && c.grid == grid)
    }

    /// Charts the median error of deterministic samplers over evaluations for the first attenuation and grid; the median,
    /// because the few points between two modes hide the order of the rest in the RMS.
    pub fn chart(&self) -> Chart {
        let first = self.curves.first();
        let (attenuation, grid) = first.map_or((Attenuation::Constant, ""), |c| (c.attenuation, c.grid));
        let mut series: Vec<Series> = (self.curves.iter())
            .filter(|c| c.attenuation == attenuation && c.grid == grid && !c.sampler.is_stochastic())
            .map(|c| Series {
                name: c.sampler.name().into(),
                points: c.cells.iter().filter_map(|x| Some((x.evaluations as f64, x.median?))).collect(),
            })
            .collect();
        let uniform = self.curve(attenuation, Sampler::Ab2, "uniform-t").filter(|_| grid != "uniform-t");
        series.extend(uniform.map(|c| Series {
            name: "ab2 on uniform-t".into(),
            points: c.cells.iter().filter_map(|x| Some((x.evaluations as f64, x.median?))).collect(),
        }));
        Chart {
            title: format!("Distance to the exact solution, {} attenuation, {grid} grid", attenuation.name()),
            x_label: "network evaluations".into(),
            y_label: "median error".into(),
            log: true,
            series,
        }
    }

    /// Writes `lab.json`, `lab.svg` and `lab.png` into `dir`.
    pub fn save(&self, dir: &Path) -> Result<()> {
        use crate::error::Error;
        std::fs::create_dir_all(dir).map_err(Error::io(dir))?;
        let json = serde_json::to_string_pretty(self).map_err(|e| Error::Run(e.to_string()))?;
        let path = dir.join("lab.json");
        std::fs::write(&path, json).map_err(Error::io(&path))?;
        let chart = self.chart();
        chart.save(&dir.join("lab.svg"))?;
        chart.save(&dir.join("lab.png"))
    }
}

impl fmt::Display for LabReport {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let c = &self.config;
        writeln!(
            f,
            "Exact denoiser of {} Gaussian(s) in {} dimensions, std {}, {} points, seed {}, sigma = {}.",
            c.components,
            c.dim,
            c.std,
            c.samples,
            c.seed,
            if c.noise == NoiseScale::Sqrt { "sqrt(t)" } else { "t" }
        )?;
        writeln!(f, "RMS: distance to the exact solution of the same equation. W2: sliced distance to the data;")?;
        writeln!(
            f,
            "two samples of the data are {:.4} apart. Order: slope of the median error over the last steps.",
            self.floor
        )?;
        let mut heading = None;
        for curve in &self.curves {
            if heading != Some(curve.attenuation) {
                heading = Some(curve.attenuation);
                self.heading(f, curve.attenuation)?;
            }
            write!(f, "{:<15} {:<12}", curve.sampler.name(), curve.grid)?;
            for cell in &curve.cells {
                let rms = cell.rms.map_or("-".into(), |r| format!("{r:.1e}"));
                write!(f, " | {rms:<6} {:<6.4}", cell.w2)?;
            }
            let tail = &curve.orders[curve.orders.len().saturating_sub(2)..];
            let orders: Vec<_> = tail.iter().map(|o| format!("{o:.2}")).collect();
            writeln!(f, " | {}", if orders.is_empty() { "-".into() } else { orders.join(" ") })?;
        }
        Ok(())
    }
}

impl LabReport {
    fn heading(&self, f: &mut fmt::Formatter, attenuation: Attenuation) -> fmt::Result {
        writeln!(f, "\n{} attenuation", attenuation.name())?;
        write!(f, "{:<28}", "network evaluations:")?;
        for n in &self.config.evaluations {
            write!(f, " | {n:<13}")?;
        }
        write!(f, " | order\n{:<15} {:<12}", "sampler", "grid")?;
        for _ in &self.config.evaluations {
            write!(f, " | {:<6} {:<6}", "RMS", "W2")?;
        }
        writeln!(f, " |")
    }
}
