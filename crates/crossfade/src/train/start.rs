//! The start of a run: in a new directory, or from the newest checkpoint.
use crate::checkpoint::{self, RunDir};
use crate::error::{Error, Result, Shown};
use std::path::Path;

/// A fresh state, or that of the newest checkpoint that can be read; also returns the errors of checkpoints that cannot. A
/// checkpoint of another configuration is an error and is not skipped.
pub fn start<S>(
    dir: &RunDir,
    resume: bool,
    fresh: impl FnOnce() -> Result<S>,
    resumed: impl Fn(&Path) -> Result<S>,
) -> Result<(S, Vec<String>)> {
    let checkpoints = dir.checkpoints();
    let found = checkpoint::list(&checkpoints)?;
    if let (false, Some((step, _))) = (resume, found.last()) {
        return Err(Error::request(format!(
            "{} already holds a run with {step} steps; go on with --resume or choose another directory",
            dir.0.shown()
        )));
    }
    let mut passed_over = vec![];
    // Newest first: if a file is damaged, for example by a full disk, only the steps since the one before are lost.
    for (_, path) in found.iter().rev() {
        match resumed(path) {
            Ok(state) => return Ok((state, passed_over)),
            Err(e @ (Error::Request(_) | Error::Config(_))) => return Err(e),
            Err(e) => passed_over.push(e.to_string()),
        }
    }
    if !passed_over.is_empty() {
        let all = passed_over.join("\n");
        return Err(Error::Run(format!("no checkpoint in {} can be read:\n{all}", checkpoints.shown())));
    }
    // Nothing is written yet, so that a failed start leaves no directory behind: the loop does it.
    Ok((fresh()?, passed_over))
}
