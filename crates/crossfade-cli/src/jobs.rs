//! Input and output files of verbs that take one image or a folder of images.
use crossfade::data::folder::Folder;
use crossfade::error::Shown;
use crossfade::files;
use crossfade::nn::named::fnv1a;
use crossfade::{Error, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// One image to process.
pub struct ImageJob {
    /// File name, relative to the input folder.
    pub name: PathBuf,
    /// File to read.
    pub from: PathBuf,
    /// PNG file to write.
    pub to: PathBuf,
}

/// Lists one file or the files of a folder. It is an error if an output would overwrite an input, or if two outputs would be
/// the same file.
pub fn list_jobs(input: &Path, output: &Path) -> Result<Vec<ImageJob>> {
    let jobs: Vec<ImageJob> = if input.is_dir() {
        let job = |path: &PathBuf| ImageJob {
            name: path.clone(),
            from: input.join(path),
            to: output.join(path).with_extension("png"),
        };
        Folder::open(input)?.files().iter().map(job).collect()
    } else {
        let name = PathBuf::from(input.file_name().unwrap_or_default());
        let inside = output.join(&name).with_extension("png");
        let to = if output.is_dir() { inside } else { output.to_path_buf() };
        vec![ImageJob { name, from: input.to_path_buf(), to }]
    };
    check_overwrites(&jobs, &[], &[])?;
    Ok(jobs)
}

/// Returns an error if an output would overwrite an input, or if two outputs would be the same file.
///
/// `other_inputs` are files that are read besides the images, such as masks; `other_outputs` holds one further file that is
/// written for each image.
pub fn check_overwrites(jobs: &[ImageJob], other_inputs: &[PathBuf], other_outputs: &[PathBuf]) -> Result<()> {
    let read = jobs.iter().map(|job| &job.from).chain(other_inputs);
    let read: BTreeSet<PathBuf> = read.filter_map(|path| path.canonicalize().ok()).collect();
    let mut written = BTreeMap::new();
    let results =
        jobs.iter().map(|job| (&job.from, &job.to)).chain(jobs.iter().map(|job| &job.from).zip(other_outputs));
    for (from, to) in results {
        if to.canonicalize().is_ok_and(|to| read.contains(&to)) {
            return Err(Error::file(to, "is an input and would be overwritten; choose another output path"));
        }
        let path = std::path::absolute(to).map_err(Error::io(to))?;
        if let Some(first) = written.insert(path, from) {
            let (first, from) = (first.shown(), from.shown());
            let problem = format!("would be written twice, for {first} and for {from}; rename one or write elsewhere");
            return Err(Error::file(to, problem));
        }
    }
    Ok(())
}

impl ImageJob {
    /// The number that the noise of this image is drawn by: a function of its name, so that other files do not matter.
    pub fn number(&self) -> u64 {
        fnv1a(&self.name.to_string_lossy())
    }
}

/// The folders of all outputs; those that stay empty are removed when this is dropped.
pub fn folders(jobs: &[ImageJob]) -> Result<files::Folder> {
    files::Folder::of(jobs.iter().map(|job| job.to.as_path()))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// Masks are inputs too, and images with holes are outputs.
    #[test]
    fn other_inputs_and_outputs_are_checked_too() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        for folder in ["faces", "masks"] {
            std::fs::create_dir(at(folder)).unwrap();
            std::fs::write(at(folder).join("a.png"), "x").unwrap();
        }
        let job = |to: &str| vec![ImageJob { name: "a.png".into(), from: at("faces/a.png"), to: at(to) }];
        let [faces, masks, out] = ["faces/a.png", "masks/a.png", "out/a.png"].map(|name| vec![at(name)]);
        let error = |result: Result<()>| result.unwrap_err().to_string();
        check_overwrites(&job("out/a.png"), &masks, &[at("holes/a.png")]).unwrap();
        assert!(error(check_overwrites(&job("out/a.png"), &masks, &faces)).contains("overwritten"));
        assert!(error(check_overwrites(&job("masks/a.png"), &masks, &[])).contains("overwritten"));
        assert!(error(check_overwrites(&job("out/a.png"), &masks, &out)).contains("written twice"));
    }
}
