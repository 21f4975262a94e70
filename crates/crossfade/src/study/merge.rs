//! Directories of shards made one.
use super::cell::{Identity, Record, StudyDir, read, write};
use super::results::{Results, collate};
use crate::data::write_atomic;
use crate::error::{Error, Result};
use std::path::{Path, PathBuf};

/// Brings the results of `shards` together in `out` and writes table, charts and report. What was made by two shards must
/// be the same model; a cell that both have is taken once.
pub fn merge(shards: &[PathBuf], out: &Path) -> Result<Results> {
    let to = StudyDir(out.to_path_buf());
    let records = shards.iter().map(|shard| {
        let none = || Error::file(shard, "holds no study (no study.json)");
        read::<Record>(&StudyDir(shard.clone()).record())?.ok_or_else(none)
    });
    let records: Vec<Record> = records.collect::<Result<_>>()?;
    let Some(first) = records.first() else { return Err(Error::request("nothing to merge")) };
    if let Some(other) = records.iter().position(|record| record.essence() != first.essence()) {
        let (a, b) = (shards[0].display(), shards[other].display());
        return Err(Error::request(format!("{a} and {b} are not parts of one study: their study.json differ")));
    }
    to.create()?;
    write(&to.record(), first)?;
    for shard in shards {
        let from = StudyDir(shard.clone());
        for model in &first.study.model {
            let slug = crate::config::slug(&model.name);
            let Some(identity) = read::<Identity>(&from.identity(&slug))? else { continue };
            match read::<Identity>(&to.identity(&slug))? {
                Some(known) if !known.is_same(&identity) => {
                    let problem = format!("the model {} has other weights than in another shard", model.name);
                    return Err(Error::file(shard, problem));
                }
                Some(_) => (),
                None => write(&to.identity(&slug), &identity)?,
            }
        }
        for below in ["cells", "sheets"] {
            copy(&shard.join(below), &out.join(below))?;
        }
    }
    let results = collate(&to)?;
    results.save(&to)?;
    Ok(results)
}

/// Copies the files that are not there yet: their names say what they hold.
fn copy(from: &Path, to: &Path) -> Result<()> {
    let entries = match std::fs::read_dir(from) {
        Ok(entries) => entries,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(Error::io(from)(e)),
    };
    for entry in entries {
        let entry = entry.map_err(Error::io(from))?;
        let target = to.join(entry.file_name());
        if !target.exists() && !entry.file_name().to_string_lossy().starts_with('.') {
            let path = entry.path();
            write_atomic(&target, &std::fs::read(&path).map_err(Error::io(&path))?)?;
        }
    }
    Ok(())
}
