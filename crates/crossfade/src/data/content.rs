//! Tells sets of images apart by their content.
use super::Dataset;
use crate::digest::Hasher;
use crate::error::Result;
use rayon::prelude::*;

/// Images of a set that are compared by their content; of a larger set, as many that are spread over it.
const COMPARED: usize = 1024;

/// The digest of a set of images, by which others of the same description are told apart: the number of images, all names and
/// classes, and pixels and maps of `COMPARED` images.
pub fn content_digest(set: &dyn Dataset) -> Result<String> {
    let content = |index: usize| -> Result<String> {
        let mut hasher = Hasher::default();
        let image = set.get(index)?;
        hasher.update(format!("{index} {} {} {}", image.width, image.height, image.channels));
        hasher.update(&image.pixels);
        if let Some(map) = set.label(index)? {
            hasher.update(format!("map {} {}", map.width, map.height));
            map.values.iter().for_each(|value| hasher.update(value.to_le_bytes()));
        }
        Ok(hasher.finish())
    };
    let (count, compared) = (set.len(), set.len().min(COMPARED));
    let contents = (0..compared).into_par_iter().map(|k| content(k * count / compared)).collect::<Result<Vec<_>>>()?;
    let mut hasher = Hasher::default();
    hasher.update(format!("{count} images"));
    contents.iter().for_each(|content| hasher.update(content));
    (0..count).for_each(|index| hasher.update(format!("{:?}", set.name(index))));
    if let Some(classes) = set.classes()? {
        hasher.update(format!("{:?}", classes.names));
        classes.of.iter().for_each(|class| hasher.update(class.to_le_bytes()));
    }
    Ok(hasher.finish())
}
