//! Saliency (§6.5): image and mask are resized to a square without keeping the aspect ratio.
use super::{Example, Fitting, SampleKey, Task, required_label, resized_square, side_problems};
use crate::data::{Image, LabelMap};
use crate::error::Result;
use crossfade_math::Problem;
use serde::{Deserialize, Serialize};

/// Salient object detection: which pixels of an image draw attention.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Saliency {
    /// Side of the training images in pixels.
    pub size: usize,
}

impl Default for Saliency {
    fn default() -> Self {
        Self { size: 384 }
    }
}

impl Task for Saliency {
    fn size(&self) -> Option<[usize; 2]> {
        Some([self.size; 2])
    }
    fn target_channels(&self) -> Option<usize> {
        Some(1)
    }
    fn condition_channels(&self) -> usize {
        3
    }
    fn needs_labels(&self) -> bool {
        true
    }
    fn fitting(&self) -> Fitting {
        Fitting::Resized
    }
    fn example(&self, image: &Image, label: Option<&LabelMap>, key: &SampleKey) -> Result<Example> {
        let mask = required_label(label, image, "mask")?.to_image();
        let square = |image: &Image| resized_square(image, self.size, key.flip);
        Ok(Example { target: square(&mask), condition: Some(square(&image.with_channels(3))) })
    }
    fn validate(&self) -> Vec<Problem> {
        side_problems("size", self.size, 1)
    }
}
