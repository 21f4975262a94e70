//! The shares of samplers as text, Markdown, JSON and a chart.
use super::shares::{Estimator, SharesRow};
use super::spectrum::{Band, Spectrum};
use crate::error::{Error, Result};
use crate::files::{Folder, write_atomic};
use crate::plot::{Chart, Series};
use serde::Serialize;
use std::fmt;
use std::path::Path;

/// The lines of the chart; more could not be told apart.
const MOST_SERIES: usize = 12;

/// The error of x̂_0 at one noise level.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct NoiseError {
    /// The noise level κ = σ/α.
    pub ratio: f64,
    /// The root mean square of x̂_0 − x_0 of the linear denoiser, over values in [−1, 1].
    pub linear: f64,
    /// The same of the network, if there is one.
    pub network: Option<f64>,
}

/// The spectrum of an image set, and what samplers leave of it.
#[derive(Clone, Debug, Serialize)]
pub struct SharesReport {
    /// A description of the images.
    pub images: String,
    /// A description of the network and how it was sampled, if there is one.
    pub network: Option<String>,
    /// The bands of the data.
    pub bands: Vec<Band>,
    /// The runs.
    pub rows: Vec<SharesRow>,
    /// Errors of x̂_0 over the noise level.
    pub errors: Vec<NoiseError>,
    /// The images that the network's errors were measured on; 0 without a network.
    pub denoised: usize,
    /// Why the error of the network is missing.
    pub not_denoised: Option<String>,
}

impl SharesReport {
    /// The report of runs on the linear denoiser of `data`, with its errors at the noise levels `ratios`.
    pub fn linear(images: String, data: &Spectrum, rows: Vec<SharesRow>, ratios: &[f64]) -> Self {
        let error = |&ratio| NoiseError { ratio, linear: super::shares::linear_error(data, ratio), network: None };
        let errors = ratios.iter().map(error).collect();
        Self { images, network: None, bands: data.bands(), rows, errors, denoised: 0, not_denoised: None }
    }

    /// The heading and the rows of the table of shares.
    fn shares(&self) -> Vec<Vec<String>> {
        let names = ["process", "sampler", "grid", "evaluations"].map(String::from);
        let mut heading: Vec<String> = names.into_iter().chain(self.bands.iter().map(label)).collect();
        heading.push("rms".into());
        // The estimator is named only where there are two.
        let named = self.network.is_some();
        if named {
            heading.push("estimator".into());
        }
        let deviations = self.bands.iter().map(|band| number(band.std));
        let mut data: Vec<String> = ["data", "", "", "std"].map(String::from).into_iter().chain(deviations).collect();
        data.resize(heading.len(), String::new());
        let mut table = vec![heading, data];
        for row in &self.rows {
            let mut cells = vec![row.process.into(), row.sampler.name().into(), row.grid.into()];
            cells.push(row.evaluations.to_string());
            cells.extend(row.shares.iter().chain([&row.rms]).map(|&share| number(share)));
            cells
                .extend(named.then(|| (if row.estimator == Estimator::Network { "network" } else { "linear" }).into()));
            table.push(cells);
        }
        table
    }

    /// The heading and the rows of the table of errors.
    fn error_table(&self) -> Vec<Vec<String>> {
        let named = self.errors.iter().any(|error| error.network.is_some());
        let heading = ["sigma/alpha", "linear"].into_iter().chain(named.then_some("network"));
        let mut table = vec![heading.map(String::from).collect()];
        for error in &self.errors {
            let mut cells = vec![error.ratio.to_string(), format!("{:.4}", error.linear)];
            cells.extend(error.network.map(|rms| format!("{rms:.4}")));
            table.push(cells);
        }
        table
    }

