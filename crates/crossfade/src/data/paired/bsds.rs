//! BSDS (§6.6): images with the boundaries that several people drew, averaged.
use std::path::{Path, PathBuf};

use super::super::mat::{Value, read_mat};
use super::super::{LabelMap, Split};
use super::{directory, matched};
use crate::error::{Error, Result};

/// Images of `images/PART` with `groundTruth/PART/NAME.mat`. As usual in the literature, the validation images are
/// trained on too.
pub fn list(root: &Path, split: Split) -> Result<Vec<(PathBuf, PathBuf)>> {
    let parts: &[&str] = match split {
        Split::Train => &["train", "val"],
        Split::Test => &["test"],
    };
    let inner = |kind: &str| directory(root, &[kind, &format!("data/{kind}"), &format!("BSDS500/data/{kind}")]);
    let (images, truths) = (inner("images")?, inner("groundTruth")?);
    let mut pairs = Vec::new();
    for part in parts.iter().filter(|part| images.join(part).is_dir()) {
        pairs.extend(matched(&images.join(part), |path| {
            let truth = truths.join(part).join(path).with_extension("mat");
            truth.is_file().then_some(truth)
        })?);
    }
    Ok(pairs)
}

/// The share of annotators that drew a boundary through each pixel.
pub fn read(path: &Path) -> Result<LabelMap> {
    let variables = read_mat(path)?;
    let bad = |what: &str| Error::file(path, format!("no BSDS ground truth: {what}"));
    let truth = variables.iter().find(|(name, _)| name == "groundTruth").map(|(_, value)| value);
    let Some(Value::Cell(annotators)) = truth else { return Err(bad("it has no cell array 'groundTruth'")) };
    let mut size = None;
    let mut votes: Vec<u32> = Vec::new();
    for annotator in annotators {
        let boundaries = annotator.field("Boundaries").and_then(Value::numbers).and_then(|numbers| numbers.rows());
        let (height, width, drawn) = boundaries.ok_or_else(|| bad("an annotator has no matrix 'Boundaries'"))?;
        if *size.get_or_insert((height, width)) != (height, width) || drawn.is_empty() {
            return Err(bad("the annotators' matrices differ in size or are empty"));
        }
        votes.resize(drawn.len(), 0);
        votes.iter_mut().zip(drawn).for_each(|(vote, drawn)| *vote += u32::from(drawn != 0.0));
    }
    let (height, width) = size.ok_or_else(|| bad("it has no annotators"))?;
    let total = annotators.len() as u32;
    let share = |vote: u32| ((vote * u32::from(u16::MAX) + total / 2) / total) as u16;
    Ok(LabelMap::new(width, height, votes.into_iter().map(share).collect()))
}
