//! Inpainting (§6.3): the target is the centred square of an image, the condition is the same with a hole.
use super::masks::{Mask, random};
use super::{Example, SampleKey, Task, side_problems};
use crate::data::{Filter, Image, LabelMap, PassOrder, Planes, resize};
use crate::error::{Error, Result};
use crate::rng::Purpose;
use crossfade_math::Problem;
use serde::{Deserialize, Serialize};

/// Inpainting: fills in the part of an image behind a mask.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Inpainting {
    /// Side of the training images in pixels.
    pub size: usize,
    /// Take the masks from the maps of the dataset (white is known) instead of drawing them at random.
    pub mask_files: bool,
    /// Give the network the mask as a fourth channel. The reference only sets the hole to black, which cannot be told
    /// apart from black pixels of the image.
    pub mask_channel: bool,
    /// Factor on the width of the brush that draws random holes. The reference's brush is 12 to 48 pixels wide whatever the
    /// size of the images; 0.25 gives images of 64x64 the holes that it gives images of 256x256.
    pub brush: f64,
}

impl Default for Inpainting {
    fn default() -> Self {
        Self { size: 256, mask_files: false, mask_channel: false, brush: 1.0 }
    }
}

impl Inpainting {
    /// The condition: the image with its hole at −1, and the mask as a fourth channel if `mask_channel` is set.
    pub fn masked(&self, x: &Planes, mask: &Mask) -> Result<Planes> {
        let [c, h, w] = x.shape;
        if (mask.width, mask.height) != (w, h) {
            let sizes = format!("the picture has {w}x{h} pixels, the mask {}x{}", mask.width, mask.height);
            return Err(Error::request(sizes));
        }
        let hidden = x.values.iter().zip(mask.known.iter().cycle());
        let mut values: Vec<f32> = hidden.map(|(&v, &known)| if known { v } else { -1.0 }).collect();
        if self.mask_channel {
            values.extend(mask.known.iter().map(|&known| if known { 1.0 } else { -1.0 }));
        }
        Ok(Planes::new([c + usize::from(self.mask_channel), h, w], values))
    }
}

impl Task for Inpainting {
    fn size(&self) -> Option<[usize; 2]> {
        Some([self.size; 2])
    }
    fn target_channels(&self) -> Option<usize> {
        Some(3)
    }
    fn condition_channels(&self) -> usize {
        3 + usize::from(self.mask_channel)
    }
    fn needs_labels(&self) -> bool {
        self.mask_files
    }
    fn example(&self, image: &Image, label: Option<&LabelMap>, key: &SampleKey) -> Result<Example> {
        let rgb = image.with_channels(3);
        let square = resize(&rgb.centre_square(), self.size, self.size, Filter::Bicubic, PassOrder::HorizontalFirst);
        // The mask is not flipped with the image, as in the reference.
        let mask = match (self.mask_files, label) {
            (true, Some(label)) => Mask::from_label(&label.nearest(self.size, self.size)),
            (true, None) => return Err(Error::request("has no mask; use a set of images with masks")),
            (false, _) => random(&mut key.stream(Purpose::Mask), self.size, self.size, self.brush),
        };
        let target = Planes::from_image(&square).flipped(key.flip);
        let condition = Some(self.masked(&target, &mask)?);
        Ok(Example { target, condition })
    }
    fn validate(&self) -> Vec<Problem> {
        let mut problems = side_problems("size", self.size, 1);
        let fits = self.brush > 0.0 && self.brush <= 100.0;
        let message = format!("must be positive and at most 100, not {}", self.brush);
        Problem::require(&mut problems, fits, "brush", message);
        problems
    }
}
