//! The held-out images of a task, their targets, and their hash.
use crate::data::{Dataset, Image};
use crate::digest::Hasher;
use crate::error::{Error, Result};
use crate::task::{SampleKey, Task};

/// The random key of held-out image k. Its crop and its hole depend on k alone, so that all models and seeds get the
/// same input.
pub(super) fn held_out_draw(k: u64) -> SampleKey {
    SampleKey { seed: 0, counter: k, flip: false }
}

/// The targets of the first `count` held-out images, as a set to compare outputs with.
pub(super) struct HeldOutTargets<'a> {
    pub images: &'a dyn Dataset,
    pub task: &'a dyn Task,
    pub count: usize,
}

impl Dataset for HeldOutTargets<'_> {
    fn len(&self) -> usize {
        self.count
    }

    fn get(&self, index: usize) -> Result<Image> {
        let label = self.images.label(index)?;
        let pair = self.task.example(&self.images.get(index)?, label.as_ref(), &held_out_draw(index as u64))?;
        let condition = pair.condition.ok_or_else(|| Error::request("the task has no condition; see [task]"))?;
        // x_0 may not be an image, but for example the residual to an interpolated image.
        Ok(self.task.output(pair.target, &condition).to_image())
    }

    fn name(&self, index: usize) -> String {
        format!("target of {}", self.images.name(index))
    }

    fn describe(&self) -> String {
        format!("{} targets of {}", self.count, self.images.describe())
    }
}

/// SHA-256 of the sizes, bytes and maps of the first `count` images; it identifies the set wherever it is stored.
pub(super) fn hash_images(images: &dyn Dataset, count: usize) -> Result<String> {
    let mut hasher = Hasher::default();
    for k in 0..count {
        let image = images.get(k)?;
        hasher.update(format!("{}x{}x{};", image.width, image.height, image.channels));
        hasher.update(&image.pixels);
        if let Some(map) = images.label(k)? {
            hasher.update(map.values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<_>>());
        }
    }
    Ok(hasher.finish())
}