    /// The facts above the tables, one per line.
    fn facts(&self) -> String {
        let mut text = format!("Images: {}.\n", self.images);
        match &self.network {
            Some(network) => text += &format!("Network: {network}.\n"),
            None => text += "Denoiser: the exact linear one of the spectrum of these images, not clipped.\n",
        }
        text += "Share of the standard deviation of the data that is left in each band. Bands: the mean of the image, then\n\
                 octaves, named by their lowest frequency (1 is Nyquist). rms: of share - 1 over the bands.\n";
        text
    }

    /// The line above the table of errors.
    fn errors_heading(&self) -> String {
        let network = match (self.denoised, &self.not_denoised) {
            (0, Some(why)) => format!("; that of the network is left out: {why}"),
            (0, None) => String::new(),
            (images, _) => format!("; of the network on the first {images} of them, clamped to [-1, 1]"),
        };
        format!("Root mean square error of the estimate of x_0, of the linear denoiser over all images{network}:")
    }

    /// The tables as Markdown.
    pub fn markdown(&self) -> String {
        let table = |rows: Vec<Vec<String>>| -> String {
            let rule = format!("|{}\n", "---|".repeat(rows[0].len()));
            let lines = rows.iter().map(|row| format!("| {} |\n", row.join(" | ")));
            lines.enumerate().map(|(k, line)| if k == 0 { line + &rule } else { line }).collect()
        };
        let (shares, errors) = (table(self.shares()), table(self.error_table()));
        format!("{}\n{shares}\n{}\n\n{errors}", self.facts(), self.errors_heading())
    }

    /// The shares over the bands, for the first rows of the table.
    pub fn chart(&self) -> Chart {
        let series = self.rows.iter().take(MOST_SERIES).map(|row| {
            let by = if row.estimator == Estimator::Network { ", network" } else { "" };
            let name = format!("{} {} {} {}{by}", row.process, row.sampler.name(), row.grid, row.evaluations);
            Series { name, points: row.shares.iter().enumerate().map(|(band, &s)| (band as f64, s)).collect() }
        });
        let cut = if self.rows.len() > MOST_SERIES { format!(", first {MOST_SERIES} rows") } else { String::new() };
        Chart {
            title: format!("Share of the standard deviation that is left{cut}"),
            x_label: "octave (0: mean of the image)".into(),
            y_label: "share (1 is right)".into(),
            log: false,
            series: series.collect(),
        }
    }

    /// Writes `lab.json`, `lab.md`, `lab.svg` and `lab.png` into `dir`.
    pub fn save(&self, dir: &Path) -> Result<()> {
        let _folder = Folder::create(dir)?;
        let json = serde_json::to_string_pretty(self).map_err(|e| Error::Run(e.to_string()))?;
        write_atomic(dir.join("lab.json"), json.as_bytes())?;
        write_atomic(dir.join("lab.md"), self.markdown().as_bytes())?;
        let chart = self.chart();
        chart.save(&dir.join("lab.svg"))?;
        chart.save(&dir.join("lab.png"))
    }
}

/// The name of a band: its lowest frequency as a fraction.
fn label(band: &Band) -> String {
    if band.from == 0.0 { "mean".into() } else { format!("1/{}", (1.0 / band.from).round()) }
}

/// Three decimals, or an exponent where a sampler diverged.
fn number(value: f64) -> String {
    if value < 100.0 { format!("{value:.3}") } else { format!("{value:.1e}") }
}

impl fmt::Display for SharesReport {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let aligned = |f: &mut fmt::Formatter, rows: Vec<Vec<String>>| -> fmt::Result {
            let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
            let widths: Vec<usize> = (0..rows[0].len()).map(width).collect();
            for row in &rows {
                let cells: Vec<String> = row.iter().zip(&widths).map(|(cell, w)| format!("{cell:<w$}")).collect();
                writeln!(f, "{}", cells.join("  ").trim_end())?;
            }
            Ok(())
        };
        writeln!(f, "{}", self.facts())?;
        aligned(f, self.shares())?;
        writeln!(f, "\n{}", self.errors_heading())?;
        aligned(f, self.error_table())
    }
}
