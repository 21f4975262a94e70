//! Merging the directories of shards.
use super::cell::{CellResult, Identity, Record, StudyDir, read, readable, write};
use super::results::{Results, collate};
use crate::config::Training;
use crate::data::Image;
use crate::error::{Error, Result, Shown};
use crate::files::write_atomic;
use crate::limits;
use std::path::{Path, PathBuf};

/// Merges the results of `shards` into `out` and writes table, charts and report. A model in two shards must have the same
/// weights in both; a cell in two shards is taken once.
pub fn merge(shards: &[PathBuf], out: &Path) -> Result<Results> {
    let to = StudyDir(out.to_path_buf());
    let records = shards.iter().map(|shard| {
        let none = || Error::file(shard, "holds no study (no study.json)");
        read::<Record>(&StudyDir(shard.clone()).record())?.ok_or_else(none)
    });
    let records: Vec<Record> = records.collect::<Result<_>>()?;
    // A shard that only trained may not know the weights of the metric, so the record with the most facts is taken.
    let Some((complete, first)) = records.iter().enumerate().max_by_key(|(_, record)| record.facts.len()) else {
        return Err(Error::request("nothing to merge"));
    };
    if let Some(other) = records.iter().position(|record| !record.continues(first)) {
        let (a, b) = (shards[complete].shown(), shards[other].shown());
        return Err(Error::request(format!("{a} and {b} are not parts of one study: their study.json differ")));
    }
    first.study.validate()?;
    // All shards are checked before anything is written.
    let mut identities: Vec<(String, Identity)> = vec![];
    for Training { name, slug, .. } in first.study.trainings() {
        let mut known: Option<Identity> = None;
        for shard in shards {
            let Some(identity) = readable::<Identity>(&StudyDir(shard.clone()).identity(&slug)) else { continue };
            if known.as_ref().is_some_and(|known| !known.is_same(&identity)) {
                let problem = format!("the model {name} has other weights than in another shard");
                return Err(Error::file(shard, problem));
            }
            known.get_or_insert(identity);
        }
        identities.extend(known.map(|identity| (slug, identity)));
    }
    to.create()?;
    write(&to.record(), first)?;
    for Training { slug, .. } in first.study.trainings() {
        let path = to.identity(&slug);
        match identities.iter().find(|(known, _)| *known == slug) {
            Some((_, identity)) => write(&path, identity)?,
            // An earlier merge into this directory may have included a shard that this one does not.
            None if path.exists() => std::fs::remove_file(&path).map_err(Error::io(&path))?,
            None => (),
        }
    }
    let cell = |path: &Path| readable::<CellResult>(path).is_some();
    for shard in shards {
        copy(&shard.join("cells"), &out.join("cells"), &cell)?;
        copy(&shard.join("sheets"), &out.join("sheets"), &|path| Image::read(path).is_ok())?;
    }
    let results = collate(&to, first.clone())?;
    results.save(&to)?;
    Ok(results)
}

/// Copies complete files over missing or incomplete ones. A file's name is a hash of what its content depends on, so files
/// of the same name have the same content.
fn copy(from: &Path, to: &Path, is_whole: &dyn Fn(&Path) -> bool) -> Result<()> {
    let entries = match std::fs::read_dir(from) {
        Ok(entries) => entries,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(Error::io(from)(e)),
    };
    for entry in entries {
        let entry = entry.map_err(Error::io(from))?;
        let (path, target) = (entry.path(), to.join(entry.file_name()));
        // Temporary files of a write in progress start with a dot.
        let hidden = entry.file_name().to_string_lossy().starts_with('.');
        if !hidden && !is_whole(&target) && is_whole(&path) {
            write_atomic(&target, &limits::read(&path, &limits::IMAGE_FILE)?)?;
        }
    }
    Ok(())
}
