//! Which picture becomes which file, for verbs that take one picture or a folder of them.
use crossfade::data::folder::Folder;
use crossfade::{Error, Result};
use std::collections::BTreeSet;
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
    let read: BTreeSet<PathBuf> = jobs.iter().filter_map(|job| job.from.canonicalize().ok()).collect();
    let mut written = BTreeSet::new();
    for Job { from, to, .. } in &jobs {
        if to.canonicalize().is_ok_and(|to| read.contains(&to)) {
            return Err(Error::file(to, "is an input and would be written over; choose another place for the results"));
        }
        if !written.insert(to) {
            let problem = format!("would be written twice, the second time from {}; rename it", from.display());
            return Err(Error::file(to, problem));
        }
    }
    Ok(jobs)
}

/// Makes the folder that a file will lie in.
pub fn make_folder_of(file: &Path) -> Result<()> {
    match file.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        Some(folder) => std::fs::create_dir_all(folder).map_err(Error::io(folder)),
        None => Ok(()),
    }
}
