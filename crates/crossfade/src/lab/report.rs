//! The results of the laboratory as text, Markdown, JSON and a chart.
use super::LabConfig;
use super::measure::slopes;
use crate::error::Result;
use crate::files::{Folder, write_atomic};
use crate::plot::{Chart, Series};
use crate::sample::Sampler;
use crossfade_math::{Attenuation, NoiseScale};
use serde::Serialize;
use std::fmt;
use std::path::Path;

/// The result of one run.
#[derive(Clone, Debug, Serialize)]
pub struct Cell {
    /// Steps of the sampler.
    pub steps: usize,
    /// Network evaluations of the run.
    pub evaluations: usize,
    /// RMS distance to the exact solution, for deterministic samplers.
    pub rms: Option<f64>,
    /// Median distance to the exact solution, for deterministic samplers.
    pub median: Option<f64>,
    /// For stochastic samplers: W2 distance between the distributions for this number of steps and for infinitely many
    /// steps, for one Gaussian, divided by its standard deviation.
    pub weak: Option<f64>,
    /// Sliced W2 distance to the data.
    pub w2: f64,
}

/// One sampler on one grid, for all numbers of evaluations.
#[derive(Clone, Debug, Serialize)]
pub struct Curve {
    /// The attenuation or the process.
    pub process: &'static str,
    /// The sampler.
    pub sampler: Sampler,
    /// The grid's name.
    pub grid: &'static str,
    /// A run for each number of evaluations.
    pub cells: Vec<Cell>,
    /// Observed orders of convergence between neighbouring cells: of the median error, or of the weak error.
    pub orders: Vec<f64>,
}

impl Curve {
    pub(super) fn new(process: &'static str, sampler: Sampler, grid: &'static str, cells: Vec<Cell>) -> Self {
        let errors: Option<Vec<_>> = cells.iter().map(|c| Some((c.steps, c.median.or(c.weak)?))).collect();
        Self { process, sampler, grid, orders: errors.map_or_else(Vec::new, |e| slopes(&e)), cells }
    }
}

/// All results.
#[derive(Clone, Debug, Serialize)]
pub struct LabReport {
    /// The options of the run.
    pub config: LabConfig,
    /// Sliced W2 distance between two samples of the data: no sampler can be measured to be better.
    pub floor: f64,
    /// The curves.
    pub curves: Vec<Curve>,
}

impl LabReport {
    /// The curve of a sampler on a grid.
    pub fn curve(&self, attenuation: Attenuation, sampler: Sampler, grid: &str) -> Option<&Curve> {
        self.curve_of(attenuation.name(), sampler, grid)
    }

    fn curve_of(&self, process: &str, sampler: Sampler, grid: &str) -> Option<&Curve> {
        self.curves.iter().find(|c| c.process == process && c.sampler == sampler && c.grid == grid)
    }

    /// Charts the median error of deterministic samplers over evaluations, for the first process and grid. The RMS is
    /// not used, because it is dominated by the few points between two modes and hides the order of the others.
    pub fn chart(&self) -> Chart {
        let first = self.curves.first();
        let (process, grid) = first.map_or(("", ""), |c| (c.process, c.grid));
        let mut series: Vec<Series> = (self.curves.iter())
            .filter(|c| c.process == process && c.grid == grid && !c.sampler.is_stochastic())
            .map(|c| Series {
                name: c.sampler.name().into(),
                points: c.cells.iter().filter_map(|x| Some((x.evaluations as f64, x.median?))).collect(),
            })
            .collect();
        let uniform = self.curve_of(process, Sampler::Ab2, "uniform-t").filter(|_| grid != "uniform-t");
        series.extend(uniform.map(|c| Series {
            name: "ab2 on uniform-t".into(),
            points: c.cells.iter().filter_map(|x| Some((x.evaluations as f64, x.median?))).collect(),
        }));
        Chart {
            title: format!("Distance to the exact solution, {process}, {grid} grid"),
            x_label: "network evaluations".into(),
            y_label: "median error".into(),
            log: true,
            series,
        }
    }

    /// Writes `lab.json`, `lab.md`, `lab.svg` and `lab.png` into `dir`.
    pub fn save(&self, dir: &Path) -> Result<()> {
        use crate::error::Error;
        let _folder = Folder::create(dir)?;
        let json = serde_json::to_string_pretty(self).map_err(|e| Error::Run(e.to_string()))?;
        write_atomic(dir.join("lab.json"), json.as_bytes())?;
        write_atomic(dir.join("lab.md"), self.markdown().as_bytes())?;
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
        writeln!(
            f,
            "Error: RMS distance to the exact solution of the same equation. For stochastic samplers: W2 distance"
        )?;
        writeln!(
            f,
            "between the distribution reached from one Gaussian and its limit for infinitely many steps, divided by"
        )?;
        writeln!(
            f,
            "the Gaussian's std. W2: sliced distance to the data; two samples of the data are {:.4} apart.",
            self.floor
        )?;
        writeln!(f, "Order: slope of the median error, or of the distribution's, over the last steps.")?;
        let mut heading = None;
        for curve in &self.curves {
            if heading != Some(curve.process) {
                heading = Some(curve.process);
                self.heading(f, curve.process)?;
            }
            write!(f, "{:<17} {:<12}", curve.sampler.name(), curve.grid)?;
            for cell in &curve.cells {
                let rms = cell.rms.or(cell.weak).map_or("-".into(), |r| format!("{r:.1e}"));
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
    /// The results as a Markdown table.
    pub fn markdown(&self) -> String {
        let numbers: Vec<_> = self.config.evaluations.iter().map(|n| format!(" {n} NFE |")).collect();
        let rules = "---|".repeat(numbers.len() + 4);
        let mut text = format!("| process | sampler | grid |{} order |\n|{rules}\n", numbers.concat());
        for curve in &self.curves {
            text += &format!("| {} | {} | {} |", curve.process, curve.sampler.name(), curve.grid);
            for cell in &curve.cells {
                let rms = cell.rms.or(cell.weak).map_or("–".into(), |r| format!("{r:.1e}"));
                text += &format!(" {rms} / {:.3} |", cell.w2);
            }
            let order = curve.orders.last().map_or("–".into(), |o| format!("{o:.2}"));
            text += &format!(" {order} |\n");
        }
        text
    }

    fn heading(&self, f: &mut fmt::Formatter, process: &str) -> fmt::Result {
        writeln!(f, "\n{process}")?;
        write!(f, "{:<30}", "network evaluations:")?;
        for n in &self.config.evaluations {
            write!(f, " | {n:<13}")?;
        }
        write!(f, " | order\n{:<17} {:<12}", "sampler", "grid")?;
        for _ in &self.config.evaluations {
            write!(f, " | {:<6} {:<6}", "error", "W2")?;
        }
        writeln!(f, " |")
    }
}
