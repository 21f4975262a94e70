//! What every verb may use: the device, the threads, how to print.
use crate::cli::{Global, Overrides};
use crate::progress::Progress;
use anyhow::{Context as _, Result};
use crossfade::config::{AutoencoderRun, RunConfig};
use crossfade::engine::{Device, device};
use std::fmt::Display;
use std::io::Write;
use std::path::Path;
use std::time::Instant;

/// The global options, put into effect.
pub struct Context {
    /// Where to compute.
    pub device: Device,
    /// Whether results are printed as JSON.
    pub json: bool,
    /// When the program began.
    pub began: Instant,
    quiet: bool,
}

impl Context {
    /// Opens the device and starts the threads.
    pub fn new(global: &Global, began: Instant) -> Result<Self> {
        let device = device(&global.device)?;
        start_threads(global.threads)?;
        Ok(Self { device, json: global.json, began, quiet: global.quiet })
    }

    /// Prints a result: the text for people, or with `--json` the same as one JSON document.
    pub fn print(&self, text: impl Display, json: serde_json::Value) -> Result<()> {
        let mut stdout = std::io::stdout().lock();
        if self.json {
            writeln!(stdout, "{}", serde_json::to_string_pretty(&json)?)?;
        } else {
            writeln!(stdout, "{}", text.to_string().trim_end())?;
        }
        Ok(stdout.flush()?)
    }

    /// Prints one JSON line, for verbs whose output is a stream or is compared line by line.
    pub fn line(&self, json: &impl serde::Serialize) -> Result<()> {
        let mut stdout = std::io::stdout().lock();
        writeln!(stdout, "{}", serde_json::to_string(json)?)?;
        Ok(stdout.flush()?)
    }

    /// Tells something beside the result, on standard error.
    pub fn note(&self, text: impl Display) {
        if !self.quiet {
            // Nothing sensible can be done if standard error is closed.
            let _ = writeln!(std::io::stderr().lock(), "{text}");
        }
    }

    /// A progress bar for `total` things.
    pub fn progress(&self, label: &str, total: u64) -> Progress {
        Progress::new(label, total, self.quiet)
    }
}

/// Sets up the pool that all computation shares.
///
/// Subnormal numbers slow x86 down many times and mean nothing here, so every computing thread treats them as zero.
fn start_threads(threads: Option<u16>) -> Result<()> {
    // SAFETY: nothing in this program, its libraries included, tells a subnormal number from zero: they appear in
    // weights, moments and activations only, where both mean "nothing".
    unsafe { crossfade_kernels::flush_subnormals() };
    rayon::ThreadPoolBuilder::new()
        .num_threads(threads.map_or(0, usize::from))
        // The main thread computes too: it need not hand over every small piece of work and sleep until it is done.
        // No other thread of this program may therefore wait for the pool: with one thread nobody would answer.
        .use_current_thread()
        // SAFETY: as above.
        .start_handler(|_| unsafe { crossfade_kernels::flush_subnormals() })
        .build_global()
        .context("starting the threads")
}

impl Overrides {
    /// The configuration in `path` with the assignments applied.
    pub fn load(&self, path: &Path) -> Result<RunConfig> {
        self.apply(RunConfig::load(path)?)
    }

    /// The configuration of an autoencoder in `path` with the assignments applied.
    pub fn load_autoencoder(&self, path: &Path) -> Result<AutoencoderRun> {
        let config = AutoencoderRun::load(path)?.with_overrides(&self.sets)?;
        Ok(match &self.data_root {
            Some(root) => config.with_data_root(root),
            None => config,
        })
    }

    /// `config` with the assignments applied.
    pub fn apply(&self, config: RunConfig) -> Result<RunConfig> {
        let config = config.with_overrides(&self.sets)?;
        Ok(match &self.data_root {
            Some(root) => config.with_data_root(root),
            None => config,
        })
    }
}
