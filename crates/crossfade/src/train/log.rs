//! The log of a run: one JSON line per logged step.
use crate::error::{Error, Result};
use crate::files::write_whole;
use crate::limits::{LOG, lines};
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
        let before = if path.exists() { Some(lines(path, &LOG)?) } else { None };
        // Atomic, so that a crash at this moment does not lose the log.
        write_whole(path, |file| {
            before.into_iter().flatten().try_for_each(|line| match line? {
                // A damaged line, which a full disk may leave, is dropped like one of a later step.
                line if number(&line, "step").is_some_and(|s| s <= step as f64) => writeln!(file, "{line}"),
                _ => Ok(()),
            })
        })?;
        let file = OpenOptions::new().append(true).open(path).map_err(Error::io(path))?;
        Ok(Self { path: path.to_path_buf(), file })
    }

    /// Appends the report of a step.
    pub fn write(&mut self, report: &impl serde::Serialize) -> Result<()> {
        let line = serde_json::to_string(report).map_err(|e| Error::Run(e.to_string()))? + "\n";
        // At once, so that a kill does not cut it.
        self.file.write_all(line.as_bytes()).map_err(Error::io(&self.path))
    }
}

/// Reads (step, loss) of every line.
pub fn read(path: &Path) -> Result<Vec<(f64, f64)>> {
    let points = lines(path, &LOG)?.filter_map(|line| match line {
        Ok(line) => Some(Ok((number(&line, "step")?, number(&line, "loss")?))),
        Err(e) => Some(Err(Error::io(path)(e))),
    });
    points.collect()
}

fn number(line: &str, key: &str) -> Option<f64> {
    serde_json::from_str::<serde_json::Value>(line).ok()?.get(key)?.as_f64()
}

/// The duration of the logged steps in seconds, estimated from their speed; none without a log. The speed of a line is
/// taken for all steps since the line before.
pub fn seconds(path: &Path, images_per_step: usize) -> Option<f64> {
    let (mut last, mut total) = (0.0, 0.0);
    for line in lines(path, &LOG).ok()? {
        let line = line.ok()?;
        let (step, speed) = (number(&line, "step")?, number(&line, "images_per_second")?);
        total += (step - last) * images_per_step as f64 / speed;
        last = step;
    }
    (total > 0.0).then_some(total)
}
