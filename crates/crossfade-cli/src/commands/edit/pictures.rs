//! The pictures that are edited, and the files that they become.
use super::EditArgs;
use crate::jobs::{ImageJob, check_overwrites, list_jobs};
use anyhow::Result;
use crossfade::Error;
use std::path::{Path, PathBuf};

/// One picture to edit.
pub struct Picture {
    /// The file to read.
    pub from: PathBuf,
    /// The files to write.
    pub to: Vec<PathBuf>,
    /// The folder of several files, with a contact sheet.
    pub folder: Option<PathBuf>,
    /// The index of the noise of the first file; the others follow.
    pub first: u64,
}

/// What to read and what to write for each picture; an error if an output is an input.
pub fn pictures(args: &EditArgs) -> Result<Vec<Picture>> {
    let count = args.count.unwrap_or(if args.to.is_some() { 9 } else { 1 });
    let in_folder = args.input.is_dir();
    if in_folder && (args.to.is_some() || args.noise.is_some()) {
        return Err(Error::file(&args.input, "is a folder; --to and --noise are for one picture").into());
    }
    let is_series = args.to.is_some() || count > 1;
    if !in_folder && !is_series && args.output.is_dir() {
        return Err(Error::file(&args.output, "is a folder; give the name of a PNG file").into());
    }
    let series = |folder: &Path| (0..count).map(|k| folder.join(format!("{k:06}.png"))).collect::<Vec<_>>();
    let jobs = match in_folder {
        true => list_jobs(&args.input, &args.output)?,
        false => vec![ImageJob { name: PathBuf::new(), from: args.input.clone(), to: args.output.clone() }],
    };
    let picture = |job: ImageJob| {
        // The noise of a picture in a folder belongs to its name, so that other files in the folder do not matter.
        let first = if in_folder { job.number() } else { 0 };
        let ImageJob { from, to, .. } = job;
        let folder = is_series.then(|| if in_folder { to.with_extension("") } else { to.clone() });
        let to = folder.as_deref().map_or_else(|| vec![to], series);
        Picture { first, from, to, folder }
    };
    let pictures: Vec<Picture> = jobs.into_iter().map(picture).collect();
    let job = |from: &PathBuf, to: PathBuf| ImageJob { name: PathBuf::new(), from: from.clone(), to };
    let mut written: Vec<ImageJob> = vec![];
    for Picture { from, to, folder, .. } in &pictures {
        let sheet = folder.iter().map(|folder| folder.join("sheet.png"));
        written.extend(to.iter().cloned().chain(sheet).map(|to| job(from, to)));
    }
    written.extend(args.noise.iter().map(|noise| job(&args.input, noise.clone())));
    check_overwrites(&written, args.to.as_slice(), &[])?;
    Ok(pictures)
}
