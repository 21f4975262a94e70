//! The log of a run: one JSON line per logged step.
use crate::error::{Error, Result};
use crate::limits::{LOG, read_text_lossy};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

/// An open log.
pub struct Log {
    path: PathBuf,
    file: File,
}

impl Log {
    /// Opens the log of a run that has done `step` steps. Lines of later steps, which an interrupted run has left, are
    /// removed, because these steps are repeated.
    pub fn open(path: &Path, step: u64) -> Result<Self> {
        let kept: String = match path.exists().then(|| read_text_lossy(path, &LOG)) {
            // A damaged line, which a full disk may leave, is dropped like one of a later step.
            Some(text) => text?
                .lines()
                .filter(|line| number(line, "step").is_some_and(|s| s <= step as f64))
                .map(|line| format!("{line}\n"))
                .collect(),
            None => String::new(),
        };
        // Atomic, so that a crash at this moment does not lose the log.
        crate::files::write_atomic(path, kept.as_bytes())?;
        let file = OpenOptions::new().append(true).open(path).map_err(Error::io(path))?;
        Ok(Self { path: path.to_path_buf(), file })
    }

    /// Appends the report of a step.
    pub fn write(&mut self, report: &impl serde::Serialize) -> Result<()> {
        let line = serde_json::to_string(report).map_err(|e| Error::Run(e.to_string()))?;
        writeln!(self.file, "{line}").map_err(Error::io(&self.path))
    }
}

/// Reads (step, loss) of every line.
pub fn read(path: &Path) -> Result<Vec<(f64, f64)>> {
    let text = read_text_lossy(path, &LOG)?;
    Ok(text.lines().filter_map(|line| Some((number(line, "step")?, number(line, "loss")?))).collect())
}

fn number(line: &str, key: &str) -> Option<f64> {
    serde_json::from_str::<serde_json::Value>(line).ok()?.get(key)?.as_f64()
}

/// The duration of the logged steps in seconds, estimated from their speed; none without a log. The speed of a line is
/// taken for all steps since the line before.
pub fn seconds(path: &Path, images_per_step: usize) -> Option<f64> {
    let text = read_text_lossy(path, &LOG).ok()?;
    let (mut last, mut total) = (0.0, 0.0);
    for line in text.lines() {
        let (step, speed) = (number(line, "step")?, number(line, "images_per_second")?);
        total += (step - last) * images_per_step as f64 / speed;
        last = step;
    }
    (total > 0.0).then_some(total)
}
