//! Which picture becomes which file, for verbs that take one picture or a folder of them.
use crossfade::data::folder::Folder;
use crossfade::{Error, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// One picture to work on.
pub struct Job {
    /// Its name relative to the folder.
    pub name: String,
    /// The file to read.
    pub from: PathBuf,
    /// The PNG to write.
    pub to: PathBuf,
}

/// A file, or the files of a folder; an error if one would be written over an input, or two into one file.
pub fn jobs(input: &Path, output: &Path) -> Result<Vec<Job>> {
    let jobs: Vec<Job> = if input.is_dir() {
        let job = |path: &PathBuf| Job {
            name: path.display().to_string(),
            from: input.join(path),
            to: output.join(path).with_extension("png"),
        };
        Folder::open(input)?.files().iter().map(job).collect()
    } else {
        let name = input.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        let inside = output.join(&name).with_extension("png");
        let to = if output.is_dir() { inside } else { output.to_path_buf() };
        vec![Job { name, from: input.to_path_buf(), to }]
    };
    keep_apart(&jobs, &[], &[])?;
    Ok(jobs)
}

/// An error if a result would be written over an input, or two into one file. `others` are read beside the pictures;
/// `more` is written beside the results, a file for each picture.
pub fn keep_apart(jobs: &[Job], others: &[PathBuf], more: &[PathBuf]) -> Result<()> {
    let read = jobs.iter().map(|job| &job.from).chain(others);
    let read: BTreeSet<PathBuf> = read.filter_map(|path| path.canonicalize().ok()).collect();
    let mut written = BTreeMap::new();
    let results = jobs.iter().map(|job| (&job.from, &job.to)).chain(jobs.iter().map(|job| &job.from).zip(more));
    for (from, to) in results {
        if to.canonicalize().is_ok_and(|to| read.contains(&to)) {
            return Err(Error::file(to, "is an input and would be written over; choose another place for the results"));
        }
        let place = std::path::absolute(to).map_err(Error::io(to))?;
        if let Some(first) = written.insert(place, from) {
            let (first, from) = (first.display(), from.display());
            let problem = format!("would be written twice, from {first} and {from}; choose other names or places");
            return Err(Error::file(to, problem));
        }
    }
    Ok(())
}

/// Makes the folder that a file will lie in.
pub fn make_folder_of(file: &Path) -> Result<()> {
    match file.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        Some(folder) => std::fs::create_dir_all(folder).map_err(Error::io(folder)),
        None => Ok(()),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// Masks are inputs too, and pictures with holes are results.
    #[test]
    fn what_is_beside_pictures_is_kept_apart_as_well() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        for folder in ["faces", "masks"] {
            std::fs::create_dir(at(folder)).unwrap();
            std::fs::write(at(folder).join("a.png"), "x").unwrap();
        }
        let job = |to: &str| vec![Job { name: "a.png".into(), from: at("faces/a.png"), to: at(to) }];
        let [faces, masks, out] = ["faces/a.png", "masks/a.png", "out/a.png"].map(|name| vec![at(name)]);
        let error = |result: Result<()>| result.unwrap_err().to_string();
        keep_apart(&job("out/a.png"), &masks, &[at("holes/a.png")]).unwrap();
        assert!(error(keep_apart(&job("out/a.png"), &masks, &faces)).contains("written over"));
        assert!(error(keep_apart(&job("masks/a.png"), &masks, &[])).contains("written over"));
        assert!(error(keep_apart(&job("out/a.png"), &masks, &out)).contains("written twice"));
    }
}
