//! What every verb uses: the device, the thread pool, printing and progress.
use crate::cli::{Global, Overrides};
use crate::progress::Progress;
use anyhow::{Context as _, Result};
use crossfade::config::{AutoencoderRun, RunConfig};
use crossfade::engine::{Device, device};
use crossfade::error::visible_lines;
use std::fmt::Display;
use std::io::Write;
use std::path::Path;
use std::time::Instant;

/// The effect of the global options.
pub struct Context {
    /// The device to compute on.
    pub device: Device,
    /// Whether results are printed as JSON.
    pub json: bool,
    /// When the program started; `sample` reports the time from there to the first network evaluation.
    pub began: Instant,
    quiet: bool,
    /// Whether this process prints results; of several ranks the first one does.
    prints: bool,
}

impl Context {
    /// Opens the device, for the thread that calls this.
    pub fn new(global: &Global, name: &str, began: Instant) -> Result<Self> {
        let device = device(name)?;
        // SAFETY: as in `start_threads`.
        unsafe { crossfade_kernels::flush_subnormals() };
        let prints = crossfade::ranks::current().is_first();
        Ok(Self { device, json: global.json, began, quiet: global.quiet || !prints, prints })
    }

    /// Prints a result on standard output: as text, or with `--json` as one JSON document.
    pub fn print(&self, text: impl Display, json: serde_json::Value) -> Result<()> {
        if !self.prints {
            return Ok(());
        }
        if self.json {
            write_out(&(serde_json::to_string_pretty(&json)? + "\n"))
        } else {
            write_out(&format!("{}\n", visible_lines(text.to_string().trim_end())))
        }
    }

    /// Prints one line of JSON, for verbs that print a stream of results.
    pub fn line(&self, json: &impl serde::Serialize) -> Result<()> {
        if !self.prints {
            return Ok(());
        }
        write_out(&(serde_json::to_string(json)? + "\n"))
    }

    /// Prints a note on standard error, unless `--quiet` is given.
    pub fn note(&self, text: impl Display) {
        if !self.quiet {
            // If standard error is closed there is nowhere left to report that.
            let _ = writeln!(std::io::stderr().lock(), "{}", visible_lines(&text.to_string()));
        }
    }

    /// A progress bar over `total` items, called `label`.
    pub fn progress(&self, label: &str, total: u64) -> Progress {
        Progress::new(label, total, self.quiet)
    }
}

/// Writes to standard output, which may be a file on a full disk.
pub fn write_out(text: &str) -> Result<()> {
    let mut stdout = std::io::stdout().lock();
    let written = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
    written.context("writing to standard output")
}

/// Sets up the one thread pool that all computation shares; `own_threads` if the verb computes in threads of its own.
///
/// Arithmetic with subnormal numbers is many times slower on x86, and they carry no information here, so every computing
/// thread treats them as zero.
pub fn start_threads(threads: Option<u16>, own_threads: bool) -> Result<()> {
    let mut pool = rayon::ThreadPoolBuilder::new().num_threads(threads.map_or(0, usize::from));
    if !own_threads {
        // The main thread is part of the pool, so that it does not hand over every small piece of work and sleep until
        // it is done. Pitfall: no other thread may then wait for the pool, because with --threads 1 that would deadlock.
        pool = pool.use_current_thread();
    }
    pool
        // SAFETY: no code in this program or its libraries depends on the difference between a subnormal number and zero:
        // they occur only in weights, optimiser moments and activations, where both are negligible.
        .start_handler(|_| unsafe { crossfade_kernels::flush_subnormals() })
        .build_global()
        .context("starting the thread pool")
}

impl Overrides {
    /// The configuration in the file `path` with the overrides applied.
    pub fn load(&self, path: &Path) -> Result<RunConfig> {
        self.apply(RunConfig::load(path)?)
    }

    /// The configuration of an autoencoder in the file `path` with the overrides applied.
    pub fn load_autoencoder(&self, path: &Path) -> Result<AutoencoderRun> {
        let config = AutoencoderRun::load(path)?.with_overrides(&self.sets)?;
        Ok(match &self.data_root {
            Some(root) => config.with_data_root(root),
            None => config,
        })
    }

    /// `config` with the overrides applied.
    pub fn apply(&self, config: RunConfig) -> Result<RunConfig> {
        let config = config.with_overrides(&self.sets)?;
        Ok(match &self.data_root {
            Some(root) => config.with_data_root(root),
            None => config,
        })
    }
}
