//! Sketch to photograph (§6.8): the photograph is the target, the sketch is the condition.
use super::{Example, Fitting, SampleKey, Task, required_label, resized_square, side_problems};
use crate::data::{Image, LabelMap, Planes};
use crate::error::Result;
use crossfade_math::Problem;
use serde::{Deserialize, Serialize};

/// Generates a photograph from a sketch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Sketch {
    /// Side of the training images in pixels.
    pub size: usize,
}

impl Default for Sketch {
    fn default() -> Self {
        Self { size: 256 }
    }
}

impl Task for Sketch {
    fn size(&self) -> Option<[usize; 2]> {
        Some([self.size; 2])
    }
    fn target_channels(&self) -> Option<usize> {
        Some(3)
    }
    fn condition_channels(&self) -> usize {
        1
    }
    fn needs_labels(&self) -> bool {
        true
    }
    fn fitting(&self) -> Fitting {
        Fitting::Resized
    }
    fn example(&self, image: &Image, label: Option<&LabelMap>, key: &SampleKey) -> Result<Example> {
        let sketch = required_label(label, image, "sketch")?.to_image();
        let square = |image: &Image| resized_square(image, self.size, key.flip);
        Ok(Example { target: square(&image.with_channels(3)), condition: Some(square(&sketch)) })
    }
    fn condition(&self, x: Planes) -> Result<Planes> {
        // A user's sketch arrives as RGB like every image; the network was trained on one channel.
        Ok(Planes::from_image(&x.to_image().with_channels(1)))
    }
    fn validate(&self) -> Vec<Problem> {
        side_problems("size", self.size, 1)
    }
}
